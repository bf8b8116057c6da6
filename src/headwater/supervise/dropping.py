"""A group is dropped that is being served: whoever works on it has time to notice, and nothing else waits meanwhile."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Protocol

from headwater.config import Config
from headwater.errors import ConfigError, HeadwaterError, OperatorMustAct, Unreachable
from headwater.state import Request, State
from headwater.supervise.groups import drop_group, dropped_text

__all__ = ["Service", "drop"]

PATIENCE = 45.0  # seconds: until whoever delivers the group has noticed, and drained what is staged


class Service(Protocol):
    """What a request needs of the service that handles it."""

    def everything(self) -> Config: ...
    def declared(self) -> Config: ...
    def serve(self, name: str) -> None: ...
    def leave(self, name: str) -> None: ...


def drop(service: Service, state: State, request: Request) -> str | None:
    """Drop the group that a request names; None: others are still at work on it, and it has to be tried again.

    If they do not end in time, or it cannot be dropped, the group goes on as before.
    """
    name, config = request.group, service.everything()
    if request.begun is None and name in service.declared().groups:
        raise ConfigError(
            f"group {name!r} is in the config file, which is ensured",
            hint=f"take it out of the file first; `headwater group disable {name}` stops it for a while",
        )
    before = request.begun or {"disabled": name in state.disabled_groups(), "at": time.time()}
    state.begin_request(request.id, **before)
    state.disable_group(name)  # whoever delivers it notices
    service.leave(name)
    try:
        return dropped_text(name, drop_group(config, name, request.id))
    except Unreachable:
        raise
    except HeadwaterError as error:
        if isinstance(error, OperatorMustAct) and time.time() - before["at"] < PATIENCE:
            return None
        if not before["disabled"]:
            state.enable_group(name)
            with suppress(HeadwaterError):
                service.serve(name)
        raise
