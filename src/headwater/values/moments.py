"""Dates, times and timestamps in any of PostgreSQL's spellings, one at a time: those that Arrow's parser refuses.

Years after 9999 or before Christ, offsets with seconds, 24:00:00, and infinity, as the number that DuckDB uses for it.
"""

from __future__ import annotations

import re

import pyarrow as pa

__all__ = ["DAY_US", "INFINITE_DAY", "INFINITE_US", "is_moment", "moment"]

INFINITE_DAY = 2**31 - 1  # and its negative; DuckDB reads these numbers as infinity
INFINITE_US = 2**63 - 1  # the last 30 years of PostgreSQL's range are beyond it
DAY_US = 86_400_000_000
_CLOCK = rb"(?P<h>\d\d):(?P<m>\d\d):(?P<s>\d\d)(?:\.(?P<us>\d{1,6}))?"
_ZONE = rb"(?P<sign>[+-])?(?P<zh>\d\d)?(?::(?P<zm>\d\d))?(?::(?P<zs>\d\d))?"
_MOMENT = re.compile(rb"(?P<year>\d{4,})-(?P<month>\d\d)-(?P<day>\d\d)(?: " + _CLOCK + _ZONE + rb")?(?P<bc> BC)?")
_TIME = re.compile(_CLOCK)
_INFINITE = {b"infinity": 1, b"-infinity": -1}


def is_moment(to: pa.DataType) -> bool:
    """Whether values of this type are read here."""
    return bool(pa.types.is_date(to) or pa.types.is_timestamp(to) or pa.types.is_time(to))


def moment(text: bytes, to: pa.DataType, *, calendar_only: bool = False) -> int | None:
    """The number that Arrow's type holds for this text; None if it holds none."""
    if pa.types.is_time(to):
        clock = _TIME.fullmatch(text)
        found = _microseconds(clock) if clock else None
        return found if found is not None and found <= DAY_US - calendar_only else None
    end = INFINITE_DAY if pa.types.is_date(to) else INFINITE_US
    if text in _INFINITE:
        return None if calendar_only else _INFINITE[text] * end
    match = _MOMENT.fullmatch(text)
    if match is None:
        return None
    found = _days(match)
    if not pa.types.is_date(to):
        found = found * DAY_US + _microseconds(match) - _offset(match) * 1_000_000
    return found if -end < found < end else None


def _microseconds(match: re.Match[bytes]) -> int:
    h, m, s = (int(match[part] or 0) for part in "hms")
    return (h * 3600 + m * 60 + s) * 1_000_000 + int((match["us"] or b"").ljust(6, b"0"))


def _offset(match: re.Match[bytes]) -> int:
    """Seconds east of Greenwich."""
    h, m, s = (int(match[part] or 0) for part in ("zh", "zm", "zs"))
    return (h * 3600 + m * 60 + s) * (-1 if match["sign"] == b"-" else 1)


def _days(match: re.Match[bytes]) -> int:
    """Days since 1970-01-01 in the proleptic Gregorian calendar; year 0 is 1 BC."""
    year, month, day = (int(match[part]) for part in ("year", "month", "day"))
    year = (1 - year if match["bc"] else year) - (month <= 2)  # a year that starts in March ends with the leap day
    era, year_of_era = divmod(year, 400)
    day_of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return era * 146_097 + year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year - 719_468
