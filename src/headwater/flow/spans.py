"""A partition's bounds as the lake checks them on its rows, and as the source is asked for such rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
from psycopg import sql

from headwater.change import Column, Relation
from headwater.merge.remove import ColumnValues, whole_numbers
from headwater.state import Condition
from headwater.values.decode import decode
from headwater.values.types import LakeType, lake_types

__all__ = ["asked_in_sql", "spans_of"]

_NUMBERS, _TEXTS = (20, 21, 23, 1082, 1114, 1184), (25, 1043)  # types whose values every lake compares alike
_DAY = 86_400_000_000
_YEARS = (-719_162, 2_932_896)  # the days of the years 1 to 9999, which every lake's dates and times can hold


def spans_of(
    conditions: Sequence[Condition], relation: Relation, kinds: Mapping[str, LakeType]
) -> tuple[ColumnValues, ...] | None:
    """The conditions as the lake can check them; None if one of them cannot be checked there."""
    columns = {column.attnum: column for column in relation.columns}
    found = [_span(each, columns.get(each.attnum), kinds) for each in conditions]
    return None if None in found or not found else tuple(each for each in found if each is not None)


def _span(asked: Condition, column: Column | None, kinds: Mapping[str, LakeType]) -> ColumnValues | None:
    if column is None:
        return None
    natural = lake_types([column], {}, calendar_only=kinds[column.name].calendar_only)[column.name]
    known = _NUMBERS if asked.values is None else (*_NUMBERS, *_TEXTS)
    if column.type_oid not in known or kinds[column.name] != natural:
        return None
    if asked.values is not None:
        values = _values(asked.values, natural)
        return None if values is None else ColumnValues(column.name, values=values)
    bounds = [_values(() if each is None else (each,), natural) for each in (asked.low, asked.high)]
    if None in bounds or (not pa.types.is_integer(natural.arrow) and () in bounds):
        return None  # beyond a bound that is missing there may be infinity, which not every lake has
    low, high = (int(each[0]) if each else None for each in bounds)
    return ColumnValues(column.name, low, None if high is None else high - 1)


def _values(texts: Sequence[str], kind: LakeType) -> tuple[int | str, ...] | None:
    """Values as Arrow stores them; None if one of them is not of the years that every lake knows."""
    decoded = decode(pa.array(texts, pa.large_string()), kind)
    if decoded.bad:
        return None
    found: tuple[int | str, ...] = tuple(whole_numbers(decoded.array).to_pylist())
    if not pa.types.is_temporal(kind.arrow):
        return found
    unit = _DAY if pa.types.is_timestamp(kind.arrow) else 1
    first, last = _YEARS[0] * unit, (_YEARS[1] + 1) * unit
    return found if all(isinstance(each, int) and first <= each <= last for each in found) else None


def asked_in_sql(asked: Condition, name: str) -> sql.Composable:
    """The condition on the column of this name."""
    column = sql.Identifier(name)
    if asked.values is not None:
        return sql.SQL("{} IN ({})").format(column, sql.SQL(", ").join(map(sql.Literal, asked.values)))
    parts: list[sql.Composable] = [sql.SQL("{} IS NOT NULL").format(column)]
    if asked.low is not None:
        parts.append(sql.SQL("{} >= {}").format(column, sql.Literal(asked.low)))
    if asked.high is not None:
        parts.append(sql.SQL("{} < {}").format(column, sql.Literal(asked.high)))
    return sql.SQL(" AND ").join(parts)
