"""From the config to opened things: the state, a group's log, its lake."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager

from pyspark.sql import SparkSession

from headwater import flow
from headwater.config import Config, DuckLake
from headwater.ducklake.lake import Lake, open_lake
from headwater.errors import ConfigError, OperatorMustAct
from headwater.files import S3
from headwater.log import Log, place
from headwater.sink.ducklake import DuckLakeSink
from headwater.state import Lock, State

__all__ = ["mirroring", "open_group_lake", "open_log", "open_state", "source_name", "when_free"]

logger = logging.getLogger(__name__)

CATCH_UP_FACTOR = 4  # with a backlog, deliveries grow to so many times `flush.rows`: each has a fixed cost


def open_state(config: Config) -> State:
    """The state, brought to this version's shape."""
    state = State.connect(config.state_url)
    state.migrate()
    return state


def open_log(config: Config, state: State, group: str) -> Log:
    return Log(state, group, config.log)


def open_group_lake(config: Config, group: str, env: Mapping[str, str]) -> Lake:
    """The lake a group lands in, created when missing; S3 takes its keys from the AWS_* variables in `env`."""
    lake = config.lakes[config.groups[group].lake]
    if not isinstance(lake, DuckLake):
        raise ConfigError(
            f"lake {config.groups[group].lake!r} is not a DuckLake", hint=f"let groups.{group}.lake name one that is"
        )
    s3 = S3.from_environment(env) if lake.data_path.startswith("s3://") else None
    return open_lake(lake.catalog, lake.data_path, s3=s3)


def mirroring(config: Config, env: Mapping[str, str], state: State, group: str, spark: SparkSession) -> flow.Mirroring:
    """A group, opened for delivery. It must have been made ready."""
    row = state.group(group)
    assert row is not None
    return flow.Mirroring(
        group=group,
        source_url=config.source,
        state=state,
        log=open_log(config, state, group),
        sink=DuckLakeSink(open_group_lake(config, group, env), source_name(row.source_id, group)),
        spark=spark,
        scratch=f"{config.log}/scratch/{place(row.source_id, group)}",
        max_rows=config.groups[group].flush.rows * CATCH_UP_FACTOR,
    )


def source_name(source_id: str, group: str) -> str:
    """Under which name a lake keeps this group's positions: no two pipelines may meet there."""
    return f"{source_id}/{group}"


@contextmanager
def when_free(state: State, name: str, stop: threading.Event) -> Iterator[Lock | None]:
    """Hold a lock as soon as it is free; None if told to stop before that.

    `run` is alone with its groups, so whoever holds it will end by itself: a process of a `run` that was killed, which
    drains, or `verify`.
    """
    told = False
    with ExitStack() as held:
        while not stop.is_set():
            try:
                lock = held.enter_context(state.lock(name, patience=1.0))
            except OperatorMustAct as error:
                if not told:
                    logger.warning("waiting: %s", error.message)
                told = True
                continue
            yield lock
            return
        yield None
