"""What operators ask of a running service, by command or in SQL: written by the functions of `functions.py`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

import psycopg
from psycopg import sql
from psycopg.types.json import Jsonb

from headwater.errors import ConfigError
from headwater.postgres.connect import Connection
from headwater.state.database import Database, storable

__all__ = ["Request", "Requests", "Verb", "give_up_requests"]

Verb = Literal[
    "add_table",
    "remove_table",
    "resync_table",
    "pause_table",
    "resume_table",
    "move_table",
    "create_group",
    "drop_group",
    "enable_group",
    "disable_group",
]

_REQUEST = (
    'SELECT id, verb, group_name AS "group", table_name AS "table", arguments, requested_by, requested_at, handled_at,'
    " failed, outcome, begun FROM headwater.requests"
)


@dataclass(frozen=True, slots=True)
class Request:
    """One request. `arguments` of add_table are `entry` (as of the config's `tables:`) and `copy`, those of move_table
    `to_group`, those of create_group `settings` (as of the config's group, without tables); others have none.
    """

    id: int
    verb: Verb
    group: str
    table: str | None  # as `TableName` spells it; None: the group is meant
    arguments: Mapping[str, Any]
    requested_by: str
    requested_at: datetime
    handled_at: datetime | None  # None: it waits
    failed: bool
    outcome: str | None
    begun: Mapping[str, Any] | None = None  # what was so before a service began with it; None: none has


class Requests(Database):
    """The requests of the state."""

    def ask(self, verb: Verb, **arguments: object) -> int:
        """Call the SQL function of that name; the id of the request, or ConfigError if it makes no sense."""
        named = [sql.SQL("{} => {}").format(sql.Identifier(name), sql.Placeholder(name)) for name in arguments]
        call = sql.SQL("SELECT headwater.{}({})").format(sql.Identifier(verb), sql.SQL(", ").join(named))
        values = {name: Jsonb(each) if isinstance(each, Mapping) else each for name, each in arguments.items()}
        try:
            with self.transaction() as connection:
                row = connection.execute(call, values).fetchone()
        except psycopg.errors.RaiseException as error:
            raise ConfigError(error.diag.message_primary or str(error), hint=error.diag.message_hint or "") from error
        assert row is not None
        return int(row[0])

    def waiting(self) -> list[Request]:
        """Those that are not handled yet, in the order in which they were made."""
        return self._rows(Request, f"{_REQUEST} WHERE handled_at IS NULL ORDER BY id", ())

    def last_handled(self) -> dict[str, datetime]:
        """When the last request for each group was handled."""
        handled = "SELECT group_name, max(handled_at) FROM headwater.requests WHERE handled_at IS NOT NULL GROUP BY 1"
        return dict(self.query(handled))

    def request(self, id: int) -> Request | None:
        return next(iter(self._rows(Request, f"{_REQUEST} WHERE id = %s", (id,))), None)

    def begin_request(self, id: int, **before: object) -> None:
        """Note that a request was found to be possible, and what was so before anything is done for it.

        Who takes it up after a failure then knows what is of its own doing.
        """
        self._write("UPDATE headwater.requests SET begun = %s WHERE id = %s AND begun IS NULL", (Jsonb(before), id))

    def remind(self, id: int) -> None:
        """Have the service look at a request again that it could not bring to its end."""
        self._write("SELECT pg_notify('headwater', %s)", (str(id),))

    def settle(self, id: int, outcome: str, *, failed: bool = False) -> None:
        """Note what became of a request, and tell those who listen to `headwater_done`; once settled it stays so."""

        def work(connection: Connection) -> None:
            connection.execute(
                "UPDATE headwater.requests SET handled_at = clock_timestamp(), outcome = %s, failed = %s"
                " WHERE id = %s AND handled_at IS NULL",
                (storable(outcome), failed, id),
            )
            connection.execute("DELETE FROM headwater.requests WHERE handled_at < now() - interval '30 days'")
            connection.execute("SELECT pg_notify('headwater_done', %s)", (str(id),))

        self._connection.run(work)


def give_up_requests(connection: Connection, group: str, settled: tuple[int, str] | None) -> None:
    """Settle what was asked of a group that is dropped, in the caller's transaction; not what a later one is to get.

    `settled` is the request to drop it, and its outcome. Others to drop this same group have nothing left to do.
    """
    request, outcome = settled or (None, "")
    connection.execute(
        "WITH ended AS (UPDATE headwater.requests r SET handled_at = clock_timestamp(), failed = verb <> 'drop_group',"
        " outcome = CASE WHEN id = %(request)s THEN %(outcome)s ELSE 'the group was dropped' END"
        " WHERE group_name = %(group)s AND handled_at IS NULL AND NOT EXISTS (SELECT FROM headwater.requests c"
        " WHERE c.group_name = r.group_name AND c.verb = 'create_group' AND c.handled_at IS NULL AND c.id <= r.id)"
        " RETURNING r.id) SELECT pg_notify('headwater_done', id::text) FROM ended",
        {"group": group, "request": request, "outcome": storable(outcome)},
    )
