"""Which columns of the catalog a Relation message of the past speaks of. No IO.

The catalog may be newer than the message: columns were added, dropped and renamed since. PostgreSQL lists columns by
attribute number, gives new ones a higher number and never uses one again. That alone identifies them: names and types
may have moved from one column to another.
"""

from __future__ import annotations

from collections.abc import Iterator, Set

__all__ = ["aligned"]


def aligned(count: int, known: Set[int], alive: Set[int], dropped: Set[int]) -> list[int]:
    """The attribute number of each of `count` columns of a message, 0 where it cannot be known.

    `known` are the columns of an earlier version; `alive` those that are sent now, `dropped` those that are gone now.
    """
    choices = list(_choices(count, known, alive, dropped))
    if not choices:
        return [0] * count
    numbers = [{end[place] for choice in choices for end in choice} for place in range(count)]
    return [each.pop() if len(each) == 1 else 0 for each in numbers]


def _choices(count: int, known: Set[int], alive: Set[int], dropped: Set[int]) -> Iterator[tuple[list[int], list[int]]]:
    """The lowest and the highest numbers the columns can have, for each column that may have been the newest then.

    Columns are made in the order of their numbers: one that is there now was there then, unless it is newer than that.
    """
    last = max(known, default=0)
    gone = {number for number in known | dropped if number not in alive}
    older = {number for number in alive - known if number <= last}  # sent now, and perhaps not always
    for newest in sorted({last} | {number for number in alive | dropped if number > last}):
        fixed = [number for number in alive if number <= newest and number not in older]
        free = sorted(
            number for number in gone | older if number <= newest and (number > last or number in known | older)
        )
        more = count - len(fixed)
        if 0 <= more <= len(free):
            # Increasing, so the lowest choice of all is the lowest for each; so with the highest.
            yield sorted(fixed + free[:more]), sorted(fixed + free[len(free) - more :])
