"""How a table's columns change into the wanted ones: decided here, written to the catalog by `schema`."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from headwater.ducklake.model import Field
from headwater.errors import TableError

__all__ = ["RESERVED", "ColumnRow", "Evolution", "check_names", "column_rows", "evolved", "promotable"]

# Tried: `rowid` hides the rows' own ids, `snapshot_id` that of a change in table_changes, and the other two are columns
# of its files. Any other name works.
RESERVED = frozenset({"rowid", "snapshot_id", "_ducklake_internal_row_id", "_ducklake_internal_snapshot_id"})
_SIGNED = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
_UNSIGNED = {"uint8": 8, "uint16": 16, "uint32": 32, "uint64": 64}
_DIGITS = {"int8": 3, "int16": 5, "int32": 10, "int64": 19, "uint8": 3, "uint16": 5, "uint32": 10, "uint64": 20}
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")


def promotable(old: str, new: str) -> bool:
    """Whether a column of type `old` can become `new` and keep its files: a wider integer, a decimal with more digits.

    DuckLake allows more, but DuckDB 1.5 then filters wrongly: it casts the constant of a filter to the type in an old
    file, rounding it. Once 10 is no longer an int32 but a float64 or a decimal(12,2), `> 9.6` does not find it; a
    float32 of 0.1 as a float64 equals 0.1; a date as a timestamp is not before the noon of its day.
    """
    if wide := _DECIMAL.fullmatch(new):
        precision, scale = int(wide[1]), int(wide[2])
        if narrow := _DECIMAL.fullmatch(old):
            return scale == int(narrow[2]) and precision > int(narrow[1])
        return old in _DIGITS and scale == 0 and precision >= _DIGITS[old]
    if old in _UNSIGNED and new in _UNSIGNED:
        return _UNSIGNED[old] < _UNSIGNED[new]
    return old in _SIGNED | _UNSIGNED and new in _SIGNED and (_SIGNED | _UNSIGNED)[old] < _SIGNED[new]


@dataclass(frozen=True, slots=True)
class ColumnRow:
    """A row of ducklake_column, without the table and the snapshots it is valid in."""

    id: int
    order: int
    name: str
    type: str
    initial_default: str | None
    default: str
    nullable: bool
    parent: int | None
    default_type: str


@dataclass(frozen=True, slots=True)
class Evolution:
    """The columns whose rows end, and the rows that begin."""

    ended: tuple[int, ...]
    begun: tuple[ColumnRow, ...]


def column_rows(fields: tuple[Field, ...], parent: int | None = None) -> Iterator[ColumnRow]:
    """The rows of new columns, parents first."""
    for each in fields:
        if each.children and each.initial_default is not None:
            raise TableError(
                f"column {each.name!r} is a {each.type} with a default for older rows, which DuckLake cannot hold",
                hint="copy the table again",
            )
        kind = "" if each.children else "literal"
        yield ColumnRow(
            each.id, each.id, each.name, each.type, each.initial_default, "NULL", each.nullable, parent, kind
        )
        yield from column_rows(each.children, each.id)


def check_names(table: str, columns: Collection[Field]) -> None:
    """Refuse names that DuckDB, which ignores case, could not distinguish from each other or from its own columns."""
    names = [column.name for column in columns]
    for name in names:
        if name.lower() in RESERVED:
            raise TableError(
                f"table {table!r}: {name!r} is a column name that the lake keeps for itself",
                hint="rename it in the source, or leave it out with `exclude`",
            )
    if len({each.lower() for each in names}) != len(names):
        raise TableError(
            f"table {table!r} has columns that differ in case only, which DuckDB does not distinguish: {names}",
            hint="rename one of them in the source, or leave it out with `exclude`",
        )


def evolved(have: Mapping[int, ColumnRow], columns: tuple[Field, ...], next_id: int) -> Evolution:
    """From the columns that a table has to those it should have; ids from `next_id` on were never used in it."""
    rows = tuple(column_rows(columns))
    want = {row.id: row for row in _ordered(have, rows)}
    if len(want) != len(rows):
        raise TableError(f"columns share an id: {[(row.name, row.id) for row in rows]}")
    begun = []
    for id_, row in want.items():
        if id_ in have:
            kept = _kept(have[id_], row)
            if kept != have[id_]:
                begun.append(kept)
        elif id_ >= next_id:
            begun.append(row)
        else:  # files may still hold values of the column that had this id, and they would show again
            raise TableError(f"column {row.name!r} cannot have the id {id_}: the table used it before")
    ended = [id_ for id_ in have if id_ not in want] + [row.id for row in begun if row.id in have]
    return Evolution(tuple(ended), tuple(begun))


def _kept(old: ColumnRow, new: ColumnRow) -> ColumnRow:
    """An old column as it should be: its default for older rows, and what other clients have set, stays."""
    if old.parent != new.parent:
        raise TableError(f"column {new.name!r} cannot move from column {old.parent} to {new.parent}")
    if old.type != new.type and not promotable(old.type, new.type):
        raise TableError(
            f"column {old.name!r} cannot become {new.type!r} from {old.type!r} in the lake", hint="copy the table again"
        )
    return replace(old, name=new.name, type=new.type, nullable=new.nullable, order=new.order)


def _ordered(have: Mapping[int, ColumnRow], rows: tuple[ColumnRow, ...]) -> Iterator[ColumnRow]:
    """The rows with `order` ascending: columns that move share out the existing values."""
    rows = tuple(replace(row, order=have[row.id].order) if row.id in have else row for row in rows)
    places = iter(sorted(row.order for row in rows if row.parent is None))
    return (replace(row, order=next(places)) if row.parent is None else row for row in rows)
