"""Everything that would keep the config from running, found at once, from source to routes. Nothing is changed."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import closing, suppress

from headwater.checks.grouproutes import group_route_problems
from headwater.checks.known import Known, known, state_problems
from headwater.checks.lakes import lake_problems
from headwater.checks.logs import log_problems
from headwater.checks.modes import mode_problems
from headwater.checks.partitions import partition_problems
from headwater.checks.routes import route_problems
from headwater.config import Config
from headwater.control.expanding import with_patterns
from headwater.control.wishes import wishes
from headwater.errors import ConfigError, HeadwaterError, OperatorMustAct, Unreachable
from headwater.source.check import problems as source_problems
from headwater.state import State
from headwater.state.leftover import leftovers
from headwater.supervise.effective import with_state

__all__ = ["check"]

logger = logging.getLogger(__name__)


def check(config: Config, env: Mapping[str, str], *, recopy: bool = False) -> list[HeadwaterError]:
    """All problems there are; none means that `run` can start. What is only worth knowing is a warning in the log.

    With `recopy` a lake may be another one than before.
    """
    found = list[HeadwaterError]()
    with suppress(HeadwaterError):  # reported below
        config = with_state(config)
    if not config.groups and not config.routes:
        found.append(ConfigError("the config names no group", hint="add one under `groups:`, with a lake and tables"))
    config = _with_tables(config, found)
    rows = _known(config, found)
    asked = (lambda: known(config).groups) if rows.groups else dict
    wanted = wishes(config, rows.tables)
    if config.groups or not config.routes:
        found += source_problems(config.source, wanted, asked)
    found += partition_problems(config, env, wanted)
    found += mode_problems(config, rows)
    found += group_route_problems(config, rows)
    if rows.groups:
        with suppress(HeadwaterError):  # already reported
            _warn_of_leftovers(config)
    found += log_problems(config, rows) if config.groups else []
    found += lake_problems(config, env, rows, recopy=recopy)
    found += route_problems(config, env)
    return list({str(each): each for each in found}.values())


def _with_tables(config: Config, found: list[HeadwaterError]) -> Config:
    """The config with the tables that its patterns match; matches that cannot be mirrored are warnings."""
    try:
        config, skipped = with_patterns(config)
    except Unreachable:  # the source's own check reports it
        return config
    except HeadwaterError as error:
        found.append(error)
        return config
    for each in skipped:
        logger.warning("%s", each)
    for name, group in config.groups.items():
        if not group.tables:
            logger.warning("group %s has no tables%s", name, " yet" if group.patterns else "")
    return config


def _known(config: Config, found: list[HeadwaterError]) -> Known:
    try:
        denied = state_problems(config.state_url)
        found += denied
        return Known({}, {}) if denied else known(config)
    except HeadwaterError as error:
        reported = config.groups and config.state is None  # by the source's own check
        if not reported or isinstance(error, OperatorMustAct):
            found.append(error)
        return Known({}, {})


def _warn_of_leftovers(config: Config) -> None:
    with closing(State.connect(config.source)) as source, closing(State.connect(config.state_url)) as state:
        for each in leftovers(source, state, config.groups):
            logger.warning("%s", each)
