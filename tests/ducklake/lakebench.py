"""A small mirror for tests: finds rows by key as delivery does, plans a commit, and asks DuckDB what came of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from headwater.change import Lsn, TableName
from headwater.ducklake.contents import read_columns
from headwater.ducklake.deletes import INLINE_LIMIT, delete_rows, deleted_positions, end_file
from headwater.ducklake.inlined import LIVE, read_inlined
from headwater.ducklake.inlinedvalues import encoded
from headwater.ducklake.lake import Lake
from headwater.ducklake.model import (
    Advance,
    Alteration,
    DataFile,
    Field,
    FileDeletes,
    InlinedEnds,
    InlinedRows,
    LakeTable,
    LiveFile,
    PlannedCommit,
    Snapshot,
    TableChange,
)
from headwater.ducklake.writing import ROW_ID, ROW_ID_FIELD, TableFolder, write_data_file

COLUMNS = (Field(0, "id", "int64", nullable=False), Field(0, "s", "varchar"))
T = TableName("public", "t")


class Bench:
    """`lake` is ours to write; `sql` asks DuckDB, in which the lake is called `alias` (`{l}` in the SQL)."""

    def __init__(self, lake: Lake, duck: duckdb.DuckDBPyConnection, alias: str) -> None:
        self.lake, self.duck, self.alias = lake, duck, alias
        self.files = lake.filesystem

    def sql(self, query: str) -> list[tuple[Any, ...]]:
        return self.duck.execute(query.replace("{l}", self.alias)).fetchall()

    def table(self, name: TableName = T) -> LakeTable:
        found = self.lake.table(name)
        assert found is not None
        return found

    def rows(self, name: TableName = T, at: int | None = None) -> list[tuple[Any, ...]]:
        """All rows by a scan, after checking that the count from the metadata is the same."""
        where = f'{self.alias}."{name.schema}"."{name.name}"' + (f" AT (VERSION => {at})" if at is not None else "")
        found = self.sql(f"SELECT * FROM {where} ORDER BY 1")
        assert self.sql(f"SELECT count(*) FROM {where}") == [(len(found),)]
        return found

    def changes(self, start: int, end: int | None = None, name: TableName = T) -> list[tuple[Any, ...]]:
        """(snapshot, change, id, s) of table_changes; unfiltered, see hazard 7a."""
        end = self.lake.snapshot().id if end is None else end
        self.sql(f'USE {self.alias}."{name.schema}"')
        try:
            found = self.sql(
                f"SELECT snapshot_id, change_type, id, s FROM {self.alias}.table_changes('{name.name}', {start}, {end})"
            )
        finally:
            self.sql("USE memory.main")
        return sorted(found)

    def create(
        self, rows: Iterable[tuple[Any, ...]] = (), name: TableName = T, columns: Sequence[Field] = COLUMNS
    ) -> int:
        new = self.lake.new_table(name, columns)
        written = self._written(new.path, new.columns, list(rows))
        change = TableChange(name, data_files=written)
        return self.commit(PlannedCommit(self.lake.snapshot(), "pg", new_tables=(new,), changes=(change,)))

    def plan(
        self,
        insert: Sequence[tuple[Any, ...]] = (),
        update: Mapping[int, Any] | None = None,
        delete: Iterable[int] = (),
        *,
        name: TableName = T,
        columns: Sequence[Field] | None = None,
        inline_limit: int = INLINE_LIMIT,
        inlined: bool = False,
    ) -> PlannedCommit:
        """A commit for one table, by key, on the newest snapshot; rows as the table's columns are, or are to be.

        An update names the value of the second column, or all values but the key. `inlined` rows go into the catalog.
        """
        base, table, update = self.lake.snapshot(), self.table(name), update or {}
        columns = table.columns if columns is None else columns
        deletes, row_ids = self._located(table, base, {*update, *delete}, inline_limit)
        ends, inlined_ids = self._located_inlined(table, base, {*update, *delete})
        row_ids |= inlined_ids
        assert set(row_ids) == {*update, *delete}
        rest = {id_: values if isinstance(values, tuple) else (values,) for id_, values in update.items()}
        replacing = [(id_, *values, row_ids[id_]) for id_, values in rest.items()]
        if inlined:
            every = [*((*row, None) for row in insert), *replacing]
            rows = (self._inlined(columns, every),) if every else ()
            change = TableChange(table.id, (), tuple(deletes), inlined=rows, inlined_ends=ends)
            return PlannedCommit(base, "pg", changes=(change,))
        new = self._written(table.path, columns, list(insert))
        changed = self._written(table.path, columns, replacing, with_row_ids=True)
        change = TableChange(table.id, (*new, *changed), tuple(deletes), inlined_ends=ends)
        return PlannedCommit(base, "pg", changes=(change,))

    def apply(self, *args: Any, **kwargs: Any) -> int:
        return self.commit(self.plan(*args, **kwargs))

    def alteration(
        self, columns: Sequence[Field], rename: TableName | None = None, *, name: TableName = T, **rows: Any
    ) -> PlannedCommit:
        """A commit that alters a table, and changes rows as `plan` does, under the new columns."""
        planned = self.plan(name=name, columns=columns, **rows)
        changes = tuple(
            each for each in planned.changes if each.data_files or each.deletes or each.inlined or each.inlined_ends
        )
        return replace(planned, changes=changes, alterations=(Alteration(self.table(name).id, tuple(columns), rename),))

    def alter(self, *args: Any, **kwargs: Any) -> int:
        return self.commit(self.alteration(*args, **kwargs))

    def columns(self, name: TableName = T) -> dict[str, Field]:
        return {field.name: field for field in self.table(name).columns}

    def next_id(self, name: TableName = T) -> int:
        return self.lake.next_column_id(self.table(name).id)

    def commit(self, commit: PlannedCommit) -> int:
        return self.lake.commit(commit)

    def truncation(self, name: TableName = T, insert: Sequence[tuple[Any, ...]] = ()) -> PlannedCommit:
        base, table = self.lake.snapshot(), self.table(name)
        ended = tuple(end_file(TableFolder(self.files, table.path), live) for live in self.lake.files([table.id], base))
        written = self._written(table.path, table.columns, list(insert))
        there = self.lake.inlined_counts([table.id], base).get(table.id, [])
        ends = tuple(InlinedEnds(each.name, each.live) for each in there if each.live)
        change = TableChange(table.id, written, ended, truncate=True, inlined_ends=ends)
        return PlannedCommit(base, "pg", changes=(change,))

    def live(self, name: TableName = T) -> list[LiveFile]:
        return self.lake.files([self.table(name).id], self.lake.snapshot())

    def _written(
        self, path: str, columns: Sequence[Field], rows: list[tuple[Any, ...]], *, with_row_ids: bool = False
    ) -> tuple[DataFile, ...]:
        if not rows:
            return ()
        names = [*[column.name for column in columns], *([ROW_ID] if with_row_ids else [])]
        data = pa.table(dict(zip(names, map(list, zip(*rows, strict=True)), strict=True)))
        return (write_data_file(TableFolder(self.files, path), data, columns, with_row_ids=with_row_ids),)

    def _inlined(self, columns: Sequence[Field], rows: list[tuple[Any, ...]]) -> InlinedRows:
        names = [column.name for column in columns]
        *values, row_ids = map(list, zip(*rows, strict=True))
        table = pa.table(dict(zip(names, values, strict=True)))
        found = encoded(table, columns, self.lake.catalog.dialect)
        assert found is not None
        return InlinedRows(tuple(columns), found, row_ids)

    def _located_inlined(
        self, table: LakeTable, base: Snapshot, keys: set[int]
    ) -> tuple[tuple[InlinedEnds, ...], dict[int, int]]:
        ends: list[InlinedEnds] = []
        row_ids: dict[int, int] = {}
        counts = self.lake.inlined_counts([table.id], base).get(table.id, [])
        for each, there in zip(counts, self.lake.inlined_tables(counts), strict=True):
            with self.lake.reading() as tx:
                found = read_inlined(tx, there, table.columns[:1], LIVE, base.id, base.id)
            here = dict(zip(found.columns[0].to_pylist(), found.ids.to_pylist(), strict=True))
            hits = {key: row_id for key, row_id in here.items() if key in keys}
            row_ids |= hits
            if hits:
                ends.append(InlinedEnds(each.name, len(hits), tuple(hits.values())))
        return tuple(ends), row_ids

    def _located(
        self, table: LakeTable, base: Snapshot, keys: set[int], inline_limit: int
    ) -> tuple[list[FileDeletes], dict[int, int]]:
        deletes, row_ids = [], {}
        wanted = (table.columns[0], Field(ROW_ID_FIELD, ROW_ID, "int64"))
        for live in self.lake.files([table.id], base):
            pieces = [columns for _, columns in read_columns(self.files, live, wanted)]
            ids, lineage = (pa.chunked_array(each).combine_chunks() for each in zip(*pieces, strict=True))
            hit = np.isin(ids.to_numpy(), list(keys))
            hit[deleted_positions(self.files, live)] = False
            positions = np.flatnonzero(hit)
            if not len(positions):
                continue
            for position in positions.tolist():
                row_id = lineage[position].as_py()
                row_ids[ids[position].as_py()] = (live.row_id_start or 0) + position if row_id is None else row_id
            deletes.append(
                delete_rows(
                    TableFolder(self.files, table.path),
                    live,
                    positions,
                    snapshot=base.id + 1,
                    inline_limit=inline_limit,
                )
            )
        return deletes, row_ids


def at(commit: PlannedCommit, oid: int, expected: int | None, new: int, table: int | TableName) -> PlannedCommit:
    """The same commit, which also moves a position."""
    step = Advance(table, None if expected is None else Lsn(expected), Lsn(new))
    return replace(commit, positions={**commit.positions, oid: step})
