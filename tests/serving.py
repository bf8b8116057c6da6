"""What a running service does about requests, without its processes: for tests that take each step by hand."""

from __future__ import annotations

from dataclasses import dataclass, field

from headwater.config import Config
from headwater.control.expanding import with_patterns
from headwater.state import Request, State
from headwater.supervise.effective import in_force, served
from headwater.supervise.handling import Handling
from headwater.supervise.readying import make_group_ready

__all__ = ["HandService", "handled"]


@dataclass(slots=True)
class HandService:
    """Serves the groups of a config in this process."""

    config: Config
    state: State
    left: list[str] = field(default_factory=list)

    def everything(self) -> Config:
        return in_force(self.config, self.state)

    def declared(self) -> Config:
        return self.config

    def serve(self, name: str) -> None:
        config, _ = with_patterns(served(self.config, self.state))
        if name in config.groups:
            make_group_ready(config, self.state, name)

    def leave(self, name: str) -> None:
        self.left.append(name)


def handled(config: Config, state: State) -> list[Request]:
    """Handle all requests that wait; what became of them."""
    requests = state.waiting()
    handling = Handling(HandService(config, state), state)
    for request in requests:
        handling.handle(request)
    found = [state.request(each.id) for each in requests]
    return [each for each in found if each is not None]
