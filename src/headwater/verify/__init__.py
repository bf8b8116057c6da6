"""Prove the mirror: source and lake at one and the same position, row counts and content, while writes go on."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from headwater.capture import describe, exported_snapshot
from headwater.capture.copy import balanced, showing
from headwater.change import TableName
from headwater.ducklake.lake import Lake
from headwater.flow import Mirroring
from headwater.state import TableRow
from headwater.verify.align import aligned, ask_for
from headwater.verify.compare import Difference, Pair, Sides, compare

__all__ = ["Difference", "Verified", "ask_for", "verify"]


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
    rows = [row for row in m.state.tables(m.group) if not only or row.source in only]
    found = [_not_streaming(row) for row in rows if row.state not in ("CATCHUP", "STREAMING")]
    rows = [row for row in rows if row.state in ("CATCHUP", "STREAMING")]
    if not rows:
        return found
    with (
        exported_snapshot(m.source_url) as exported,
        aligned(m, exported.lsn, patience) as snapshot,
    ):
        with showing(m.source_url, exported.snapshot_name) as connection:
            cores = m.spark.sparkContext.defaultParallelism
            pairs = {
                row.oid: (Pair(describe(connection, row.source), row.lake), balanced(connection, row.oid, cores))
                for row in rows
            }
        sides = Sides(m.source_url, exported.snapshot_name, lake.url, lake.s3, snapshot)
        for row, each in zip(rows, compare(m.spark, sides, pairs).values(), strict=True):
            found.append(
                Verified(
                    group=row.group,
                    table=str(row.source),
                    lake_table=str(row.lake),
                    ok=each.equal,
                    position=str(exported.lsn),
                    snapshot_id=snapshot,
                    source_rows=each.source_rows,
                    lake_rows=each.lake_rows,
                    differences=each.differences,
                )
            )
    return found


def _not_streaming(row: TableRow) -> Verified:
    reason = f"is {row.state}" + (f": {row.error}" if row.error else "")
    return Verified(row.group, str(row.source), str(row.lake), ok=False, reason=reason)
