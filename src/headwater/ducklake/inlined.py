"""Rows that are in the catalog itself, in tables of their own, one for each version of a table's columns.

A row is in it from `begin_snapshot` on, and until `end_snapshot` if it has one. Few rows cost less there than a file.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa

from headwater.ducklake import reading
from headwater.ducklake.catalog import Transaction
from headwater.ducklake.contents import initial_value
from headwater.ducklake.inlinedvalues import decoded, selected
from headwater.ducklake.model import Field
from headwater.ducklake.writing import plain_type
from headwater.lake.casting import fitted
from headwater.lake.sqltext import identifier

__all__ = [
    "InlinedCounts",
    "InlinedTable",
    "columns_shown",
    "inlined_counts",
    "inlined_table",
    "inlined_tables",
    "is_sorted",
    "live_rows",
    "read_inlined",
]

LIVE = "begin_snapshot <= %s AND (end_snapshot IS NULL OR end_snapshot > %s)"


@dataclass(frozen=True, slots=True)
class InlinedTable:
    """A table of the catalog that holds rows, with the columns that the lake's table had when it was created."""

    name: str
    columns: tuple[Field, ...]


class InlinedCounts(NamedTuple):
    """The rows of one of these tables: all, also those that have ended, and those that are alive."""

    name: str
    schema_version: int
    rows: int
    live: int


def inlined_counts(tx: Transaction, table_ids: Collection[int]) -> dict[int, list[InlinedCounts]]:
    """The tables of the catalog that hold rows of these ones, oldest first, and how many each holds."""
    registered = tx.rows(
        "SELECT table_id, table_name, schema_version FROM ducklake_inlined_data_tables WHERE table_id {among}"
        " ORDER BY schema_version",
        tx.ids(table_ids),
    )
    counts = dict[str, tuple[int, int]]()
    selects = [
        f"SELECT '{name}', count(*), count(CASE WHEN end_snapshot IS NULL THEN 1 END) FROM {identifier(name)}"
        for _, name, _ in registered
    ]
    for name, rows, live in reading.unions(tx, selects):
        counts[name] = rows, live
    found: dict[int, list[InlinedCounts]] = defaultdict(list)
    for table_id, name, version in registered:
        found[table_id].append(InlinedCounts(name, version, *counts[name]))
    return found


def is_sorted(tx: Transaction, table_ids: Collection[int]) -> set[int]:
    """Those of these tables that another client has sorted: rows in the catalog do not survive it."""
    return {
        id_
        for (id_,) in tx.rows(
            "SELECT table_id FROM ducklake_sort_info WHERE end_snapshot IS NULL AND table_id {among}", tx.ids(table_ids)
        )
    }


def inlined_tables(tx: Transaction, data_path: str, table_id: int) -> Iterator[InlinedTable]:
    """The tables of the catalog that hold, or held, rows of this one, each under the columns of its version."""
    names = tx.rows(
        "SELECT table_name, schema_version FROM ducklake_inlined_data_tables WHERE table_id = %s"
        " ORDER BY schema_version",
        table_id,
    )
    yield from (inlined_table(tx, data_path, table_id, name, version) for name, version in names)


def inlined_table(tx: Transaction, data_path: str, table_id: int, name: str, version: int) -> InlinedTable:
    """One of them. DuckDB registers a version of a table only when it is altered: another is the last one before it."""
    ((since,),) = tx.rows(
        "SELECT coalesce((SELECT max(begin_snapshot) FROM ducklake_schema_versions WHERE table_id = %s"
        " AND schema_version <= %s), (SELECT min(begin_snapshot) FROM ducklake_table WHERE table_id = %s))",
        table_id,
        version,
        table_id,
    )
    then = reading.table_at(tx, data_path, table_id, since)
    return InlinedTable(name, then.columns if then else ())


def live_rows(tx: Transaction, name: str, snapshot: int) -> int:
    """How many rows of it a snapshot shows."""
    ((count,),) = tx.rows(f"SELECT count(*) FROM {identifier(name)} WHERE {LIVE}", snapshot, snapshot)
    return int(count)


def read_inlined(
    tx: Transaction, table: InlinedTable, columns: Sequence[Field], condition: str, *given: object
) -> pa.Table:
    """Rows for which the condition holds, by row id: `row_id`, `begin_snapshot`, `end_snapshot`, and these columns.

    A column is shown as it is now, by rows that may be too old to have it.
    """
    then = {each.id: each for each in table.columns}
    asked = [then[each.id] for each in columns if each.id in then]
    head = ["row_id", "begin_snapshot", "end_snapshot"]
    found = tx.rows(
        f"SELECT {', '.join([*head, *map(selected, asked)])} FROM {identifier(table.name)} WHERE {condition}"
        " ORDER BY row_id, begin_snapshot",
        *given,
    )
    values: Sequence[Sequence[Any]] = list(zip(*found, strict=True)) or [()] * (3 + len(asked))
    arrays = [pa.array(column, pa.int64()) for column in values[:3]]
    stored = dict(zip([each.id for each in asked], decoded(values[3:], asked), strict=True))
    arrays += columns_shown(columns, stored, len(found))
    return pa.table(arrays, names=[*head, *(each.name for each in columns)])


def columns_shown(columns: Sequence[Field], stored: Mapping[int, pa.Array], rows: int) -> list[pa.Array]:
    """Columns as they are now: those that are stored, by id, and what rows show that are too old to have the others."""

    def shown(each: Field) -> pa.Array:
        if each.id in stored:
            return fitted(stored[each.id], plain_type(each))
        initial = initial_value(each)
        return pa.nulls(rows, plain_type(each)) if initial is None else pa.repeat(initial, rows)

    return [shown(each) for each in columns]
