"""What a process that died has left half done in an Iceberg lake, and the next delivery or copy brings to its end."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from headwater.lake.stream import P
from headwater.sink.iceberg.lake import IcebergLake
from headwater.sink.iceberg.ledger import Ledger, LedgerEntry, Replaced
from headwater.sink.iceberg.quarantine import take_back
from headwater.sink.iceberg.standing import COPY

__all__ = ["drop_replaced", "heal"]


def heal(lake: IcebergLake[Any]) -> None:
    """Whoever only reads the lake must not: another process may be about to land its tables."""
    if not lake.healed:
        drop_replaced(lake)
        take_back(lake)
        lake.healed = True


def drop_replaced(lake: IcebergLake[Any]) -> None:
    """Drop the mirrors that a copy has replaced, but for those whose place it took; only if it has landed."""
    landed = {oid: entry for oid, entry in lake.ledger().entries.items() if _has_landed(lake, oid, entry)}
    if not landed:
        return
    places = {str(lake.standings()[oid].table.metadata.table_uuid) for oid in landed}
    replaced = [each for entry in landed.values() for each in entry.replaced]
    for each in replaced:
        if each.uuid not in places:
            _drop(lake, each)
    gone = {each.oid for each in replaced} - landed.keys()

    def settled(ledger: Ledger[P]) -> Ledger[P]:
        entries = {oid: replace(ledger.entries[oid], replaced=()) for oid in landed}
        return ledger.with_entries(entries).without(gone)

    lake.forget()
    lake.note(settled)


def _has_landed(lake: IcebergLake[Any], oid: int, entry: LedgerEntry[Any]) -> bool:
    there = lake.standings().get(oid) if entry.replaced else None
    return there is not None and there.table.metadata.properties.get(COPY) == entry.copy


def _drop(lake: IcebergLake[Any], old: Replaced) -> None:
    """It may have got another name since, to make way for the copy."""
    there = lake.standings().get(old.oid)
    for name in {old.name, there.name if there else old.name}:
        table = lake.catalog.load(name)
        if table is not None and str(table.metadata.table_uuid) == old.uuid:
            lake.dropped.add(old.name, table.metadata.location)
            lake.catalog.drop(name)
