"""What should be: what the config file declares, and what was added to it by command or by SQL."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from headwater.config import Config, Group, Table
from headwater.errors import ConfigError
from headwater.state import State
from headwater.state.additions import AddedTable

__all__ = ["Additions", "additions", "group_of", "table_of", "wanted"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Additions:
    """What was added to a config."""

    groups: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    tables: Sequence[AddedTable] = ()


def additions(state: State, config: Config) -> Additions:
    """What was added to this config; other configs may share the state, each with a log of its own."""
    strange = {row.name for row in state.groups() if row.log is not None and row.log.place != config.log.path}
    groups = {name: each for name, each in state.added_groups().items() if name not in strange}
    return Additions(groups, [each for each in state.added_tables() if each.group not in strange])


def wanted(config: Config, added: Additions) -> Config:
    """The config with everything that was added; the file wins where both name a table or a group.

    What the file does not allow any more (its lake is gone from there) is left out, and logged.
    """
    groups = dict(config.groups)
    for name, settings in added.groups.items():
        try:
            groups.setdefault(name, group_of(config, name, settings))
        except ConfigError as error:
            logger.error("the added group %s is left out: %s", name, error)
    for each in added.tables:
        if each.group in groups:
            groups[each.group] = _with_table(groups[each.group], each)
    return config.model_copy(update={"groups": groups})


def _with_table(group: Group, added: AddedTable) -> Group:
    try:
        table = table_of({**added.entry, "copy": added.copy})
    except ConfigError as error:
        logger.error("the added table %s is left out: %s", added.table, error)
        return group
    if any(each.table == table.table for each in group.tables):
        return group
    return group.model_copy(update={"entries": (*group.entries, table)})


def group_of(config: Config, name: str, settings: Mapping[str, Any]) -> Group:
    """A group, as the config would have it; ConfigError if it could not."""
    lake = settings.get("lake") or (next(iter(config.lakes)) if len(config.lakes) == 1 else None)
    if lake not in config.lakes:
        known = ", ".join(config.lakes) or "none"
        what = f"no lake {lake!r}" if lake else "more than one lake, so the group must name its own"
        raise ConfigError(f"group {name!r}: the config has {what}", hint=f"known lakes: {known}")
    try:
        return Group.model_validate({"tables": [], **settings, "lake": lake})
    except ValidationError as error:
        raise ConfigError(f"group {name!r}: {_first(error)}", hint="its settings are as in the config") from error


def table_of(entry: Mapping[str, Any]) -> Table:
    """A table, as the config's `tables` would have it; ConfigError if it could not."""
    try:
        return Table.model_validate(dict(entry))
    except ValidationError as error:
        named = entry.get("table")
        raise ConfigError(f"table {named!r}: {_first(error)}", hint="its options are as in the config") from error


def _first(error: ValidationError) -> str:
    first = error.errors()[0]
    where = ".".join(map(str, first["loc"]))
    return f"{where}: {first['msg']}" if where else str(first["msg"])
