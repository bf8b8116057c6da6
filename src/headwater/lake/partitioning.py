"""`partition_by`: how the rows of a table are divided among its files, in the same words for every kind of lake."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, cast, get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.values.types import LakeType

__all__ = ["TIMES", "PartitionBy", "PartitionSupport", "Transform", "divided", "parts"]

Transform = Literal["identity", "year", "month", "day", "hour", "bucket", "truncate"]

TIMES = ("year", "month", "day", "hour")
_SPELLED: dict[Transform, str] = {
    "identity": "a column's name",
    "year": "year(c)",
    "month": "month(c)",
    "day": "day(c)",
    "hour": "hour(c)",
    "bucket": "bucket(N, c)",
    "truncate": "truncate(W, c)",
}
_MOST = 2**31 - 1  # what the argument of a transform may be, in both lakes
_COLUMN = r'"(?:[^"]|"")+"|[^\s(),"]+'
_EXPRESSION = re.compile(
    rf"(?:(?P<name>\w+)\s*\(\s*(?:(?P<argument>-?\d+)\s*,\s*)?)?(?P<column>{_COLUMN})\s*(?P<end>\)?)"
)


@dataclass(frozen=True, slots=True)
class PartitionBy:
    """One expression of `partition_by`: rows with equal values of it are in one partition."""

    transform: Transform
    column: str
    argument: int | None = None  # of a bucket, how many there are; of a truncation, to which width

    @classmethod
    def parse(cls, text: str) -> PartitionBy:
        """ValueError if it is no such expression."""
        found = _EXPRESSION.fullmatch(text.strip())
        if found is None or bool(found["name"]) != bool(found["end"]):
            raise ValueError(f"{text!r} is no way to partition a table (write {_choice(_SPELLED)})")
        name = (found["name"] or "identity").lower()
        if name not in get_args(Transform):
            raise ValueError(f"there is no partition transform {found['name']!r} (write {_choice(_SPELLED)})")
        transform = cast(Transform, name)
        argument = None if found["argument"] is None else int(found["argument"])
        if (argument is not None) != (transform in ("bucket", "truncate")):
            raise ValueError(f"{text!r} has {'no' if argument is None else 'a'} number (write {_SPELLED[transform]})")
        if argument is not None and not 0 < argument <= _MOST:
            raise ValueError(f"the number in {text!r} is not from 1 to {_MOST}")
        column = found["column"]
        return cls(transform, column[1:-1].replace('""', '"') if column.startswith('"') else column, argument)

    def __str__(self) -> str:
        column = self.column if re.fullmatch(r'[^\s(),"]+', self.column) else '"' + self.column.replace('"', '""') + '"'
        if self.transform == "identity":
            return column
        return f"{self.transform}({column if self.argument is None else f'{self.argument}, {column}'})"


class PartitionProblem(NamedTuple):
    """Why a table cannot be partitioned so, and what to write instead."""

    message: str
    hint: str


@dataclass(frozen=True, slots=True)
class PartitionSupport:
    """What a kind of lake can partition by: the types of columns that each transform takes."""

    lake: str
    types: Mapping[Transform, frozenset[str]]  # logical ones
    redundant_times: bool  # whether a column may have more than one of year, month, day and hour

    def problems(self, wanted: Sequence[PartitionBy], kinds: Mapping[str, LakeType]) -> Iterator[PartitionProblem]:
        """Everything that is wrong with these expressions for a table that has these columns in the lake."""
        for each in wanted:
            if each.transform not in self.types:
                message = f"{self.lake} has no partition transform {each.transform!r}, which `{each}` asks for"
                yield PartitionProblem(message, f"write {_choice(self.types)}")
            elif each.column not in kinds:
                hint = f"it has: {', '.join(kinds)}"
                yield PartitionProblem(f"`partition_by` names the column {each.column!r}, which is not mirrored", hint)
            elif kinds[each.column].logical not in self.types[each.transform]:
                yield self._misfit(each, kinds[each.column])
        times = [each.column for each in wanted if each.transform in TIMES]
        for column in dict.fromkeys(each for each in times if times.count(each) > 1 and not self.redundant_times):
            message = f"{self.lake} takes only one of year, month, day and hour of a column, and {column!r} has several"
            yield PartitionProblem(message, "keep the finest: readers find years in days, too")

    def _misfit(self, wanted: PartitionBy, kind: LakeType) -> PartitionProblem:
        fitting = [each for each, types in self.types.items() if kind.logical in types]
        hint = f"it takes {_choice(fitting)}" if fitting else "partition by another column"
        message = f"{self.lake} does not partition by `{wanted}`: {wanted.column!r} is of type {kind}"
        return PartitionProblem(message, hint)


def _choice(transforms: Sequence[Transform] | Mapping[Transform, object]) -> str:
    *most, last = (_SPELLED[each] for each in transforms)
    return f"{', '.join(most)} or {last}" if most else last


def divided(values: Sequence[pa.Array]) -> list[npt.NDArray[np.int64]]:
    """The rows of each partition, ascending; `values` has an array for each expression, null among them."""
    codes = np.zeros(len(values[0]), np.int64)
    for array in values:
        encoded = array.dictionary_encode(null_encoding="encode")
        codes = codes * (len(encoded.dictionary) + 1) + encoded.indices.to_numpy(zero_copy_only=False)
        codes = np.unique(codes, return_inverse=True)[1]  # so that they stay small, however many expressions there are
    order = np.argsort(codes, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(codes[order])) + 1) if len(order) else []


def parts(rows: pa.Table, values: Sequence[pa.Array], most: int) -> Iterator[tuple[npt.NDArray[np.int64], pa.Table]]:
    """The rows of each partition, at most so many at once, with their numbers. Dividing takes thrice the memory."""
    chosen = [part for each in divided(values) for part in np.split(each, range(most, len(each), most))]
    ordered = rows if len(chosen) == 1 else rows.take(pa.array(np.concatenate(chosen)))
    first = 0
    for part in chosen:
        yield part, ordered.slice(first, len(part))
        first += len(part)
