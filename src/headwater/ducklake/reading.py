"""Queries on a lake's catalog: a few for each question, however many tables and files there are."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any

import numpy as np

from headwater.change import TableName
from headwater.ducklake.catalog import Transaction
from headwater.ducklake.model import (
    Field,
    LakeTable,
    LiveDeleteFile,
    LiveFile,
    Partitioning,
    PartitionKey,
    RowNumbers,
    Snapshot,
    TableStats,
)

__all__ = [
    "COLUMNS_EVER",
    "COLUMN_ORDER",
    "LIVE_TABLES",
    "NEWEST_SNAPSHOT",
    "columns_at",
    "commits",
    "delete_file_of",
    "first_schema",
    "found_tables",
    "inlined_delete_counts",
    "live_files",
    "live_tables",
    "mapped_names",
    "names_at",
    "newest_snapshot",
    "next_column_id",
    "partitionings",
    "partitions_of_files",
    "relations",
    "resolved",
    "schema_path",
    "schemas",
    "table_at",
    "table_paths",
    "unions",
    "with_inlined_deletes",
]

_UNION = 100  # tables in one UNION ALL; SQLite allows 500
_AT = "{0}begin_snapshot <= %s AND ({0}end_snapshot IS NULL OR {0}end_snapshot > %s)"

Bounds = dict[int, tuple[str | None, str | None]]


NEWEST_SNAPSHOT = (
    "SELECT snapshot_id, schema_version, next_catalog_id, next_file_id FROM ducklake_snapshot"
    " WHERE snapshot_id = (SELECT max(snapshot_id) FROM ducklake_snapshot)"
)


def newest_snapshot(tx: Transaction) -> Snapshot:
    (row,) = tx.rows(NEWEST_SNAPSHOT)
    return Snapshot(*row)


def commits(tx: Transaction) -> list[tuple[int, str | None]]:
    """Every snapshot that the lake still has, the oldest first, with the extra info of its commit."""
    return [
        (id_, extra)
        for id_, extra in tx.rows(
            "SELECT s.snapshot_id, c.commit_extra_info FROM ducklake_snapshot s"
            " LEFT JOIN ducklake_snapshot_changes c ON c.snapshot_id = s.snapshot_id ORDER BY s.snapshot_id"
        )
    ]


def names_at(tx: Transaction, snapshot: int) -> dict[int, TableName]:
    """The names that tables had in a snapshot, by their ids."""
    found = tx.rows(
        "SELECT t.table_id, s.schema_name, t.table_name FROM ducklake_table t"
        f" JOIN ducklake_schema s ON s.schema_id = t.schema_id WHERE {_AT.format('t.')} AND {_AT.format('s.')}",
        *(snapshot,) * 4,
    )
    return {id_: TableName(schema, name) for id_, schema, name in found}


def first_schema(tx: Transaction) -> str:
    """The UUID of the schema that a lake is created with."""
    ((uuid,),) = tx.rows("SELECT schema_uuid FROM ducklake_schema ORDER BY schema_id LIMIT 1")
    return str(uuid)


def next_column_id(tx: Transaction, table_id: int) -> int:
    """One more than any column id that the table ever had; rows of dropped columns stay in the catalog."""
    ((highest,),) = tx.rows("SELECT max(column_id) FROM ducklake_column WHERE table_id = %s", table_id)
    return int(highest or 0) + 1


def schema_path(tx: Transaction, data_path: str, schema: str) -> str | None:
    """The absolute path of a schema, None if there is none."""
    found = tx.rows(
        "SELECT path, path_is_relative FROM ducklake_schema WHERE schema_name = %s AND end_snapshot IS NULL", schema
    )
    return resolved(data_path, *found[0]) if found else None


def schemas(tx: Transaction) -> list[str]:
    return [name for (name,) in tx.rows("SELECT schema_name FROM ducklake_schema WHERE end_snapshot IS NULL")]


def relations(tx: Transaction) -> list[tuple[TableName, int | None, int]]:
    """Every table and view by name, with the table's id (None for a view) and the snapshot that gave it this name."""
    return [
        (TableName(schema, name), id_, since)
        for schema, name, id_, since in tx.rows(
            "SELECT s.schema_name, t.table_name, t.table_id, t.begin_snapshot FROM ducklake_table t"
            " JOIN ducklake_schema s ON s.schema_id = t.schema_id"
            " WHERE t.end_snapshot IS NULL AND s.end_snapshot IS NULL"
            " UNION ALL SELECT s.schema_name, v.view_name, NULL, v.begin_snapshot FROM ducklake_view v"
            " JOIN ducklake_schema s ON s.schema_id = v.schema_id"
            " WHERE v.end_snapshot IS NULL AND s.end_snapshot IS NULL"
        )
    ]


def live_tables(
    tx: Transaction, data_path: str, names: Collection[TableName] | None = None
) -> dict[TableName, LakeTable]:
    """The tables of the newest snapshot that have these names; all, if none are given."""
    wanted = None if names is None else sorted({name.name for name in names})
    named = "" if wanted is None else f" AND t.table_name IN ({', '.join(['%s'] * len(wanted)) or 'NULL'})"
    found = tx.rows(LIVE_TABLES + named, *(wanted or ()))
    columns = tx.rows(f"{COLUMNS_EVER} table_id {{among}} {COLUMN_ORDER}", tx.ids(row[0] for row in found))
    tables = found_tables(tx, data_path, found, columns)
    return tables if names is None else {name: tables[name] for name in names if name in tables}


LIVE_TABLES = (
    "SELECT t.table_id, s.schema_name, t.table_name, s.path, s.path_is_relative, t.path,"
    " t.path_is_relative, t.table_id IN (SELECT table_id FROM ducklake_partition_info WHERE end_snapshot IS NULL),"
    " t.table_id IN (SELECT table_id FROM ducklake_sort_info WHERE end_snapshot IS NULL),"
    " n.record_count, n.next_row_id, n.file_size_bytes"
    " FROM ducklake_table t JOIN ducklake_schema s ON s.schema_id = t.schema_id"
    " LEFT JOIN ducklake_table_stats n ON n.table_id = t.table_id"
    " WHERE t.end_snapshot IS NULL AND s.end_snapshot IS NULL"
)


def found_tables(
    tx: Transaction, data_path: str, found: Sequence[Sequence[Any]], columns: Sequence[Sequence[Any]]
) -> dict[TableName, LakeTable]:
    """What rows of `LIVE_TABLES` come to, with the rows of their columns."""
    divided = any(row[7] for row in found)
    partitioned = partitionings(tx, tx.ids(row[0] for row in found)) if divided else {}
    fields, since = _columns_now(columns)
    tables = {}
    for id_, schema, name, schema_at, schema_relative, table_at, table_relative, _, ordered, *stats in found:
        path = resolved(resolved(data_path, schema_at, schema_relative), table_at, table_relative)
        tables[TableName(schema, name)] = LakeTable(
            *(id_, schema, name, path, fields.get(id_, ()), partitioned.get(id_), bool(ordered), since.get(id_)),
            None if stats[2] is None else TableStats(*stats),
        )
    return tables


def partitionings(tx: Transaction, ids: object) -> dict[int, Partitioning]:
    """How those of these tables are partitioned that are."""
    found: dict[int, dict[int, list[PartitionKey]]] = defaultdict(lambda: defaultdict(list))
    for table_id, id_, column_id, transform in tx.rows(
        "SELECT p.table_id, p.partition_id, c.column_id, c.transform FROM ducklake_partition_info p"
        " JOIN ducklake_partition_column c ON c.partition_id = p.partition_id"
        " WHERE p.end_snapshot IS NULL AND p.table_id {among} ORDER BY c.partition_key_index",
        ids,
    ):
        found[table_id][id_].append(PartitionKey(column_id, transform))
    return {
        table_id: Partitioning(id_, tuple(keys))
        for table_id, partitioning in found.items()
        for id_, keys in partitioning.items()
    }


def table_at(tx: Transaction, data_path: str, which: int | TableName, snapshot: int) -> LakeTable | None:
    """A table as it was in a snapshot, by its id or its name then; None if it was not there."""
    condition, given = ("t.table_id = %s", (which,)) if isinstance(which, int) else _named(which)
    found = tx.rows(
        "SELECT t.table_id, s.schema_name, t.table_name, s.path, s.path_is_relative, t.path, t.path_is_relative"
        " FROM ducklake_table t JOIN ducklake_schema s ON s.schema_id = t.schema_id"
        f" WHERE {condition} AND {_AT.format('t.')} AND {_AT.format('s.')}",
        *given,
        *[snapshot] * 4,
    )
    for id_, schema, name, schema_path, schema_relative, path, relative in found:
        where = resolved(resolved(data_path, schema_path, schema_relative), path, relative)
        return LakeTable(id_, schema, name, where, _columns(tx, tx.ids([id_]), snapshot).get(id_, ()))
    return None


def _named(name: TableName) -> tuple[str, tuple[object, ...]]:
    return "s.schema_name = %s AND t.table_name = %s", tuple(name)


_COLUMN = "table_id, parent_column, column_id, column_name, column_type, nulls_allowed, initial_default"


def _columns(tx: Transaction, ids: object, snapshot: int) -> dict[int, tuple[Field, ...]]:
    """The columns of these tables in a snapshot, by their ids."""
    return _fields(
        tx.rows(
            f"SELECT {_COLUMN} FROM ducklake_column WHERE {_AT.format('')} AND table_id {{among}}"
            " ORDER BY column_order, column_id",
            *(snapshot, snapshot, ids),
        )
    )


COLUMNS_EVER = f"SELECT {_COLUMN}, begin_snapshot, end_snapshot FROM ducklake_column WHERE"
COLUMN_ORDER = "ORDER BY column_order, column_id"


def _columns_now(found: Sequence[Sequence[Any]]) -> tuple[dict[int, tuple[Field, ...]], dict[int, int]]:
    """The columns that tables have by their ids, and the snapshot that last changed them."""
    since: dict[int, int] = defaultdict(int)
    for table_id, *_, begin, end in found:
        since[table_id] = max(since[table_id], begin if end is None else end)
    return _fields([column for *column, _, end in found if end is None]), since


def columns_at(tx: Transaction, ids: object) -> Callable[[int, int], tuple[Field, ...]]:
    """The columns of each of these tables in any snapshot, asked for by the table's id and the snapshot's."""
    rows: dict[int, list[tuple[Any, ...]]] = defaultdict(list)
    for row in tx.rows(
        f"{COLUMNS_EVER} table_id {{among}} {COLUMN_ORDER}",
        ids,
    ):
        rows[row[0]].append(row)

    def at(table_id: int, snapshot: int) -> tuple[Field, ...]:
        valid = [row for *row, begin, end in rows[table_id] if begin <= snapshot and (end is None or end > snapshot)]
        return _fields(valid).get(table_id, ())

    return at


def _fields(columns: Iterable[Sequence[Any]]) -> dict[int, tuple[Field, ...]]:
    """By table, what these rows of `_COLUMN` come to."""
    found: dict[int, list[tuple[Any, ...]]] = defaultdict(list)
    for table_id, *column in columns:
        found[table_id].append(tuple(column))
    return {table_id: _tree(tuple(rows)) for table_id, rows in found.items()}


@lru_cache(maxsize=4096)  # tables with the same columns share them: there may be hundreds of such, in every delivery
def _tree(columns: tuple[tuple[Any, ...], ...]) -> tuple[Field, ...]:
    """One table's columns, each of which names its parent."""
    children: dict[int | None, list[tuple[Any, ...]]] = defaultdict(list)
    for parent, *column in columns:
        children[parent].append(tuple(column))

    def fields(parent: int | None) -> tuple[Field, ...]:
        return tuple(
            Field(id_, name, type_, bool(nullable), fields(id_), default)
            for id_, name, type_, nullable, default in children.get(parent, ())
        )

    return fields(None)


def resolved(base: str, path: str, relative: object) -> str:
    """A path as the catalog stores it, made absolute."""
    return base + path if relative else path


def table_paths(tx: Transaction, data_path: str, table_ids: Collection[int], snapshot: int) -> dict[int, str]:
    found = tx.rows(
        "SELECT t.table_id, s.path, s.path_is_relative, t.path, t.path_is_relative FROM ducklake_table t"
        " JOIN ducklake_schema s ON s.schema_id = t.schema_id"
        f" WHERE t.table_id {{among}} AND {_AT.format('t.')} AND {_AT.format('s.')}",
        tx.ids(table_ids),
        *[snapshot] * 4,
    )
    return {
        table_id: resolved(resolved(data_path, schema_at, schema_relative), table_at, table_relative)
        for table_id, schema_at, schema_relative, table_at, table_relative in found
    }


def live_files(
    tx: Transaction,
    data_path: str,
    table_ids: Collection[int],
    snapshot: int,
    bounds_of: Mapping[int, Collection[int]],
    partitions_of: Collection[int],
) -> list[LiveFile]:
    """The data files of these tables at a snapshot, oldest first, with the bounds and partitions asked for.

    `table_ids` may be a mapping: from the ids to the folders, if these are known.
    """
    ids = tx.ids(table_ids)
    asked = (
        "SELECT f.data_file_id, f.table_id, f.path, f.path_is_relative, f.record_count, f.row_id_start, f.mapping_id,"
        " f.partition_id, d.delete_file_id, d.path, d.path_is_relative, d.format, d.begin_snapshot, d.delete_count"
        f" FROM ducklake_data_file f LEFT JOIN (SELECT * FROM ducklake_delete_file WHERE {_AT.format('')}) d"
        f" ON d.data_file_id = f.data_file_id WHERE f.table_id {{among}} AND {_AT.format('f.')}"
        " ORDER BY f.data_file_id"
    )
    of_columns = {column for each in bounds_of.values() for column in each}
    found, *bounded = tx.answers(
        (asked, (snapshot, snapshot, ids, snapshot, snapshot)),
        *([(_BOUNDS, (ids, tx.ids(of_columns)))] if of_columns else []),
    )
    if not found:
        return []
    paths = table_ids if isinstance(table_ids, Mapping) else table_paths(tx, data_path, table_ids, snapshot)
    inlined = _inlined_deletes(tx, table_ids, snapshot)
    bounds = _bounds(bounded[0] if bounded else (), bounds_of)
    partitions = partitions_of_files(tx, partitions_of)
    names = mapped_names(tx, {row[6] for row in found})
    none = (np.empty(0, np.int64), np.empty(0, np.int64))
    files = []
    for id_, table_id, path, relative, rows, row_id_start, mapping_id, partition_id, *deleted in found:
        where = paths[table_id]
        dead = inlined.get(id_, none)
        files.append(
            LiveFile(
                id_,
                table_id,
                resolved(where, path, relative),
                rows,
                row_id_start,
                mapping_id,
                delete_file_of(where, deleted),
                dead[0],
                dead[1],
                bounds.get(id_, {}),
                *names[mapping_id],
                partition_id,
                partitions.get(id_, ()),
            )
        )
    return files


def delete_file_of(table_path: str, row: Sequence[Any]) -> LiveDeleteFile | None:
    """Of a row with its id, path, whether that is relative, format, snapshot and count; None if it has none."""
    id_, path, relative, format_, begin, count = row
    if id_ is None:
        return None
    return LiveDeleteFile(id_, resolved(table_path, path, relative), format_, begin, count)


def mapped_names(
    tx: Transaction, mappings: Collection[int | None]
) -> Mapping[int | None, tuple[Mapping[int, str], frozenset[int]]]:
    """By mapping: the names of columns in files without field ids, nested ones too, and which are in the path only."""
    names: dict[int | None, dict[int, str]] = {each: {} for each in mappings}
    in_path: dict[int | None, set[int]] = {each: set() for each in mappings}
    asked = set(mappings) - {None}
    for mapping_id, column_id, name, partition in (
        tx.rows(
            "SELECT mapping_id, target_field_id, source_name, is_partition FROM ducklake_name_mapping"
            " WHERE mapping_id {among}",
            tx.ids(each for each in asked if each is not None),
        )
        if asked
        else ()
    ):
        names[mapping_id][column_id] = name
        if partition:
            in_path[mapping_id].add(column_id)
    return {each: (names[each], frozenset(in_path[each])) for each in names}


def partitions_of_files(tx: Transaction, table_ids: Collection[int]) -> dict[int, tuple[str | None, ...]]:
    """By data file, its values for each partition key."""
    found: dict[int, list[str | None]] = defaultdict(list)
    for file_id, value in (
        tx.rows(
            "SELECT data_file_id, partition_value FROM ducklake_file_partition_value WHERE table_id {among}"
            " ORDER BY partition_key_index",
            tx.ids(table_ids),
        )
        if table_ids
        else ()
    ):
        found[file_id].append(value)
    return {file_id: tuple(values) for file_id, values in found.items()}


_BOUNDS = (
    "SELECT data_file_id, table_id, column_id, min_value, max_value FROM ducklake_file_column_stats"
    " WHERE table_id {among} AND column_id {among}"
)


def _bounds(rows: Iterable[Sequence[Any]], bounds_of: Mapping[int, Collection[int]]) -> dict[int, Bounds]:
    found: dict[int, Bounds] = defaultdict(dict)
    for file_id, table_id, column_id, low, high in rows:
        if column_id in bounds_of.get(table_id, ()):
            found[file_id][column_id] = (low, high)
    return found


def unions(tx: Transaction, selects: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """The rows of all these queries, a few of which are asked at once."""
    for start in range(0, len(selects), _UNION):
        yield from tx.rows(" UNION ALL ".join(selects[start : start + _UNION]))


def with_inlined_deletes(tx: Transaction, table_ids: Collection[int]) -> dict[int, str]:
    """The catalog's tables of row numbers that are deleted from files of these tables, as far as there are any."""
    wanted = {table_id: f"ducklake_inlined_delete_{table_id:d}" for table_id in sorted(table_ids)}
    existing = tx.existing(wanted.values())
    return {table_id: name for table_id, name in wanted.items() if name in existing}


def _inlined_deletes(
    tx: Transaction, table_ids: Collection[int], snapshot: int
) -> dict[int, tuple[RowNumbers, RowNumbers]]:
    selects = [
        # Rows of deleted files may stay in these tables; file ids are never reused.
        f"SELECT file_id, row_id, begin_snapshot FROM {name} WHERE begin_snapshot <= {snapshot:d}"
        for name in with_inlined_deletes(tx, table_ids).values()
    ]
    rows = np.fromiter(chain.from_iterable(unions(tx, selects)), np.int64).reshape(-1, 3)  # much faster than `array`
    rows = rows[np.lexsort((rows[:, 1], rows[:, 0]))]
    files, starts = np.unique(rows[:, 0], return_index=True)
    parts = np.split(rows, starts[1:])
    return {int(file): (part[:, 1].copy(), part[:, 2].copy()) for file, part in zip(files, parts, strict=False)}


def inlined_delete_counts(tx: Transaction, table_ids: Collection[int]) -> dict[int, int]:
    """How many inlined deletes each data file has."""
    selects = [
        f"SELECT file_id, count(*) FROM {name} GROUP BY file_id"
        for name in with_inlined_deletes(tx, table_ids).values()
    ]
    return dict(unions(tx, selects))
