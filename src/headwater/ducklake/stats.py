"""Column statistics of a data file, in DuckLake's text, and the comparison of keys with them.

DuckDB skips a file whose bounds exclude what it looks for, so a bound may be loose or missing, but never too tight.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from headwater.ducklake.model import ColumnStats, Field
from headwater.ducklake.texts import text_of
from headwater.lake.casting import flattened

__all__ = ["Leaf", "StatsCollector", "column_stats", "overlaps"]

_LONGEST = 256  # bytes of a text bound; a longer lower bound is truncated, a longer upper bound left out
_PLAIN = ("boolean", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
_TEXT = ("varchar", "json", "uuid", "blob")
_TIMES = ("date", "time", "timestamp", "timestamptz")


class Leaf(NamedTuple):
    """One leaf column in a file's footer: its compressed bytes, and the number of its values with NULLs."""

    size: int
    values: int


class StatsCollector:
    """Statistics of a file while it is written, batch by batch: of plain columns and of the elements of lists.

    Structs and maps get none, which is always safe.
    """

    def __init__(self, fields: Iterable[Field]) -> None:
        leaves = ((field.name, *_leaf(field)) for field in fields)
        self._columns = [
            (name, path, _Column(leaf, listed=path != name)) for name, path, leaf in leaves if _has_bounds(leaf.type)
        ]

    def add(self, batch: pa.RecordBatch | pa.Table) -> None:
        for name, _, column in self._columns:
            column.add(batch.column(name))

    def finish(self, leaves: Mapping[str, Leaf]) -> tuple[ColumnStats, ...]:
        """The statistics; `leaves` are the footer's columns by their path."""
        return tuple(column.finish(leaves.get(path)) for _, path, column in self._columns)


def _leaf(field: Field) -> tuple[str, Field]:
    """The leaf column of a column (of a list: its elements) and its path in a Parquet file."""
    path = field.name
    while field.type == "list":
        (field,) = field.children
        path += ".list.element"
    return path, field


def column_stats(table: pa.Table, fields: Iterable[Field]) -> tuple[ColumnStats, ...]:
    """The statistics of a table that is in memory."""
    collector = StatsCollector(fields)
    collector.add(table)
    return collector.finish({})


class _Column:
    def __init__(self, field: Field, *, listed: bool) -> None:
        self._field = field
        self._listed = listed
        self._values = self._nulls = 0
        self._nan = False
        self._bounds: list[Any] = []  # lowest and highest scalars of each batch

    def add(self, array: pa.Array | pa.ChunkedArray) -> None:
        if self._listed:
            array = flattened(array)
        self._nulls += array.null_count
        self._values += len(array) - array.null_count
        if isinstance(array.type, pa.BaseExtensionType):
            array = array.cast(array.type.storage_type)
        if self._float:
            nan = pc.is_nan(array)
            if pc.any(nan, min_count=0).as_py():
                self._nan = True
                array = pc.drop_null(pc.if_else(nan, None, array))
        if len(array) > array.null_count:
            bounds = pc.min_max(array)
            self._bounds += [bounds["min"], bounds["max"]]

    def finish(self, leaf: Leaf | None) -> ColumnStats:
        low, high = self._low_and_high()
        nan = self._nan if self._float else None
        size = leaf.size if leaf else 0
        # A list that is empty or NULL is a NULL of its elements to Parquet, and so to DuckLake.
        nulls = leaf.values - self._values if leaf and self._listed else self._nulls
        return ColumnStats(self._field.id, size, self._values, nulls, low, high, nan)

    def _low_and_high(self) -> tuple[str | None, str | None]:
        if not self._bounds:
            return None, None
        bounds = pc.min_max(pa.array(self._bounds, self._bounds[0].type))
        return _lower(bounds["min"], self._field.type), _upper(bounds["max"], self._field.type)

    @property
    def _float(self) -> bool:
        return self._field.type.startswith("float")


def _has_bounds(type_: str) -> bool:
    return type_ in _PLAIN or type_ in _TEXT or type_ in _TIMES or type_.startswith(("float", "decimal("))


def _lower(value: Any, type_: str) -> str:
    if type_ in ("varchar", "json"):
        text: bytes = value.as_buffer().to_pybytes()
        # A prefix sorts before everything that starts with it; "ignore" drops a character cut in two.
        return text[:_LONGEST].decode("utf-8", "ignore")
    if type_ == "blob":
        data: bytes = value.as_buffer().to_pybytes()
        return data[:_LONGEST].hex().upper()
    return text_of(value, type_)


def _upper(value: Any, type_: str) -> str | None:
    if type_ in ("varchar", "json", "blob") and len(value.as_buffer()) > _LONGEST:
        return None
    return _lower(value, type_)


def overlaps(bounds: tuple[str | None, str | None], type_: str, keys: tuple[str | None, str | None]) -> bool:
    """Whether a file with these bounds may hold one of the keys; both as `column_stats` spells them. True if unsure."""
    low, high = (_comparable(text, type_) for text in bounds)
    first, last = (_comparable(text, type_) for text in keys)
    below = high is not None and first is not None and high < first
    above = low is not None and last is not None and low > last
    return not (below or above)


def _comparable(text: str | None, type_: str) -> Any:
    if text is None:
        return None
    try:
        if type_ in _PLAIN:
            return int(text)
        if type_.startswith("float"):
            number = float(text)
            return None if number != number else number
        if type_.startswith("decimal("):
            return Decimal(text)
        if type_ == "blob":
            return bytes.fromhex(text)
        if type_ in ("varchar", "json", "uuid"):
            return text
        return _comparable_time(text, type_)
    except (ValueError, InvalidOperation):
        return None


def _comparable_time(text: str, type_: str) -> Any:
    if type_ == "time":
        return text
    if type_ not in _TIMES:
        return None
    if text in ("infinity", "-infinity"):
        return (float(text), 0, 0, "")
    if type_ == "timestamptz":
        if not text.endswith("+00"):
            return None
        text = text[:-3]
    day, _, clock = text.partition(" ")
    before = clock.startswith("(BC)")
    year, month, day_of_month = (int(part) for part in day.split("-"))
    return (1 - year if before else year, month, day_of_month, clock.removeprefix("(BC)").lstrip())
