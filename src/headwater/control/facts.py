"""What is: the tables of a group as the source, its publication and the state have them. Nothing is changed here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from headwater.change import TableName
from headwater.config import Config, Table
from headwater.control.wishes import group_wishes
from headwater.errors import TableError
from headwater.postgres.connect import Connection
from headwater.source.alterations import PublicationMember, alterations
from headwater.source.naming import object_name
from headwater.source.publications import places
from headwater.source.relations import described
from headwater.source.replaced import Resolved, refusal, resolved, sent_columns, table_names
from headwater.source.slots import slot_of
from headwater.state import State, TableRow

__all__ = ["GroupFacts", "TableFacts", "look"]


@dataclass(frozen=True, slots=True)
class TableFacts:
    """A table of the config: what it is in the source now, and how its publication sends it."""

    entry: Table
    now: Resolved
    refusal: TableError | None = None  # why the table that has its name does not take the mirror's place
    columns: tuple[str, ...] | None = None  # that the publication should send; None: all
    lacking: tuple[str, ...] = ()  # columns that are wanted, and that it does not send yet
    place: str | None = None  # what marks its place in the publication

    @property
    def oid(self) -> int:
        """The table that is mirrored for this entry from now on."""
        kept = self.now.fate == "dropped" or (self.now.fate == "replaced" and self.refusal is not None)
        return self.now.before or 0 if kept else self.now.oid

    @property
    def there(self) -> bool:
        """Whether that table is in the source."""
        if self.now.fate == "replaced" and self.refusal is not None:
            return self.now.left is not None
        return self.now.fate in ("found", "replaced")


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """A group: its tables, and what there is of it in source and state."""

    name: str
    slot: bool  # is there
    rows: Mapping[int, TableRow]  # of the state, by OID
    tables: tuple[TableFacts, ...] = ()
    publication: tuple[str, ...] = ()  # in what it differs from what is wanted, each as the rest of a sentence
    called: Mapping[int, TableName] = field(default_factory=dict)  # what the state's other tables are called now


def look(connection: Connection, state: State | None, name: str, config: Config) -> GroupFacts:
    """What there is of a group; without a state, nothing has run yet."""
    rows = {row.oid: row for row in state.tables(name)} if state else {}
    marks = places(connection, object_name(name))
    wanted = group_wishes(config, config.groups[name], list(rows.values()))
    found = zip(config.groups[name].tables, resolved(connection, wanted), strict=True)
    tables = tuple(_table(connection, name, entry, now, rows, marks) for entry, now in found)
    return GroupFacts(
        name,
        slot_of(connection, object_name(name)) is not None,
        rows,
        tables,
        tuple(_differences(connection, name, tables)),
        table_names(connection, rows.keys() - {each.oid for each in tables}, []),
    )


def _table(
    connection: Connection,
    group: str,
    entry: Table,
    now: Resolved,
    rows: Mapping[int, TableRow],
    marks: Mapping[int, str],
) -> TableFacts:
    if now.fate not in ("found", "replaced"):
        return TableFacts(entry, now)
    refused = refusal(connection, object_name(group), now) if now.fate == "replaced" and now.before in rows else None
    found = TableFacts(entry, now, refused)
    if not found.there:
        return found
    columns = sent_columns(connection, now.wish, found.oid)
    row = rows.get(found.oid)
    lacking = tuple(_lacking(connection, group, columns, row)) if row is not None and _may_lack(now, row) else ()
    return TableFacts(entry, now, refused, columns, lacking, marks.get(found.oid))


def _may_lack(now: Resolved, row: TableRow) -> bool:
    """Without a list of columns, neither now nor before, a publication sends them all."""
    listed = now.wish.listed or row.options.columns is not None or bool(row.options.exclude)
    return listed and row.position is not None


def _lacking(connection: Connection, group: str, columns: tuple[str, ...] | None, row: TableRow) -> Iterator[str]:
    """Columns that the config asks for, and that were not sent so far."""
    sent = {column.name for column in described(connection, row.oid, object_name(group)).columns}
    whole = {column.name for column in described(connection, row.oid, None).columns}
    yield from sorted(set(columns or whole) - sent)


def _differences(connection: Connection, group: str, tables: tuple[TableFacts, ...]) -> Iterator[str]:
    members = {
        each.oid: PublicationMember(each.now.left or each.now.name if each.refusal else each.now.name, each.columns)
        for each in tables
        if each.there
    }
    yield from (each.problem for each in alterations(connection, object_name(group), members))
