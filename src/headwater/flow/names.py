"""Names in the lake, when tables take each other's in the source."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import closing

from headwater.change import TableName
from headwater.ducklake.names import Names
from headwater.errors import TableError
from headwater.flow.mirroring import Mirroring
from headwater.postgres.connect import connect, translated
from headwater.sink.ducklake import Standing
from headwater.source.replaced import table_names
from headwater.state import TableRow

__all__ = ["free_names", "held_back", "names_now", "outdated", "settle_names"]


def names_now(m: Mirroring, standings: Mapping[int, Standing], but: Collection[int]) -> dict[int, TableName]:
    """Other names that tables have in the source already: when two swap theirs, the log may tell of one first."""
    rows = [
        row
        for row in m.state.tables(m.group)
        if row.oid in standings and row.oid not in but and row.state != "PAUSED"
        if row.options.followed_name and row.options.schema_changes == "follow"
    ]
    now = _called(m, rows)
    gone = _replaced(m, rows, now)
    return {
        row.oid: now[row.oid]
        for row in rows
        if row.oid in now and row.oid not in gone and now[row.oid] != standings[row.oid].name
    }


def held_back(m: Mirroring, standings: Mapping[int, Standing], renamed: Mapping[int, TableName]) -> set[int]:
    """Of the mirrors that are to get these names, those that keep the names they have.

    Some have the right one already. Others wait for a table to be copied that takes a mirror's place together with its
    name: so there always is one under that name.
    """
    if not renamed:
        return set()
    rows = [row for row in m.state.tables(m.group) if row.state != "PAUSED"]
    now = _called(m, rows)
    making_way = {oid for row in rows for oid in row.replaces}
    making_way |= {row.oid for row in rows if row.oid not in now and row.dropped_lsn is None}  # not looked at yet
    taken = {standings[oid].name for oid in making_way if oid in standings}
    right = {oid for oid in renamed if now.get(oid) == standings[oid].name}  # already: the log has an older one
    waiting = {oid for oid, name in renamed.items() if name in taken}
    return right | waiting | (_replaced(m, rows, now) & renamed.keys())


def outdated(m: Mirroring, renamed: Mapping[int, TableName]) -> set[int]:
    """Of the tables that had these names when the log was written, those that have others now."""
    if not renamed:
        return set()
    with closing(connect(m.source_url)) as connection, translated(m.source_url):
        now = table_names(connection, renamed, [])
    return {oid for oid, name in renamed.items() if now.get(oid) != name}


def free_names(
    m: Mirroring, waiting: Collection[TableRow], wanted: Iterable[TableName]
) -> tuple[Names, dict[int, TableName]]:
    """The names that are free for tables to be copied, and the mirrors that get other names so that they are."""
    given_up = [oid for row in waiting for oid in (row.oid, *row.replaces)]
    names = m.sink.names(given_up)
    if all(_takes(names, name) for name in wanted) and not any(row.replaces for row in waiting):
        return m.sink.names(given_up), {}
    return _movable(m, given_up, names_now(m, m.sink.standings(), given_up))


_OVERDUE = """
    SELECT t.source_oid FROM headwater.tables t, LATERAL (
        SELECT r.namespace, r.name FROM headwater.relations r
        WHERE r.group_name = t.group_name AND r.oid = t.source_oid AND r.lsn < t.position
        ORDER BY r.lsn DESC, r.id DESC LIMIT 1) r
    WHERE t.group_name = %s AND t.state IN ('CATCHUP', 'STREAMING')
    AND (r.namespace, r.name) <> (t.lake_schema, t.lake_table) AND (t.options ->> 'followed_name')::boolean
"""


def settle_names(m: Mirroring) -> None:
    """Rename mirrors that could not have the names of their tables when the changes around them were delivered."""
    overdue = {oid for (oid,) in m.state.query(_OVERDUE, (m.group,))}
    if not overdue:
        return
    standings = m.sink.standings()
    now = names_now(m, standings, ())
    waiting = held_back(m, standings, now)
    _, moved = _movable(m, [], {oid: name for oid, name in now.items() if oid not in waiting})
    if overdue & moved.keys():
        m.sink.rename(moved)
        for oid, name in moved.items():
            m.state.rename_table(m.group, oid, source=name, lake=name)


def _movable(
    m: Mirroring, given_up: Collection[int], wanted: Mapping[int, TableName]
) -> tuple[Names, dict[int, TableName]]:
    """Of the mirrors that want these names, those that can have them; and the names that are free after that."""
    moved = dict(wanted)
    while True:
        names = m.sink.names([*given_up, *moved])
        refused = next((oid for oid, name in moved.items() if not _takes(names, name)), None)
        if refused is None:
            return names, moved
        del moved[refused]  # it keeps the name it has, so another may not get that one


def _takes(names: Names, name: TableName) -> bool:
    try:
        names.take(name)
    except TableError:
        return False
    return True


def _called(m: Mirroring, rows: Collection[TableRow]) -> dict[int, TableName]:
    with closing(connect(m.source_url)) as connection, translated(m.source_url):
        return table_names(connection, [row.oid for row in rows], [row.configured for row in rows])


def _replaced(m: Mirroring, rows: Collection[TableRow], now: Mapping[int, TableName]) -> set[int]:
    mirrored = {row.oid for row in m.state.tables(m.group) if row.state != "PAUSED"}
    holders = {name: oid for oid, name in now.items()}
    return {row.oid for row in rows if holders.get(row.configured, row.oid) not in mirrored}
