"""What a manifest says about a data file's columns: counts, and bounds that let readers skip the file."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.conversions import to_bytes
from pyiceberg.schema import Schema
from pyiceberg.types import BinaryType, DoubleType, FloatType, PrimitiveType, StringType
from pyiceberg.utils.truncate import truncate_upper_bound_binary_string, truncate_upper_bound_text_string

from headwater.lake.casting import plain

__all__ = ["Metrics", "MetricsCollector"]

_LONGEST = 16  # characters or bytes of a bound, as Iceberg's own writers have it


@dataclass(frozen=True, slots=True)
class Metrics:
    """By field id. Columns that are lists have counts only of their rows, and no bounds."""

    values: dict[int, int] = field(default_factory=dict)
    nulls: dict[int, int] = field(default_factory=dict)
    nans: dict[int, int] = field(default_factory=dict)
    lower: dict[int, bytes] = field(default_factory=dict)
    upper: dict[int, bytes] = field(default_factory=dict)


class MetricsCollector:
    """Sees the parts of a file as they are written."""

    def __init__(self, schema: Schema) -> None:
        self._fields = {each.name: each for each in schema.fields}
        self._counts = {each.field_id: [0, 0, 0] for each in schema.fields}
        self._bounds: dict[int, tuple[Any, Any]] = {}

    def add(self, part: pa.Table) -> None:
        for name, each in self._fields.items():
            column = part.column(name)
            counts = self._counts[each.field_id]
            counts[0] += len(column)
            counts[1] += column.null_count
            if isinstance(each.field_type, FloatType | DoubleType):
                counts[2] += pc.sum(pc.is_nan(column)).as_py() or 0
            if isinstance(each.field_type, PrimitiveType):
                self._widen(each.field_id, each.field_type, column)

    def finish(self) -> Metrics:
        types = {each.field_id: each.field_type for each in self._fields.values()}
        floating = {id_ for id_, type_ in types.items() if isinstance(type_, FloatType | DoubleType)}
        lower = {id_: _lower(types[id_], low) for id_, (low, _) in self._bounds.items()}
        upper = {id_: _upper(types[id_], high) for id_, (_, high) in self._bounds.items()}
        return Metrics(
            values={id_: counts[0] for id_, counts in self._counts.items()},
            nulls={id_: counts[1] for id_, counts in self._counts.items()},
            nans={id_: self._counts[id_][2] for id_ in floating},
            lower=lower,
            upper={id_: each for id_, each in upper.items() if each is not None},
        )

    def _widen(self, id_: int, type_: PrimitiveType, column: pa.ChunkedArray) -> None:
        found = list(_extremes(type_, column))
        if id_ in self._bounds:
            found += self._bounds[id_]
        if found:
            self._bounds[id_] = min(found), max(found)


def _extremes(type_: PrimitiveType, column: pa.ChunkedArray) -> Iterable[Any]:
    """The lowest and the highest value, as Iceberg's conversions take them; nothing if there is none."""
    if isinstance(column.type, pa.BaseExtensionType):  # a uuid
        column = pa.chunked_array([chunk.storage for chunk in column.chunks], plain(column.type))
    kind = column.type
    if pa.types.is_date32(kind):
        column = _viewed(column, pa.int32())
    elif pa.types.is_temporal(kind):
        column = _viewed(column, pa.int64())
    elif isinstance(type_, FloatType | DoubleType):
        column = column.filter(pc.invert(pc.is_nan(column)))
    elif pa.types.is_boolean(kind):
        column = column.cast(pa.int8())
    if pa.types.is_fixed_size_binary(kind):
        column = column.cast(pa.binary())
    found = pc.min_max(column).as_py()
    if found["min"] is None:
        return ()
    if pa.types.is_boolean(kind):
        return bool(found["min"]), bool(found["max"])
    return found["min"], found["max"]


def _viewed(column: pa.ChunkedArray, type_: pa.DataType) -> pa.ChunkedArray:
    return pa.chunked_array([chunk.view(type_) for chunk in column.chunks], type_)


def _lower(type_: Any, value: Any) -> bytes:
    if isinstance(type_, FloatType | DoubleType) and value == 0:
        value = -0.0
    return bytes(to_bytes(type_, value[:_LONGEST] if isinstance(type_, StringType | BinaryType) else value))


def _upper(type_: Any, value: Any) -> bytes | None:
    """None if no value of so few characters is above it."""
    if isinstance(type_, FloatType | DoubleType) and value == 0:
        value = 0.0
    if isinstance(type_, StringType):
        value = truncate_upper_bound_text_string(value, _LONGEST)
    elif isinstance(type_, BinaryType):
        value = truncate_upper_bound_binary_string(value, _LONGEST)
    try:
        return None if value is None else bytes(to_bytes(type_, value))
    except UnicodeEncodeError:  # the next code point after U+D7FF is none that text can have
        return None
