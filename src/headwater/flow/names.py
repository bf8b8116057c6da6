"""Names in the lake, when tables take each other's in the source."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Set
from contextlib import closing
from dataclasses import dataclass

from headwater.change import Lsn, TableName
from headwater.errors import TableError
from headwater.flow.mirroring import Mirroring
from headwater.lake.sink import LakeNames, Standing
from headwater.postgres.connect import connect, translated
from headwater.source.replaced import table_names
from headwater.state import TableRow

__all__ = ["Granted", "free_names", "granted", "settle_names"]


@dataclass(frozen=True, slots=True)
class Granted:
    """What becomes of mirrors that want other names."""

    granted: Mapping[int, TableName]
    moved: Mapping[int, TableName]  # other mirrors, which get new names so that the old ones are free
    refused: Mapping[int, str]  # with the reason
    kept: Set[int]  # those that keep the name they have for now


def granted(
    m: Mirroring, standings: Mapping[int, Standing[Lsn]], wanted: Mapping[int, TableName], renamed: Set[int]
) -> Granted:
    """Give mirrors the names of their tables; `renamed` are all tables that this delivery knows new names of."""
    kept = _held_back(m, standings, wanted)
    while True:
        asked = {oid: name for oid, name in wanted.items() if oid not in kept}
        found = _taken(m, asked, {}, kept)
        if found.refused:
            found = _taken(m, asked, _names_now(m, standings, renamed - kept), kept)
        # A name that the table has given up since is not worth an error: it gets the one it has now.
        late = _outdated(m, {oid: wanted[oid] for oid in found.refused})
        if not late:
            return found
        kept |= late


def _taken(m: Mirroring, asked: Mapping[int, TableName], moved: Mapping[int, TableName], kept: Set[int]) -> Granted:
    """Take the names; whoever cannot have its name keeps the one it has, so another may not get that one."""
    given, moves, refused = dict(asked), dict(moved), dict[int, str]()
    while wanted := moves | given:
        names = m.sink.names(wanted)
        clash = next(filter(None, (_refusal(names, oid, name) for oid, name in wanted.items())), None)
        if clash is None:
            break
        oid, error = clash
        moves.pop(oid, None)
        if given.pop(oid, None):
            refused[oid] = error
    return Granted(given, moves, refused, kept)


def _refusal(names: LakeNames, oid: int, name: TableName) -> tuple[int, str] | None:
    try:
        names.take(name)
    except TableError as error:
        return oid, str(error)
    return None


def _names_now(m: Mirroring, standings: Mapping[int, Standing[Lsn]], but: Collection[int]) -> dict[int, TableName]:
    """Other names that tables have in the source already: when two swap theirs, the log may have one of them first."""
    rows = [
        row
        for row in m.state.tables(m.group)
        if row.oid in standings and row.oid not in but and row.state != "REMOVED"
        if row.options.followed_name and row.options.schema_changes == "follow"
    ]
    now = _called(m, rows)
    gone = _replaced(m, rows, now)
    return {
        row.oid: now[row.oid]
        for row in rows
        if row.oid in now and row.oid not in gone and now[row.oid] != standings[row.oid].name
    }


def _held_back(m: Mirroring, standings: Mapping[int, Standing[Lsn]], renamed: Mapping[int, TableName]) -> set[int]:
    """Of the mirrors that are to get these names, those that keep the names they have.

    Some have the right one already. Others wait for a table to be copied that takes a mirror's place together with its
    name: so there always is one under that name.
    """
    if not renamed:
        return set()
    rows = [row for row in m.state.tables(m.group) if row.state != "REMOVED"]
    now = _called(m, rows)
    making_way = {oid for row in rows for oid in row.replaces}
    making_way |= {row.oid for row in rows if row.oid not in now and row.dropped_lsn is None}  # not looked at yet
    taken = {standings[oid].name for oid in making_way if oid in standings}
    right = {oid for oid in renamed if now.get(oid) == standings[oid].name}  # already: the log has an older one
    waiting = {oid for oid, name in renamed.items() if name in taken}
    return right | waiting | (_replaced(m, rows, now) & renamed.keys())


def _outdated(m: Mirroring, renamed: Mapping[int, TableName]) -> set[int]:
    """Of the tables that had these names when the log was written, those that have others now."""
    if not renamed:
        return set()
    with closing(connect(m.source_url)) as connection, translated(m.source_url):
        now = table_names(connection, renamed, [])
    return {oid for oid, name in renamed.items() if now.get(oid) != name}


def free_names(
    m: Mirroring, waiting: Collection[TableRow], wanted: Iterable[TableName]
) -> tuple[LakeNames, dict[int, TableName]]:
    """The names that are free for tables to be copied, and the mirrors that get other names so that they are."""
    given_up = [oid for row in waiting for oid in (row.oid, *row.replaces)]
    names = m.sink.names(given_up)
    if all(_takes(names, name) for name in wanted) and not any(row.replaces for row in waiting):
        return m.sink.names(given_up), {}
    return _movable(m, given_up, _names_now(m, m.sink.standings(), given_up))


_OVERDUE = """
    SELECT t.source_oid FROM headwater.tables t, LATERAL (
        SELECT r.namespace, r.name FROM headwater.relations r
        WHERE r.group_name = t.group_name AND r.oid = t.source_oid AND r.lsn < t.position
        ORDER BY r.lsn DESC, r.id DESC LIMIT 1) r
    WHERE t.group_name = %s AND t.state IN ('CATCHUP', 'STREAMING')
    AND (r.namespace, r.name) <> (t.lake_schema, t.lake_table) AND (t.options ->> 'followed_name')::boolean
"""


def settle_names(m: Mirroring) -> None:
    """Rename mirrors that could not have the names of their tables when the changes around them were delivered.

    As long as a table waits to be copied, it may be the one that has such a name.
    """
    if any(row.state in ("PENDING", "SNAPSHOT") for row in m.state.tables(m.group)):
        return
    overdue = {oid for (oid,) in m.state.query(_OVERDUE, (m.group,))}
    if not overdue:
        return
    standings = m.sink.standings()
    now = _names_now(m, standings, ())
    waiting = _held_back(m, standings, now)
    _, moved = _movable(m, [], {oid: name for oid, name in now.items() if oid not in waiting})
    if overdue & moved.keys():
        m.sink.rename(moved)
        for oid, name in moved.items():
            m.state.rename_table(m.group, oid, source=name, lake=name)


def _movable(
    m: Mirroring, given_up: Collection[int], wanted: Mapping[int, TableName]
) -> tuple[LakeNames, dict[int, TableName]]:
    """Of the mirrors that want these names, those that can have them; and the names that are free after that."""
    moved = dict(wanted)
    while True:
        names = m.sink.names([*given_up, *moved])
        refused = next((oid for oid, name in moved.items() if not _takes(names, name)), None)
        if refused is None:
            return names, moved
        del moved[refused]  # it keeps the name it has, so another may not get that one


def _takes(names: LakeNames, name: TableName) -> bool:
    try:
        names.take(name)
    except TableError:
        return False
    return True


def _called(m: Mirroring, rows: Collection[TableRow]) -> dict[int, TableName]:
    with closing(connect(m.source_url)) as connection, translated(m.source_url):
        return table_names(connection, [row.oid for row in rows], [row.configured for row in rows])


def _replaced(m: Mirroring, rows: Collection[TableRow], now: Mapping[int, TableName]) -> set[int]:
    mirrored = {row.oid for row in m.state.tables(m.group) if row.state != "REMOVED"}
    holders = {name: oid for oid, name in now.items()}
    return {row.oid for row in rows if holders.get(row.configured, row.oid) not in mirrored}
