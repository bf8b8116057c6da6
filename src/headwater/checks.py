"""Everything that would keep the config from running, found at once: source, state, log folder, lakes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from functools import partial
from typing import NamedTuple

from headwater.capture import problems as source_problems
from headwater.config import Config, unsupported
from headwater.errors import ConfigError, HeadwaterError
from headwater.files import check_writable
from headwater.state import GroupRow, State, TableRow
from headwater.state.leftover import leftovers
from headwater.supervise.opening import open_group_lake
from headwater.supervise.readying import wishes

__all__ = ["check"]

logger = logging.getLogger(__name__)


def check(config: Config, env: Mapping[str, str]) -> list[HeadwaterError]:
    """All problems there are; none means that `run` can start. Creates missing lakes, changes nothing else."""
    found: list[HeadwaterError] = [*unsupported(config)]
    if not config.groups:
        found.append(ConfigError("the config names no group", hint="add one under `groups:`, with a lake and tables"))
    known = _Known({}, {})
    if config.state is not None:
        try:
            known = _known(config)
        except HeadwaterError as error:
            found.append(error)
    else:
        with suppress(HeadwaterError):  # the source's own check will say why
            known = _known(config)
    asked = (lambda: _known(config).groups) if known.groups else dict
    found += source_problems(config.source, wishes(config, known.tables), asked)
    if known.groups:
        with suppress(HeadwaterError):  # told above
            _warn_of_leftovers(config)
    _try(found, lambda: _log_writable(config.log))
    for group in {group.lake: name for name, group in config.groups.items()}.values():
        if config.groups[group].lake in config.ducklakes:
            _try(found, partial(_open_and_close, config, group, env))
    return found


def _open_and_close(config: Config, group: str, env: Mapping[str, str]) -> None:
    open_group_lake(config, group, env).close()


class _Known(NamedTuple):
    """What the state has, by group."""

    groups: dict[str, GroupRow]
    tables: dict[str, list[TableRow]]


def _known(config: Config) -> _Known:
    with closing(State.connect(config.state_url)) as state:
        if state.query("SELECT to_regclass('headwater.groups')") == [(None,)]:
            return _Known({}, {})  # a first run: there is no state yet
        groups = {row.name: row for row in state.groups()}
        return _Known(groups, {name: state.tables(name) for name in groups})


def _warn_of_leftovers(config: Config) -> None:
    with closing(State.connect(config.source)) as source, closing(State.connect(config.state_url)) as state:
        for each in leftovers(source, state, config.groups):
            logger.warning("%s", each)


def _log_writable(path: str) -> None:
    try:
        check_writable(path)
    except ConfigError as error:
        raise ConfigError(error.message.replace("data_path", "log"), hint=error.hint) from error


def _try(found: list[HeadwaterError], action: Callable[[], object]) -> None:
    try:
        action()
    except HeadwaterError as error:
        found.append(error)
