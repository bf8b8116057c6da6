"""Facts that are too old are not facts: what holds up the next look must not leave everything green."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import psycopg
import pytest

from headwater.web.facts import STALE, Look, outdated, rest
from headwater.web.verdict import problems, unready, verdict
from tests.captured_group import until
from tests.web.served import Served
from tests.web.test_health import seen


@contextmanager
def looking(site: Served) -> Iterator[None]:
    """Look again and again, as `headwater run` does."""
    stop = threading.Event()
    thread = threading.Thread(target=site.facts.run, args=(stop,))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(60)
        assert not thread.is_alive()


@pytest.mark.long
def test_while_a_lock_holds_up_the_next_look_nothing_is_known(site: Served, database: str) -> None:
    def ready() -> list[str]:
        return site.get("/readyz").json["reasons"]  # type: ignore[no-any-return]

    with looking(site), site.listening() as events:
        assert next(events)["verdict"] == "trouble"
        assert "group 'shop': delivery is STOPPED" in ready()
        with psycopg.connect(database) as locking:
            locking.execute("LOCK TABLE headwater.groups, headwater.tables")
            locked = time.monotonic()
            event = next(each for each in events if each["verdict"] == "unknown")
            assert STALE - 3 < time.monotonic() - locked < STALE * 4
            assert event["sentence"].startswith("Nothing is known: the last look ended at ")
            assert event["groups"] == []
            (problem,) = event["problems"]
            assert problem["hint"].startswith("is something in the state's database locked")
            assert ready() == ["the status is not known"]
            lines = site.get("/metrics", Accept="text/plain").body.decode().splitlines()
            assert {"headwater_state_up 0.0", "headwater_ready 0.0"} <= set(lines)
            assert not [each for each in lines if each.startswith("headwater_group_lag_seconds")]
            assert site.get("/api/v1/status").status == 503
            assert site.get("/healthz").status == 200
        assert next(each for each in events if each["verdict"] != "unknown")["groups"] != []
        until(lambda: "group 'shop': delivery is STOPPED" in ready())


def test_an_old_look_says_only_that_it_is_old() -> None:
    old = outdated(replace(seen(), at=3600.0))
    assert verdict(old) == (
        "unknown",
        "Nothing is known: the last look ended at 01:00:00 UTC, and none has ended since.",
    )
    assert [each.severity for each in problems(old)] == ["error"]
    assert unready(old) == ["the status is not known"]


def test_a_first_look_that_does_not_end_is_said() -> None:
    old = outdated(Look(0.0, None, None, {}))
    assert verdict(old) == ("unknown", "Nothing is known: the first look has not ended in 30 s.")


@pytest.mark.parametrize(("took", "seconds"), [(0.01, 1.0), (1.0, 4.0), (5.0, 15.0), (15.0, 5.0), (28.0, 1.0)])
def test_looks_that_take_long_follow_each_other_before_they_are_too_old(took: float, seconds: float) -> None:
    assert rest(took) == seconds
    assert rest(took) + took < STALE
