"""Answers that are asked for once in a while, however many want them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

__all__ = ["Kept"]

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class _Answer(Generic[Value]):
    task: asyncio.Task[Value]
    asked: float


class Kept(Generic[Value]):
    """Used from one event loop. `seconds`: how old an answer may be; an error is for those who wait for it now."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._kept: dict[Hashable, _Answer[Value]] = {}

    def get(self, key: Hashable, ask: Callable[[], Awaitable[Value]]) -> asyncio.Task[Value]:
        """The task that brings the answer, which others wait for as well: it is not to be cancelled."""
        self._forget()
        if key not in self._kept:
            task = asyncio.create_task(_asked(ask))
            task.add_done_callback(lambda done: done.cancelled() or done.exception())  # perhaps no client waits
            self._kept[key] = _Answer(task, time.monotonic())
        return self._kept[key].task

    def _forget(self) -> None:
        oldest = time.monotonic() - self._seconds
        self._kept = {key: each for key, each in self._kept.items() if not _over(each, oldest)}


def _over(answer: _Answer[Value], oldest: float) -> bool:
    task = answer.task
    return task.done() and (answer.asked < oldest or task.cancelled() or task.exception() is not None)


async def _asked(ask: Callable[[], Awaitable[Value]]) -> Value:
    return await ask()
