"""Which version of a table's columns a message speaks of, as the stream reports it or the catalog proves it."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any

from headwater.capture.evolution import following, same_message
from headwater.capture.staging import Complete, Staging
from headwater.change import Lsn, Relation
from headwater.source.definition import parse

__all__ = ["Describer"]

_logger = logging.getLogger("headwater.capture")


class Describer:
    """Gives Relation messages and definitions their versions. Transactions come one after the other."""

    def __init__(
        self, log: Staging[Any], publication: str, complete: Complete, traced: Callable[[], Lsn | None]
    ) -> None:
        """`traced` is from where on event triggers report every schema change, if they do."""
        self._log, self._publication, self._complete, self._traced = log, publication, complete, traced
        self._latest: dict[int, tuple[Lsn, Relation]] = {}  # by table: of the transaction that was the last to speak

    def described(self, message: Relation, lsn: Lsn, xid: int, id: int | None = None) -> Relation:
        """The version that a Relation message of a transaction means; under that id, if there is one for it."""
        before = self._before(message.oid, lsn)
        since = self._traced()
        if before is not None and since is not None and lsn >= since and same_message(message, before):
            found = before
        else:
            found = self._complete(message, before, xid)
        return self._added(found, lsn, before, id)

    def defined(self, content: bytes, lsn: Lsn, id: int | None = None) -> Relation | None:
        """The version that an event trigger has reported; None if it is of no table of ours."""
        found = json.loads(content)
        if "oid" not in found:
            _logger.warning("an event trigger could not report a schema change: the catalog is read instead")
            self._log.distrust()
            return None
        definition = parse(found)
        if self._publication not in definition.publications:
            return None
        before = self._before(definition.oid, lsn)
        sent = definition.sent(self._publication, generated=False)
        version = following(before, definition.relation(sent), definition.rewrite)
        return self._added(version, lsn, before, id, defined=True)

    def _before(self, oid: int, lsn: Lsn) -> Relation | None:
        if oid in self._latest and self._latest[oid][0] == lsn:
            return self._latest[oid][1]
        newest = self._log.newest(oid, lsn)
        return newest and newest[1]

    def _added(
        self, version: Relation, lsn: Lsn, before: Relation | None, id: int | None, *, defined: bool = False
    ) -> Relation:
        added = self._log.relation(version, lsn, before, id, defined=defined)
        self._latest[added.oid] = lsn, added
        return added
