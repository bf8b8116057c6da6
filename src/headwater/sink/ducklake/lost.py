"""Tables of a DuckLake whose files are gone, though the catalog still has them."""

from __future__ import annotations

from headwater.change import TableName
from headwater.ducklake.lake import Lake
from headwater.ducklake.model import PlannedCommit
from headwater.lake import quarantine
from headwater.lake.stream import P, Stream
from headwater.sink.ducklake.quarantine import AUTHOR
from headwater.sink.ducklake.standing import standings

__all__ = ["drop_quarantine", "lost"]


def lost(lake: Lake, source: str, stream: Stream[P], *, every_file: bool) -> dict[TableName, str]:
    """The mirrors of this source, and the quarantine if it needs one, that have lost a file, and its path."""
    with lake.at_once():
        kept = lake.table(quarantine.NAME) if stream.misfits else None
        tables = [each.table for each in standings(lake, source, stream.position).values()] + ([kept] if kept else [])
    names = {table.id: TableName(table.schema, table.name) for table in tables}
    return {names[id_]: path for id_, path in lake.missing_files(names.keys(), every_file=every_file).items()}


def drop_quarantine(lake: Lake, source: str) -> None:
    """Drop the quarantine; it is created anew when it is needed."""
    if (table := lake.table(quarantine.NAME)) is not None:
        lake.commit(PlannedCommit(lake.snapshot(), source, dropped=(table.id,), author=AUTHOR))
