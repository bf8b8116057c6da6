"""From what should be and what is to steps, without IO: `check` prints them, `run` takes them."""

from __future__ import annotations

from collections.abc import Iterator

from headwater.change import TableName
from headwater.config import Group, MatchedTable
from headwater.control.facts import GroupFacts, TableFacts
from headwater.control.steps import (
    CopyAgain,
    CreateSlot,
    Enter,
    NoteDropped,
    NoteNewName,
    Publish,
    Reclaim,
    Remove,
    Resume,
    Step,
    Stop,
    Succeed,
)
from headwater.control.wishes import another_mode, options_of
from headwater.errors import ConfigError
from headwater.source.naming import object_name
from headwater.source.publications import ALTERED
from headwater.state import Configured, TableRow

__all__ = ["plan"]


def plan(group: Group, facts: GroupFacts) -> list[Step]:
    """What makes one group what the config says, in an order that a crash between two steps does not spoil.

    ConfigError if a table never was in the source, or cannot go on as the config says.
    """
    tables = [each for each in facts.tables if each.now.fate not in ("taken", "missing")]
    return [
        *(step for each in facts.tables for step in _met(facts, each)),
        # Before the publication sends more: after a crash in between, this could not be seen any more.
        *(step for each in tables for step in _copied_again(facts, each)),
        # Before the publication sends less: a wanted table that is not sent looks like one that another client removed.
        *_removed(group, facts, tables),
        *_published(facts, tables),
        # A running capture takes a table of the state that is not sent for one that another client removed, too.
        *(step for each in tables for step in _succeeded(facts, each) if not _in_use(step.row, each)),
        *(step for each in tables for step in _entered(facts, each)),
    ]


def _met(facts: GroupFacts, table: TableFacts) -> Iterator[Step]:
    """What became of a table since it was last seen."""
    now, entry = table.now, table.entry
    before = facts.rows.get(now.before or 0)
    if now.fate == "missing" and isinstance(entry, MatchedTable):
        return  # dropped this very moment
    if now.fate == "missing":
        raise ConfigError(f"there is no table {str(entry.table)!r} in the source", hint="run `headwater check`")
    if now.fate == "dropped" and before is not None:
        yield NoteDropped(before)
    elif now.fate == "replaced" and before is not None:
        yield from (step for step in _succeeded(facts, table) if _in_use(step.row, table))
    elif now.name != entry.table:
        yield NoteNewName(entry.table, now.name, now.fate == "taken")


def _succeeded(facts: GroupFacts, table: TableFacts) -> Iterator[Succeed]:
    before = facts.rows.get(table.now.before or 0)
    if table.now.fate == "replaced" and before is not None and table.refusal is None:
        yield Succeed(before, table.now.oid, table.now.name)


def _in_use(row: TableRow, table: TableFacts) -> bool:
    """Whether the table whose place is taken is still there and mirrored: the publication stops sending it."""
    return table.now.left is not None and row.state != "REMOVED"


def _copied_again(facts: GroupFacts, table: TableFacts) -> Iterator[Step]:
    row = facts.rows.get(table.oid)
    if problem := another_mode(table.entry, row):
        raise problem
    if row is None or not table.there:
        return
    for reason in _reasons(table, row):
        yield CopyAgain(row.oid, _name(table), reason)


def _reasons(table: TableFacts, row: TableRow) -> Iterator[str]:
    """Why a table that was mirrored before must be copied again."""
    # Copied or not, as far as the state knows: the lake may have a copy that was not noted before a crash.
    if row.state == "REMOVED":
        yield "it was left out of the config for a while"
    elif row.published not in (None, table.place):
        yield ALTERED
    if row.position is None:
        return
    if row.options.types != table.entry.types:
        yield "the config asks for other types"
    if row.options.partition_by != table.entry.partition_by:
        yield "the config asks for other partitions"
    if table.lacking:
        yield f"the config asks for more of its columns: {', '.join(table.lacking)}"


def _removed(group: Group, facts: GroupFacts, tables: list[TableFacts]) -> Iterator[Step]:
    named, wanted = {entry.table for entry in group.tables}, {each.oid for each in tables}
    replaced = {each.now.before for each in tables if each.now.fate == "replaced" and each.refusal is None}
    for row in facts.rows.values():
        if row.oid in wanted | replaced or row.state == "REMOVED":
            continue
        if row.oid not in facts.called and row.options.pattern is not None and group.matched(row.configured):
            yield NoteDropped(row)
        elif not (row.stopped and row.dropped_lsn is not None and row.configured in named):
            yield Remove(row.oid, row.source, facts.name, _why_removed(group, row, facts.called.get(row.oid)))


def _why_removed(group: Group, row: TableRow, called: TableName | None) -> str:
    if called is not None and group.matched(called):
        return "it cannot be mirrored as it is any more, see `headwater check`"
    if called not in (None, row.configured) and group.matched(row.configured):
        return f"it is called {called} in the source now, which no pattern of the config matches"
    return "it was taken out of the config"


def _published(facts: GroupFacts, tables: list[TableFacts]) -> Iterator[Step]:
    """Also when nothing differs: the event triggers are looked at, and the slot is found to be ours."""
    members = tuple((_name(each), each.columns) for each in tables if each.there)
    yield Publish(object_name(facts.name), members, facts.publication)
    if not facts.slot:
        yield CreateSlot(object_name(facts.name))


def _entered(facts: GroupFacts, table: TableFacts) -> Iterator[Step]:
    entry, name, row = table.entry, _name(table), facts.rows.get(table.oid)
    enter = Enter(table.oid, name, entry.target, Configured(entry.table, options_of(entry)), row is None)
    if row is None or _differs(row, enter):
        yield enter
    if table.there and any(table.oid in each.replaces for each in facts.rows.values()):
        yield Reclaim(table.oid, name)
    if table.refusal is not None:
        yield Stop(table.oid, entry.table, table.refusal)
    elif row is not None and table.there and (row.state == "REMOVED" or row.stopped):
        yield Resume(table.oid, name)


def _differs(row: TableRow, enter: Enter) -> bool:
    moved = row.position is None and row.lake != enter.lake
    return moved or (row.source, Configured(row.configured, row.options)) != (enter.source, enter.configured)


def _name(table: TableFacts) -> TableName:
    """What the table that is mirrored is called now; one that was dropped, what it was called last."""
    if table.refusal is not None and table.now.left is not None:
        return table.now.left
    return table.now.name
