"""Routing values: one text for each value of a column, however the config spells it.

`1` and `01` are one integer, `1.0` and `1.00` one decimal; text is compared exactly as it is. The canonical text does
not depend on a type's width, precision or unit, so a destination keeps its value when the column's type is widened.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import ConfigError
from headwater.lake.casting import fitted, plain
from headwater.route.moments import read_moment, spelled_moment

__all__ = ["canonical", "canonical_column", "canonical_patterns"]

_INTEGER = re.compile(r"[+-]?\d{1,100}", re.ASCII)
_DECIMAL = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)(e[+-]?\d{1,9})?", re.ASCII | re.IGNORECASE)
_FLOAT = re.compile(rf"{_DECIMAL.pattern}|[+-]?(?P<infinite>inf(inity)?)|nan", re.ASCII | re.IGNORECASE)
_BOOLEANS = dict.fromkeys(("true", "t", "yes", "y", "on", "1"), True)
_BOOLEANS |= dict.fromkeys(("false", "f", "no", "n", "off", "0"), False)
_HEX = re.compile(r"\\x(([0-9a-f]{2})*)", re.ASCII | re.IGNORECASE)
_UUID = re.compile(r"[0-9a-f]{4}(-?[0-9a-f]{4}){7}", re.ASCII | re.IGNORECASE)
_TEXT = pa.large_string()


def canonical(text: str, type_: pa.DataType) -> str:
    """The canonical text of a value that the config spells; ConfigError if a column of this type cannot have it.

    It is what `canonical_column` gives for every row that has this value.
    """
    kind = _kind(type_)
    storage = plain(type_)
    try:
        found = kind.read(text if kind.verbatim else text.strip(), storage)
    except (ValueError, ArithmeticError):
        raise ConfigError(
            f"{text[:100]!r} is no value of a column of type {_name(type_)}",
            hint=f"write {kind.example}, or choose another column to route by",
        ) from None
    return str(kind.spell(found)[0].as_py())


def canonical_column(array: pa.Array) -> pa.Array:
    """The canonical texts of a column (large string), null for null; ConfigError if its type cannot route."""
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    return _kind(array.type).spell(fitted(array, plain(array.type)))


def canonical_patterns(entries: Iterable[str], type_: pa.DataType) -> tuple[str, ...]:
    """The entries of an allow-list for `lake.template.allowed`: patterns as they are, values in canonical text."""
    return tuple(each if "*" in each else canonical(each, type_) for each in entries)


@dataclass(frozen=True, slots=True)
class _Kind:
    """A kind of types: how to read one text into an array of one value, and how to spell an array."""

    example: str
    read: Callable[[str, pa.DataType], pa.Array]
    spell: Callable[[pa.Array], pa.Array]
    verbatim: bool = False  # blanks around the text are part of the value


def _kind(type_: pa.DataType) -> _Kind:
    kind = next((kind for fits, kind in _KINDS if fits(plain(type_))), None)
    if kind is None:
        raise ConfigError(
            f"rows cannot be routed by a column of type {_name(type_)}",
            hint="route by a column of numbers, text, booleans, dates, times, uuids or bytes",
        )
    return kind


def _name(type_: pa.DataType) -> str:
    type_ = plain(type_)
    if pa.types.is_decimal(type_):
        return f"decimal({type_.precision},{type_.scale})"
    return "uuid" if _is_uuid(type_) else str(type_)


# Reading ------------------------------------------------------------------------------------------------------------


def _whole(pattern: re.Pattern[str], text: str) -> re.Match[str]:
    match = pattern.fullmatch(text)
    if match is None:
        raise ValueError("not spelled so")
    return match


def _read_boolean(text: str, type_: pa.DataType) -> pa.Array:
    found = _BOOLEANS.get(text.lower())
    if found is None:
        raise ValueError("not a boolean")
    return pa.array([found], type_)


def _read_integer(text: str, type_: pa.DataType) -> pa.Array:
    return pa.array([int(_whole(_INTEGER, text)[0])], type_)


def _read_float(text: str, type_: pa.DataType) -> pa.Array:
    infinite = _whole(_FLOAT, text)["infinite"]
    found = pc.cast(pa.array([text]), type_)  # rounded once, to the nearest float of this width
    if pc.is_inf(found)[0].as_py() and not infinite:
        raise ValueError("too large")
    return found


def _read_decimal(text: str, type_: pa.DataType) -> pa.Array:
    sign, digits, exponent = Decimal(_whole(_DECIMAL, text)[0]).as_tuple()
    significant = "".join(map(str, digits)).lstrip("0")
    shortest = significant.rstrip("0")
    exponent = int(exponent) + len(significant) - len(shortest) if shortest else 0
    if exponent < -type_.scale or len(shortest) + exponent > type_.precision - type_.scale:
        raise ValueError("too many digits")
    return pa.array([Decimal((sign, tuple(map(int, shortest)), exponent))], type_)


def _read_text(text: str, type_: pa.DataType) -> pa.Array:
    return pa.array([text], type_)


def _read_bytes(text: str, type_: pa.DataType) -> pa.Array:
    return pa.array([bytes.fromhex(_whole(_HEX, text)[1])], type_)


def _read_uuid(text: str, type_: pa.DataType) -> pa.Array:
    bare = text[1:-1] if text.startswith("{") and text.endswith("}") else text
    return pa.array([UUID(_whole(_UUID, bare)[0]).bytes], type_)


def _read_moment(text: str, type_: pa.DataType) -> pa.Array:
    return pa.array([read_moment(text, type_)], _number(type_)).view(type_)


# Spelling -----------------------------------------------------------------------------------------------------------


def _spell_directly(array: pa.Array) -> pa.Array:
    return array.cast(_TEXT)


def _spell_float(array: pa.Array) -> pa.Array:
    return pc.add(array, pa.scalar(0.0, array.type)).cast(_TEXT)  # which makes -0.0 the other zero


def _spell_decimal(array: pa.Array) -> pa.Array:
    if array.type.bit_width < 128:  # of which Arrow has no dictionaries
        array = array.cast(pa.decimal128(array.type.precision, array.type.scale))
    return _distinct(array, lambda value: _without_zeros(f"{value:f}"))


def _without_zeros(text: str) -> str:
    return text.rstrip("0").rstrip(".") if "." in text else text


def _spell_bytes(array: pa.Array) -> pa.Array:
    return _distinct(array, lambda value: rf"\x{value.hex()}")


def _spell_uuid(array: pa.Array) -> pa.Array:
    return _distinct(array, lambda value: str(UUID(bytes=value)))


def _spell_moment(array: pa.Array) -> pa.Array:
    return _distinct(array.view(_number(array.type)), lambda number: spelled_moment(number, array.type))


def _distinct(array: pa.Array, spell: Callable[[Any], str]) -> pa.Array:
    """Each distinct value spelled once: there are far fewer of them than rows."""
    encoded = array.dictionary_encode()
    return pa.array(map(spell, encoded.dictionary.to_pylist()), _TEXT).take(encoded.indices)


# Kinds --------------------------------------------------------------------------------------------------------------


def _number(type_: pa.DataType) -> pa.DataType:
    """What a date, a time or a timestamp is in memory."""
    return pa.int32() if type_.bit_width == 32 else pa.int64()


def _is_moment(type_: pa.DataType) -> bool:
    return bool(pa.types.is_date(type_) or pa.types.is_time(type_) or pa.types.is_timestamp(type_))


def _is_uuid(type_: pa.DataType) -> bool:
    return bool(type_ == pa.binary(16))


def _is_text(type_: pa.DataType) -> bool:
    return bool(pa.types.is_string(type_) or pa.types.is_large_string(type_) or pa.types.is_string_view(type_))


def _is_bytes(type_: pa.DataType) -> bool:
    sizes = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view, pa.types.is_fixed_size_binary)
    return any(each(type_) for each in sizes)


_KINDS: tuple[tuple[Callable[[pa.DataType], bool], _Kind], ...] = (
    (_is_text, _Kind("text", _read_text, _spell_directly, verbatim=True)),
    (pa.types.is_integer, _Kind("an integer in its range", _read_integer, _spell_directly)),
    (_is_uuid, _Kind("a uuid", _read_uuid, _spell_uuid)),
    (pa.types.is_boolean, _Kind("true or false", _read_boolean, _spell_directly)),
    (pa.types.is_decimal, _Kind("a number with no more digits than the type has", _read_decimal, _spell_decimal)),
    (pa.types.is_floating, _Kind("a number", _read_float, _spell_float)),
    (_is_moment, _Kind("it like 2024-12-31, 23:59:59.5 or both, as the type has it", _read_moment, _spell_moment)),
    (_is_bytes, _Kind(r"bytes in hex, like \x00ff", _read_bytes, _spell_bytes)),
)
