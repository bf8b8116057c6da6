"""PostgreSQL's text of a column → Arrow, by column. Used for the WAL, and for the first copy where it reads text.

Arrow or numpy reads a whole column at once. Only values that they refuse are read one by one, each distinct text once:
unusual dates and times in Python; a value that the type cannot hold becomes null, and is returned as `Bad`.
"""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.values.arraytext import Lists, split_lists
from headwater.values.buffers import bits, flat
from headwater.values.moments import is_moment, moment
from headwater.values.types import MAX_PRECISION, LakeType

__all__ = ["Bad", "Decoded", "decode"]


@dataclass(frozen=True, slots=True)
class Bad:
    """A value the Arrow type cannot hold, as PostgreSQL prints it."""

    row: int
    text: str


@dataclass(frozen=True, slots=True)
class Decoded:
    """A column of exactly the type asked for, null in the rows of `bad`."""

    array: pa.Array
    bad: tuple[Bad, ...] = ()


def decode(text: pa.Array, kind: LakeType) -> Decoded:
    """Read a column of PostgreSQL's text (Arrow string or binary, null where the value is NULL)."""
    raw = text if pa.types.is_large_binary(text.type) else text.cast(pa.large_binary())
    if kind.element is not None:
        return _lists(raw, kind)
    read = _reader(kind)
    try:
        return Decoded(read(raw, kind.arrow))
    except pa.ArrowInvalid:
        return _piecewise(raw, kind, read)


_Reader = Callable[[pa.Array, pa.DataType], pa.Array]


def _piecewise(raw: pa.Array, kind: LakeType, read: _Reader) -> Decoded:
    """Read what `read` accepts at once, and each distinct text of the rest separately."""
    to = kind.arrow
    odd = _odd_rows(raw, to)
    try:
        array = read(pc.if_else(odd, pa.scalar(None, raw.type), raw), to)
    except pa.ArrowInvalid:  # text that PostgreSQL does not print for this type
        odd = raw.is_valid()
        array = pa.nulls(len(raw), to)
    spellings = raw.filter(odd).dictionary_encode()
    found = _singly(spellings.dictionary, kind, read).take(spellings.indices)
    array = pc.replace_with_mask(array, odd, found)
    return Decoded(array, _bad(raw, pc.and_(odd, array.is_null())))


def _bad(raw: pa.Array, which: pa.Array) -> tuple[Bad, ...]:
    rows = np.flatnonzero(which.to_numpy(zero_copy_only=False)).tolist()
    texts = raw.filter(which).to_pylist()
    return tuple(Bad(row, text.decode(errors="backslashreplace")) for row, text in zip(rows, texts, strict=True))


def _odd_rows(raw: pa.Array, to: pa.DataType) -> pa.Array:
    usual = _usual_decimal(to) if pa.types.is_decimal(to) else _USUAL.get(to.id)
    return raw.is_valid() if usual is None else pc.invert(pc.fill_null(pc.match_substring_regex(raw, usual), True))


def _singly(texts: pa.Array, kind: LakeType, read: _Reader) -> pa.Array:
    """The values of these texts, null for those that the type cannot hold."""
    to = kind.arrow
    if is_moment(to):
        numbers = [moment(text, to, calendar_only=kind.calendar_only) for text in texts.to_pylist()]
        return pa.array(numbers, pa.int32() if pa.types.is_date(to) else pa.int64()).view(to)
    if pa.types.is_decimal(to):
        # Arrow counts trailing zeros as digits, and refuses more than 38.
        short = pc.replace_substring_regex(texts, r"(\.[0-9]*?)0+$", r"\1")
        return _cast(pc.if_else(_odd_rows(short, to), pa.scalar(None, short.type), short), to)
    found = [pa.nulls(0, to)]
    for index in range(len(texts)):
        try:
            found.append(read(texts.slice(index, 1), to))
        except pa.ArrowInvalid:
            found.append(pa.nulls(1, to))
    return pa.concat_arrays(found)


# Arrays -------------------------------------------------------------------------------------------------------------


def _lists(raw: pa.Array, kind: LakeType) -> Decoded:
    """Arrays of the declared dimensions; one bad element makes its whole array bad."""
    try:
        lists = split_lists(raw, kind.depth, kind.delimiter)
    except pa.ArrowInvalid:  # some text is not what PostgreSQL prints for an array
        return _lists_singly(raw, kind)
    leaves = decode(lists.leaves, kind.leaf)
    fits = lists.fits
    if leaves.bad:
        fits = fits.copy()
        fits[lists.owners(np.array([each.row for each in leaves.bad]))] = False
        sound = pc.if_else(pa.array(fits), raw, pa.scalar(None, raw.type))
        array = _lists(sound, kind).array
    else:
        array = _assembled(lists, leaves.array, kind)
    return Decoded(array, _bad(raw, pc.and_(raw.is_valid(), pa.array(~fits))))


def _assembled(lists: Lists, leaves: pa.Array, kind: LakeType) -> pa.Array:
    kinds = [kind]
    while (element := kinds[-1].element) is not None and element.element is not None:
        kinds.append(element)
    sizes = np.zeros(len(lists.fits), np.int64)
    sizes[lists.fits] = np.diff(lists.offsets[0])
    outermost = np.append(0, np.cumsum(sizes))  # NULLs have an entry too
    values = leaves
    for each, offsets in zip(reversed(kinds), reversed((outermost, *lists.offsets[1:])), strict=True):
        nulls = pa.array(~lists.fits) if each is kind else None
        values = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values, type=each.arrow, mask=nulls)
    return values


def _lists_singly(raw: pa.Array, kind: LakeType) -> Decoded:
    if len(raw) == 1:
        return Decoded(pa.nulls(1, kind.arrow), _bad(raw, raw.is_valid()))
    each = [_lists(raw.slice(row, 1), kind) for row in range(len(raw))]
    bad = tuple(Bad(row, found.text) for row, decoded in enumerate(each) for found in decoded.bad)
    return Decoded(pa.concat_arrays([decoded.array for decoded in each]), bad)


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
    lengths, body = flat(raw.drop_null())
    if (lengths != 36).any():
        raise pa.ArrowInvalid("a uuid has 36 characters")
    letters = body.reshape(-1, 36)
    if (letters[:, [8, 13, 18, 23]] != ord("-")).any():
        raise pa.ArrowInvalid("a uuid has four dashes")
    groups = [letters[:, first:last] for first, last in ((0, 8), (9, 13), (14, 18), (19, 23), (24, 36))]
    found = np.zeros((len(raw), 16), np.uint8)
    found[valid] = _unhex(np.concatenate(groups, axis=1).reshape(-1)).reshape(-1, 16)
    return pa.Array.from_buffers(to, len(raw), [bits(valid), pa.py_buffer(found)])


def _bytea(raw: pa.Array, to: pa.DataType) -> pa.Array:
    valid = raw.is_valid().to_numpy(zero_copy_only=False)
    lengths, body = flat(raw.drop_null())
    heads = np.cumsum(lengths) - lengths  # every value is `\x` and pairs of digits, so it starts at an even offset
    if (lengths < 2).any() or (lengths % 2).any():
        raise pa.ArrowInvalid("bytea is not in hex")
    if (body[heads] != ord("\\")).any() or (body[heads + 1] != ord("x")).any():
        raise pa.ArrowInvalid("bytea is not in hex")
    digits = np.ones(len(body) // 2, bool)
    digits[heads // 2] = False
    ends = np.zeros(len(raw) + 1, np.int64)
    ends[1:][valid] = lengths // 2 - 1
    bytes_ = _unhex(body.view(np.uint16)[digits])
    return pa.Array.from_buffers(to, len(raw), [bits(valid), pa.py_buffer(np.cumsum(ends)), pa.py_buffer(bytes_)])


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


def _decimal(raw: pa.Array, to: pa.DataType) -> pa.Array:
    # Arrow does not notice an overflow of 128 bits: it reads 99...9 (200 digits) as -1.
    longest = pc.max(pc.binary_length(raw)).as_py() or 0
    if longest + to.scale > MAX_PRECISION and pc.any(_odd_rows(raw, to)).as_py():
        raise pa.ArrowInvalid("too many digits")
    return _cast(raw, to)


def _finite(raw: pa.Array, to: pa.DataType) -> pa.Array:
    """A numeric as a float: rounded, as the user asked for, but not to infinity."""
    found = _cast(raw, to)
    infinite = pc.is_in(raw, pa.array([b"Infinity", b"-Infinity"], raw.type))
    if pc.any(pc.and_not(pc.is_inf(found), infinite)).as_py():
        raise pa.ArrowInvalid("too large for a float")
    return found


def _json(raw: pa.Array, to: pa.DataType) -> pa.Array:
    """Text that the user declares to be json; PostgreSQL has not checked it."""
    for text in raw.drop_null().to_pylist():
        try:
            json.loads(text, parse_int=str, parse_float=str, parse_constant=_no_json)
        except (ValueError, RecursionError) as exc:
            raise pa.ArrowInvalid("not json") from exc
    return pc.cast(raw, to)


def _no_json(word: str) -> NoReturn:
    raise ValueError(word)


_READERS: dict[int, _Reader] = {
    pa.bool_().id: _boolean,
    pa.large_string().id: _valid_text,
    pa.large_binary().id: _bytea,
    pa.binary(16).id: _uuid,
    pa.time64("us").id: _time,
    pa.decimal128(1).id: _decimal,
}


def _reader(kind: LakeType) -> _Reader:
    if kind.logical == "json" and kind.pg not in ("json", "jsonb"):
        return _json
    if kind.logical == "float64" and kind.pg == "numeric":
        return _finite
    return _READERS.get(kind.arrow.id, _cast)


# What Arrow is known to read; anything else that PostgreSQL prints for the type is unusual.
_DATE = r"\d{4}-\d\d-\d\d"
_USUAL = {
    pa.date32().id: rf"^{_DATE}$",
    pa.timestamp("us").id: rf"^{_DATE} \d\d:\d\d:\d\d(\.\d{{1,6}})?([+-]\d\d(:\d\d)?)?$",
    pa.time64("us").id: r"^([01]\d|2[0-3]):\d\d:\d\d(\.\d{1,6})?$",
}


def _usual_decimal(to: pa.DataType) -> str:
    return rf"^-?0?\d{{0,{to.precision - to.scale}}}(\.\d{{0,{to.scale}}})?$"
