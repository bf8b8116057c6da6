"""Deliveries go first, and maintenance commits between them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from headwater.errors import CommitConflict
from headwater.supervise.precedence import MOMENT, Precedence

LONG = 30.0  # seconds, for what takes a moment


@pytest.fixture
def beside() -> Iterator[Callable[[Callable[[], object]], Future[object]]]:
    """Do something in another thread."""
    with ThreadPoolExecutor() as threads:
        yield threads.submit


Beside = Callable[[Callable[[], object]], "Future[object]"]


def test_maintenance_finds_a_moment_between_deliveries_that_follow_each_other_without_a_pause(beside: Beside) -> None:
    precedence, stop, under_way = Precedence(), threading.Event(), list[int]()

    def deliver() -> None:
        while not stop.is_set():
            with precedence.delivery("main"):
                under_way.append(1)
                time.sleep(0.001)
                under_way.pop()

    delivering = beside(deliver)
    try:
        for _ in range(20):
            with precedence.between_deliveries("main"):
                assert not under_way
                time.sleep(0.001)
                assert not under_way
    finally:
        stop.set()
    delivering.result(LONG)


def test_a_delivery_does_not_wait_for_maintenance_that_waits_for_another_delivery(beside: Beside) -> None:
    precedence, asking = Precedence(), threading.Event()

    def commit() -> None:
        asking.set()
        with precedence.between_deliveries("main"):
            pass

    with precedence.delivery("main"):
        committing = beside(commit)
        asking.wait(LONG)
        begun = time.monotonic()
        with precedence.delivery("main"):
            assert time.monotonic() - begun < MOMENT
        assert not committing.done()
    committing.result(LONG)


def test_a_delivery_waits_a_moment_for_maintenance_and_then_no_longer(beside: Beside) -> None:
    precedence = Precedence()

    def deliver() -> float:
        begun = time.monotonic()
        with precedence.delivery("main"):
            return time.monotonic() - begun

    with precedence.between_deliveries("main"):
        assert beside(lambda: precedence.delivery("another").__enter__()).result(LONG) is False
        waited = beside(deliver).result(LONG)
    assert isinstance(waited, float)
    assert MOMENT <= waited < LONG


def test_maintenance_that_a_delivery_could_not_wait_for_does_not_commit(beside: Beside) -> None:
    precedence = Precedence()
    with precedence.between_deliveries("main") as ready:
        beside(lambda: precedence.delivery("main").__enter__()).result(LONG)
        with pytest.raises(CommitConflict, match="could not wait"):
            ready()
    with Precedence().between_deliveries("main") as ready:
        ready()


def test_a_delivery_waits_for_a_commit_that_has_begun(beside: Beside) -> None:
    precedence, committed = Precedence(), list[bool]()

    def deliver() -> bool:
        with precedence.delivery("main") as rewritten:
            return rewritten and bool(committed)

    with precedence.between_deliveries("main") as ready:
        delivering = beside(deliver)
        ready()
        time.sleep(MOMENT + 0.5)
        assert not delivering.done()
        committed.append(True)
    assert delivering.result(LONG)


def test_one_lake_at_a_time_has_spark_at_work_for_maintenance(beside: Beside) -> None:
    precedence, working = Precedence(), list[int]()

    def work() -> None:
        with precedence.maintaining():
            working.append(1)
            assert len(working) == 1
            time.sleep(0.05)
            working.pop()

    for each in [beside(work) for _ in range(4)]:
        each.result(LONG)


def test_a_delivery_learns_once_that_the_lake_was_maintained() -> None:
    precedence = Precedence()
    with precedence.between_deliveries("main"):
        pass
    with precedence.delivery("another") as rewritten:
        assert not rewritten
    for expected in (True, False):
        with precedence.delivery("main") as rewritten:
            assert rewritten is expected


def test_deliveries_do_not_keep_maintenance_waiting_for_ever() -> None:
    precedence = Precedence()
    with precedence.delivery("main"):
        begun = time.monotonic()
        precedence.wait_for_quiet(0.05)
        assert time.monotonic() - begun >= 0.05
    begun = time.monotonic()
    precedence.wait_for_quiet(LONG)
    assert time.monotonic() - begun < LONG / 2


def test_a_delivery_waits_for_a_copy_that_commits_as_long_as_that_takes(beside: Beside) -> None:
    precedence, copied = Precedence(), list[bool]()

    def deliver() -> bool:
        with precedence.delivery("main") as rewritten:
            return rewritten and bool(copied)

    with precedence.between_deliveries("main", alone=True):
        delivering = beside(deliver)
        time.sleep(MOMENT + 0.5)  # for maintenance it would not wait longer
        assert not delivering.done()
        copied.append(True)
    assert delivering.result(LONG)
