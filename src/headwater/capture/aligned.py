"""Which columns of the catalog a Relation message of the past speaks of. No IO.

The catalog may be newer than the message: columns were added, dropped and renamed since. PostgreSQL lists columns by
attribute number, gives new ones a higher number and never uses one again; that, and names, tell them apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from headwater.change import Column, Relation, TableName

__all__ = ["Attribute", "Entry", "aligned"]


@dataclass(frozen=True, slots=True)
class Attribute:
    """A row of pg_attribute. `sent`: the publication sends it."""

    attnum: int
    name: str
    type_oid: int
    typmod: int
    dims: int
    nullable: bool
    dropped: bool
    sent: bool
    default: bool  # it is computed when a row does not give it: a default, an identity, an expression
    missing: str | None


@dataclass(frozen=True, slots=True)
class Entry:
    """A table as the catalog has it now."""

    oid: int
    table: TableName
    kind: str  # r: plain, p: partitioned
    identity: str
    filenode: int
    primary: frozenset[int]  # attribute numbers of an immediate primary key
    index: frozenset[int]  # and of the index that is the replica identity
    attributes: Mapping[int, Attribute]

    @property
    def sent(self) -> tuple[Attribute, ...]:
        return tuple(each for _, each in sorted(self.attributes.items()) if each.sent)

    @property
    def key(self) -> frozenset[int]:
        """The columns that rows are merged by."""
        return self.index if self.identity == "i" else self.primary


def aligned(told: Sequence[Column], before: Relation | None, entry: Entry | None) -> list[int]:
    """The attribute number of each column told, 0 where it cannot be known.

    `before` is an earlier version of the table, the entry a later one, or the same. What a name is worth: a column is
    taken for the one that has its name and type before or now, or had the name and is gone; if those are two different
    ones, for none of them. So what can mislead is a name that has gone from one column to another and on to a third, or
    away, in that time.
    """
    known = {column.attnum: column for column in before.columns if column.attnum} if before else {}
    now = entry.attributes if entry else {}
    newest = max(known, default=0)
    alive = {attnum for attnum, each in now.items() if each.sent}
    must = known.keys() & alive  # there before and there now: there between
    may = {attnum for attnum in now if attnum > newest} | known.keys() | alive
    # A column that came and went since `before` may have had any name, that of one that is gone, too.
    unnamed = any(each.dropped and attnum > newest for attnum, each in now.items())
    vouched = may - {attnum for attnum in known if unnamed and attnum not in alive}
    gone = {(column.name, attnum) for attnum, column in known.items() if attnum not in alive}
    named = _named(told, known.values(), now.values(), gone)
    for pins in ({index: attnum for index, attnum in named.items() if attnum in vouched}, {}):
        ranges = _ranges(len(told), must, may, pins)
        if ranges is not None:
            # Beyond what the catalog of a dropped table could have told there may have been others.
            return [low if low == high and (entry or index in pins) else 0 for index, (low, high) in enumerate(ranges)]
    return [0] * len(told)


def _named(
    told: Sequence[Column], known: Iterable[Column], now: Iterable[Attribute], gone: Iterable[tuple[str, int]]
) -> dict[int, int]:
    """By index of a column told: the one attribute that has its name and type; one that is gone may have had any."""
    bearers: dict[tuple[str, int, int], set[int]] = {}
    there: list[Column | Attribute] = [*known, *(each for each in now if not each.dropped)]
    for each in there:
        bearers.setdefault((each.name, each.type_oid, each.typmod), set()).add(each.attnum)
    found: dict[int, int] = {}
    for index, each in enumerate(told):
        exact = bearers.get((each.name, each.type_oid, each.typmod), set())
        if exact and len(exact | {attnum for name, attnum in gone if name == each.name}) == 1:
            (found[index],) = exact
    return found


def _ranges(count: int, must: set[int], may: set[int], pins: Mapping[int, int]) -> list[tuple[int, int]] | None:
    """The lowest and the highest attribute number each of `count` columns can have; None if there is no way at all."""
    ranges: list[tuple[int, int]] = []
    posts = [(-1, 0), *sorted(pins.items()), (count, max(may, default=0) + 1)]
    for (before, low), (after, high) in pairwise(posts):
        if low >= high:
            return None
        between = sorted(attnum for attnum in may if low < attnum < high)
        needed = [attnum for attnum in between if attnum in must]
        free = [attnum for attnum in between if attnum not in must]
        more = after - before - 1 - len(needed)
        if not 0 <= more <= len(free):
            return None
        # Increasing, so the lowest choice of all is the lowest for each; so with the highest.
        ranges += zip(sorted(needed + free[:more]), sorted(needed + free[len(free) - more :]), strict=True)
        ranges.append((high, high))
    return ranges[:-1]
