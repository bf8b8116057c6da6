"""A bound on how fast something is read."""

from __future__ import annotations

from headwater.copy.throttle import Throttle


class Clock:
    def __init__(self) -> None:
        self.now, self.slept = 0.0, list[float]()

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


def test_whoever_is_ahead_sleeps_until_it_is_not() -> None:
    clock = Clock()
    throttle = Throttle(100.0, clock, clock.sleep)
    throttle.passed(50)
    throttle.passed(200)
    assert clock.now == 2.5
    clock.now += 10.0  # the source was slow
    throttle.passed(100)
    assert (clock.slept, clock.now) == ([0.5, 2.0], 12.5)


def test_without_a_bound_nothing_sleeps() -> None:
    clock = Clock()
    Throttle(None, clock, clock.sleep).passed(10**12)
    assert clock.slept == []
