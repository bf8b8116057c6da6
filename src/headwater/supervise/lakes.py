"""Which lake is a group's: opened, created for a new group, and never taken for another one."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from contextlib import closing
from typing import Any

from headwater.change import Lsn, TableName
from headwater.config import Config
from headwater.errors import OperatorMustAct
from headwater.lake import quarantine
from headwater.lake.sink import Sink
from headwater.lake.stream import WAL
from headwater.sink.addresses import group_lake
from headwater.state import GroupRow, Location, State, TableRow

__all__ = [
    "copy_what_is_gone",
    "lost_files",
    "own_lake",
    "source_name",
    "strange_lake",
]

logger = logging.getLogger(__name__)

NEW_LAKE = "its lake is new, and `run --recopy` asked for it"
DROPPED = "its mirror was dropped in the lake, and `run --recopy` asked for it"
FILES_GONE = "files of its mirror are gone from the lake, and `run --recopy` asked for it"


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
    sink = address.open(source_name(row.source_id, group), WAL)
    if problem := lost_files(config, row, state.tables(group), sink.lost()):
        sink.close()
        raise problem
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


def lost_files(
    config: Config, row: GroupRow, tables: Iterable[TableRow], lost: Mapping[TableName, str]
) -> OperatorMustAct | None:
    """Why tables that have `lost` files cannot be written to; None if nothing will be, or they are copied again."""
    written = {table.lake for table in tables if table.resync is None and _can_be_copied(table)} | {quarantine.NAME}
    needed = {str(name): path for name, path in lost.items() if name in written}
    if not needed:
        return None
    return OperatorMustAct(
        f"lake {config.groups[row.name].lake!r} of group {row.name!r} has lost data files: of {', '.join(needed)}, for"
        f" example {next(iter(needed.values()))!r}",
        hint="restore them; or give them up: `headwater run --recopy` copies these tables anew",
    )


def copy_what_is_gone(config: Config, env: Mapping[str, str], state: State) -> None:
    """Have tables copied again that the lake has no longer: all of a group whose lake is another one now."""
    for group in config.groups:
        _copy_group(config, env, state, group)
    for group in config.groups:  # after the requests: a crash between finds the quarantine incomplete once more
        _drop_lost_quarantine(config, env, state, group)


def _copy_group(config: Config, env: Mapping[str, str], state: State, group: str) -> None:
    row = state.group(group)
    if row is None or row.lake is None:
        return  # it has not been copied yet
    if strange_lake(config, row, _found_id(config, env, group)):
        _copy_again(state, group, {table.oid for table in state.tables(group)}, NEW_LAKE)
        state.record_lake(group, None)  # after the requests: a crash between finds the lake strange once more
        return
    with closing(group_lake(config, env, group).open(source_name(row.source_id, group), WAL)) as sink:
        there, lost = sink.standings(), sink.lost(every_file=True)
    copied = {table.oid for table in state.tables(group) if table.position is not None}
    _copy_again(state, group, copied - there.keys(), DROPPED)
    unkept = quarantine.NAME in lost  # then a copy brings the values again that were in quarantine
    gone = {oid for oid, each in there.items() if each.name in lost or (unkept and each.counts.quarantined)}
    _copy_again(state, group, gone, FILES_GONE)


def _drop_lost_quarantine(config: Config, env: Mapping[str, str], state: State, group: str) -> None:
    row = state.group(group)
    if row is None or row.lake is None:
        return
    with closing(group_lake(config, env, group).open(source_name(row.source_id, group), WAL)) as sink:
        if quarantine.NAME in sink.lost(every_file=True):
            logger.warning("the quarantine of lake %r is made anew: its files are gone", config.groups[group].lake)
            sink.drop_quarantine()


def _copy_again(state: State, group: str, oids: set[int], reason: str) -> None:
    for table in state.tables(group):
        if table.oid in oids and _can_be_copied(table):
            logger.warning("table %s will be copied again: %s", table.source, reason)
            state.request_resync(group, table.oid, reason)


def _can_be_copied(table: TableRow) -> bool:
    return table.state != "REMOVED" and table.dropped_lsn is None


def _found_id(config: Config, env: Mapping[str, str], group: str) -> str | None:
    found = group_lake(config, env, group).find(group, WAL)
    if found is None:
        return None
    with closing(found):
        return found.lake_id()
