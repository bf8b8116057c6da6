"""`headwater run`: prepare, start a capture process for each group and one for delivery, look after them, stop them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

from headwater import flow
from headwater.change import Lsn
from headwater.config import Config
from headwater.control.expanding import with_patterns
from headwater.errors import AccessDenied, CheckFailed, LockHeld, OperatorMustAct, Unreachable
from headwater.postgres.connect import worked_before
from headwater.source.server import wal_target
from headwater.state import State, TableRow
from headwater.state.processes import announced
from headwater.supervise.children import Child, looked_after, parent_gone, stop_all, stopped_by_signals, watch
from headwater.supervise.delivery import DRAIN_SECONDS, deliver_forever
from headwater.supervise.effective import served
from headwater.supervise.lakes import copy_what_is_gone
from headwater.supervise.opening import AWAY, open_log, open_room, open_state, when_free
from headwater.supervise.readying import make_ready
from headwater.supervise.reloading import Reloading
from headwater.supervise.routes import failed_routes, routes_caught_up, try_destinations_again
from headwater.supervise.serverprocess import GRACE, ServerProcess
from headwater.supervise.serving import Serving
from headwater.supervise.tracing import tracing

__all__ = ["STOPPING", "Look", "RunOptions", "capture_child", "deliver_child", "ready", "run"]

logger = logging.getLogger(__name__)

CAPTURE_GRACE, DELIVERY_GRACE = 15.0, DRAIN_SECONDS + 15
STOPPING = "stopping: capture first, then delivery drains what is staged"
FENCE_TTL = 7 * 24 * 3600.0


Role = Literal["capture", "deliver"]


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What the options of `run` say. The children are started with the same config file and log format.

    `role`: only that part; None: both. A `standby` waits until no other run has the groups.
    """

    file: Path
    log_format: str
    until_caught_up: bool = False
    recopy: bool = False
    role: Role | None = None
    standby: bool = False

    def child(self, name: str, *arguments: str, grace: float) -> Child:
        return Child(name, ["-c", str(self.file), "--log-format", self.log_format, *arguments], grace)


def run(config: Config, env: Mapping[str, str], options: RunOptions) -> int:
    """Mirror until a signal, or until everything committed by now is in the lakes. Returns an exit code.

    Raises an ExceptionGroup with the tables that are ERRORED at the end of a run until all is caught up.
    """
    with closing(open_state(config)) as state, stopped_by_signals() as stop:
        while True:
            try:
                return _run(config, env, state, options, stop)
            except LockHeld as error:
                if not options.standby:
                    raise
                logger.warning("another run has taken over: %s", error.message)
                options = replace(options, recopy=False)  # that is done


def _run(config: Config, env: Mapping[str, str], state: State, options: RunOptions, stop: threading.Event) -> int:
    """The same; LockHeld if another run has the groups."""
    delivery = _delivery(options)
    with ServerProcess(_server(config, options)) as server:
        if options.role == "deliver":
            return _run_delivery(config, env, state, options, delivery, stop)
        capture = partial(_capture, options)
        with Serving(config, state, Reloading(options.file, env), capture, stop) as serving:
            try:
                if not _take_over(serving, options, delivery, stop):
                    return 0
                server.leads()
                return _lead(env, state, options, serving, delivery, stop)
            finally:
                stop_all([serving.captures, delivery])


def _capture(options: RunOptions, group: str) -> Child:
    return options.child(f"capture {group}", "_capture", group, grace=CAPTURE_GRACE)


def _delivery(options: RunOptions) -> list[Child]:
    """The process that delivers, if it is part of the role; that of a standby waits for a word from the supervisor."""
    if options.role == "capture":
        return []
    wanted = {"--all-needed": options.until_caught_up, "--wait": options.standby}
    flags = [flag for flag, given in wanted.items() if given]
    return [options.child("delivery", "_deliver", *flags, grace=DELIVERY_GRACE)]


def _server(config: Config, options: RunOptions) -> Child | None:
    """The process that serves the page, if the config wants it; that of a standby says so."""
    if config.server is None:
        return None
    return options.child("server", "_serve", *(["--wait"] if options.standby else []), grace=GRACE)


def _take_over(serving: Serving, options: RunOptions, delivery: list[Child], stop: threading.Event) -> bool:
    """Hold the groups' locks, a standby when they are free; False if it was stopped before that."""
    if not options.standby:
        return serving.lead(wait=False)
    logger.info("standing by: whichever run has the groups now, this one takes over when it ends")
    with looked_after(delivery):  # Spark is warm by the time that it is needed
        return _patiently(lambda: serving.lead(wait=True), options, stop)


def _patiently(step: Callable[[], bool | None], options: RunOptions, stop: threading.Event) -> bool:
    """Take a step of the start. A standby, whose start is a takeover, waits for what is away; False if it was stopped.

    Another run ends, to be started again: that may be by an operator, who wants to know.
    """
    while not stop.is_set():
        try:
            return step() is not False
        except (Unreachable, AccessDenied) as error:
            if not options.standby:
                raise
            logger.warning("waiting: %s", error.message)
            stop.wait(AWAY)
    return False


def _lead(
    env: Mapping[str, str],
    state: State,
    options: RunOptions,
    serving: Serving,
    delivery: list[Child],
    stop: threading.Event,
) -> int:
    """Make the groups ready, and look after their processes."""
    gone = partial(copy_what_is_gone, serving.config, env, state) if options.recopy else lambda: None
    beside = options.role == "capture" and not options.recopy
    if not _patiently(lambda: ready(serving.config, state, stop, gone, beside_deliveries=beside), options, stop):
        return 0
    until_caught_up = options.until_caught_up
    if until_caught_up:
        _try_again(serving.config, state)
    logger.info("starting capture" + (", and Spark for delivery" if delivery else ""))
    if not _patiently(serving.begin, options, stop):
        return 0
    for each in delivery:
        each.tell()
    arrived = _caught_up(serving.config, env, state) if until_caught_up else lambda: False

    look = Look(serving, arrived, until_caught_up=until_caught_up)
    code = watch([serving.captures, delivery], stop, look, all_needed=until_caught_up)
    logger.info(STOPPING)
    stop_all([serving.captures, delivery])
    return _ended(serving.config, state, code, options)


class Look:
    """What the supervisor does between two looks at its children: whether it has `arrived`.

    What keeps it from looking it says once, and the mirror goes on as it is; LockHeld is raised.
    """

    def __init__(self, serving: Serving, arrived: Callable[[], bool], *, until_caught_up: bool) -> None:
        self._serving, self._arrived, self._ends = serving, arrived, until_caught_up
        self._said = ""

    def __call__(self) -> bool:
        try:
            self._serving.step()
            with worked_before():
                arrived = self._arrived()
        except (Unreachable, OperatorMustAct) as error:
            if isinstance(error, LockHeld) or (self._ends and isinstance(error, OperatorMustAct)):
                raise
            if error.message != self._said:
                logger.log(logging.WARNING if isinstance(error, Unreachable) else logging.ERROR, "waiting: %s", error)
            self._said = error.message
            return False
        self._said = ""
        return arrived


def _run_delivery(
    config: Config,
    env: Mapping[str, str],
    state: State,
    options: RunOptions,
    delivery: list[Child],
    stop: threading.Event,
) -> int:
    """Deliver what other processes capture; several that do so share the groups."""
    until_caught_up = options.until_caught_up
    arrived = _caught_up(served(config, state), env, state) if until_caught_up else lambda: False

    def done() -> bool:
        try:
            return arrived()
        except Unreachable:
            return False

    try:
        code = watch([delivery], stop, done, all_needed=until_caught_up)
    finally:
        stop_all([delivery])
    return _ended(served(config, state), state, code, options)


def _try_again(config: Config, state: State) -> None:
    for name in config.groups:
        flow.try_again(state, name)
    try_destinations_again(config, state)


def _ended(config: Config, state: State, code: int, options: RunOptions) -> int:
    failed = [*_errored(config, state), *failed_routes(config, state)] if options.until_caught_up and not code else []
    if failed:
        raise ExceptionGroup("not everything is caught up", failed)
    return code


def ready(
    config: Config,
    state: State,
    stop: threading.Event,
    also: Callable[[], None] = lambda: None,
    *,
    beside_deliveries: bool = False,
) -> bool:
    """Make the state and the source what the config says, then do `also`; False if `stop` was set before that.

    It waits for a delivery that outlived its `run`, which would combine the old config with the new state. Those of
    other runs take up what changes, and there may be some at any time.
    """
    with ExitStack() as alone:
        for name in () if beside_deliveries else config.groups:
            if alone.enter_context(when_free(state, f"deliver:{name}", stop)) is None:
                return False
        make_ready(with_patterns(config)[0], state)
        also()
        return True


def _errored(config: Config, state: State) -> list[CheckFailed]:
    rows = (row for name in config.groups for row in state.tables(name) if row.state == "ERRORED")
    return [_failure(row) for row in rows]


def _failure(row: TableRow) -> CheckFailed:
    message, _, hint = (row.error or "").partition("\nhint: ")
    hint = hint or "correct that; each `headwater run --until-caught-up` tries it again"
    return CheckFailed(f"table {str(row.source)!r} of group {row.group!r} is ERRORED: {message}", hint=hint)


def _caught_up(config: Config, env: Mapping[str, str], state: State) -> Callable[[], bool]:
    """Ask for everything committed by now; the answer is whether it is there, and in the routes' destinations, too."""
    groups, routes = _groups_caught_up(config, state), routes_caught_up(config, env, state)
    return lambda: groups() and routes()


def _groups_caught_up(config: Config, state: State) -> Callable[[], bool]:
    if not config.groups:
        return lambda: True
    target = wal_target(config.source)
    fences = {name: state.add_fence(name, target, FENCE_TTL) for name in config.groups}
    logger.info("running until everything committed by %s is delivered", target)

    def arrived() -> bool:
        for name, fence in fences.items():
            group = state.group(name)
            if group is None or (group.watched_lsn or Lsn(0)) < target or _schema_change_waits(state, name):
                return False
            rows = {row.oid: row.state for row in state.tables(name)}
            states = {*rows.values()}
            if states & {"PENDING", "SNAPSHOT", "CATCHUP"}:
                return False
            if any(rows.get(each.oid) == "STREAMING" for each in state.removals(name)):
                return False
            if states & {"STREAMING"} and state.fence(fence).reached_snapshot is None:
                return False
        return True

    return arrived


def _schema_change_waits(state: State, group: str) -> bool:
    """Has a look at the catalog found new columns of a table that the lake does not have yet?"""
    rows = state.query(
        "SELECT EXISTS (SELECT FROM headwater.relations r JOIN headwater.tables t ON t.group_name = r.group_name"
        " AND t.source_oid = r.oid WHERE r.group_name = %s AND r.seen <> 'rows' AND t.state = 'STREAMING'"
        " AND r.lsn >= t.position)",
        (group,),
    )
    return bool(rows[0][0])


def capture_child(config: Config, group: str) -> int:
    """The body of a capture process. It ends with 3 when another process has taken the lock: the next one waits."""
    with closing(open_state(config)) as state, stopped_by_signals() as stop:
        parent_gone(stop, CAPTURE_GRACE)
        with when_free(state, f"capture:{group}", stop) as lock:
            if lock is not None:
                with announced(state, group, "capture", lock):
                    log = open_log(config, state, group)
                    try:
                        flow.capture(config.source, state, log, stop, lock.keep, room=open_room(config, state, log))
                    except LockHeld as error:
                        logger.warning("capture of group %s: %s", group, error.message)
                        return Unreachable.exit_code
    return 0


def deliver_child(
    config: Config, env: Mapping[str, str], file: Path, *, all_needed: bool, wait: bool, traces: str | None = None
) -> int:
    """The body of the delivery process; it may have to `wait` until the supervisor tells it to begin.

    `traces` is the URL of the collector that gets a trace of each delivery.
    """
    begin = threading.Event()
    if not wait:
        begin.set()
    with stopped_by_signals() as stop, tracing(traces) as on_delivery:
        parent_gone(stop, DELIVERY_GRACE, begin)
        return deliver_forever(config, env, stop, file, begin, all_needed=all_needed, on_delivery=on_delivery)
