"""What can be done to bring source and state to where the config wants them: each step says itself in words."""

from __future__ import annotations

from dataclasses import dataclass

from headwater.change import TableName
from headwater.errors import TableError
from headwater.source.alterations import MISSING
from headwater.state import Configured, TableRow

__all__ = [
    "CopyAgain",
    "CreateSlot",
    "Enter",
    "NoteDropped",
    "NoteNewName",
    "Publish",
    "Reclaim",
    "Remove",
    "Resume",
    "Step",
    "Stop",
    "Succeed",
    "worth_saying",
]


@dataclass(frozen=True, slots=True)
class NoteDropped:
    """The source no longer has a table: what is staged of it is delivered, then it ends."""

    row: TableRow

    def __str__(self) -> str:
        return f"end the mirror of {self.row.configured}: the source dropped it"


@dataclass(frozen=True, slots=True)
class NoteNewName:
    """A table has another name than the config says; with `taken`, one that the config has, too."""

    entry: TableName
    now: TableName
    taken: bool

    def __str__(self) -> str:
        more = "the config has both names" if self.taken else "write that in the config"
        return f"table {self.entry} is called {self.now} in the source now: {more}"


@dataclass(frozen=True, slots=True)
class Succeed:
    """Another table has the name of one that is mirrored, and takes its place."""

    row: TableRow
    oid: int
    table: TableName

    def __str__(self) -> str:
        return f"table {self.table} is another table now: it is copied in place of the old mirror"


@dataclass(frozen=True, slots=True)
class CopyAgain:
    """Copy a table again that is mirrored already."""

    oid: int
    table: TableName
    reason: str

    def __str__(self) -> str:
        return f"table {self.table} will be copied again: {self.reason}"


@dataclass(frozen=True, slots=True)
class Remove:
    """A table is no longer wanted: its mirror stays, and nothing else is kept for it."""

    oid: int
    table: TableName
    group: str
    reason: str

    def __str__(self) -> str:
        return f"table {self.table} is not in group {self.group} any more: {self.reason}; its mirror stays as it is"


@dataclass(frozen=True, slots=True)
class Publish:
    """Have the publication send exactly these tables, of some only these columns."""

    publication: str
    tables: tuple[tuple[TableName, tuple[str, ...] | None], ...]
    differences: tuple[str, ...]

    def __str__(self) -> str:
        if self.differences == (MISSING,):
            return f"create the publication {self.publication}"
        return f"fix publication {self.publication}: it {'; it '.join(self.differences)}"


@dataclass(frozen=True, slots=True)
class CreateSlot:
    """Create the replication slot."""

    slot: str

    def __str__(self) -> str:
        return f"create the replication slot {self.slot}"


@dataclass(frozen=True, slots=True)
class Enter:
    """Make a table known, or note its present name and options. One that is `new` is copied."""

    oid: int
    source: TableName
    lake: TableName
    configured: Configured
    new: bool

    @property
    def joins(self) -> bool:
        """Whether a pattern brings it: it has no entry of its own."""
        return self.new and self.configured.options.pattern is not None

    def __str__(self) -> str:
        how = "copy" if self.configured.options.copied else "mirror, without a copy,"
        why = f": it matches {self.configured.options.pattern}" if self.joins else ""
        return f"{how} {self.source} to {self.lake}{why}"


@dataclass(frozen=True, slots=True)
class Reclaim:
    """A table is wanted again before another has taken its place: both have mirrors."""

    oid: int
    table: TableName

    def __str__(self) -> str:
        return f"copy {self.table} again: another table had its place for a while"


@dataclass(frozen=True, slots=True)
class Resume:
    """A table that was removed or stopped goes on."""

    oid: int
    table: TableName

    def __str__(self) -> str:
        return f"go on with {self.table}"


@dataclass(frozen=True, slots=True)
class Stop:
    """A table cannot go on before an operator helps."""

    oid: int
    table: TableName
    error: TableError

    def __str__(self) -> str:
        return f"stop {self.table}: {self.error.message}"


Step = NoteDropped | NoteNewName | Succeed | CopyAgain | Remove | Publish | CreateSlot | Enter | Reclaim | Resume | Stop


# What changes nothing by itself, or is done at every start, is not worth a line.
def worth_saying(step: Step) -> bool:
    """Whether a person who asks what would happen wants to read it."""
    match step:
        case Enter(new=new):
            return new
        case Publish(differences=differences):
            return bool(differences)
        case _:
            return True
