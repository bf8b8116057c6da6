"""What operators ask for, done by the service that runs: one request after the other, each with an outcome."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import closing, suppress

from headwater.change import TableName
from headwater.config import Config, Table
from headwater.control.wanted import group_of, table_of
from headwater.errors import ConfigError, HeadwaterError, Unreachable
from headwater.logs import redact
from headwater.postgres.connect import connect, translated
from headwater.source.checktable import TableWish, table_problems
from headwater.source.server import named_oid
from headwater.state import AddedTable, Request, State, Verb
from headwater.supervise.dropping import Service, drop
from headwater.supervise.tablerequests import TableRequest, record_request

__all__ = ["Handling", "Service"]

logger = logging.getLogger(__name__)

_STATES: dict[Verb, TableRequest] = {"pause_table": "pause", "resume_table": "resume", "resync_table": "resync"}


class Handling:
    """Handles requests. One that fails says why, and leaves nothing behind.

    Once a request was found to be possible, that is noted with it: whoever takes it up again, after Unreachable or a
    kill, brings it to its end, and does not refuse what it has done itself.
    """

    def __init__(self, service: Service, state: State) -> None:
        self._service, self._state = service, state
        self._ending: set[str] = set()  # groups that are being dropped: what is asked of them later waits
        self._verbs: dict[Verb, Callable[[Request], str | None]] = {
            "add_table": self._add,
            "remove_table": self._remove,
            "move_table": self._move,
            "create_group": self._create,
            "drop_group": self._drop,
            "enable_group": self._enable,
            "disable_group": self._disable,
        }

    def handle(self, request: Request) -> None:
        """Do it and settle it, unless it is for another service; Unreachable: it waits until that is over.

        A group that is still being worked on is dropped later, and other requests do not wait for that.
        """
        if not self._is_ours(request) or self._ending & {request.group, request.arguments.get("to_group")}:
            return
        by = f"{request.verb} {request.table or request.group} ({request.requested_by})"
        try:
            outcome = self._done(request)
        except Unreachable:
            raise
        except HeadwaterError as error:
            outcome = redact(str(error), self._service.declared().secrets())
            logger.error("%s: refused: %s", by, outcome)
            self._state.settle(request.id, outcome, failed=True)
        except Exception as error:  # the supervisor's catch-all: else the request would end every run anew
            logger.exception("%s failed", by)
            outcome = redact(f"a bug in Headwater: {error!r}", self._service.declared().secrets())
            self._state.settle(request.id, outcome, failed=True)
        else:
            if outcome is None:
                self._ending.add(request.group)
                self._state.remind(request.id)
                return
            logger.info("%s: %s", by, outcome)
            self._state.settle(request.id, outcome)

    def _is_ours(self, request: Request) -> bool:
        """Other services may share the state: a group belongs to the one whose config has it, or its lake."""
        if request.verb == "create_group":
            lake = request.arguments.get("settings", {}).get("lake")
            return lake is None or lake in self._service.declared().lakes
        return request.group in self._service.everything().groups

    def _done(self, request: Request) -> str | None:
        """What became of it; None: it is not over yet."""
        if (state_change := _STATES.get(request.verb)) is not None:
            return self._change_state(request, state_change)
        return self._verbs[request.verb](request)

    # States ----------------------------------------------------------------------------------------------------------

    def _change_state(self, request: Request, change: TableRequest) -> str:
        done = record_request(self._state, request.group, _name(request), change)
        if change == "resync":
            self._want_rows(request)
        said = {"pause": "is paused", "resume": "is resumed", "resync": "is to be copied again"}[change]
        return f"{request.table} {said if done.changed else 'needs no change'}: it is {done.now}"

    def _want_rows(self, request: Request) -> None:
        """A table that was added without a copy has one from now on."""
        for each in self._state.added_tables():
            if (each.group, each.table) == (request.group, request.table) and not each.copy:
                self._state.add_table(each._replace(copy=True))

    # Tables ----------------------------------------------------------------------------------------------------------

    def _add(self, request: Request) -> str:
        entry, copy = dict(request.arguments["entry"]), bool(request.arguments.get("copy", True))
        added = AddedTable(request.group, str(_name(request)), entry, copy)
        if request.begun is None:
            self._check_addition(added)
            self._state.begin_request(request.id)
        self._added(added, request.requested_by)
        how = "and will be copied" if copy else "without a copy: its mirror has what changes from now on"
        return f"{added.table} is added to group {request.group!r}, {how}{self._waits(request.group)}"

    def _added(self, added: AddedTable, by: str) -> None:
        self._state.add_table(added, by)
        try:
            self._service.serve(added.group)
        except Unreachable:
            raise  # the request is tried again
        except HeadwaterError:
            self._state.forget_added_table(added.group, added.table)
            with suppress(HeadwaterError):
                self._service.serve(added.group)
            raise

    def _check_addition(self, added: AddedTable) -> None:
        """ConfigError, or whatever keeps it from being mirrored: nothing has been changed yet."""
        table, config = table_of(added.entry), self._service.everything()
        group = config.groups[added.group]
        if any(each.table == table.table for each in group.tables):
            hint = "`headwater table resync` copies it again"
            raise ConfigError(f"table {added.table!r} is in group {added.group!r} already", hint=hint)
        for name, other in config.groups.items():
            if other.lake == group.lake and any(_same(each.target, table.target) for each in other.tables):
                hint = "name another table of the lake for it: `--as schema.table`"
                raise ConfigError(f"group {name!r} has a table that lands as {str(table.target)!r} already", hint=hint)
        self._check_source(config, table)

    def _check_source(self, config: Config, table: Table) -> None:
        with closing(connect(config.source)) as connection, translated(config.source):
            asked = table.columns, table.exclude, table.types, table.mode, table.append_only
            wish = TableWish(table.table, None, *asked)
            for problem in table_problems(connection, wish, named_oid(connection, table.table)):
                raise problem

    def _remove(self, request: Request) -> str:
        group, name = request.group, str(_name(request))
        if request.begun is None:
            self._check_added(request)
            self._state.begin_request(request.id)
        self._state.forget_added_table(group, name)
        self._service.serve(group)
        return f"{name} is removed from group {group!r}: its mirror stays as it is"

    def _move(self, request: Request) -> str:
        to, name = str(request.arguments["to_group"]), str(_name(request))
        if to not in (known := self._service.everything().groups):
            raise ConfigError(f"there is no group {to!r}", hint=f"there are: {', '.join(known)}")
        if not self._is_added(to, name):  # else a run has moved it, and ended before it could say so
            self._check_move(self._check_added(request), to)
            self._state.move_added_table(name, request.group, to)
        try:
            self._service.serve(to)  # first: if it cannot have the table, the other group goes on with it
            self._service.serve(request.group)
        except Unreachable:
            raise  # the request is tried again
        except HeadwaterError:
            self._state.move_added_table(name, to, request.group)
            for each in (request.group, to):
                with suppress(HeadwaterError):
                    self._service.serve(each)
            raise
        return f"{name} is moved from group {request.group!r} to {to!r}, and will be copied{self._waits(to)}"

    def _is_added(self, group: str, name: str) -> bool:
        return any((each.group, each.table) == (group, name) for each in self._state.added_tables())

    def _check_move(self, added: AddedTable, to: str) -> None:
        groups = self._service.everything().groups
        if to == added.group:
            raise ConfigError(f"table {added.table!r} is in group {to!r} already", hint="name another group")
        if groups[to].lake == groups[added.group].lake:
            raise ConfigError(
                f"groups {added.group!r} and {to!r} have the same lake, and the mirror of {added.table!r} stays there",
                hint=f"`headwater table remove` it, rename or drop its mirror, then `headwater table add --group {to}`",
            )
        self._check_addition(added._replace(group=to))

    def _check_added(self, request: Request) -> AddedTable:
        """The table as it was added; ConfigError for what the file declares: that is not ours to take away."""
        for each in self._state.added_tables():
            if (each.group, each.table) == (request.group, str(_name(request))):
                return each
        group = self._service.everything().groups[request.group]
        if (pattern := group.matched(_name(request))) is not None:
            raise ConfigError(
                f"table {request.table!r} of group {request.group!r} matches the pattern {pattern.pattern!r}",
                hint="leave it out there: `exclude` lists tables that a pattern does not bring",
            )
        if any(each.table == _name(request) for each in group.tables):
            raise ConfigError(
                f"table {request.table!r} of group {request.group!r} is in the config file, which is ensured",
                hint="take it out of the file: the running service notices by itself",
            )
        raise ConfigError(
            f"group {request.group!r} has no table {request.table!r}", hint="`headwater table list` shows what it has"
        )

    # Groups ----------------------------------------------------------------------------------------------------------

    def _create(self, request: Request) -> str:
        name, settings = request.group, dict(request.arguments.get("settings", {}))
        if request.begun is None and name in self._service.everything().groups:
            raise ConfigError(f"there is a group {name!r} already", hint="`headwater group list` shows all")
        group = group_of(self._service.declared(), name, settings)
        self._state.begin_request(request.id)
        self._state.add_group(name, {**settings, "lake": group.lake}, request.requested_by)
        try:
            self._service.serve(name)
        except Unreachable:
            raise
        except HeadwaterError:
            self._state.forget_added_group(name)
            raise
        return f"group {name!r} is created, into lake {group.lake!r}: add tables with `headwater table add`"

    def _drop(self, request: Request) -> str | None:
        return drop(self._service, self._state, request)

    def _enable(self, request: Request) -> str:
        self._state.enable_group(request.group)
        self._service.serve(request.group)
        return f"group {request.group!r} is enabled"

    def _disable(self, request: Request) -> str:
        self._state.disable_group(request.group)
        self._service.leave(request.group)
        return f"group {request.group!r} is disabled: its slot keeps the source's WAL until it is enabled or dropped"

    def _waits(self, group: str) -> str:
        return f"; group {group!r} is disabled, so that waits" if group in self._state.disabled_groups() else ""


def _name(request: Request) -> TableName:
    assert request.table is not None, "the function that has made the request wants a table"
    return TableName.parse(request.table)


def _same(one: TableName, other: TableName) -> bool:
    """Names in a lake differ in more than upper and lower case."""
    return (one.schema.lower(), one.name.lower()) == (other.schema.lower(), other.name.lower())
