"""A table of a lake as a source of changes: what to read for the next snapshots, planned in bounded pieces."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from headwater.change import TableName
from headwater.ducklake import reading
from headwater.ducklake.catalog import Transaction
from headwater.ducklake.inlined import InlinedTable, inlined_tables, registered
from headwater.ducklake.lake import Lake
from headwater.ducklake.model import LakeTable
from headwater.ducklake.positions import mirrored
from headwater.errors import Outdated, TableError
from headwater.feed import backlog, catalog
from headwater.feed.dating import rewrites
from headwater.feed.inlined import counted
from headwater.feed.planning import Bound, Weights, file_units, inlined_units
from headwater.feed.spans import Moment, Span
from headwater.feed.stored import StoredFile
from headwater.feed.units import Unit
from headwater.lake.mirrored import MirroredColumns

__all__ = ["Bound", "Changes", "SourceTable", "TableAt"]

_UNIT = Bound(500_000, 64 << 20)
_SNAPSHOTS = 10_000  # planned at once, however little is in them


@dataclass(frozen=True, slots=True)
class TableAt:
    """A table as it was in a snapshot."""

    snapshot: int
    table: LakeTable


@dataclass(frozen=True, slots=True)
class Changes:
    """What happened up to a snapshot: units to read in any order, with about so many events in all."""

    upto: TableAt
    units: tuple[Unit, ...]
    rows: int


class SourceTable:
    """A table of a lake, by its name, whoever writes it. Large files are divided into units of about `unit`."""

    def __init__(self, lake: Lake, name: TableName, unit: Bound = _UNIT) -> None:
        self._lake = lake
        self._name = name
        self._unit = unit

    @property
    def name(self) -> TableName:
        return self._name

    def lake_id(self) -> str:
        """What identifies the lake, wherever it is moved."""
        return self._lake.id()

    def key(self, at: TableAt) -> tuple[str, ...]:
        """The columns by which Headwater knows the table's rows, if it is a mirror of ours; else none."""
        with self._lake.reading() as tx:
            text = mirrored(tx, at.table.id)
        found = MirroredColumns.parse(text) if text else MirroredColumns({})
        key = {found.fields[number] for number in found.key}
        return tuple(each.name for each in at.table.columns if each.id in key)

    def oldest(self) -> TableAt:
        """The table in the oldest snapshot that the lake still has of it."""
        newest = self.newest()
        with self._lake.reading() as tx:
            first = backlog.first_retained(tx, newest.table.id)
        return self.at(first) or newest

    def newest(self) -> TableAt:
        """The newest snapshot of the lake, and the table in it; TableError if it is not there.

        Its id tells whether it is the table of another snapshot: dropped and created again, it is a new one.
        """
        with self._lake.reading() as tx:
            snapshot = reading.newest_snapshot(tx).id
            table = reading.table_at(tx, self._lake.data_path, self._name, snapshot)
        if table is None:
            raise TableError(
                f"the lake {self._lake.url} has no table {str(self._name)!r}",
                hint="create it, or correct its name: schema.table, spelled as in the lake",
            )
        return TableAt(snapshot, table)

    def at(self, snapshot: int) -> TableAt | None:
        """The table of that name in a snapshot; None if the snapshot is expired, or the table was not there."""
        with self._lake.reading() as tx:
            if backlog.first_file_after(tx, snapshot) is None:
                return None
            table = reading.table_at(tx, self._lake.data_path, self._name, snapshot)
        return None if table is None else TableAt(snapshot, table)

    def times_after(self, snapshot: int) -> list[tuple[int, datetime]]:
        """The snapshots of the lake after one that are not expired, and when they were committed, in order."""
        with self._lake.reading() as tx:
            return backlog.times_after(tx, snapshot)

    def changes(self, after: int, upto: TableAt, most: Bound) -> Changes:
        """The next changes after a snapshot: those of one snapshot at least, of more while they stay within `most`.

        `after` and `upto` must be retained (see `at`); the snapshots between them need not be (see `spans`). The last
        one that the changes include is retained, so that it can be `after` the next time.
        """
        span = self._next(after, upto, most)
        with self._lake.reading() as tx:
            table = reading.table_at(tx, self._lake.data_path, upto.table.id, span.upto)
            if table is None:
                raise self._outdated(span.upto)
            # Files are found below the folder that the table has now: they stay where they are when it is renamed.
            files = catalog.files_in(tx, upto.table, span)
            rewritten = rewrites(tx, table.id, {each.end for each in files if each.end is not None})
            inlined = self._inlined(tx, table.id, span)
        self._check(files)
        span = replace(span, quiet=self._quiet(files, rewritten))
        units = self._units(files, inlined, span)
        return Changes(TableAt(span.upto, table), tuple(units), sum(each.rows for each in units))

    def scan(self, at: TableAt) -> list[Unit]:
        """All rows that the table has in a snapshot, each as an upsert at that snapshot."""
        moment = Moment(at.snapshot)
        with self._lake.reading() as tx:
            files = catalog.files_at(tx, at.table, moment)
            inlined = self._inlined(tx, at.table.id, moment)
        return self._units(files, inlined, moment)

    def _next(self, after: int, upto: TableAt, most: Bound) -> Span:
        """The snapshots whose changes come next."""
        with self._lake.reading() as tx:
            first_file = backlog.first_file_after(tx, after)
            snapshots = backlog.retained(tx, upto.table.id, after, upto.snapshot, _SNAPSHOTS)
            if first_file is None or not snapshots:
                raise self._outdated(after if first_file is None else upto.snapshot)
            span = Span(after, snapshots[-1], first_file)
            weights = Weights(snapshots)
            for each in backlog.weights(tx, upto.table.id, span):
                weights.add(*each)
            partial = backlog.partial_files(tx, upto.table, span)
        self._weigh(weights, partial, span, most)
        return replace(span, upto=weights.last(most))

    def _weigh(self, weights: Weights, partial: Sequence[StoredFile], span: Span, most: Bound) -> None:
        """Add what is in partial files. They are opened only if it does not all fit anyhow."""
        for file in partial:
            weights.add(span.upto, *file.weight_in(span))
        if not weights.fit(most):
            for file in partial:
                rows, size = file.weight_in(span)
                weights.add(span.upto, -rows, -size)
                for snapshot, count in file.partial_counts(self._lake.filesystem):
                    if span.holds(snapshot):
                        weights.add(snapshot, count, count * file.row_size)

    def _check(self, files: Iterable[StoredFile]) -> None:
        """Refuse deletion vectors: a file's second one replaces the first, and with it what older snapshots show."""
        if any(each.new and each.format == "puffin" for file in files for each in file.delete_files):
            raise TableError(
                f"deletes from {str(self._name)!r} are in deletion vectors, which do not tell when a row was deleted",
                hint="set write_deletion_vectors to false in the lake, call ducklake_rewrite_data_files with"
                " delete_threshold => 0, and then seed the destinations again",
            )

    def _quiet(self, files: Iterable[StoredFile], rewritten: set[int]) -> frozenset[int]:
        """Those of these snapshots in which as many rows began as ended: they only moved to other files.

        Otherwise a file is missing that only expired snapshots showed, or a row was deleted while it was rewritten.
        Then the old rows count as deleted and the new ones as inserted, which comes to the same table.
        """
        moved = Counter[int]()
        for file in files if rewritten else ():
            if file.end in rewritten:
                moved[file.end] -= file.rows_before_end
            if any(file.may_make_rows_at(each) for each in rewritten):
                moved.update(dict(file.made_counts(self._lake.filesystem)))
        return frozenset(each for each in rewritten if moved[each] == 0)

    def _inlined(self, tx: Transaction, table_id: int, span: Span | Moment) -> list[tuple[InlinedTable, int]]:
        tables = inlined_tables(tx, registered(tx, [table_id]))
        return [(table, counted(tx, table, span)) for table in tables]

    def _units(
        self, files: Iterable[StoredFile], inlined: Iterable[tuple[InlinedTable, int]], span: Span | Moment
    ) -> list[Unit]:
        return [
            *file_units(files, span, self._unit, self._lake.s3),
            *inlined_units(self._lake.url, inlined, span, self._unit),
        ]

    def _outdated(self, snapshot: int) -> Outdated:
        return Outdated(
            f"snapshot {snapshot} of the lake {self._lake.url} has expired meanwhile", hint="plan on the newest one"
        )
