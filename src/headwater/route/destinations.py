"""From a column of canonical values to the destinations of its rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import ConfigError
from headwater.route.values import canonical

__all__ = ["NOWHERE", "Routed", "Routing"]

NOWHERE = -1  # the number of no destination


@dataclass(frozen=True, slots=True, eq=False)
class Routed:
    """The destination of each row, and how many rows have none: by a value without one, and by NULL."""

    destinations: npt.NDArray[np.int32]
    unrouted: int
    nulls: int


@dataclass(frozen=True, slots=True)
class Routing:
    """Destinations by number: 0, 1, … have these canonical values; the default, if there is one, comes last."""

    values: tuple[str, ...]
    has_default: bool = False

    @classmethod
    def of(cls, spellings: Sequence[str], type_: pa.DataType, *, has_default: bool = False) -> Routing:
        """The routing for these values of a column; ConfigError if two are one value, or one cannot be a value."""
        seen: dict[str, str] = {}
        for spelling in spellings:
            value = canonical(spelling, type_)
            if value in seen:
                raise ConfigError(
                    f"{seen[value]!r} and {spelling!r} are one value of the routing column",
                    hint="remove one of the two destinations",
                )
            seen[value] = spelling
        return cls(tuple(seen), has_default)

    @property
    def count(self) -> int:
        """How many destinations there are."""
        return len(self.values) + self.has_default

    @property
    def default(self) -> int:
        """Where rows go whose value has no destination, or is NULL."""
        return len(self.values) if self.has_default else NOWHERE

    def route(self, column: pa.Array) -> Routed:
        """The destinations of a column's rows; `column` is what `canonical_column` gives."""
        found = pc.index_in(column, value_set=self._set())
        missing = found.null_count
        nulls = column.null_count
        numbers = found.fill_null(self.default).to_numpy(zero_copy_only=False).astype(np.int32, copy=False)
        return Routed(numbers, 0, 0) if self.has_default else Routed(numbers, missing - nulls, nulls)

    def unknown(self, column: pa.Array) -> list[str]:
        """The distinct values in a canonical column that have no destination of their own."""
        distinct = column.unique().drop_null()
        found: list[str] = distinct.filter(pc.invert(pc.is_in(distinct, value_set=self._set()))).to_pylist()
        return found

    def _set(self) -> pa.Array:
        return pa.array(self.values, pa.large_string())
