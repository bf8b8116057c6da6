"""The Spark plan of a batch: fold, locate, write. It is the same plan for one table and for a thousand.

The rows Spark moves have a fixed shape (`net.CHANGE`), and a change's slot is a function of its table and key, so
all changes of a key meet in one task. The fold itself is done there, in Arrow: Spark's own `max_by` over binary
values falls back to a sort aggregation that took twice as long as shuffle and Arrow together.
Types are met at the two ends only: extracting the key, and decoding the rows that are left to write.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headwater import failpoints
from headwater.merge.batch import Batch
from headwater.merge.scratch import Kept, Scratch
from headwater.merge.spread import slots_for, spread
from headwater.merge.tasks import Append, FoldSlot, Locate, Parse, WriteSlot
from headwater.spark import deal, on_tasks
from headwater.target import Place, Target

__all__ = ["Merged", "merge"]

_CHANGE = "slot int, oid long, key binary, lsn long, seq long, op int, relation long, message binary"
_FOLDED = (
    "slot int, oid long, name string, part int, touched long, low long, high long, truncated boolean, error string"
)
_LOCATED = "slot int, oid long, key binary, row_id long, report binary"
_WRITTEN = "oid long, report binary, error string"

Bounds = tuple[int, int]


@dataclass(slots=True)
class Merged:
    """What the tasks did: the lake's own reports by table, and the tables that could not be done."""

    reports: dict[int, list[bytes]] = field(default_factory=dict)
    truncated: set[int] = field(default_factory=set)
    failed: dict[int, str] = field(default_factory=dict)


def merge(
    spark: SparkSession,
    batch: Batch,
    target: Target[Any],
    places: Callable[[Mapping[int, Bounds | None]], Sequence[Place]],
    scratch: str,
) -> Merged:
    """Fold the batch and write it out through `target`; nothing is visible before its reports are committed.

    `places` is asked for the lake files in which older rows may stand: by table, with the lowest and highest value of
    the key's first column among them, where that is known.
    """
    cores = spark.sparkContext.defaultParallelism
    units = deal(batch.segments, cores)
    if all(mirror.inserts_only for mirror in batch.mirrors.values()):
        # None of these keys can be in the lake: no fold, no shuffle, no search.
        return _collected(on_tasks(spark, units, Append(batch, target), _WRITTEN), Merged())

    rows = sum(mirror.rows for mirror in batch.mirrors.values())
    slots = slots_for(rows, batch.bytes, len(batch.mirrors), cores)
    placed = spread({oid: mirror.rows for oid, mirror in batch.mirrors.items()}, slots)
    with Scratch.opened(scratch) as room:
        changes = on_tasks(spark, units, Parse(batch, placed), _CHANGE).repartitionById(slots, F.col("slot"))
        folded = changes.mapInArrow(FoldSlot(batch, room), _FOLDED).collect()
        failpoints.hit("deliver.folded")
        merged = Merged(
            truncated={row.oid for row in folded if row.truncated},
            failed={row.oid: row.error for row in folded if row.error is not None},
        )
        kept = [Kept(row.slot, row.oid, row.name, row.part) for row in folded if row.oid not in merged.failed]
        # A truncated table's files all go as they are: there is nothing to look for.
        searched = _bounds(row for row in folded if row.oid not in merged.truncated | merged.failed.keys())
        wanted = [(place, place.rows) for place in places(searched)]
        # Every slot must be woken to write, whether rows were found for it or not: the first unit sees to that.
        searches = [range(slots), *deal(wanted, cores)]
        locate = Locate(batch, target, room, placed, tuple(each for each in kept if each.oid in searched))
        located = on_tasks(spark, searches, locate, _LOCATED).repartitionById(slots, F.col("slot"))
        return _collected(located.mapInArrow(WriteSlot(batch, target, room, tuple(kept)), _WRITTEN), merged)


def _bounds(folded: Iterable[Any]) -> dict[int, Bounds | None]:
    """For each table with touched keys, the bounds over all its slots."""
    found: dict[int, Bounds | None] = {}
    for row in folded:
        if row.touched:
            here = None if row.low is None else (row.low, row.high)
            known = found.get(row.oid, here)
            found[row.oid] = here and known and (min(here[0], known[0]), max(here[1], known[1]))
    return found


def _collected(written: DataFrame, merged: Merged) -> Merged:
    for row in written.collect():
        if row.error is not None:
            merged.failed.setdefault(row.oid, row.error)
        else:
            merged.reports.setdefault(row.oid, []).append(bytes(row.report))
    return merged
