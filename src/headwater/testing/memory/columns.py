"""From a relation's columns to those of its mirror in memory."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from headwater.change import Column as SourceColumn
from headwater.change import Relation
from headwater.errors import CannotFollow
from headwater.lake import history
from headwater.lake.mirrored import MirroredColumns
from headwater.lake.sink import Kinds
from headwater.testing.memory.lake import MemoryColumn, MemoryTable
from headwater.values.decode import decode
from headwater.values.types import LakeType

__all__ = ["columns_of", "evolved"]


def columns_of(
    relation: Relation, kinds: Kinds, *, with_history: bool
) -> tuple[tuple[MemoryColumn, ...], MirroredColumns]:
    """The columns of a new mirror."""
    head = [(name, kind.arrow) for name, kind in history.COLUMNS.items()] if with_history else []
    body = [(column.name, kinds[column.name].arrow) for column in relation.columns]
    columns = tuple(MemoryColumn(at, name, arrow) for at, (name, arrow) in enumerate([*head, *body], 1))
    ids = (column.id for column in columns[len(head) :])
    numbers = (column.attnum for column in relation.columns)
    return columns, MirroredColumns.of(relation, dict(zip(numbers, ids, strict=True)))


def evolved(
    table: MemoryTable, mirrored: MirroredColumns, relation: Relation, kinds: Kinds
) -> tuple[MemoryTable, MirroredColumns]:
    """The mirror with the relation's columns; CannotFollow if only a new copy could have them."""
    have = {column.id: column for column in table.columns}
    columns = [column for column in table.columns if column.id not in mirrored.fields.values()]
    next_id, kept = table.next_column_id, {}
    for each in relation.columns:
        if each.attnum in mirrored.fields:
            column = _changed(have[mirrored.fields[each.attnum]], each, kinds[each.name])
        else:
            column, next_id = _added(each, kinds[each.name], next_id), next_id + 1
        columns.append(column)
        kept[each.attnum] = column.id
    return replace(table, columns=tuple(columns), next_column_id=next_id), MirroredColumns.of(relation, kept)


def _changed(column: MemoryColumn, to: SourceColumn, kind: LakeType) -> MemoryColumn:
    both = column.type, kind.arrow
    wider = all(map(pa.types.is_integer, both)) and column.type.bit_width <= kind.arrow.bit_width
    if column.type != kind.arrow and not wider:
        raise CannotFollow(f"column {to.name!r} became {kind.pg}: {column.type} cannot be read as {kind.arrow}")
    return replace(column, name=to.name, type=kind.arrow)


def _added(column: SourceColumn, kind: LakeType, id: int) -> MemoryColumn:
    if column.volatile:
        raise CannotFollow(f"column {column.name!r} is new, and older rows have values of their own in it")
    if column.missing is None:
        return MemoryColumn(id, column.name, kind.arrow)
    shown = decode(pa.array([column.missing.encode()], pa.large_binary()), kind)
    if shown.bad:
        raise CannotFollow(f"column {column.name!r} is new, and its default {column.missing!r} does not fit")
    return MemoryColumn(id, column.name, kind.arrow, shown.array[0].as_py())
