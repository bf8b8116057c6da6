"""The log's part: can it be written, is it each group's own, are its segments there?"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import closing

from headwater.checks.known import Known
from headwater.config import Config
from headwater.errors import ConfigError, HeadwaterError
from headwater.files import check_could_write
from headwater.log import Log
from headwater.state import State, TableRow
from headwater.words import counted

__all__ = ["log_problems"]

logger = logging.getLogger(__name__)


def log_problems(config: Config, known: Known) -> Iterator[HeadwaterError]:
    """What keeps the config's groups from staging changes; segments that are gone are only a warning."""
    try:
        check_could_write(config.log.path)
    except ConfigError as error:
        yield ConfigError(error.message.replace("data_path", "log"), hint=error.hint)
        return
    except HeadwaterError as error:
        yield error
        return
    groups = [name for name in config.groups if name in known.groups]
    if not groups:
        return  # nothing has run yet, or the state does not answer, which is reported by itself
    with closing(State.connect(config.state_url)) as state:
        for name in groups:
            yield from _problems(Log(state, name, config.log.path), known.tables[name])


def _problems(log: Log, rows: list[TableRow]) -> Iterator[HeadwaterError]:
    try:
        if problem := log.strange():
            yield problem
        elif missing := log.missing():
            _warn_of_missing(log, missing, rows)
    except HeadwaterError as error:
        yield error


def _warn_of_missing(log: Log, missing: list[str], rows: list[TableRow]) -> None:
    last = {oid: lsn for oid, lsn, _ in log.changed(missing)}
    needing = [
        str(row.source)
        for row in rows
        if row.oid in last and row.state != "REMOVED" and row.position is not None and row.position <= last[row.oid]
    ]
    outcome = (
        f"`run` copies again the tables that need what is lost: {', '.join(needing)}"
        if needing
        else "no table needs it"
    )
    logger.warning("the log of group %s has lost %s: %s", log.group, counted(len(missing), "segment"), outcome)
