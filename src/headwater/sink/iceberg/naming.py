"""Names of mirrors in an Iceberg catalog: each rename is a step of its own, so a swap goes through a third name."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from headwater import failpoints
from headwater.change import TableName
from headwater.errors import HeadwaterError
from headwater.iceberg.catalog import IcebergCatalog, check_name
from headwater.lake.names import Names
from headwater.lake.stream import P
from headwater.sink.iceberg.lake import IcebergLake
from headwater.sink.iceberg.ledger import Ledger, LedgerEntry

__all__ = ["IcebergNames", "rename_later", "rename_mirrors", "third_name"]

logger = logging.getLogger(__name__)


class IcebergNames:
    """Implements `headwater.lake.sink.LakeNames`. The name of a table that has lost its metadata is free."""

    def __init__(self, catalog: IcebergCatalog, free: Collection[TableName]) -> None:
        schemas, tables = catalog.names()
        self._catalog = catalog
        self._schemas, self._tables = schemas, {name for name in tables if name not in free}
        self._names = Names(self._schemas, self._tables)

    def take(self, name: TableName) -> None:
        check_name(name)
        if name in self._tables and self._catalog.load(name) is None:
            self._tables.discard(name)
            self._names = Names(self._schemas, self._tables)
        self._names.take(name)
        self._tables.add(name)


def rename_mirrors(lake: IcebergLake[Any], names: Mapping[int, TableName]) -> None:
    """Give mirrors other names. The ledger has all that a table may have, so a crash between two steps loses none."""
    here = lake.standings()
    wanted = {oid: name for oid, name in names.items() if oid in here and here[oid].name != name}
    if not wanted:
        return
    taken = {each.name for each in here.values()}
    steps = {oid: [name] for oid, name in wanted.items()}
    for oid, name in wanted.items():
        if name in taken:  # by one that gives it up, too
            steps[oid].insert(0, third_name(name))
    _note(lake, {oid: (here[oid].name, *each) for oid, each in steps.items()})
    for oid, each in steps.items():
        if len(each) > 1:
            lake.catalog.rename(here[oid].name, each[0])
            failpoints.hit("iceberg.renaming")
    for oid, each in sorted(steps.items(), key=lambda step: len(step[1])):  # so that taken names are given up first
        lake.catalog.rename(here[oid].name if len(each) == 1 else each[0], each[-1])
        failpoints.hit("iceberg.renaming")
    lake.forget()


def third_name(name: TableName) -> TableName:
    """One that no table has, for a table that is on its way from or to this one."""
    return TableName(name.schema, f"{name.name}-{uuid.uuid4().hex[:8]}")


def rename_later(lake: IcebergLake[Any], names: Mapping[int, TableName]) -> None:
    """The same after a commit that has landed: what cannot be renamed now keeps its name, and is tried again later."""
    try:
        rename_mirrors(lake, names)
    except HeadwaterError as error:
        lake.forget()
        logger.warning("a table of the lake keeps its old name for now: %s", error)


def _note(lake: IcebergLake[Any], names: Mapping[int, tuple[TableName, ...]]) -> None:
    def change(ledger: Ledger[P]) -> Ledger[P]:
        new: LedgerEntry[P] = LedgerEntry(())
        entries = {oid: ledger.entries.get(oid, new) for oid in names}
        return ledger.with_entries({oid: replace(entry, names=names[oid]) for oid, entry in entries.items()})

    lake.note(change)
