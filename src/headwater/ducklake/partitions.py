"""DuckLake's partitions: the keys of a table, the text of each key for rows that are written, and their folders.

Years, months, days and hours are parts of the calendar here: `day` is the day of the month. What is spelled and hashed
how was found by experiment, and `tests/ducklake/test_ducklake_partitions.py` compares it with the extension.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal
from urllib.parse import quote

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.ducklake.model import Field, PartitionKey
from headwater.ducklake.texts import text_of
from headwater.ducklake.writing import plain_type
from headwater.errors import CannotFollow
from headwater.lake.casting import fitted
from headwater.lake.hashing import buckets, hashed_numbers, hashed_texts
from headwater.lake.partitioning import TIMES, PartitionBy, PartitionSupport

__all__ = [
    "SUPPORT",
    "check_kept",
    "hive_folder",
    "not_computable",
    "partition_at",
    "partition_keys",
    "partition_values",
    "same_for_all",
]

_NUMBERS = frozenset({"int16", "int32", "int64", "uint32", "uint64", "decimal"})
_MOMENTS = frozenset({"date", "timestamp", "timestamptz"})
_OTHERS = frozenset({"boolean", "string", "json", "uuid", "time"})
SUPPORT = PartitionSupport(
    "DuckLake",
    {
        "identity": _NUMBERS | _MOMENTS | _OTHERS,
        "year": _MOMENTS,
        "month": _MOMENTS,
        "day": _MOMENTS,
        "hour": _MOMENTS - {"date"},
        "bucket": _NUMBERS | _MOMENTS | _OTHERS | {"binary"},
    },
    redundant_times=True,
)
_BY_NUMBER = ("int8", "int16", "int32", "int64", "boolean", "date", "time", "timestamp", "timestamptz")
_BY_BYTES = ("varchar", "json", "blob")
_BY_TEXT = ("uint8", "uint16", "uint32", "uint64", "uuid")  # which DuckDB's murmur3 casts to text
_DECIMAL = re.compile(r"decimal\((\d+),\d+\)")
_WHOLE_DIGITS = 18  # decimals of so many digits are hashed as the whole numbers they are stored as, others as text
_DAY, _HOUR = 86_400_000_000, 3_600_000_000  # microseconds
_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
_LONGEST = 255  # bytes of a folder's name


def partition_keys(wanted: Iterable[PartitionBy], fields: Sequence[Field]) -> tuple[PartitionKey, ...]:
    """The keys for these expressions."""
    ids = {field.name: field.id for field in fields}
    return tuple(
        PartitionKey(
            ids[each.column], each.transform if each.argument is None else f"{each.transform}({each.argument})"
        )
        for each in wanted
    )


def not_computable(keys: Iterable[PartitionKey], fields: Sequence[Field]) -> str | None:
    """The first key, as another client may have made it, whose values we cannot tell."""
    by_id = {field.id: field for field in fields}
    for key in keys:
        field = by_id.get(key.column_id)
        if field is None or not _computable(key, field.type):
            return f"{key.transform} of column {field.name if field else key.column_id}"
    return None


def _computable(key: PartitionKey, type_: str) -> bool:
    if key.transform in TIMES:
        return type_ in ("date", "timestamp", "timestamptz") and (key.transform, type_) != ("hour", "date")
    plain = type_ in _BY_NUMBER or type_ in _BY_TEXT or type_ in _BY_BYTES or type_.startswith("decimal(")
    return plain and (key.buckets is not None or (key.transform == "identity" and type_ != "blob"))


def check_kept(table: str, keys: Iterable[PartitionKey], old: Sequence[Field], new: Sequence[Field]) -> None:
    """CannotFollow if older files would be in other partitions under the new columns."""
    was, now = ({field.id: field for field in fields} for fields in (old, new))
    for key in keys:
        if key.column_id not in now:
            raise CannotFollow(f"{table} is partitioned by column {was[key.column_id].name!r}, which is dropped")
        before, after = was[key.column_id].type, now[key.column_id].type
        if key.buckets is not None and _hashed(before) != _hashed(after):
            raise CannotFollow(
                f"{table} is partitioned into buckets of column {now[key.column_id].name!r}, which are others now that"
                f" it is {after} and no longer {before}"
            )


def _hashed(type_: str) -> Literal["number", "bytes", "text"]:
    """What the extension hashes values of this type as."""
    decimal = _DECIMAL.fullmatch(type_)
    if type_ in _BY_NUMBER or (decimal and int(decimal[1]) <= _WHOLE_DIGITS):
        return "number"
    return "bytes" if type_ in _BY_BYTES else "text"


def same_for_all(key: PartitionKey, type_: str) -> bool:
    """Whether every client finds the same partition for a value; for others a day begins in their own time zone."""
    return type_ != "timestamptz" or key.transform not in TIMES


def partition_values(
    keys: Sequence[PartitionKey], fields: Sequence[Field], columns: Mapping[str, pa.Array]
) -> dict[int, pa.Array]:
    """By the number of the key, its values for rows of which these columns are given, those of other keys left out."""
    by_id = {field.id: field for field in fields}
    found = {}
    for at, key in enumerate(keys):
        field = by_id[key.column_id]
        if field.name in columns:
            found[at] = _transformed(key, field.type, fitted(columns[field.name], plain_type(field)))
    return found


def partition_at(
    keys: Sequence[PartitionKey], fields: Sequence[Field], values: Mapping[int, pa.Array], row: int
) -> tuple[str | None, ...]:
    """The partition of one of the rows as the catalog spells it, for those keys that `values` has."""
    types = {field.id: field.type for field in fields}
    return tuple(_text(keys[at], types[keys[at].column_id], array[row]) for at, array in values.items())


def hive_folder(keys: Sequence[PartitionKey], fields: Sequence[Field], partition: Sequence[str | None]) -> str:
    """The folder, relative to the table's, that DuckDB has files of a partition in: it never merges across folders."""
    names = {field.id: field.name for field in fields}
    used: set[str] = set()
    path = ""
    for key, value in zip(keys, partition, strict=True):
        column = names[key.column_id]
        name = "bucket" if key.buckets is not None else column if key.transform == "identity" else key.transform
        if name.lower() in used:
            name += f"_{column}"
        used.add(name.lower())
        step = f"{quote(name, safe='')}={_NO_VALUE if value is None else quote(value, safe='')}"
        path += (step if len(step) <= _LONGEST else hashlib.sha256(step.encode()).hexdigest()) + "/"
    return path


def _text(key: PartitionKey, type_: str, value: pa.Scalar) -> str | None:
    if not value.is_valid:
        return None
    if key.transform != "identity":
        return str(value.as_py())
    return str(value.as_py()).lower() if type_ == "boolean" else text_of(value, type_)


def _transformed(key: PartitionKey, type_: str, array: pa.Array) -> pa.Array:
    if key.buckets is not None:
        return buckets(array, _hashes(type_, array), key.buckets)
    if key.transform == "identity":
        return array
    whole = array.view(pa.int32() if array.type.bit_width == 32 else pa.int64())
    infinite = 2 ** (whole.type.bit_width - 1) - 1
    numbers = whole.cast(pa.int64()).fill_null(infinite).to_numpy()
    none = np.abs(numbers) >= infinite  # infinity has no year
    moments = np.where(none, 0, numbers)
    return pa.array(_part(key.transform, moments, _DAY if type_ != "date" else 1), pa.int32(), mask=none)


def _part(transform: str, moments: npt.NDArray[np.int64], day: int) -> npt.NDArray[np.int64]:
    days = (moments // day).view("M8[D]")
    months = days.astype("M8[M]")
    match transform:
        case "year":
            return np.asarray(days.astype("M8[Y]").astype(np.int64) + 1970)
        case "month":
            return np.asarray(months.astype(np.int64) % 12 + 1)
        case "day":
            return np.asarray((days - months.astype("M8[D]")).astype(np.int64) + 1)
    return np.asarray(moments % _DAY // _HOUR)


def _hashes(type_: str, array: pa.Array) -> Any:
    match _hashed(type_):
        case "number":
            return hashed_numbers(_unscaled(array) if pa.types.is_decimal(array.type) else array)
        case "bytes":
            return hashed_texts(array)
    return hashed_texts(array, (text_of(value, type_).encode() for value in array.dictionary_encode().dictionary))


def _unscaled(array: pa.Array) -> pa.Array:
    """Decimals that fit into eight bytes as the whole numbers that they are stored as."""
    words = np.frombuffer(array.buffers()[1], "<i8").reshape(-1, 2)[array.offset : array.offset + len(array), 0]
    return pa.array(words, mask=array.is_null().to_numpy(zero_copy_only=False))
