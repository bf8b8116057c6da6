"""What a lake knows about a group beside its tables: their names, and positions of tables that had no change.

A table's own snapshots say how far it is. One that has had no change since is further, and a snapshot of its own for
each delivery would cost a commit: the group's ledger says it, in one property of the quarantine's table.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from headwater.change import Lsn, TableName

__all__ = ["Ledger", "LedgerEntry", "Replaced", "ledger_key"]


_NOWHERE = Lsn(0)


class Replaced(NamedTuple):
    """A mirror that goes once the copy of another table has landed; the UUID is that of the lake's table."""

    oid: int
    name: TableName
    uuid: str


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """The names that a table may have, and where it stands; that holds while its own snapshots show `own`.

    `copy` is the attempt that was the last to copy it, and `replaced` are the mirrors that go with that.
    """

    names: tuple[TableName, ...]
    own: Lsn = _NOWHERE
    position: Lsn = _NOWHERE
    copy: str = ""
    replaced: tuple[Replaced, ...] = ()

    @property
    def floor(self) -> tuple[Lsn, Lsn] | None:
        return (self.own, self.position) if self.position > self.own else None


@dataclass(frozen=True, slots=True)
class Ledger:
    """By the source's OID."""

    entries: Mapping[int, LedgerEntry] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str | None) -> Ledger:
        return cls(dict(_parsed(json.loads(text)))) if text else cls()

    def __str__(self) -> str:
        return json.dumps({str(oid): _written(each) for oid, each in self.entries.items()})

    def with_entries(self, entries: Mapping[int, LedgerEntry]) -> Ledger:
        return Ledger({**self.entries, **entries})

    def without(self, oids: set[int]) -> Ledger:
        return Ledger({oid: each for oid, each in self.entries.items() if oid not in oids})


def _written(entry: LedgerEntry) -> dict[str, Any]:
    found = {"names": entry.names, "own": str(entry.own), "at": str(entry.position)}
    return found | ({"copy": entry.copy, "replaced": entry.replaced} if entry.replaced else {})


def _parsed(kept: dict[str, dict[str, Any]]) -> Iterator[tuple[int, LedgerEntry]]:
    for oid, each in kept.items():
        names = tuple(TableName(*name) for name in each["names"])
        replaced = tuple(Replaced(old, TableName(*name), uuid) for old, name, uuid in each.get("replaced", ()))
        own, at = Lsn.parse(each["own"]), Lsn.parse(each["at"])
        yield int(oid), LedgerEntry(names, own, at, each.get("copy", ""), replaced)


def ledger_key(source: str) -> str:
    """The property that holds a group's ledger."""
    return f"headwater.ledger.{source}"
