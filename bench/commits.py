"""Commits to one table, one after the other, through a sink alone: what does the next one cost?"""

from __future__ import annotations

import time
from typing import Any

import pyarrow as pa

from headwater.change import BaseType, Column, Lsn, Relation, TableName
from headwater.lake.sink import MirrorSpec, Sink
from headwater.lake.target import Sought, rows_of
from headwater.values.types import lake_type

__all__ = ["commit_times"]

_OID = 1
_ROWS, _CHANGED = 100_000, 50
_TABLE = Relation(
    1,
    _OID,
    TableName("public", "orders"),
    "d",
    (
        Column("id", 20, -1, True, 1, BaseType(20, -1, 0, "int8")),
        Column("note", 25, -1, False, 2, BaseType(25, -1, 0, "text")),
    ),
)
_KINDS = {column.name: lake_type(column) for column in _TABLE.columns}


def commit_times(sink: Sink[Any, Lsn], commits: int) -> list[float]:
    """Seconds that planning and committing take, for each of so many commits that update some rows."""
    copy = sink.begin_copy([sink.new_mirror(MirrorSpec(_TABLE, _KINDS, _TABLE.table))], {})
    notes = copy.target.write(rows_of(_OID), [(_rows(0, _ROWS), None)])
    copy.commit({_OID: Lsn(1)}, {rows_of(_OID): notes})
    return [_commit(sink, number) for number in range(commits)]


def _commit(sink: Sink[Any, Lsn], number: int) -> float:
    """The rows of a range are deleted from the file that was copied, and written again."""
    begun = time.perf_counter()
    delivery = sink.plan().begin({_OID: ("id",)})
    first = number * _CHANGED % _ROWS
    places = delivery.places({_OID: Sought((first, first + _CHANGED - 1))})
    planned = time.perf_counter() - begun
    (oldest,) = (place for place in places if place.rows == _ROWS)
    target = delivery.target
    taken = target.take_out(oldest, pa.array(range(first, first + _CHANGED), pa.int64()))
    assert taken is not None
    rows = _rows(first, first + _CHANGED), taken.row_ids
    notes = [taken.report, *target.write(rows_of(_OID), [rows])]
    begun = time.perf_counter()
    delivery.commit({rows_of(_OID): notes}, (), {_OID: Lsn(number + 2)}, {})
    return planned + time.perf_counter() - begun


def _rows(first: int, last: int) -> pa.Table:
    ids = range(first, last)
    return pa.table({"id": pa.array(ids, pa.int64()), "note": [f"order number {each}" for each in ids]})
