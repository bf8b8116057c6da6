"""Maintenance of a lake's tables: fewer and fuller files, no snapshots and files that are no longer needed.

It is safe beside deliveries, which never wait for it: where the two meet, maintenance is what is given up.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import Any, Protocol, Self

from headwater.change import TableName
from headwater.lake.packing import ENOUGH_FILES, Packable, is_small

__all__ = [
    "Chores",
    "Figures",
    "FlushLimits",
    "Maintenance",
    "MaintenancePolicy",
    "MergeWriter",
    "Merging",
    "Portion",
    "Ready",
    "at_any_time",
    "figures_of",
]


Ready = Callable[[], None]  # called just before a commit, which must not happen if it raises CommitConflict


def at_any_time() -> AbstractContextManager[Ready]:
    """Inside, a commit may happen, whatever else there is."""
    return nullcontext(lambda: None)


@dataclass(frozen=True, slots=True)
class FlushLimits:
    """Rows that a table has in the lake's catalog move into a file when they are so many, or have so many bytes.

    Or when the oldest is this old. With `ended_only`, when earlier versions alone are so many.
    """

    rows: int = 1
    age: timedelta = timedelta(0)
    bytes: int = 16 << 20
    ended_only: bool = False

    @classmethod
    def in_time(cls, most: int, age: timedelta) -> Self:
        """Of a table that may have `most` rows there: a delivery that would make them more goes into a file."""
        return cls(max(1, most // 2), age)


@dataclass(frozen=True, slots=True)
class MaintenancePolicy:
    """What to do; None: not at all. `expire` is the age of snapshots, `orphans` that of files that no snapshot has.

    `keep` are snapshots of the lake that do not expire, however old they are, and nor do the `newest` ones.
    """

    merge: bool = True
    expire: timedelta | None = None
    orphans: timedelta | None = None
    keep: frozenset[int] = frozenset()
    newest: int = 1
    flush: FlushLimits | None = FlushLimits()


@dataclass(frozen=True, slots=True)
class Portion:
    """A part of the work that ends soon: at most so many snapshots, removed inside `between`.

    To get there may take a while: `keep` says what must stay by then.
    """

    most: int
    between: Callable[[], AbstractContextManager[Ready]]
    keep: Callable[[], Collection[int]] = frozenset


@dataclass(frozen=True, slots=True)
class Chores:
    """What is worth doing in one table, or what was done: numbers of files, of their bytes, of snapshots, of rows."""

    merged_files: int = 0
    merged_bytes: int = 0
    written_files: int = 0
    flushed_rows: int = 0
    expired_snapshots: int = 0
    expired_files: int = 0
    orphans: int = 0
    orphan_bytes: int = 0

    def __add__(self, other: Chores) -> Chores:
        return Chores(*(getattr(self, each.name) + getattr(other, each.name) for each in fields(Chores)))

    def __bool__(self) -> bool:
        return self != Chores()


@dataclass(frozen=True, slots=True)
class Figures:
    """What a table is made of now. Rows that are deleted are still in its files; others are in the lake's catalog.

    The inlined rows are those that are alive; `old_rows` are earlier versions in the catalog, and `old_files` files,
    that only older snapshots show.
    """

    files: int = 0
    small_files: int = 0
    bytes: int = 0
    deleted_rows: int = 0
    inlined_rows: int = 0
    old_rows: int = 0
    old_files: int = 0
    old_bytes: int = 0

    @property
    def may_need_merging(self) -> bool:
        """Whether it is worth looking at the single files."""
        return max(self.small_files, self.old_files) >= ENOUGH_FILES or self.deleted_rows > 0

    @property
    def may_need_flushing(self) -> bool:
        return self.inlined_rows > 0 or self.old_rows > 0


def figures_of(files: Iterable[Packable]) -> Figures:
    """The figures of a table that is made of these files alone."""
    found = list(files)
    return Figures(
        len(found),
        sum(map(is_small, found)),
        sum(each.size for each in found),
        sum(each.deleted for each in found),
    )


class Merging(Protocol):
    """Files of one table that become fewer, on Spark: an attempt, which no reader sees before its commit."""

    @property
    def bins(self) -> Sequence[Any]:
        """Units of work, picklable."""
        ...

    @property
    def writer(self) -> MergeWriter: ...

    def commit(self, reports: Sequence[bytes], ready: Ready = lambda: None) -> Chores:
        """Put the new files in place of the old ones, but for those that a delivery has changed meanwhile.

        If `ready` raises, nothing has landed. CommitUnknown: it may have landed.
        """
        ...


class MergeWriter(Protocol):
    """What a lake does inside Spark's workers. Picklable."""

    def write(self, bin: Any) -> bytes:
        """Write the rows of a bin's files that are not deleted, as the table's newest columns have them; a report."""
        ...


class Maintenance(Protocol):
    """Of the tables of one group. Only one process may do it at a time."""

    def tables(self) -> Sequence[TableName]: ...

    def figures(self) -> Mapping[TableName, Figures]:
        """What its tables are made of; it costs little, however many tables there are."""
        ...

    def plan(self, table: TableName, policy: MaintenancePolicy) -> Chores:
        """What would be done; nothing is changed."""
        ...

    def merging(self, table: TableName, policy: MaintenancePolicy, most: int | None = None) -> Merging | None:
        """Begin to merge files, and to move rows from the catalog into files: at most so many bins; None: no need."""
        ...

    def expire(
        self,
        table: TableName,
        age: timedelta,
        keep: Collection[int] = (),
        newest: int = 1,
        portion: Portion | None = None,
    ) -> Chores:
        """Remove snapshots that were replaced longer ago than this, and the files that only they needed.

        So many of the newest ones stay, and those to `keep`: all of them, where snapshots are not the whole lake's.
        If a `portion` was removed in full, there may be more. A lake in which deliveries do not wait ignores it.
        """
        ...

    def remove_orphans(self, table: TableName, age: timedelta) -> Chores:
        """Delete files older than this that no snapshot has, and that no attempt may still bring."""
        ...

    def delete_replaced(self) -> Chores:
        """Delete the files of the whole lake that others took the place of so long ago that no one still reads them."""
        ...

    def collect(self) -> int:
        """Delete what earlier maintenance that failed or was killed has written; how many files."""
        ...
