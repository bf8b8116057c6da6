"""Values in DuckLake's text, in which its catalog keeps bounds and defaults: written and read without DuckDB."""

from __future__ import annotations

import re
import uuid
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np
import pyarrow as pa

from headwater.errors import TableError

__all__ = ["text_of", "value_of"]

_INFINITE_DAY = 2**31 - 1  # as DuckDB stores it; minus infinity is its negative
_INFINITE_TIME = 2**63 - 1
_DAY = 86_400_000_000  # microseconds
_DATE = re.compile(r"(\d+)-(\d\d)-(\d\d)( \(BC\))?")
_CLOCK = re.compile(r"(\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?")
_ESCAPE = re.compile(rb"\\x([0-9A-Fa-f]{2})")


def text_of(value: pa.Scalar, type_: str) -> str:
    """The text of a value that is not NULL; `value` has the plain Arrow type of DuckLake's `type_`."""
    match type_:
        case "boolean":
            return "1" if value.as_py() else "0"
        case "float32" | "float64":
            # A float32 with all the digits of a double: still a bound if another client widens the column.
            return repr(value.as_py())
        case "varchar" | "json":
            return str(value.as_py())
        case "blob":
            return "".join(f"\\x{byte:02X}" for byte in value.as_py())
        case "uuid":
            return str(uuid.UUID(bytes=value.as_buffer().to_pybytes()))
        case "date":
            return _infinity(value.value, _INFINITE_DAY) or _day(value.value)
        case "time":
            return _clock(value.value)
        case "timestamp" | "timestamptz":
            zone = "+00" if type_ == "timestamptz" else ""
            days, rest = divmod(value.value, _DAY)
            return _infinity(value.value, _INFINITE_TIME) or f"{_day(days)} {_clock(rest)}{zone}"
        case _ if type_.startswith("decimal("):
            return format(value.as_py(), "f")
        case _:
            return str(value.as_py())


def value_of(text: str, type_: str, arrow: pa.DataType) -> pa.Scalar:
    """The value a text stands for; `arrow` is the plain Arrow type of DuckLake's `type_`."""
    try:
        return _parsed(text, type_, arrow)
    except (ValueError, InvalidOperation, OverflowError, pa.ArrowException) as error:
        raise TableError(
            f"the lake has the default {text!r} for a column of type {type_!r}, which is not a value of that type",
            hint="drop that column in the lake: if it mirrors a source column, a new copy brings it back",
        ) from error


def _parsed(text: str, type_: str, arrow: pa.DataType) -> pa.Scalar:
    match type_:
        case "boolean":
            return pa.scalar({"1": True, "true": True, "t": True}.get(text.lower(), False), arrow)
        case "float32" | "float64":
            return pa.scalar(float(text), arrow)
        case "varchar" | "json":
            return pa.scalar(text, arrow)
        case "blob":
            return pa.scalar(_ESCAPE.sub(lambda found: bytes.fromhex(found[1].decode()), text.encode()), arrow)
        case "uuid":
            return pa.scalar(uuid.UUID(text).bytes, arrow)
        case "date":
            return pa.array([_days(text)], pa.int32()).view(arrow)[0]
        case "time":
            return pa.array([_microseconds(text)], pa.int64()).view(arrow)[0]
        case "timestamp" | "timestamptz":
            return pa.array([_moment(text)], pa.int64()).view(arrow)[0]
        case _ if type_.startswith("decimal("):
            return pa.scalar(Decimal(text), arrow)
        case _:
            return pa.scalar(int(text), arrow)


def _infinity(value: int, infinity: int) -> str | None:
    return {infinity: "infinity", -infinity: "-infinity"}.get(value)


def _day(days: int) -> str:
    """ISO date; Python's dates end at year 9999 and begin at 1, PostgreSQL's do not."""
    year, month, day = str(np.datetime64(days, "D")).rsplit("-", 2)
    if int(year) > 0:
        return f"{int(year):04d}-{month}-{day}"
    return f"{1 - int(year):04d}-{month}-{day} (BC)"


def _days(text: str) -> int:
    if text in ("infinity", "-infinity"):
        return _INFINITE_DAY if text == "infinity" else -_INFINITE_DAY
    parts = _DATE.fullmatch(text)
    if parts is None:
        raise ValueError(text)
    year, month, day, before = parts.groups()
    number = 1 - int(year) if before else int(year)
    return int(_datetime64(number, month, day).astype(np.int64))


def _datetime64(year: int, month: str, day: str) -> Any:
    sign = "-" if year < 0 else ""
    return np.datetime64(f"{sign}{abs(year):04d}-{month}-{day}", "D")


def _clock(microseconds: int) -> str:
    seconds, rest = divmod(microseconds, 1_000_000)
    text = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return f"{text}.{rest:06d}".rstrip("0") if rest else text


def _microseconds(text: str) -> int:
    parts = _CLOCK.fullmatch(text)
    if parts is None:
        raise ValueError(text)
    hours, minutes, seconds, fraction = parts.groups()
    whole = int(hours) * 3600 + int(minutes) * 60 + int(seconds)
    return whole * 1_000_000 + int((fraction or "").ljust(6, "0"))


def _moment(text: str) -> int:
    if text in ("infinity", "-infinity"):
        return _INFINITE_TIME if text == "infinity" else -_INFINITE_TIME
    day, _, clock = text.removesuffix("+00").rpartition(" ")
    return _days(day) * _DAY + _microseconds(clock)
