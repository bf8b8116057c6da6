"""Dates, times and timestamps as routing values: read in the spellings of ISO, PostgreSQL and DuckDB, spelled in one.

Any year is possible, and so is infinity, as the number that DuckDB uses for it. The unit of the type plays no part in
the spelling, so a column that becomes more precise keeps its values.
"""

from __future__ import annotations

import re
from datetime import date

import pyarrow as pa

from headwater.values.moments import INFINITE_DAY, INFINITE_US

__all__ = ["read_moment", "spelled_moment"]

_CLOCK = r"(?P<h>\d\d):(?P<m>\d\d)(?::(?P<s>\d\d)(?:\.(?P<fraction>\d{1,9}))?)?"
_ZONE = r"(?P<utc>Z|UTC)|(?P<sign>[+-])(?P<zh>\d\d)(?::?(?P<zm>\d\d)(?::?(?P<zs>\d\d))?)?"
_MOMENT = re.compile(
    r"(?P<year>\d{4,12})-(?P<month>\d\d)-(?P<day>\d\d)"
    rf"(?P<clock>[ T]{_CLOCK}( ?(?P<zone>{_ZONE}))?)?( \(?(?P<bc>BC)\)?)?",
    re.ASCII | re.IGNORECASE,
)
_TIME = re.compile(_CLOCK, re.ASCII)
_INFINITE = {"infinity": 1, "+infinity": 1, "-infinity": -1}
_NANOSECONDS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}  # in a unit
_DAY = 86_400 * 10**9
_ERA_YEARS, _ERA_DAYS = 400, 146_097  # after which the calendar repeats itself
_EPOCH = date(1970, 1, 1).toordinal() - 1  # days from 0001-01-01


def read_moment(text: str, type_: pa.DataType) -> int:
    """The number that the type has for this date, time or timestamp; ValueError if it has none.

    Without an offset, a timestamp with time zone is in UTC.
    """
    if (direction := _INFINITE.get(text.lower())) and not pa.types.is_time(type_):
        return direction * _infinity(type_)
    if pa.types.is_time(type_):
        return _exact(_nanoseconds(_matched(_TIME, text)), type_)
    match = _matched(_MOMENT, text)
    if (match["clock"] and pa.types.is_date(type_)) or (match["zone"] and getattr(type_, "tz", None) is None):
        raise ValueError("it has a part that the type has not")
    found = _days(match) * _DAY
    if match["clock"]:
        found += _nanoseconds(match) - _offset(match)
    number = _exact(found, type_)
    if abs(number) == _infinity(type_):
        raise ValueError("the number stands for infinity")
    return number


def spelled_moment(number: int, type_: pa.DataType) -> str:
    """The date, time or timestamp that the type has this number for, as PostgreSQL prints it, in UTC."""
    if pa.types.is_time(type_):
        return _clock(number * _unit(type_))
    if abs(number) == _infinity(type_):
        return "infinity" if number > 0 else "-infinity"
    days, rest = divmod(number * _unit(type_), _DAY)
    day, era = _date(days)
    if pa.types.is_date(type_):
        return f"{day}{era}"
    return f"{day} {_clock(rest)}{'' if type_.tz is None else '+00'}{era}"


def _matched(pattern: re.Pattern[str], text: str) -> re.Match[str]:
    match = pattern.fullmatch(text)
    if match is None:
        raise ValueError("not the text of a date or time")
    return match


def _infinity(type_: pa.DataType) -> int:
    return INFINITE_DAY if pa.types.is_date32(type_) else INFINITE_US


def _unit(type_: pa.DataType) -> int:
    """How many nanoseconds one is."""
    if pa.types.is_date(type_):
        return _DAY if pa.types.is_date32(type_) else _NANOSECONDS["ms"]
    return _NANOSECONDS[type_.unit]


def _exact(nanoseconds: int, type_: pa.DataType) -> int:
    number, rest = divmod(nanoseconds, _unit(type_))
    if rest:
        raise ValueError("it is more precise than the type")
    return number


def _days(match: re.Match[str]) -> int:
    """Days since 1970-01-01 in the proleptic Gregorian calendar, in which 1 BC is followed by 1 AD."""
    written, month, day = (int(match[part]) for part in ("year", "month", "day"))
    if not written:
        raise ValueError("there is no year 0")
    era, year = divmod(-written if match["bc"] else written - 1, _ERA_YEARS)
    return era * _ERA_DAYS + date(year + 1, month, day).toordinal() - 1 - _EPOCH


def _date(days: int) -> tuple[str, str]:
    """The day, and ` BC` or nothing."""
    era, rest = divmod(days + _EPOCH, _ERA_DAYS)
    day = date.fromordinal(rest + 1)
    year = era * _ERA_YEARS + day.year
    return f"{year if year > 0 else 1 - year:04}-{day.month:02}-{day.day:02}", "" if year > 0 else " BC"


def _nanoseconds(match: re.Match[str]) -> int:
    """Since midnight; 24:00:00 is the last of the day."""
    h, m, s = (int(match[part] or 0) for part in "hms")
    found = (h * 3600 + m * 60 + s) * 10**9 + int((match["fraction"] or "").ljust(9, "0"))
    if m > 59 or s > 59 or found > _DAY:
        raise ValueError("there is no such time")
    return found


def _offset(match: re.Match[str]) -> int:
    """Nanoseconds east of Greenwich."""
    h, m, s = (int(match[part] or 0) for part in ("zh", "zm", "zs"))
    if h > 15 or m > 59 or s > 59:
        raise ValueError("there is no such offset")
    return (h * 3600 + m * 60 + s) * 10**9 * (-1 if match["sign"] == "-" else 1)


def _clock(nanoseconds: int) -> str:
    seconds, fraction = divmod(nanoseconds, 10**9)
    text = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return f"{text}.{fraction:09}".rstrip("0") if fraction else text
