"""A lake as the end of the pipeline: one contract for every kind of lake, and one suite that tests it.

What happens to a lake happens in attempts. An attempt is begun, Spark's workers write through its target, and its
commit makes everything visible at once, the tables' new positions included; or it is discarded, and nothing is left.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import duckdb

from headwater.change import NewestCommit, Position, Relation, TableName
from headwater.errors import HeadwaterError, TableError
from headwater.lake import history
from headwater.lake.counts import Counts
from headwater.lake.maintenance import Maintenance
from headwater.lake.partitioning import PartitionBy, PartitionSupport
from headwater.lake.stream import P
from headwater.lake.target import Place, Reports, Sought, Target
from headwater.values.types import LakeType

__all__ = [
    "Copy",
    "Delivery",
    "Inline",
    "Keys",
    "Kinds",
    "LakeNames",
    "Landed",
    "MirrorSpec",
    "Plan",
    "Reader",
    "Sink",
    "Standing",
    "TableSnapshot",
    "Volume",
    "Wanted",
    "one_by_one",
]

Keys = Mapping[int, tuple[str, ...]]  # by table, the columns that rows are known by; none: by all of them
Kinds = Mapping[str, LakeType]  # by column
Wanted = Mapping[int, Sought]  # by table, what is known about the keys that are looked for

P_co = TypeVar("P_co", bound=Position, covariant=True)
P_contra = TypeVar("P_contra", bound=Position, contravariant=True)


@dataclass(frozen=True, slots=True)
class Landed:
    """A commit: the snapshot that it made, which is the lake's own number for it, and what each table got.

    `bytes` are those of the data files that landed; rows in the lake's catalog are none.
    `missed` are tables that others changed meanwhile, in a lake whose tables land one by one: nothing of them landed,
    and what was written for them is deleted.
    """

    snapshot_id: int
    counts: Mapping[int, Counts] = field(default_factory=dict)
    missed: frozenset[int] = frozenset()
    bytes: int = 0


class Volume(NamedTuple):
    """How much comes for a table, at most: changes, and bytes."""

    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Inline:
    """Which tables' rows may go into the lake's catalog, if they are few and the lake can hold rows there.

    `most` is how many rows of a table it may have there.
    """

    volumes: Mapping[int, Volume]
    most: int = 10_000


@dataclass(frozen=True, slots=True)
class MirrorSpec:
    """A table as a copy is to make it; its own mirror and those of `replaces` make way for it."""

    relation: Relation
    kinds: Kinds
    name: TableName
    history: bool = False
    replaces: tuple[int, ...] = ()
    partition_by: tuple[PartitionBy, ...] = ()

    def check_partitions(self, support: PartitionSupport) -> None:
        """TableError if a lake with this support cannot partition the table so."""
        kinds = {**(history.COLUMNS if self.history else {}), **self.kinds}
        for message, hint in support.problems(self.partition_by, kinds):
            raise TableError(f"table {str(self.relation.table)!r}: {message}", hint=hint)


@dataclass(frozen=True, slots=True)
class TableSnapshot(Generic[P]):
    """A mirror in a snapshot that the lake still has, the position that it shows, and what to type to read it."""

    name: TableName
    snapshot_id: int
    position: P
    read_by: Mapping[str, str]  # by the program that it is typed into


class Standing(Protocol[P_co]):
    """A mirrored table as the lake has it now."""

    @property
    def oid(self) -> int: ...

    @property
    def name(self) -> TableName: ...

    @property
    def position(self) -> P_co:
        """How far the table's stream is in it."""
        ...

    @property
    def counts(self) -> Counts: ...

    def check_writable(self) -> None:
        """TableError if another client made it a table that we do not write."""
        ...

    def same_key(self, relation: Relation) -> bool:
        """Whether the relation's rows are known by the same columns as the mirror's."""
        ...


class LakeNames(Protocol):
    """The names that are taken in a lake."""

    def take(self, name: TableName) -> None:
        """Take a name; TableError if it is not free."""
        ...


class Attempt(Protocol):
    """Work on the lake that readers do not see before its commit."""

    @property
    def target(self) -> Target[Any]: ...

    def discard(self, reports: Reports) -> None:
        """Delete what was written with these reports."""
        ...


class Delivery(Attempt, Protocol[P_contra]):
    """Changes to tables that the lake has."""

    def places(self, wanted: Wanted) -> Sequence[Place]:
        """The files of these tables that may hold such a key."""
        ...

    def quarantine(self) -> Sequence[Place]:
        """The files of values that the lake's types could not hold; none, as a rule."""
        ...

    def commit(
        self, reports: Reports, truncated: Collection[int], upto: Mapping[int, P_contra], names: Mapping[int, TableName]
    ) -> Landed:
        """Land the tables in `upto`: rows, columns, positions; and give tables new names.

        CommitConflict: nothing landed, plan again. AlreadyDelivered: nothing landed, a table does not stand where the
        plan has it. CommitUnknown: it may have landed, the standings say.
        """
        ...


class Copy(Attempt, Protocol[P_contra]):
    """New tables with all their rows."""

    @property
    def name(self) -> str:
        """Of the attempt, which is in the names of its files."""
        ...

    def note(self, oid: int) -> bytes:
        """What another copy of the table has to know to go on with the files of this one."""
        ...

    def commit(self, at: Mapping[int, P_contra], reports: Reports) -> Landed:
        """Create these tables as they were at these positions; the mirrors they replace go in the same snapshot.

        CommitConflict, AlreadyDelivered, TableError: nothing landed. CommitUnknown: the standings say.
        """
        ...


class Plan(Protocol[P]):
    """A delivery, planned on the newest snapshot: what others change after it is a conflict at the commit."""

    @property
    def snapshot_id(self) -> int: ...

    @property
    def standings(self) -> Mapping[int, Standing[P]]: ...

    def evolved(self, relation: Relation, kinds: Kinds) -> tuple[Plan[P], bool]:
        """The plan in which the mirror gets the relation's columns, and whether it has others now.

        CannotFollow if only a new copy could, TableError if not even that.
        """
        ...

    def begin(
        self,
        keys: Keys,
        newest: NewestCommit | None = None,
        attempt: str | None = None,
        inline: Inline | None = None,
    ) -> Delivery[P]:
        """Begin an attempt for these tables; the lake's snapshots name the newest transaction that they include.

        `attempt` is one that the caller has noted itself, a `uuid4().hex` that may stand for its work on many lakes;
        without it the sink notes one in the lake. Without `inline`, all rows go into files.
        """
        ...


class Reader(Protocol):
    """The lake as it was in one snapshot, for DuckDB to read; picklable."""

    def connect(self) -> duckdb.DuckDBPyConnection:
        """A DuckDB of one thread that can read such a lake; nothing is attached yet."""
        ...

    def attach(self, con: duckdb.DuckDBPyConnection, alias: str) -> None:
        """Attach the lake, to be read only."""
        ...


NewMirror = TypeVar("NewMirror")  # what a sink knows about a table that it does not have yet


class Sink(Protocol[NewMirror, P]):
    """A lake, for the tables of one source. Its word on positions is the truth; the state's copy is for display."""

    @property
    def source(self) -> str:
        """Under which name the lake keeps the positions: of a group, or of whatever else ends here."""
        ...

    @property
    def calendar_only(self) -> bool:
        """Whether its dates and times are those of calendar and clock alone: infinity and 24:00:00 do not fit."""
        ...

    @property
    def lake_snapshots(self) -> bool:
        """Whether a snapshot is one of all tables; else its number is of no use to people."""
        ...

    @property
    def shared(self) -> str | None:
        """What it shares with other lakes, so that these land faster together than one by one; None: nothing."""
        ...

    def land_together(self, parts: Sequence[tuple[Any, Reports, Mapping[int, P]]]) -> list[Landed | HeadwaterError]:
        """Commit deliveries of several lakes that share the same, as `Delivery.commit` does each: its result, or error.

        What fails in one of them does not disturb the others.
        """
        ...

    def kept_open(self) -> AbstractContextManager[None]:
        """Inside, what opening a connection costs is paid once, if the lake has such a cost."""
        ...

    def at_once(self) -> AbstractContextManager[None]:
        """Inside, all that this thread asks the lake is answered as of one moment, which may cost less.

        Nothing is committed inside, and attempts are begun under names of the caller's.
        """
        ...

    def standings(self) -> Mapping[int, Standing[P]]:
        """Every table of ours in the lake, by the source's OID."""
        ...

    def lake_id(self) -> str:
        """What identifies the lake, wherever it is moved."""
        ...

    def lost(self, *, every_file: bool = False) -> Mapping[TableName, str]:
        """The mirrors, and the quarantine, with files that are gone, and such a file.

        One file of each is looked for, or `every_file`.
        """
        ...

    def drop_quarantine(self) -> None:
        """Give up the quarantine with all it holds; it is created anew when it is needed."""
        ...

    def reader(self, snapshot_id: int) -> Reader:
        """The lake at a snapshot that a plan or a commit has named; only the sink knows what the number means."""
        ...

    def snapshots_at(self, at: P) -> Mapping[int, TableSnapshot[P]]:
        """The newest snapshot of each mirror at or below a position; nothing for one of which the lake has none."""
        ...

    def plan(self) -> Plan[P]: ...

    def new_mirror(self, spec: MirrorSpec) -> NewMirror:
        """Prepare a table; TableError if it cannot be."""
        ...

    def begin_copy(
        self, mirrors: Sequence[NewMirror], names: Mapping[int, TableName], attempt: str | None = None
    ) -> Copy[P]:
        """Begin an attempt for these tables; mirrors whose names are needed get other `names` with it.

        `attempt` is as in `Plan.begin`. Deliveries to other tables may go on until the commit.
        """
        ...

    def taken_up(self, mirror: NewMirror, note: bytes, *, misfits: bool) -> NewMirror | None:
        """The table as a copy makes it that goes on with the files of an earlier one; None if it cannot.

        `misfits`: some of these files are of the quarantine.
        """
        ...

    def has_landed(self, oid: int, note: bytes) -> bool:
        """Whether the lake has the table as the copy with this note, or one that went on with it, made it."""
        ...

    def names(self, given_up: Iterable[int]) -> LakeNames:
        """The names that are taken once the mirrors of these tables have given up theirs."""
        ...

    def rename(self, names: Mapping[int, TableName]) -> None:
        """Give mirrors other names, in a commit of its own."""
        ...

    def collect(self, attempts: Collection[str] = ()) -> int:
        """Delete what deliveries that failed or were killed have written; how many files. None may be under way.

        Those of the caller are `attempts`; from now on the lake refuses their commits.
        """
        ...

    def collect_copies(self, unfinished: Collection[str] = ()) -> int:
        """The same for copies that the sink has noted, but for those with whose files others will go on."""
        ...

    def probe(self) -> None:
        """Fail as a commit would that has to wait for the lake now. Nothing is changed."""
        ...

    def maintenance(self) -> Maintenance | None:
        """None for a lake that needs none."""
        ...

    def look_again(self) -> None:
        """Others have changed the lake, as is known: what is remembered of it is out of date."""
        ...

    def close(self) -> None: ...


def one_by_one(parts: Sequence[tuple[Any, Reports, Mapping[int, P]]]) -> list[Landed | HeadwaterError]:
    """`Sink.land_together` for lakes that share nothing."""

    def landed(delivery: Delivery[P], reports: Reports, upto: Mapping[int, P]) -> Landed | HeadwaterError:
        try:
            return delivery.commit(reports, (), upto, {})
        except HeadwaterError as error:
            return error

    return [landed(*each) for each in parts]
