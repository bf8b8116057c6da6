"""Column statistics of a data file, in DuckLake's text, and what can be told from them.

DuckDB skips a file whose bounds exclude what it looks for, so a bound may be loose or absent, but never too tight.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.ducklake.model import ColumnStats, Field

__all__ = ["StatsCollector", "column_stats", "overlaps"]

_LONGEST = 256  # bytes of a text bound; a longer lower bound is cut, a longer upper bound left out
_INFINITE_DAY = 2**31 - 1
_INFINITE_TIME = 2**63 - 1
_DAY = 86_400_000_000
_PLAIN = ("boolean", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
_TEXT = ("varchar", "json", "uuid", "blob")
_TIMES = ("date", "time", "timestamp", "timestamptz")


class StatsCollector:
    """Statistics of a file while it is written, batch by batch. Nested columns get none: that is always safe."""

    def __init__(self, fields: Iterable[Field]) -> None:
        self._columns = {field.name: _Column(field) for field in fields if _has_bounds(field.type)}

    def add(self, batch: pa.RecordBatch | pa.Table) -> None:
        for name, column in self._columns.items():
            column.add(batch.column(name))

    def finish(self, sizes: Mapping[str, int]) -> tuple[ColumnStats, ...]:
        """The statistics; `sizes` are the columns' compressed bytes by name."""
        return tuple(column.finish(sizes.get(name, 0)) for name, column in self._columns.items())


def column_stats(table: pa.Table, fields: Iterable[Field]) -> tuple[ColumnStats, ...]:
    """The statistics of a table that is in memory."""
    collector = StatsCollector(fields)
    collector.add(table)
    return collector.finish({})


class _Column:
    def __init__(self, field: Field) -> None:
        self._field = field
        self._values = self._nulls = 0
        self._nan = False
        self._bounds: list[Any] = []  # lowest and highest scalars of each batch

    def add(self, array: pa.Array | pa.ChunkedArray) -> None:
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

    def finish(self, size: int) -> ColumnStats:
        low, high = self._low_and_high()
        nan = self._nan if self._float else None
        return ColumnStats(self._field.id, size, self._values, self._nulls, low, high, nan)

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
    return _encoded(value, type_)


def _upper(value: Any, type_: str) -> str | None:
    if type_ in ("varchar", "json", "blob") and len(value.as_buffer()) > _LONGEST:
        return None
    return _lower(value, type_)


def _encoded(value: Any, type_: str) -> str:
    match type_:
        case "boolean":
            return "1" if value.as_py() else "0"
        case "float32":
            return str(np.float32(value.as_py()))
        case "float64":
            return repr(value.as_py())
        case "uuid":
            return str(uuid.UUID(bytes=value.as_buffer().to_pybytes()))
        case "date":
            return _infinite(value.value, _INFINITE_DAY) or _day(value.value)
        case "time":
            return _clock(value.value)
        case "timestamp" | "timestamptz":
            zone = "+00" if type_ == "timestamptz" else ""
            days, rest = divmod(value.value, _DAY)
            return _infinite(value.value, _INFINITE_TIME) or f"{_day(days)} {_clock(rest)}{zone}"
        case _ if type_.startswith("decimal("):
            return format(value.as_py(), "f")
        case _:
            return str(value.as_py())


def _infinite(value: int, infinity: int) -> str | None:
    return {infinity: "infinity", -infinity: "-infinity"}.get(value)


def _day(days: int) -> str:
    """ISO date; Python's dates end at year 9999 and begin at 1, PostgreSQL's do not."""
    year, month, day = str(np.datetime64(days, "D")).rsplit("-", 2)
    if int(year) > 0:
        return f"{int(year):04d}-{month}-{day}"
    return f"{1 - int(year):04d}-{month}-{day} (BC)"


def _clock(microseconds: int) -> str:
    seconds, rest = divmod(microseconds, 1_000_000)
    text = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return f"{text}.{rest:06d}".rstrip("0") if rest else text


def overlaps(bounds: tuple[str | None, str | None], type_: str, keys: tuple[str | None, str | None]) -> bool:
    """Whether a file with these bounds may hold one of the keys; both as `column_stats` tells them. True if unsure."""
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
