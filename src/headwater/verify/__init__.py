"""Prove the mirror: source and lake at one and the same position, row counts and content, while writes go on."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from headwater.capture import Exported, describe, exported_snapshot
from headwater.capture.copy import Range, balanced, showing
from headwater.change import TableName
from headwater.ducklake.lake import Lake
from headwater.errors import HeadwaterError, TableError, Unreachable
from headwater.flow import Mirroring
from headwater.state import TableRow
from headwater.state.connect import Connection
from headwater.verify.align import aligned
from headwater.verify.compare import Difference, Pair, Sides, compare

__all__ = ["Difference", "Verified", "verify"]

TRIES = 5


@dataclass(frozen=True, slots=True)
class Verified:
    """One table's verdict. A table that is not STREAMING cannot be compared: then `reason` says why."""

    group: str
    table: str
    lake_table: str
    ok: bool
    reason: str = ""
    position: str | None = None
    snapshot_id: int | None = None
    source_rows: int | None = None
    lake_rows: int | None = None
    differences: tuple[Difference, ...] = ()


def verify(m: Mirroring, lake: Lake, only: Collection[TableName], patience: float) -> list[Verified]:
    """Compare a group's tables (all, or only these) with their mirrors in `lake`."""
    for _ in range(TRIES):
        with exported_snapshot(m.source_url) as exported, aligned(m, exported.lsn, patience) as snapshot:
            if snapshot is not None:
                return _compared(m, lake, only, exported, snapshot)
    raise Unreachable(f"the lake of group {m.group!r} did not stop over at an LSN {TRIES} times", hint="try again")


def _compared(
    m: Mirroring, lake: Lake, only: Collection[TableName], exported: Exported, snapshot: int
) -> list[Verified]:
    found: list[Verified] = []
    pairs, rows = {}, {}
    with showing(m.source_url, exported.snapshot_name) as connection:
        for row in m.state.tables(m.group):
            if only and row.source not in only:
                continue
            try:
                pairs[row.oid] = _pair(row, connection, m.spark.sparkContext.defaultParallelism)
                rows[row.oid] = row
            except HeadwaterError as error:
                found.append(Verified(row.group, str(row.source), str(row.lake), ok=False, reason=error.message))
    if not pairs:
        return found
    sides = Sides(m.source_url, exported.snapshot_name, lake.url, lake.s3, snapshot)
    for oid, each in compare(m.spark, sides, pairs).items():
        found.append(
            Verified(
                group=m.group,
                table=str(rows[oid].source),
                lake_table=str(rows[oid].lake),
                ok=each.equal,
                position=str(exported.lsn),
                snapshot_id=snapshot,
                source_rows=each.source_rows,
                lake_rows=each.lake_rows,
                differences=each.differences,
            )
        )
    return found


def _pair(row: TableRow, connection: Connection, cores: int) -> tuple[Pair, list[Range]]:
    """How to compare a table; TableError if it cannot be."""
    if row.state not in ("CATCHUP", "STREAMING"):
        raise TableError(f"is {row.state}" + (f": {row.error}" if row.error else ""))
    relation = describe(connection, row.source)
    if relation.oid != row.oid:
        raise TableError("is another table by now: it was dropped and created again")
    return Pair(relation, row.lake), balanced(connection, row.oid, cores)
