"""From the config to opened things: the state, a group's log, its lake."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager

from pyspark.sql import SparkSession

from headwater import flow
from headwater.config import Config
from headwater.errors import AccessDenied, HeadwaterError, LockHeld, OperatorMustAct, Unreachable
from headwater.lake.indexes import KeyIndexes
from headwater.log import Log, place
from headwater.state import Lock, State
from headwater.state.sharing import Part
from headwater.supervise.lakes import own_lake

__all__ = ["AWAY", "mirroring", "open_log", "open_room", "open_state", "when_free"]

logger = logging.getLogger(__name__)

AWAY = 1.0  # seconds between two attempts to reach the state
HEAD_START = 3.0  # seconds: after a restart of the state's server, the process that had the lock may take it again
CATCH_UP_FACTOR = 4  # with a backlog, deliveries grow to so many times `flush.rows`: each has a fixed cost


def open_state(config: Config) -> State:
    """The state, migrated to this version."""
    state = State.connect(config.state_url)
    try:
        state.migrate()
    except BaseException:
        state.close()
        raise
    return state


def open_log(config: Config, state: State, group: str) -> Log:
    """The group's log; OperatorMustAct if the config names another one than before. The group must be known."""
    log = Log(state, group, config.log.path)
    log.claim()
    return log


def open_room(config: Config, state: State, log: Log) -> flow.LogRoom | None:
    """How much the log may grow; None: as the disk allows."""
    if config.log.max_bytes is None:
        return None
    routes = [name for name, route in config.routes.items() if route.source.group == log.group]
    return flow.LogRoom(state, log, config.log.max_bytes, routes)


def mirroring(config: Config, env: Mapping[str, str], state: State, group: str, spark: SparkSession) -> flow.Mirroring:
    """A group, opened for delivery. It must have been made ready."""
    row = state.group(group)
    assert row is not None
    sink, flush = own_lake(config, env, state, group), config.groups[group].flush
    return flow.Mirroring(
        group=group,
        source_url=config.source,
        state=state,
        log=open_log(config, state, group),
        sink=sink,
        lake_id=sink.lake_id(),
        spark=spark,
        scratch=f"{config.log.path}/scratch/{place(row.source_id, group)}",
        max_rows=flush.rows * CATCH_UP_FACTOR,
        indexes=KeyIndexes.of_group(config.log.path, place(row.source_id, group)),
        inline_rows=flush.inline.rows if flush.inline else None,
        retention=config.log.retention,
    )


@contextmanager
def when_free(state: State, name: str, stop: threading.Event, part: Part | None = None) -> Iterator[Lock | None]:
    """Hold a lock as soon as it is free, and our share allows one more `part`; None if `stop` was set before that.

    What holds it is a process of a killed `run`, which drains, a `verify`, or another process that delivers. A server
    that is away, or refuses the login, is waited for, too: it may be restarting.
    """
    reported: type[HeadwaterError] | None = None
    away = False
    with ExitStack() as held:
        while not stop.is_set():
            if part is not None and not part.take():
                stop.wait(1.0)
                continue
            try:
                if away:
                    state.query("SELECT")
                    stop.wait(HEAD_START)
                    away = False
                lock = held.enter_context(state.lock(name, patience=1.0))
            except (OperatorMustAct, Unreachable, AccessDenied) as error:
                if part is not None:
                    part.give_up()
                if reported is not type(error):
                    logger.warning("waiting: %s", error.message)
                reported = type(error)
                if not isinstance(error, LockHeld):
                    away = True
                    stop.wait(AWAY)
                continue
            yield lock
            return
        yield None
