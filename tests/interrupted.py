"""A sink of any kind to which something happens just before it commits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from headwater.change import Relation
from headwater.lake.sink import Kinds, Wanted

__all__ = ["Act", "Interrupted"]

Act = Callable[[], object]


@dataclass(frozen=True)
class Interrupted:
    """Everything is done by the sink itself; `act` comes before its commit, `searched` gets the number of places."""

    sink: Any
    act: Act = lambda: None
    searched: Callable[[int], object] = lambda _: None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.sink, name)

    def plan(self) -> Any:
        return _Plan(self, self.sink.plan())

    def begin_copy(self, *arguments: Any) -> Any:
        return _Attempt(self, self.sink.begin_copy(*arguments))


@dataclass(frozen=True)
class _Plan:
    outer: Interrupted
    plan: Any

    def __getattr__(self, name: str) -> Any:
        return getattr(self.plan, name)

    def evolved(self, relation: Relation, kinds: Kinds) -> tuple[Any, bool]:
        plan, changed = self.plan.evolved(relation, kinds)
        return _Plan(self.outer, plan), changed

    def begin(self, *arguments: Any, **named: Any) -> Any:
        return _Attempt(self.outer, self.plan.begin(*arguments, **named))


@dataclass(frozen=True)
class _Attempt:
    outer: Interrupted
    attempt: Any

    def __getattr__(self, name: str) -> Any:
        return getattr(self.attempt, name)

    def places(self, wanted: Wanted) -> Any:
        found = self.attempt.places(wanted)
        self.outer.searched(len(found))
        return found

    def commit(self, *arguments: Any) -> Any:
        self.outer.act()
        return self.attempt.commit(*arguments)
