"""The status of every group and route: one query, rendered as text, as JSON, and by the demo."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Literal

from headwater.change import Lsn
from headwater.config import Config
from headwater.control.expanding import Skipped, with_patterns_of
from headwater.errors import CheckFailed, ConfigError, ErrorKind, OperatorMustAct, Unreachable
from headwater.lake.maintenance import Figures
from headwater.source.generated import not_sent
from headwater.state import GroupRow, State, TableRow
from headwater.state.connection import SharedConnection
from headwater.state.holding import holders
from headwater.state.leftover import Leftover, leftovers
from headwater.state.maintained import LastMaintenance
from headwater.state.processes import Process, processes, supervised
from headwater.state.routes import RouteRow
from headwater.state.servers import served_at
from headwater.status.figures import LakeFigures
from headwater.status.kept import OldestChange, log_size, oldest_change
from headwater.status.lag import NONE, UNKNOWN, Lag, Oldest, SourceView, capture_lag, recorded, source_view, staged
from headwater.status.routes import RouteStatus, route_statuses
from headwater.status.slots import slot_warning

__all__ = [
    "STALE_SECONDS",
    "GroupStatus",
    "PartStatus",
    "RunState",
    "SkippedTable",
    "Status",
    "TableStatus",
    "open_status",
    "status",
]

RunState = Literal["RUNNING", "STARTING", "STOPPED"]
_WORST_FIRST: tuple[RunState, ...] = ("STOPPED", "STARTING", "RUNNING")
STALE_SECONDS = 30.0  # a process shows that it runs every 3 seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class TableStatus:
    """A table of a group. `rows` is what the lake should hold: what was copied, plus and minus what was delivered."""

    group: str
    table: str
    lake: str
    lake_table: str
    state: str
    rows: int
    inserted: int
    updated: int
    deleted: int
    copied_rows: int
    copy_total: int | None
    position: str | None
    lag_bytes: int | None
    lag_seconds: float | None  # None: it is not copied yet, or not followed, or the source is unreachable
    mode: str  # mirror or history
    quarantined: int  # values, counted in total, that the lake's types could not hold
    resync: str | None  # why the table is to be copied again
    error: str | None
    retry_at: datetime | None
    error_kind: ErrorKind | None = None
    not_mirrored: tuple[str, ...] = ()  # its generated columns that PostgreSQL does not send
    figures: Figures | None = None  # what it is made of in the lake; None: it is not known
    last_maintenance: LastMaintenance | None = None
    copy_seconds: float | None = None  # since its copy began; None: it is not being copied


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedTable:
    """A table that a pattern of the group matches, and that cannot be mirrored as it is."""

    table: str
    reason: str
    hint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PartStatus:
    """Capture or delivery of a group: the process that does it, or did last, and how far it is behind."""

    state: RunState
    host: str | None = None
    pid: int | None = None
    started_at: datetime | None = None
    stopped_at: datetime | None = None  # None: it runs, or it was killed
    heartbeat_seconds: float | None = None  # how long ago the process last showed that it runs
    lag_bytes: int | None
    lag_seconds: float | None
    error: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupStatus:
    """A group: what runs, how far its lake is behind the source, and its tables."""

    name: str
    lake: str
    state: RunState
    lag_bytes: int | None = None
    lag_seconds: float | None = None
    slot: str | None = None  # None: the group has never run
    slot_active: bool | None = None  # None: there is no slot, or the source is unreachable
    wal_status: str | None = None
    wal_bytes: int | None = None  # that the source keeps for the slot
    wal_limit_bytes: int | None = None  # that it may keep: max_slot_wal_keep_size; None: there is no limit
    wal_safe_bytes: int | None = None  # that may be written before the slot is in danger; None: there is no limit
    unconfirmed_bytes: int | None = None  # of WAL, since what capture has confirmed
    captured_lsn: str | None = None
    captured_changes: int = 0  # that the log has got, in total
    delivered_lsn: str | None = None
    delivered_at: datetime | None = None
    snapshot_id: int | None = None  # None too for a lake whose snapshots are of single tables
    schema_changes: str | None = None  # how they reach the log: `event triggers` or `catalog`
    staged_segments: int = 0
    staged_rows: int = 0
    log_segments: int = 0
    log_bytes: int = 0
    log_needed_bytes: int = 0  # by tables that are not paused, and by routes
    log_max_bytes: int | None = None
    oldest_change: OldestChange | None = None  # that waits in the log; None: there is none
    capture: PartStatus
    delivery: PartStatus
    error: str | None = None
    tables: tuple[TableStatus, ...] = ()
    skipped: tuple[SkippedTable, ...] = ()

    @property
    def warnings(self) -> tuple[str, ...]:
        """What will stop capture, or lose changes, if nothing is done."""
        slot = slot_warning(self.wal_status, self.wal_safe_bytes, self.wal_limit_bytes)
        full = self.log_max_bytes is not None and self.log_needed_bytes >= self.log_max_bytes
        found = [f"its slot {self.slot!r} {slot}" if slot else "", "its log is full" if full else ""]
        return tuple(filter(None, found))


@dataclass(frozen=True, slots=True)
class Status:
    source_lsn: str | None
    source_error: str | None  # None: it is reachable
    groups: tuple[GroupStatus, ...]
    leftovers: tuple[Leftover, ...]  # slots of groups that are not in the config
    routes: tuple[RouteStatus, ...] = ()
    servers: tuple[str, ...] = ()  # the addresses of the pages that runs serve now

    @property
    def healthy(self) -> bool:
        return not self.problems

    @property
    def problems(self) -> tuple[str, ...]:
        """What is not as it should be, one sentence each."""
        found = [f"the source is unreachable: {self.source_error}"] if self.source_error else []
        for group in self.groups:
            if group.slot and group.slot_active is None and not self.source_error:
                found.append(f"group {group.name!r}: its slot {group.slot!r} is gone")
            found += [f"group {group.name!r}: {problem}" for problem in _problems(group)]
        for route in self.routes:
            found += [f"route {route.name!r}: {problem}" for problem in route.problems]
        return tuple(found)

    def check(self, max_lag: timedelta | None = None) -> None:
        """Unreachable if the source is; CheckFailed if there are problems, or a lake is further behind than that."""
        if self.source_error:
            raise Unreachable(f"the source is unreachable: {self.source_error}")
        if found := [*self.problems, *(self.behind(max_lag) if max_lag is not None else ())]:
            raise CheckFailed("not healthy:\n" + "\n".join(found))

    def behind(self, most: timedelta) -> tuple[str, ...]:
        """The groups and routes whose lakes are further behind than that, or it is not known how far."""
        late = [each for each in self.groups if each.lag_seconds is None or each.lag_seconds > most.total_seconds()]
        shown = ["not known" if each.lag_seconds is None else f"{each.lag_seconds:.1f} s" for each in late]
        return (
            *(f"group {each.name!r}: its lag is {lag}" for each, lag in zip(late, shown, strict=True)),
            *(f"route {each.name!r}: {problem}" for each in self.routes for problem in each.behind(most)),
        )


def _problems(group: GroupStatus) -> Iterator[str]:
    for name, part in (("capture", group.capture), ("delivery", group.delivery)):
        if part.state != "RUNNING":
            yield f"{name} is {part.state}"
        elif (part.heartbeat_seconds or 0.0) > STALE_SECONDS:
            yield f"{name} (pid {part.pid} on {part.host}) has had no heartbeat for {part.heartbeat_seconds:.0f} s"
        if part.error:
            yield f"{name}: {part.error}"
    yield from group.warnings
    for table in group.tables:
        if table.state == "ERRORED" or (table.error and table.state not in ("PAUSED", "REMOVED")):
            yield f"table {table.table} is {table.state}: {table.error}"


@contextmanager
def open_status(config: Config, env: Mapping[str, str]) -> Iterator[Callable[[], Status]]:
    """Ask as often as you like: the connections stay open. S3 takes its keys from the AWS_* variables in `env`."""
    oldest = Oldest(config.source)
    with closing(State(SharedConnection(config.source))) as source, closing(State.connect(config.state_url)) as state:
        figures = LakeFigures(config, env)
        yield lambda: status(config, env, source, state, oldest, figures)


def status(
    config: Config,
    env: Mapping[str, str],
    source: State,
    state: State,
    oldest: Oldest,
    figures: LakeFigures | None = None,
) -> Status:
    """Ask the state and the source; without the source, what the state knows. With `figures`, ask the lakes, too."""
    if not state.knows("groups"):
        raise ConfigError("nothing has run with this config yet", hint="start it with `headwater run`")
    rows = {name: state.group(name) for name in config.groups}
    try:
        view = source_view(source, [row.slot for row in rows.values() if row is not None])
        left, error = leftovers(source, state, config.groups), None
        unsent, skipped = _unsent(source, state, config), _skipped(source, config)
    except Unreachable as exc:
        view, left, error, unsent, skipped = None, (), exc.message, {}, []
    asked = _Asked(config, state, view, oldest, unsent)
    groups = tuple(asked.group(name, group.lake, rows[name]) for name, group in config.groups.items())
    groups = tuple(each if each.lake in config.ducklakes else replace(each, snapshot_id=None) for each in groups)
    groups = tuple(_with_skipped(each, skipped) for each in groups)
    if figures is not None:
        groups = tuple(_with_figures(each, state, figures, rows[each.name]) for each in groups)
    routes = route_statuses(config, env, state, config.routes)
    servers = served_at(state, config.log.path)
    return Status(_text(view.lsn if view else None), error, groups, left, routes, servers)


def _with_figures(group: GroupStatus, state: State, figures: LakeFigures, row: GroupRow | None) -> GroupStatus:
    if row is None:
        return group
    made_of, done = figures.of(row), state.maintained(group.name)
    names = {str(name): name for name in (*made_of, *done)}
    tables = [
        replace(each, figures=made_of.get(name), last_maintenance=done.get(name))
        if (name := names.get(each.lake_table))
        else each
        for each in group.tables
    ]
    return replace(group, tables=tuple(tables))


def _skipped(source: State, config: Config) -> list[Skipped]:
    try:
        with source.transaction() as connection:
            return with_patterns_of(connection, config)[1]
    except OperatorMustAct:
        return []  # `check` reports it


def _with_skipped(group: GroupStatus, skipped: Iterable[Skipped]) -> GroupStatus:
    mine = (each for each in skipped if each.group == group.name)
    shown = (SkippedTable(table=str(each.table), reason=each.reason, hint=each.hint) for each in mine)
    return replace(group, skipped=tuple(shown))


def _unsent(source: State, state: State, config: Config) -> dict[int, list[str]]:
    with source.transaction() as connection:
        return not_sent(connection, [row.oid for name in config.groups for row in state.tables(name)])


@dataclass(frozen=True, slots=True)
class _Asked:
    config: Config
    state: State
    view: SourceView | None  # None: the source is unreachable
    oldest: Oldest
    unsent: Mapping[int, Sequence[str]]  # generated columns that PostgreSQL does not send, by table

    def group(self, name: str, lake: str, row: GroupRow | None) -> GroupStatus:
        if row is None:
            never = _part(None, UNKNOWN, None, supervised=False)
            return GroupStatus(name=name, lake=lake, state="STOPPED", capture=never, delivery=never)
        noted, waiting = recorded(self.state, name), staged(self.state, name)
        runs, watched = processes(self.state, name), supervised(self.state, name)
        now, end = self.view.now if self.view else noted.now, row.captured_lsn or Lsn(0)
        captured = UNKNOWN
        if self.view is not None:
            captured = capture_lag(self.view, row, noted, _responds(runs.get("capture")), self.oldest)
        behind = {oid: each.lag(end, now) for oid, each in waiting.items()}
        delivered, total = behind.get(None, NONE), waiting.get(None)
        capture = _part(runs.get("capture"), captured, row.capture_error, supervised=watched)
        delivery = _part(runs.get("delivery"), delivered, row.delivery_error, supervised=watched)
        slot = self.view.slots.get(row.slot) if self.view else None
        tables = self.state.tables(name)
        copying = self.state.copy_seconds(name)
        holding = holders(tables, self._routes(name))
        size = log_size(self.state, name, holding)
        lag = captured.then(delivered) if any(map(_followed, tables)) else UNKNOWN
        return GroupStatus(
            name=name,
            lake=lake,
            state=next(state for state in _WORST_FIRST if state in (capture.state, delivery.state)),
            lag_bytes=lag.bytes,
            lag_seconds=lag.seconds,
            slot=row.slot,
            slot_active=slot.active if slot else None,
            wal_status=slot.wal_status if slot else None,
            wal_bytes=slot.wal_bytes if slot else None,
            wal_limit_bytes=self.view.wal_limit if self.view else None,
            wal_safe_bytes=slot.safe_bytes if slot else None,
            unconfirmed_bytes=slot.unconfirmed_bytes if slot else None,
            captured_lsn=_text(row.captured_lsn),
            captured_changes=noted.changes,
            delivered_lsn=_text(row.delivered_lsn),
            delivered_at=row.delivered_at,
            snapshot_id=row.snapshot_id,
            schema_changes="catalog" if row.ddl_lsn is None else "event triggers",
            staged_segments=total.segments if total else 0,
            staged_rows=total.rows if total else 0,
            log_segments=size.segments,
            log_bytes=size.bytes,
            log_needed_bytes=size.needed,
            log_max_bytes=self.config.log.max_bytes,
            oldest_change=oldest_change(self.state, name, holding, waiting, now),
            capture=capture,
            delivery=delivery,
            error=row.error,
            tables=tuple(
                replace(
                    _table(each, lake, captured.then(behind.get(each.oid, NONE)), self.unsent),
                    copy_seconds=copying.get(each.oid) if each.state == "SNAPSHOT" else None,
                )
                for each in tables
            ),
        )

    def _routes(self, group: str) -> list[RouteRow]:
        names = {name for name, route in self.config.routes.items() if route.source.group == group}
        return [row for row in self.state.routes() if row.name in names] if names else []


def _responds(process: Process | None) -> bool:
    return process is not None and process.running and (process.heartbeat_seconds or 0.0) <= STALE_SECONDS


def _followed(row: TableRow) -> bool:
    return row.position is not None and row.state != "REMOVED"


def _part(process: Process | None, lag: Lag, error: str | None, *, supervised: bool) -> PartStatus:
    state: RunState = "STARTING" if supervised and error is None else "STOPPED"
    if process is None:
        return PartStatus(state=state, lag_bytes=lag.bytes, lag_seconds=lag.seconds, error=error)
    return PartStatus(
        state="RUNNING" if process.running else state,
        host=process.host,
        pid=process.pid,
        started_at=process.started_at,
        stopped_at=process.stopped_at,
        heartbeat_seconds=process.heartbeat_seconds,
        lag_bytes=lag.bytes,
        lag_seconds=lag.seconds,
        error=error,
    )


def _table(row: TableRow, lake: str, lag: Lag, unsent: Mapping[int, Sequence[str]]) -> TableStatus:
    lag = lag if _followed(row) else UNKNOWN
    generated = unsent.get(row.oid, ()) if row.options.columns is None else ()
    return TableStatus(
        group=row.group,
        table=str(row.source),
        lake=lake,
        lake_table=str(row.lake),
        state=row.state,
        rows=row.copied_rows + row.inserted - row.deleted,
        inserted=row.inserted,
        updated=row.updated,
        deleted=row.deleted,
        copied_rows=row.copied_rows,
        copy_total=row.copy_total,
        position=_text(row.position),
        lag_bytes=lag.bytes,
        lag_seconds=lag.seconds,
        mode=row.options.mode,
        quarantined=row.quarantined,
        resync=row.resync,
        not_mirrored=tuple(name for name in generated if name not in row.options.exclude),
        error=row.error,
        retry_at=row.retry_at,
        error_kind=row.error_kind,
    )


def _text(lsn: Lsn | None) -> str | None:
    return None if lsn is None else str(lsn)
