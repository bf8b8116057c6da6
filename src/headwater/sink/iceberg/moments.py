"""Which snapshots of Iceberg tables belong together: those that show the source at one position."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headwater.lake.sink import TableSnapshot
from headwater.lake.stream import P
from headwater.sink.iceberg.reader import ReadTable, read_by
from headwater.sink.iceberg.standing import IcebergStanding, Stretch, showing, stretches

__all__ = ["snapshots_at", "together"]


def snapshots_at(source: str, standings: Mapping[int, IcebergStanding[P]], at: P) -> dict[int, TableSnapshot[P]]:
    """A snapshot of each table: all show the source at the newest position, at or below the given one, that they can.

    A table that has not come as far does not keep the others back.
    """
    known = {oid: stretches(each, source) for oid, each in standings.items()}
    there = together([known[oid] for oid, each in standings.items() if each.position >= at], at)
    found = {}
    for oid, each in standings.items():
        if (stretch := showing(known[oid], there)) is not None:
            lines = read_by(each.name, ReadTable(each.table.metadata_location, stretch.snapshot_id))
            found[oid] = TableSnapshot(each.name, stretch.snapshot_id, min(there, stretch.last), lines)
    return found


def together(tables: Sequence[Sequence[Stretch[P]]], at: P) -> P:
    """The newest position, at or below the given one, at which every table that has a snapshot there is exact."""
    while True:
        shown = [stretch for each in tables if (stretch := showing(each, at)) is not None]
        lowest = min((stretch.last for stretch in shown), default=at)
        if lowest >= at:
            return at
        at = lowest
