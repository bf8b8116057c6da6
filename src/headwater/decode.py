"""PostgreSQL's text of a column → Arrow, by column. Used for the WAL, and for the first copy where it reads text.

A whole column is read at once by Arrow or numpy. Only values that these refuse are looked at one by one: years past
9999 or before Christ and offsets with seconds are then read in Python; the rest is told as `Bad`, and is null.
"""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import TableError
from headwater.types import LakeType

__all__ = ["TEXT_SETTINGS", "Bad", "Decoded", "decode"]

# How a session must print its values so that they can be read here, and are the same from the WAL and from a copy.
TEXT_SETTINGS = {
    "client_encoding": "UTF8",
    "DateStyle": "ISO, MDY",
    "IntervalStyle": "postgres",
    "TimeZone": "UTC",
    "bytea_output": "hex",
    "extra_float_digits": "1",
}

DAY_US = 86_400_000_000
TIMESTAMP_END = 2**63 - 1  # DuckDB reads this very number as infinity; PostgreSQL's last 30 years lie behind it


@dataclass(frozen=True, slots=True)
class Bad:
    """A value the Arrow type cannot hold, as PostgreSQL prints it."""

    row: int
    text: str


@dataclass(frozen=True, slots=True)
class Decoded:
    """A column of exactly the type asked for; null in the rows told in `bad`."""

    array: pa.Array
    bad: tuple[Bad, ...] = ()

    def intact(self, column: str) -> pa.Array:
        """The array, or a TableError that names the first value it cannot hold."""
        if self.bad:
            raise TableError(
                f"column {column!r} holds {self.bad[0].text!r}, which no {self.array.type} can hold"
                f" ({len(self.bad)} such in this batch)",
                hint="change the value in the source, or the column's type",
            )
        return self.array


def decode(text: pa.Array, kind: LakeType) -> Decoded:
    """Read a column of PostgreSQL's text (Arrow string or binary, null where the value is NULL)."""
    raw = text if pa.types.is_large_binary(text.type) else text.cast(pa.large_binary())
    read = _READERS.get(kind.arrow.id, _cast)
    try:
        return Decoded(read(raw, kind.arrow))
    except pa.ArrowInvalid:
        return _piecewise(raw, kind.arrow, read)


_Reader = Callable[[pa.Array, pa.DataType], pa.Array]


def _piecewise(raw: pa.Array, to: pa.DataType, read: _Reader) -> Decoded:
    """Read what `read` accepts at once and the odd rest one by one."""
    odd = _odd_rows(raw, to)
    try:
        array = read(pc.if_else(odd, pa.scalar(None, raw.type), raw), to)
    except pa.ArrowInvalid:  # text that PostgreSQL does not print for this type
        odd = raw.is_valid()
        array = pa.nulls(len(raw), to)
    texts = raw.filter(odd)
    found = _moments(texts, to) if pa.types.is_date(to) or pa.types.is_timestamp(to) else _singly(texts, to, read)
    rows = np.flatnonzero(odd.to_numpy(zero_copy_only=False))
    bad = tuple(
        Bad(int(rows[index]), texts[index].as_py().decode(errors="backslashreplace"))
        for index in np.flatnonzero(found.is_null().to_numpy(zero_copy_only=False)).tolist()
    )
    return Decoded(pc.replace_with_mask(array, odd, found), bad)


def _odd_rows(raw: pa.Array, to: pa.DataType) -> pa.Array:
    usual = _USUAL.get(to.id)
    return raw.is_valid() if usual is None else pc.invert(pc.fill_null(pc.match_substring_regex(raw, usual), True))


def _singly(texts: pa.Array, to: pa.DataType, read: _Reader) -> pa.Array:
    """The values `read` accepts when asked for each alone, null for the others."""
    found = [pa.nulls(0, to)]
    for index in range(len(texts)):
        try:
            found.append(read(texts.slice(index, 1), to))
        except pa.ArrowInvalid:
            found.append(pa.nulls(1, to))
    return pa.concat_arrays(found)


def _moments(texts: pa.Array, to: pa.DataType) -> pa.Array:
    """Dates or timestamps in any spelling of PostgreSQL's, null for those that do not fit."""
    days = pa.types.is_date(to)
    numbers = [_moment(text, whole_days=days) for text in texts.to_pylist()]
    return pa.array(numbers, pa.int32() if days else pa.int64()).view(to)


# One column at once -------------------------------------------------------------------------------------------------


def _cast(raw: pa.Array, to: pa.DataType) -> pa.Array:
    return pc.cast(raw.view(pa.large_string()), to)


def _valid_text(raw: pa.Array, to: pa.DataType) -> pa.Array:
    return pc.cast(raw, to)  # from bytes: checks that it is UTF-8


def _boolean(raw: pa.Array, _: pa.DataType) -> pa.Array:
    true = pc.equal(raw, pa.scalar(b"t", raw.type))
    if not pc.all(pc.or_(true, pc.equal(raw, pa.scalar(b"f", raw.type)))).as_py() and raw.null_count < len(raw):
        raise pa.ArrowInvalid("neither t nor f")
    return true


def _time(raw: pa.Array, to: pa.DataType) -> pa.Array:
    first_day = pa.scalar("1970-01-01", pa.large_string())
    moments = pc.binary_join_element_wise(first_day, raw.view(pa.large_string()), pa.scalar(" ", pa.large_string()))
    return pc.cast(pc.cast(moments, pa.timestamp("us")), to)  # Arrow has no cast from text to time


def _uuid(raw: pa.Array, to: pa.DataType) -> pa.Array:
    valid = raw.is_valid().to_numpy(zero_copy_only=False)
    lengths, body = _flat(raw.drop_null())
    if (lengths != 36).any():
        raise pa.ArrowInvalid("a uuid has 36 characters")
    letters = body.reshape(-1, 36)
    if (letters[:, [8, 13, 18, 23]] != ord("-")).any():
        raise pa.ArrowInvalid("a uuid has four dashes")
    groups = [letters[:, first:last] for first, last in ((0, 8), (9, 13), (14, 18), (19, 23), (24, 36))]
    found = np.zeros((len(raw), 16), np.uint8)
    found[valid] = _unhex(np.concatenate(groups, axis=1).reshape(-1)).reshape(-1, 16)
    return pa.Array.from_buffers(to, len(raw), [_bits(valid), pa.py_buffer(found)])


def _bytea(raw: pa.Array, to: pa.DataType) -> pa.Array:
    valid = raw.is_valid().to_numpy(zero_copy_only=False)
    lengths, body = _flat(raw.drop_null())
    heads = np.cumsum(lengths) - lengths  # every value is `\x` and pairs of digits, so it starts at an even place
    if (lengths < 2).any() or (lengths % 2).any():
        raise pa.ArrowInvalid("bytea is not in hex")
    if (body[heads] != ord("\\")).any() or (body[heads + 1] != ord("x")).any():
        raise pa.ArrowInvalid("bytea is not in hex")
    digits = np.ones(len(body) // 2, bool)
    digits[heads // 2] = False
    ends = np.zeros(len(raw) + 1, np.int64)
    ends[1:][valid] = lengths // 2 - 1
    bytes_ = _unhex(body.view(np.uint16)[digits])
    return pa.Array.from_buffers(to, len(raw), [_bits(valid), pa.py_buffer(np.cumsum(ends)), pa.py_buffer(bytes_)])


_NO_BYTE = 0x100


def _byte_of_pair() -> npt.NDArray[np.uint16]:
    """Two hex digits, read as one 16-bit number of this machine, → the byte they spell."""
    table = np.full(1 << 16, _NO_BYTE, np.uint16)
    for pair in itertools.product(b"0123456789abcdefABCDEF", repeat=2):
        table[int.from_bytes(pair, sys.byteorder)] = int(bytes(pair), 16)
    return table


_BYTE_OF_PAIR = _byte_of_pair()


def _unhex(digits: npt.NDArray[np.uint8] | npt.NDArray[np.uint16]) -> npt.NDArray[np.uint8]:
    values = _BYTE_OF_PAIR[digits.view(np.uint16)]
    if (values == _NO_BYTE).any():
        raise pa.ArrowInvalid("not a hex digit")
    return values.astype(np.uint8)


def _flat(raw: pa.Array) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    """Lengths and bytes, side by side, of a large binary array without nulls."""
    if len(raw) == 0:
        return np.zeros(0, np.int64), np.zeros(0, np.uint8)
    _, offsets, data = raw.buffers()
    ends = np.frombuffer(offsets, np.int64)[raw.offset : raw.offset + len(raw) + 1]
    return np.diff(ends), np.frombuffer(data or b"", np.uint8)[ends[0] : ends[-1]]


def _bits(valid: npt.NDArray[np.bool_]) -> pa.Buffer:
    return pa.py_buffer(np.packbits(valid, bitorder="little"))


_READERS: dict[int, _Reader] = {
    pa.bool_().id: _boolean,
    pa.large_string().id: _valid_text,
    pa.large_binary().id: _bytea,
    pa.binary(16).id: _uuid,
    pa.time64("us").id: _time,
}

# One value at a time ------------------------------------------------------------------------------------------------

_DATE = r"\d{4}-\d\d-\d\d"
_USUAL = {  # what Arrow is known to read; everything else that PostgreSQL prints for the type is odd
    pa.decimal128(1).id: r"^-?[0-9.]+$",
    pa.date32().id: rf"^{_DATE}$",
    pa.timestamp("us").id: rf"^{_DATE} \d\d:\d\d:\d\d(\.\d{{1,6}})?([+-]\d\d(:\d\d)?)?$",
    pa.time64("us").id: r"^([01]\d|2[0-3]):\d\d:\d\d(\.\d{1,6})?$",
}
_MOMENT = re.compile(
    rb"(?P<year>\d{4,})-(?P<month>\d\d)-(?P<day>\d\d)"
    rb"(?: (?P<h>\d\d):(?P<m>\d\d):(?P<s>\d\d)(?:\.(?P<us>\d{1,6}))?"
    rb"(?P<sign>[+-])?(?P<zh>\d\d)?(?::(?P<zm>\d\d))?(?::(?P<zs>\d\d))?)?(?P<bc> BC)?"
)


def _moment(text: bytes, *, whole_days: bool) -> int | None:
    """Days (of a date) or microseconds (of a timestamp) since 1970; None for infinity and what does not fit."""
    match = _MOMENT.fullmatch(text)
    if match is None:
        return None
    year, month, day, h, m, s, zh, zm, zs = (
        int(match[part] or 0) for part in ("year", "month", "day", "h", "m", "s", "zh", "zm", "zs")
    )
    days = _days(1 - year if match["bc"] else year, month, day)
    if whole_days:
        return days
    offset = (zh * 3600 + zm * 60 + zs) * (-1 if match["sign"] == b"-" else 1)
    fraction = int((match["us"] or b"").ljust(6, b"0"))
    moment = days * DAY_US + (h * 3600 + m * 60 + s - offset) * 1_000_000 + fraction
    return moment if moment < TIMESTAMP_END else None


def _days(year: int, month: int, day: int) -> int:
    """Days since 1970-01-01 in the Gregorian calendar carried on for ever; year 0 is 1 BC."""
    year -= month <= 2  # a year that starts in March ends with the leap day
    era, year_of_era = divmod(year, 400)
    day_of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return era * 146_097 + year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year - 719_468
