"""Rows that are in the catalog itself, in tables of their own, one for each version of a table's columns.

A row is in it from `begin_snapshot` on, and until `end_snapshot` if it has one. Few rows cost less there than a file.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from headwater.ducklake import reading
from headwater.ducklake.catalog import Transaction
from headwater.ducklake.contents import initial_value
from headwater.ducklake.inlinedvalues import decoded, selected
from headwater.ducklake.model import Field, LakeTable
from headwater.ducklake.writing import plain_type
from headwater.lake.casting import fitted
from headwater.lake.sqltext import identifier
from headwater.pickling import pickled_by_fields

__all__ = [
    "LIVE",
    "InlinedCounts",
    "InlinedTable",
    "ReadRows",
    "Registered",
    "columns_shown",
    "inlined_counts",
    "inlined_tables",
    "read_inlined",
    "read_inlined_tables",
    "registered",
]

LIVE = "begin_snapshot <= %s AND (end_snapshot IS NULL OR end_snapshot > %s)"


@pickled_by_fields
@dataclass(frozen=True, slots=True)
class InlinedTable:
    """A table of the catalog that holds rows, with the columns that the lake's table had when it was created."""

    name: str
    columns: tuple[Field, ...]


@dataclass(frozen=True, slots=True)
class Registered:
    """The same as the catalog lists it: of which table of the lake, and since which version of the lake's schema.

    `snapshot` is one that has this version, or the last one before it that DuckDB has registered for the table: it
    registers a version only when the table is altered. `is_newest`: the table has no newer one.
    """

    table_id: int
    name: str
    schema_version: int
    snapshot: int
    is_newest: bool


@dataclass(frozen=True, slots=True)
class InlinedCounts(Registered):
    """The rows of one of these tables: all, also those that have ended, and those that a snapshot shows."""

    rows: int
    live: int


@dataclass(frozen=True, slots=True, eq=False)
class ReadRows:
    """Rows of such a table: the id of each, the snapshots in which it began and ended, and columns."""

    ids: pa.Array
    begun: pa.Array
    ended: pa.Array
    columns: pa.Table


def inlined_counts(tx: Transaction, table_ids: Collection[int], snapshot: int) -> dict[int, list[InlinedCounts]]:
    """The tables of the catalog that hold rows of these ones, oldest first, and how many; alive in a snapshot."""
    there = registered(tx, table_ids)
    counts = dict[str, tuple[int, int]]()
    alive = LIVE.replace("%s", f"{snapshot:d}")
    selects = [
        f"SELECT '{each.name}', count(*), count(CASE WHEN {alive} THEN 1 END) FROM {identifier(each.name)}"
        for each in there
    ]
    for name, rows, live in reading.unions(tx, selects):
        counts[name] = rows, live
    found: dict[int, list[InlinedCounts]] = defaultdict(list)
    for each in there:
        head = each.table_id, each.name, each.schema_version, each.snapshot, each.is_newest
        found[each.table_id].append(InlinedCounts(*head, *counts[each.name]))
    return found


def registered(tx: Transaction, table_ids: Collection[int]) -> list[Registered]:
    """The tables of the catalog that hold, or held, rows of these ones, of each the oldest first."""
    ids = tx.ids(table_ids)
    listed, versions, created = tx.answers(
        (
            "SELECT table_id, table_name, schema_version FROM ducklake_inlined_data_tables WHERE table_id {among}"
            " ORDER BY schema_version",
            (ids,),
        ),
        (
            "SELECT table_id, schema_version, begin_snapshot FROM ducklake_schema_versions WHERE table_id {among}"
            " ORDER BY schema_version, begin_snapshot",
            (ids,),
        ),
        ("SELECT table_id, min(begin_snapshot) FROM ducklake_table WHERE table_id {among} GROUP BY table_id", (ids,)),
    )
    first, known = dict(created), defaultdict[int, list[tuple[int, int]]](list)
    for table_id, version, snapshot in versions:
        known[table_id].append((version, snapshot))
    return [_registered(table_id, name, version, known[table_id], first) for table_id, name, version in listed]


def _registered(
    table_id: int, name: str, version: int, known: Sequence[tuple[int, int]], created: Mapping[int, int]
) -> Registered:
    until = [snapshot for each, snapshot in known if each <= version]
    return Registered(
        table_id, name, version, until[-1] if until else created.get(table_id, 0), len(until) == len(known)
    )


def inlined_tables(
    tx: Transaction, found: Sequence[Registered], now: Mapping[int, LakeTable] | None = None
) -> list[InlinedTable]:
    """Those tables, each with the columns of its version.

    One query for all of them, and none if they have the columns of the lake's tables as they are `now`, by their ids.
    """
    kept = {each.name: now[each.table_id].columns for each in found if now and _has_columns_of(each, now)}
    rest = [each for each in found if each.name not in kept]
    columns = reading.columns_at(tx, tx.ids({each.table_id for each in rest})) if rest else None
    if columns is not None:
        kept |= {each.name: columns(each.table_id, each.snapshot) for each in rest}
    return [InlinedTable(each.name, kept[each.name]) for each in found]


def _has_columns_of(each: Registered, now: Mapping[int, LakeTable]) -> bool:
    since = now[each.table_id].columns_since if each.table_id in now else None
    return since is not None and since <= each.snapshot


def read_inlined(
    tx: Transaction, table: InlinedTable, columns: Sequence[Field], condition: str, *given: object
) -> ReadRows:
    """Rows for which the condition holds, by row id.

    A column is shown as it is now, by rows that may be too old to have it.
    """
    asked = _stored(table, columns)
    head = ["row_id", "begin_snapshot", "end_snapshot"]
    found = tx.rows(
        f"SELECT {', '.join([*head, *map(selected, asked)])} FROM {identifier(table.name)} WHERE {condition}"
        " ORDER BY row_id, begin_snapshot",
        *given,
    )
    values: Sequence[Sequence[Any]] = list(zip(*found, strict=True)) or [()] * (3 + len(asked))
    stored = dict(zip([each.id for each in asked], decoded(values[3:], asked), strict=True))
    shown = pa.table(columns_shown(columns, stored, len(found)), names=[each.name for each in columns])
    ids, begun, ended = (pa.array(column, pa.int64()) for column in values[:3])
    return ReadRows(ids, begun, ended, shown)


def read_inlined_tables(
    tx: Transaction, tables: Sequence[tuple[InlinedTable, tuple[Field, ...]]], snapshot: int
) -> list[ReadRows | None]:
    """Columns of the rows of many such tables that a snapshot shows; None for one that is not there any more.

    Tables whose columns are of the same types are read by one query.
    """
    existing = tx.existing([table.name for table, _ in tables])
    alike: defaultdict[Hashable, list[int]] = defaultdict(list)
    for number, (table, columns) in enumerate(tables):
        if table.name in existing:
            alike[tuple((each.type, each.children) for each in _stored(table, columns))].append(number)
    found: list[ReadRows | None] = [None] * len(tables)
    for numbers in alike.values():
        mine = [tables[number] for number in numbers]
        for number, rows in zip(numbers, _read_alike(tx, mine, snapshot), strict=True):
            found[number] = rows
    return found


def _stored(table: InlinedTable, columns: Sequence[Field]) -> list[Field]:
    """Those of these columns that the table is not too old to have, as they were then."""
    then = {each.id: each for each in table.columns}
    return [then[each.id] for each in columns if each.id in then]


def _read_alike(
    tx: Transaction, tables: Sequence[tuple[InlinedTable, tuple[Field, ...]]], snapshot: int
) -> Iterator[ReadRows]:
    alive, selects = LIVE.replace("%s", f"{snapshot:d}"), []
    for number, (table, columns) in enumerate(tables):
        head = [f"{number:d}", "row_id", "begin_snapshot", "end_snapshot"]
        selects.append(
            f"SELECT {', '.join([*head, *map(selected, _stored(table, columns))])} FROM {identifier(table.name)}"
            f" WHERE {alive}"
        )
    asked = _stored(*tables[0])
    found: Sequence[Sequence[Any]] = list(zip(*reading.unions(tx, selects), strict=True)) or [()] * (4 + len(asked))
    numbers, ids, begun, ended = (pa.array(column, pa.int64()) for column in found[:4])
    order = pa.array(np.lexsort((ids.to_numpy(), numbers.to_numpy())))
    arrays = [array.take(order) for array in (ids, begun, ended, *decoded(found[4:], asked))]
    edges = np.searchsorted(numbers.take(order).to_numpy(), np.arange(len(tables) + 1)).tolist()
    for (table, columns), (start, end) in zip(tables, pairwise(edges), strict=True):
        row_ids, since, until, *values = (array.slice(start, end - start) for array in arrays)
        stored = {each.id: array for each, array in zip(_stored(table, columns), values, strict=True)}
        shown = pa.table(columns_shown(columns, stored, end - start), names=[each.name for each in columns])
        yield ReadRows(row_ids, since, until, shown)


def columns_shown(columns: Sequence[Field], stored: Mapping[int, pa.Array], rows: int) -> list[pa.Array]:
    """Columns as they are now: those that are stored, by id, and what rows show that are too old to have the others."""

    def shown(each: Field) -> pa.Array:
        if each.id in stored:
            return fitted(stored[each.id], plain_type(each))
        initial = initial_value(each)
        return pa.nulls(rows, plain_type(each)) if initial is None else pa.repeat(initial, rows)

    return [shown(each) for each in columns]
