"""`headwater group`: which groups there are, and the end of one."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from typing import Literal

from headwater.config import Config
from headwater.errors import ConfigError
from headwater.lake.indexes import KeyIndexes
from headwater.log import Log, place
from headwater.merge import Scratch
from headwater.source.dropping import drop_from_source
from headwater.state import GroupRow, Request, State
from headwater.state.processes import held
from headwater.supervise.effective import in_force

__all__ = ["ListedGroup", "drop_group", "dropped_text", "list_groups"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ListedGroup:
    """A group of the config or of the state. `lake` is its name, or the URL if the group is not in the config."""

    name: str
    lake: str | None
    tables: int
    slot: str | None  # None: it has not run yet
    log: str | None
    # state: it has run, and nothing has it any more; asked: it is only asked for
    origin: Literal["config", "added", "state", "asked"]
    disabled: bool
    waiting: tuple[str, ...] = ()  # what was asked of it, and no service has handled


def list_groups(config: Config) -> list[ListedGroup]:
    """The groups of the config, those that were added to it, those that only the state has, and those asked for."""
    with closing(State.connect(config.state_url)) as state:
        known = _known(state)
        here = in_force(config, state) if _is_migrated(state) else config
        disabled = state.disabled_groups() if _is_migrated(state) else set()
        names = [*here.groups, *(name for name in known if name not in here.groups)]
        requests = [each for each in state.waiting() if each.table is None] if _is_migrated(state) else []
        found = [_listed(config, here, known.get(name), name, name in disabled, state) for name in names]
        found += [_awaited(each) for each in requests if each.verb == "create_group" and each.group not in names]
        return [replace(each, waiting=_of(each.name, requests)) for each in found]


def is_served(config: Config, name: str) -> bool:
    """Whether a `headwater run` has the group now."""
    with closing(State.connect(config.state_url)) as state:
        return bool(held(state, [f"run:{name}"]))


def drop_group(config: Config, name: str, request: int | None = None) -> list[str]:
    """Drop a group's slot, publication, log and state; what was dropped. Its tables in the lake stay as they are.

    A drop that failed halfway can be repeated: the state goes last, and the request for it with it.
    OperatorMustAct: a process is still at work on it.
    """
    with closing(State.connect(config.state_url)) as state, ExitStack() as locks:
        known = _known(state)
        if name not in known:
            hint = f"there are: {', '.join(known)}" if known else "nothing has run with this config yet"
            raise ConfigError(f"there is no group {name!r} to drop", hint=hint)
        for who in ("run", "capture", "deliver"):
            locks.enter_context(state.lock(f"{who}:{name}", 0))
        row = known[name]
        last = not any(other.source_id == row.source_id for other in known.values() if other.name != name)
        dropped = [*drop_from_source(config.source, row, last=last), *_drop_log(config, state, row)]
        state.drop_group(name, None if request is None else (request, dropped_text(name, dropped)))
        return dropped


def dropped_text(name: str, dropped: Sequence[str]) -> str:
    """What became of a request to drop a group."""
    return f"group {name!r} is dropped: {', '.join(dropped) or 'nothing was left of it'}"


def _known(state: State) -> dict[str, GroupRow]:
    if not state.knows("groups"):
        return {}
    return {row.name: row for row in state.groups()}


def _is_migrated(state: State) -> bool:
    return state.knows("added_tables")


def _listed(file: Config, config: Config, row: GroupRow | None, name: str, disabled: bool, state: State) -> ListedGroup:
    group = config.groups.get(name)
    lake = group.lake if group else row.lake_url if row else None
    mirrored = [each for each in state.tables(name) if each.state != "REMOVED"] if row else []
    tables = len(group.tables) if group and not group.patterns else len(mirrored)
    slot, log = (row.slot, row.log_path) if row else (None, None)
    origin: Literal["config", "added", "state"] = "config" if name in file.groups else "added" if group else "state"
    return ListedGroup(name, lake, tables, slot, log, origin, disabled)


def _awaited(request: Request) -> ListedGroup:
    """A group that no service has made yet."""
    lake = request.arguments.get("settings", {}).get("lake")
    return ListedGroup(request.group, lake, 0, None, None, "asked", disabled=False)


def _of(name: str, requests: Sequence[Request]) -> tuple[str, ...]:
    return tuple(each.verb for each in requests if each.group == name)


def _drop_log(config: Config, state: State, row: GroupRow) -> Iterator[str]:
    root = row.log.place if row.log else config.log.path
    log = Log(state, row.name, root)
    if log.strange():
        logger.warning("the log %r is another one now, and is left alone", root)
        return
    Scratch.clear(f"{root}/scratch/{place(row.source_id, row.name)}")
    KeyIndexes.of_group(root, place(row.source_id, row.name)).clear()
    if count := log.remove():
        yield f"{count:,} segment{'' if count == 1 else 's'} in {root!r}"
