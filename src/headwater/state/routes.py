"""The rows of routes and their destinations: how far each is, what it waits for, which process has it.

A destination's position is in its own lake. The state knows up to where each is complete, also where no row was for it:
most are at the route's own position, and only those that are `behind` have one of their own here. A poll that brings
nothing to a thousand destinations therefore writes one row.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, NamedTuple

from headwater.change import TableName
from headwater.lake.counts import Counts
from headwater.postgres.connect import Connection
from headwater.state.database import Database, storable
from headwater.state.lock import HELD

__all__ = [
    "DEFAULT",
    "Arrival",
    "DestinationRow",
    "DestinationState",
    "Found",
    "RouteId",
    "RouteRow",
    "Routes",
    "complete_upto",
    "destination_id",
    "spelled",
]

DestinationState = Literal["PENDING", "ACTIVE", "ERRORED", "PAUSED"]
DEFAULT = "*"  # the id of the destination that gets the rows which no other one does


def destination_id(value: str | None) -> str:
    """What a destination is known by: its canonical routing value; None: it is the default."""
    return DEFAULT if value is None else f"={value}"


def spelled(value: str | None) -> str:
    """What people call the destination of a routing value: the default is `default`, and no value is spelled so.

    A value that is `default` itself, or begins with `=`, has one more `=` in front.
    """
    if value is None:
        return "default"
    return f"={value}" if value == "default" or value.startswith("=") else value


class RouteId(NamedTuple):
    """A route, and which of the instances that share it: each has destinations and a position of its own."""

    name: str
    instance: str = "all"


@dataclass(frozen=True, slots=True)
class RouteRow:
    """An instance of a route. `position` is where its destinations are complete up to, except those that are behind."""

    name: str
    instance: str
    source_id: str  # the lake's id, or the group's source
    source_table: int  # the table's id there
    position: int | None  # None: no poll has been done yet
    polling: bool  # a poll is under way, or was when its process was killed
    polled_at: datetime | None
    unknown_rows: int
    null_rows: int
    error: str | None


@dataclass(frozen=True, slots=True)
class DestinationRow:
    """A destination of a route. `behind` is where it is complete up to, if that is not the position of its instance."""

    route: str
    id: str
    instance: str | None  # None: none has had it yet
    lake: str  # fit for messages
    schema: str
    table: str
    state: DestinationState
    behind: int | None
    landed: int | None  # the position in its lake, as far as the state knows
    reseed: str | None  # why it is to be seeded; None: it need not be
    seeded: int
    inserted: int
    updated: int
    deleted: int
    waiting_rows: int  # events that it has not got since it is behind
    error: str | None
    failures: int
    retry_at: datetime | None
    owner: str | None
    delivered_at: datetime | None

    @property
    def name(self) -> TableName:
        return TableName(self.schema, self.table)

    @property
    def value(self) -> str | None:
        """Its routing value; None: it is the default."""
        return None if self.id == DEFAULT else self.id[1:]

    def __str__(self) -> str:
        return spelled(self.value)


def complete_upto(row: DestinationRow, instances: Mapping[str, RouteRow]) -> int | None:
    """Where a destination is complete up to, at least; None: it has nothing yet."""
    instance = instances.get(row.instance or "")
    if row.reseed is not None or instance is None:
        return row.landed
    return instance.position if row.behind is None else row.behind


class Found(NamedTuple):
    """A destination as the config, a table or a template has it."""

    id: str
    lake: str
    name: TableName
    paused: bool = False


class Arrival(NamedTuple):
    """A destination that a poll has brought to a position; `counts` are what it got."""

    id: str
    landed: int
    counts: Counts


_ROUTE = (
    "SELECT name, instance, source_id, source_table, position, polling, polled_at, unknown_rows, null_rows, error"
    " FROM headwater.routes"
)
_DESTINATION = (
    "SELECT route, id, instance, lake, schema, table_name AS table, state, behind, landed, reseed, seeded, inserted,"
    " updated, deleted, waiting_rows, error, failures, retry_at, owner, delivered_at FROM headwater.destinations"
)


class Routes(Database):
    """The routes of the state."""

    def route(self, route: RouteId) -> RouteRow | None:
        return next(iter(self._rows(RouteRow, f"{_ROUTE} WHERE (name, instance) = (%s, %s)", route)), None)

    def routes(self) -> list[RouteRow]:
        """All instances of all routes."""
        return self._rows(RouteRow, f"{_ROUTE} ORDER BY name, instance", ())

    def destinations(self, route: str) -> list[DestinationRow]:
        return self._rows(DestinationRow, f"{_DESTINATION} WHERE route = %s ORDER BY id", (route,))

    def ensure_route(self, route: RouteId, source_id: str, source_table: int) -> RouteRow:
        """Make the route known. If it reads another table than before, all its destinations are seeded again."""

        def work(connection: Connection) -> None:
            connection.execute(
                "INSERT INTO headwater.routes (name, instance, source_id, source_table) VALUES (%s, %s, %s, %s)"
                " ON CONFLICT (name, instance) DO NOTHING",
                (*route, source_id, source_table),
            )
            changed = connection.execute(
                "UPDATE headwater.routes SET source_id = %s, source_table = %s, position = NULL, updated_at = now()"
                " WHERE (name, instance) = (%s, %s) AND (source_id, source_table) <> (%s, %s)",
                (source_id, source_table, *route, source_id, source_table),
            ).rowcount
            if changed:
                connection.execute(
                    "UPDATE headwater.destinations SET reseed = 'the source is another table now', behind = NULL,"
                    " updated_at = now() WHERE (route, instance) = (%s, %s)",
                    route,
                )

        self._connection.run(work)
        row = self.route(route)
        assert row is not None
        return row

    def ensure_destinations(self, route: str, found: Iterable[Found]) -> None:
        """Make destinations known; one whose lake or table is another than before is seeded there."""
        rows = [(route, each.id, each.lake, *each.name, "PAUSED" if each.paused else "PENDING") for each in found]

        def work(connection: Connection) -> None:
            connection.cursor().executemany(
                "INSERT INTO headwater.destinations AS d (route, id, lake, schema, table_name, state, reseed)"
                " VALUES (%s, %s, %s, %s, %s, %s, 'it is new') ON CONFLICT (route, id) DO UPDATE SET"
                " lake = excluded.lake, schema = excluded.schema, table_name = excluded.table_name, state = 'PENDING',"
                " reseed = 'it is in another lake or table now', behind = NULL, landed = NULL, error = NULL,"
                " failures = 0, retry_at = NULL, updated_at = now()"
                " WHERE (d.lake, d.schema, d.table_name) <> (excluded.lake, excluded.schema, excluded.table_name)",
                rows,
            )

        self._connection.run(work)

    def forget_destinations(self, route: str, ids: Collection[str]) -> None:
        """Forget destinations that left the route; their tables stay as they are."""
        self._write("DELETE FROM headwater.destinations WHERE route = %s AND id = ANY(%s)", (route, list(ids)))

    def forget_route(self, name: str) -> None:
        """Forget a route, with all its instances and destinations; their tables stay as they are."""

        def work(connection: Connection) -> None:
            connection.execute("DELETE FROM headwater.destinations WHERE route = %s", (name,))
            connection.execute("DELETE FROM headwater.routes WHERE name = %s", (name,))

        self._connection.run(work)

    # -- who has a destination

    def claim(self, route: RouteId, ids: Collection[str], owner: str) -> set[str]:
        """Take these destinations, unless another process has them that still runs; those that are ours afterwards.

        A process runs as long as it holds the lock of its name: a lease that needs no renewal, and ends with its owner.
        A destination that comes from another instance keeps the position that it had there.
        """
        given = {**route._asdict(), "ids": list(ids), "owner": owner}

        def work(connection: Connection) -> list[tuple[str]]:
            connection.execute(
                "UPDATE headwater.destinations d SET owner = %(owner)s, instance = %(instance)s,"
                " behind = CASE WHEN d.instance = %(instance)s THEN behind ELSE coalesce(behind, (SELECT position"
                " FROM headwater.routes r WHERE r.name = d.route AND r.instance = d.instance)) END"
                " WHERE route = %(name)s AND id = ANY(%(ids)s)"
                " AND (owner, instance) IS DISTINCT FROM (%(owner)s, %(instance)s)"
                " AND (owner IS NULL OR owner = %(owner)s OR NOT EXISTS (SELECT FROM pg_locks l WHERE"
                f" {HELD.format(name='d.owner')}))",
                given,
            )
            return connection.execute(
                "SELECT id FROM headwater.destinations WHERE route = %(name)s AND id = ANY(%(ids)s)"
                " AND owner = %(owner)s",
                given,
            ).fetchall()

        rows = self._connection.run(work)
        return {id_ for (id_,) in rows}

    # -- what became of them

    def begin_poll(self, route: RouteId, attempt: str) -> None:
        """Note that a poll is under way, and the name that its files carry."""

        def work(connection: Connection) -> None:
            connection.execute("UPDATE headwater.routes SET polling = true WHERE (name, instance) = (%s, %s)", route)
            connection.execute(
                "INSERT INTO headwater.route_attempts (route, instance, attempt) VALUES (%s, %s, %s)", (*route, attempt)
            )

        self._connection.run(work)

    def attempts(self, route: RouteId) -> list[str]:
        """The attempts that were begun and never ended: of processes that were killed."""
        rows = self.query("SELECT attempt FROM headwater.route_attempts WHERE (route, instance) = (%s, %s)", route)
        return [attempt for (attempt,) in rows]

    def forget_attempts(self, attempts: Collection[str]) -> None:
        """Nothing of these attempts is left that no commit has registered."""
        self._write("DELETE FROM headwater.route_attempts WHERE attempt = ANY(%s)", (list(attempts),))

    def end_poll(
        self,
        route: RouteId,
        attempt: str | None,
        upto: int | None,
        arrivals: Iterable[Arrival],
        waiting: Mapping[str, int],
    ) -> None:
        """Note what a poll has done: the route's position (None: of those that are behind, it stays), and who got what.

        `waiting` are events that were not for a destination of the poll, but for one that waits.
        """
        landed = [(each.landed, *_delivered(each.counts), route.name, each.id) for each in arrivals]

        def work(connection: Connection) -> None:
            connection.execute(
                "UPDATE headwater.routes SET position = coalesce(%s, position), polling = false, polled_at = now(),"
                " error = NULL, updated_at = now() WHERE (name, instance) = (%s, %s)",
                (upto, *route),
            )
            connection.execute("DELETE FROM headwater.route_attempts WHERE attempt = %s", (attempt,))
            cursor = connection.cursor()
            cursor.executemany(
                "UPDATE headwater.destinations SET landed = %s, inserted = inserted + %s, updated = updated + %s,"
                " deleted = deleted + %s, delivered_at = now(), updated_at = now() WHERE route = %s AND id = %s",
                landed,
            )
            cursor.executemany(
                "UPDATE headwater.destinations SET waiting_rows = waiting_rows + %s WHERE route = %s AND id = %s",
                [(rows, route.name, id_) for id_, rows in waiting.items()],
            )

        self._connection.run(work)

    def note_behind(self, route: str, positions: Mapping[str, int | None]) -> None:
        """Where destinations are complete up to; None: they are at the route's position again, and all is well."""

        def work(connection: Connection) -> None:
            connection.cursor().executemany(
                "UPDATE headwater.destinations SET behind = %(at)s, updated_at = now(), state = 'ACTIVE',"
                " waiting_rows = CASE WHEN %(at)s::bigint IS NULL THEN 0 ELSE waiting_rows END, error = NULL,"
                " failures = 0, retry_at = NULL"
                " WHERE route = %(route)s AND id = %(id)s AND state <> 'PAUSED'",
                [{"at": at, "route": route, "id": id_} for id_, at in positions.items()],
            )

        self._connection.run(work)

    def note_went_back(self, route: str, id_: str, position: int) -> None:
        """A destination's lake is at an earlier position than it was: what came after that comes again."""
        self._write(
            "UPDATE headwater.destinations SET behind = %s, landed = %s, updated_at = now(), state = 'ACTIVE',"
            " error = NULL, failures = 0, retry_at = NULL WHERE route = %s AND id = %s AND state <> 'PAUSED'",
            (position, position, route, id_),
        )

    def note_failed(self, route: str, id_: str, error: str, behind: int | None, retry_at: datetime) -> None:
        """A destination that fails waits, and the others go on."""
        self._write(
            "UPDATE headwater.destinations SET state = 'ERRORED', error = %s, failures = failures + 1, retry_at = %s,"
            " behind = coalesce(behind, %s), updated_at = now() WHERE route = %s AND id = %s AND state <> 'PAUSED'",
            (storable(error), retry_at, behind, route, id_),
        )

    def note_seeded(self, route: RouteId, at: int, copied: Mapping[str, int]) -> None:
        """Destinations have been seeded: they show the source at a position."""

        def work(connection: Connection) -> None:
            connection.execute(
                "UPDATE headwater.routes SET position = coalesce(position, %s), updated_at = now()"
                " WHERE (name, instance) = (%s, %s)",
                (at, *route),
            )
            connection.cursor().executemany(
                "UPDATE headwater.destinations d SET state = CASE WHEN state = 'PAUSED' THEN state ELSE 'ACTIVE' END,"
                " reseed = NULL, landed = %(at)s, behind = CASE WHEN (SELECT position FROM headwater.routes"
                " WHERE name = d.route AND instance = d.instance) = %(at)s THEN NULL ELSE %(at)s END,"
                " seeded = %(rows)s, inserted = 0, updated = 0, deleted = 0, waiting_rows = 0, error = NULL,"
                " failures = 0, retry_at = NULL,"
                " delivered_at = now(), updated_at = now() WHERE route = %(route)s AND id = %(id)s",
                [{"at": at, "rows": rows, "route": route.name, "id": id_} for id_, rows in copied.items()],
            )

        self._connection.run(work)

    def regroup(self, route: RouteId) -> None:
        """If no destination is at the route's position, but some are further, move it on to the first of these."""
        self._write(
            "UPDATE headwater.routes r SET position = ahead.position FROM (SELECT d.route, d.instance,"
            " min(d.behind) AS position FROM headwater.destinations d JOIN headwater.routes r ON r.name = d.route"
            " AND r.instance = d.instance WHERE d.reseed IS NULL AND d.behind > r.position"
            " GROUP BY d.route, d.instance) ahead WHERE (r.name, r.instance) = (%(name)s, %(instance)s)"
            " AND (ahead.route, ahead.instance) = (r.name, r.instance) AND NOT EXISTS (SELECT FROM"
            " headwater.destinations d WHERE (d.route, d.instance) = (r.name, r.instance) AND d.reseed IS NULL"
            " AND d.behind IS NULL)",
            route._asdict(),
        )

    def request_seed(self, route: str, ids: Collection[str], reason: str) -> int:
        """Have destinations seeded again; how many there were."""
        return self._connection.run(
            lambda connection: (
                connection.execute(
                    "UPDATE headwater.destinations SET reseed = %s, retry_at = NULL, failures = 0, updated_at = now()"
                    " WHERE route = %s AND id = ANY(%s)",
                    (reason, route, list(ids)),
                ).rowcount
            )
        )

    def pause_destinations(self, route: str, ids: Collection[str]) -> int:
        """Leave destinations as they are from now on; how many were not paused before."""
        return self._connection.run(
            lambda connection: (
                connection.execute(
                    "UPDATE headwater.destinations d SET state = 'PAUSED', updated_at = now(),"
                    " behind = coalesce(behind, (SELECT position FROM headwater.routes"
                    " WHERE name = d.route AND instance = d.instance))"
                    " WHERE route = %s AND id = ANY(%s) AND state <> 'PAUSED'",
                    (route, list(ids)),
                ).rowcount
            )
        )

    def resume_destinations(self, route: str, ids: Collection[str]) -> int:
        """Let destinations go on that are paused, or that wait for their next try; how many there were."""
        return self._connection.run(
            lambda connection: (
                connection.execute(
                    "UPDATE headwater.destinations SET state = CASE WHEN landed IS NULL THEN 'PENDING'"
                    " ELSE 'ACTIVE' END, retry_at = NULL, failures = 0, error = NULL, updated_at = now()"
                    " WHERE route = %s AND id = ANY(%s) AND state IN ('PAUSED', 'ERRORED')",
                    (route, list(ids)),
                ).rowcount
            )
        )

    def note_unrouted(self, route: RouteId, unknown: int, null: int) -> None:
        """Count rows that no destination gets."""
        self._write(
            "UPDATE headwater.routes SET unknown_rows = unknown_rows + %s, null_rows = null_rows + %s"
            " WHERE (name, instance) = (%s, %s)",
            (unknown, null, *route),
        )

    def record_route_error(self, route: RouteId, error: str | None) -> None:
        """Note what keeps the route from going on; None: nothing any more."""
        error = storable(error)
        self._write(
            "UPDATE headwater.routes SET error = %s, polling = false WHERE (name, instance) = (%s, %s)"
            " AND error IS DISTINCT FROM %s",
            (error, *route, error),
        )


def _delivered(counts: Counts) -> tuple[int, int, int]:
    return counts.inserted, counts.updated, counts.deleted
