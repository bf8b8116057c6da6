"""One Spark task of a copy: ranges of tables → rows in the lake that readers do not see yet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa

from headwater import failpoints
from headwater import merge as merging
from headwater.change import Lsn, Relation
from headwater.copy.reading import Range, one_connection, read_range
from headwater.copy.snapshot import Exported
from headwater.copy.throttle import Throttle
from headwater.lake import history
from headwater.lake.quarantine import Origin, quarantined
from headwater.lake.target import Destination, Part, Target, misfits_of, rows_of
from headwater.merge.outcome import Failed, Failure, Written
from headwater.spark.faults import table_error
from headwater.state import State
from headwater.state.copies import KeptRange
from headwater.values.decode import Bad
from headwater.values.keys import row_keys
from headwater.values.types import LakeType

__all__ = ["CopyRanges", "RangeOfTable"]


class RangeOfTable(NamedTuple):
    """What is copied at once: a range of a table, the types of its columns in the lake, which rows, in which mode."""

    relation: Relation
    range: Range
    kinds: tuple[LakeType, ...]
    where: str | None
    history: bool


@dataclass(frozen=True, slots=True)
class CopyRanges:
    source_url: str
    exported: Exported
    state_url: str
    group: str
    target: Target[Any]
    attempt: str
    rate: float | None = None  # bytes a second; None: as fast as it goes

    def __call__(self, pieces: Sequence[RangeOfTable]) -> Iterator[Written | Failed]:
        """What is done is noted in the state; the answer is what failed, with what was written for nothing."""
        with closing(State.connect(self.state_url)) as state, one_connection():
            for piece in pieces:
                yield from self._copied(piece, state)

    def _copied(self, piece: RangeOfTable, state: State) -> Iterator[Written | Failed]:
        oid, count, throttle = piece.relation.oid, 0, Throttle(self.rate)
        bad: list[pa.Table] = []

        def rows() -> Iterator[tuple[pa.Table, None]]:
            nonlocal count
            name = self.exported.snapshot_name
            for batch, misfits in read_range(
                self.source_url, name, piece.relation, piece.range, piece.kinds, piece.where
            ):
                count += batch.num_rows
                throttle.passed(batch.nbytes)
                table = pa.Table.from_batches([batch])
                if misfits:
                    bad.append(self._quarantined(piece, table, misfits))
                failpoints.hit("copy.read", str(piece.relation.table))
                yield _as_history(table, self.exported.lsn) if piece.history else table, None

        reports: list[tuple[Part, bytes]] = []
        try:
            reports += (("rows", each) for each in self.target.write(rows_of(oid), rows()))
            if bad:
                kept = self.target.write(misfits_of(oid), [(table, None) for table in bad])
                reports += (("quarantine", each) for each in kept)
        except Exception as exc:
            yield from (Written(Destination(oid, part), report) for part, report in reports)
            yield Failed(oid, Failure.of(table_error(exc)))
            return
        of, at = piece.range, self.exported.lsn
        done = KeptRange(of.oid, of.first_page, of.end_page, at, count, self.attempt, tuple(reports))
        state.keep_range(self.group, oid, done)
        failpoints.hit("copy.range", str(piece.relation.table))

    def _quarantined(self, piece: RangeOfTable, rows: pa.Table, misfits: dict[int, tuple[Bad, ...]]) -> pa.Table:
        relation = piece.relation
        key = [relation.columns[index].name for index in relation.key]
        bad = {relation.columns[index].name: each for index, each in misfits.items()}
        kinds = dict(zip((column.name for column in relation.columns), piece.kinds, strict=True))
        for name in key if not piece.history else ():
            if name in bad:
                raise merging.unfit_key(str(relation.table), name, kinds[name], bad[name][0])
        keys = row_keys(rows, {name: kinds[name] for name in key}) if not piece.history else None
        numbers = {column.name: column.attnum for column in relation.columns}
        origin = Origin(self.target.source, relation.oid, str(relation.table), numbers)
        return quarantined(origin, rows, key, bad, lambda _: self.exported.lsn, keys)


def _as_history(rows: pa.Table, at: Lsn) -> pa.Table:
    """Copied rows as the first of their history."""
    known = {"_op": "copy", "_commit_lsn": at.value, "_seq": 0}
    head = [pa.repeat(pa.scalar(known.get(field.name), field.type), rows.num_rows) for field in history.SCHEMA]
    return pa.Table.from_arrays([*head, *rows.columns], schema=pa.schema([*history.SCHEMA, *rows.schema]))
