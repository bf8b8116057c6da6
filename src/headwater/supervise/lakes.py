"""Which lake is a group's: opened, created for a new group, and never taken for another one."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import closing
from typing import Any

from headwater.change import Lsn
from headwater.config import Config
from headwater.errors import OperatorMustAct
from headwater.lake.sink import Sink
from headwater.sink.addresses import group_lake
from headwater.state import GroupRow, Location, State

__all__ = [
    "copy_what_is_gone",
    "own_lake",
    "source_name",
    "strange_lake",
]

logger = logging.getLogger(__name__)

NEW_LAKE = "its lake is new, and `run --recopy` asked for it"
DROPPED = "its mirror was dropped in the lake, and `run --recopy` asked for it"


def source_name(source_id: str, group: str) -> str:
    """Under which name a lake keeps this group's positions: no two pipelines may meet there."""
    return f"{source_id}/{group}"


def own_lake(config: Config, env: Mapping[str, str], state: State, group: str) -> Sink[Any, Lsn]:
    """The lake that the group is mirrored into; of a new group it is created, else another one is refused."""
    row = state.group(group)
    assert row is not None, "a group is made before its lake is opened"
    if row.lake is not None and (problem := strange_lake(config, row, _found_id(config, env, group))):
        raise problem
    address = group_lake(config, env, group)
    sink = address.open(source_name(row.source_id, group))
    now = Location(str(address), sink.lake_id())
    if now != row.lake:
        state.record_lake(group, now)
    return sink


def strange_lake(config: Config, row: GroupRow, found: str | None) -> OperatorMustAct | None:
    """Why the lake that the config names, whose id was `found`, is not the group's; None if it may be."""
    recorded, name = row.lake, config.groups[row.name].lake
    if recorded is None or found == recorded.id:
        return None
    url = str(group_lake(config, {}, row.name))
    there = f"another lake (id {found})" if found else "no lake"
    recopy = "`headwater run --recopy` copies all its tables again"
    if url == recorded.place:
        return OperatorMustAct(
            f"lake {name!r} of group {row.name!r} is not the one it was: {url} had id {recorded.id}, and now there is"
            f" {there}",
            hint=f"restore it; or give it up: {recopy}",
        )
    return OperatorMustAct(
        f"group {row.name!r} is mirrored into {recorded.place} (id {recorded.id}), but lake {name!r} of the config is"
        f" {url}, where there is {there}",
        hint=f"point `lakes.{name}` back to {recorded.place}; or, to have the group here, {recopy};"
        f" or start over with `headwater group drop {row.name}`: the next `headwater run` copies the tables again",
    )


def copy_what_is_gone(config: Config, env: Mapping[str, str], state: State) -> None:
    """Have tables copied again that the lake has no longer: all of a group whose lake is another one now."""
    for group in config.groups:
        row = state.group(group)
        if row is None or row.lake is None:
            continue  # it has not been copied yet
        if strange_lake(config, row, _found_id(config, env, group)):
            _copy_again(state, group, {table.oid for table in state.tables(group)}, NEW_LAKE)
            state.record_lake(group, None)  # after the requests: a crash between finds the lake strange once more
            continue
        with closing(own_lake(config, env, state, group)) as sink:
            there = sink.standings()
        copied = {table.oid for table in state.tables(group) if table.position is not None}
        _copy_again(state, group, copied - there.keys(), DROPPED)


def _copy_again(state: State, group: str, oids: set[int], reason: str) -> None:
    for table in state.tables(group):
        if table.oid in oids and table.state != "PAUSED":
            logger.warning("table %s will be copied again: %s", table.source, reason)
            state.request_resync(group, table.oid, reason)


def _found_id(config: Config, env: Mapping[str, str], group: str) -> str | None:
    found = group_lake(config, env, group).find(group)
    if found is None:
        return None
    with closing(found):
        return found.lake_id()
