"""A partition's bounds, as the catalog prints them, and what they ask of one column of its root."""

from __future__ import annotations

import re
from collections.abc import Iterator

from headwater.state import Condition

__all__ = ["condition"]

_RANGE = re.compile(r"FOR VALUES FROM \((.*)\) TO \((.*)\)", re.DOTALL)
_LIST = re.compile(r"FOR VALUES IN \((.*)\)", re.DOTALL)
_VALUE = re.compile(r"'((?:[^']|'')*)'|([^\s,']+)")


def condition(attnum: int | None, bound: str | None) -> Condition | None:
    """What `FOR VALUES …` asks of the column; None if there is no such column, or the bounds cannot be put so.

    They cannot if they are those of the default partition or of a hash, or if NULL is among the values.
    """
    if attnum is None or bound is None:
        return None
    if match := _RANGE.fullmatch(bound):
        (low,), (high,) = _values(match[1]), _values(match[2])
        return Condition(attnum, low, high)
    if match := _LIST.fullmatch(bound):
        values = tuple(_values(match[1]))
        return None if None in values else Condition(attnum, values=tuple(each for each in values if each is not None))
    return None


def _values(printed: str) -> Iterator[str | None]:
    """The values, None for those that are none: NULL, MINVALUE, MAXVALUE."""
    for quoted in _VALUE.finditer(printed):
        if quoted[2] is None:
            yield quoted[1].replace("''", "'")
        else:
            yield None if quoted[2] in ("NULL", "MINVALUE", "MAXVALUE") else quoted[2]
