from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from itertools import product
from typing import get_args

import pytest

from headwater.change import Lsn, TableName
from headwater.state import TableOptions, TableRow, TableState
from headwater.state.transitions import (
    TRANSITIONS,
    CaughtUp,
    Copied,
    CopyBegun,
    Displaced,
    Event,
    Failed,
    IllegalTransition,
    Paused,
    RecopyRequested,
    Removed,
    Repositioned,
    Resumed,
    Retried,
    Stopped,
    TableDropped,
    TookOver,
    after,
)

NOW, LATER = datetime(2030, 1, 1, tzinfo=UTC), datetime(2030, 1, 2, tzinfo=UTC)
STATES: tuple[TableState, ...] = ("PENDING", "SNAPSHOT", "CATCHUP", "STREAMING", "ERRORED", "PAUSED", "REMOVED")
# What becomes of a table that has a copy and for which no other one is requested; -: it cannot happen.
TABLE: dict[Event, str] = {
    CopyBegun(Lsn(50)):            "SNAPSHOT  SNAPSHOT  -         -          SNAPSHOT  PAUSED    REMOVED",
    Copied(Lsn(9)):                "CATCHUP   CATCHUP   CATCHUP   -          CATCHUP   PAUSED    REMOVED",
    CaughtUp():                    "PENDING   -         STREAMING STREAMING  ERRORED   PAUSED    REMOVED",
    Repositioned(Lsn(9)):          "PENDING   -         CATCHUP   STREAMING  ERRORED   PAUSED    REMOVED",
    Failed("broken", LATER):       "ERRORED   ERRORED   ERRORED   ERRORED    ERRORED   PAUSED    REMOVED",
    Stopped("replaced"):           "ERRORED   ERRORED   ERRORED   ERRORED    ERRORED   ERRORED   ERRORED",
    Retried():                     "PENDING   SNAPSHOT  CATCHUP   STREAMING  CATCHUP   PAUSED    REMOVED",
    Resumed():                     "PENDING   SNAPSHOT  CATCHUP   STREAMING  CATCHUP   CATCHUP   PENDING",
    Paused("asked for"):           "PAUSED    PAUSED    PAUSED    PAUSED     PAUSED    PAUSED    REMOVED",
    Removed("left out"):           "REMOVED   REMOVED   REMOVED   REMOVED    REMOVED   REMOVED   REMOVED",
    RecopyRequested("a gap"):      "PENDING   SNAPSHOT  PENDING   PENDING    PENDING   PAUSED    REMOVED",
    TableDropped(Lsn(9), "dropped"):    "ERRORED   ERRORED   CATCHUP   STREAMING  ERRORED   PAUSED    ERRORED",
    TookOver("it is new", Lsn(9)): "PENDING   PENDING   PENDING   PENDING    PENDING   PENDING   PENDING",
    Displaced(Lsn(9), "replaced"): "ERRORED   ERRORED   ERRORED   ERRORED    ERRORED   ERRORED   ERRORED",
}  # fmt: skip
PAIRS = [
    (event, state, word) for event, line in TABLE.items() for state, word in zip(STATES, line.split(), strict=True)
]


def table(state: TableState) -> TableRow:
    """A table that was copied and is in this state now; ERRORED, it waits to try again."""
    name = TableName("public", "orders")
    failing = state == "ERRORED"
    error = {"ERRORED": "it failed", "PAUSED": "asked for", "REMOVED": "left out"}.get(state)
    return TableRow(
        group="shop", oid=7, source=name, lake=name, state=state, position=Lsn(5), copy_lsn=Lsn(5), copied_rows=0,
        copy_total=None, inserted=0, updated=0, deleted=0, error=error, failures=2 if failing else 0,
        error_kind="configuration" if failing else None,
        retry_at=NOW if failing else None, configured=name, options=TableOptions(), quarantined=0, resync=None,
        resync_lsn=Lsn(0), published=None, replaces=(3,), dropped_lsn=None, updated_at=NOW,
    )  # fmt: skip


def stopped() -> TableRow:
    return replace(table("ERRORED"), retry_at=None)


def test_every_event_is_in_the_table() -> None:
    assert {type(event) for event in TABLE} == TRANSITIONS.keys() == set(get_args(Event))


@pytest.mark.parametrize(("event", "state", "word"), PAIRS, ids=str)
def test_an_event_leads_to_one_state_or_is_refused(event: Event, state: TableState, word: str) -> None:
    if word == "-":
        with pytest.raises(IllegalTransition, match=f"table public.orders is {state}"):
            after(table(state), event)
    else:
        assert after(table(state), event).state == word


@pytest.mark.parametrize(("event", "state", "word"), PAIRS, ids=str)
def test_an_event_that_is_recorded_twice_counts_once(event: Event, state: TableState, word: str) -> None:
    if word != "-":
        once = after(table(state), event)
        assert after(once, event) == once


@pytest.mark.parametrize(("event", "state", "word"), PAIRS, ids=str)
def test_only_a_table_that_does_not_go_on_has_an_error(event: Event, state: TableState, word: str) -> None:
    if word != "-":
        now = after(table(state), event)
        assert (now.error is not None) == (now.state in ("ERRORED", "PAUSED", "REMOVED"))


@pytest.mark.parametrize(
    ("event", "state"), list(product((Retried(), Resumed(), Copied(Lsn(8))), ("ERRORED", "PENDING")))
)
def test_a_table_for_which_a_later_copy_is_requested_stays_pending(event: Event, state: TableState) -> None:
    waiting = replace(table(state), resync="a gap", resync_lsn=Lsn(9))
    now = after(waiting, event)
    assert (now.state, now.resync, now.replaces) == ("PENDING", "a gap", (3,))


def test_a_table_that_was_never_copied_tries_again_from_the_start() -> None:
    assert after(replace(table("ERRORED"), position=None), Retried()).state == "PENDING"
    assert after(replace(stopped(), position=None), Resumed()).state == "PENDING"


def test_a_copy_that_shows_enough_settles_the_requests_for_it() -> None:
    first = after(table("STREAMING"), RecopyRequested("a gap", Lsn(9)))
    both = after(first, RecopyRequested("and another", Lsn(8)))
    assert (both.state, both.resync, both.resync_lsn) == ("PENDING", "a gap", Lsn(9))
    now = after(after(both, CopyBegun(Lsn(50))), Copied(Lsn(9)))
    assert (now.state, now.resync, now.replaces, now.position, now.copy_lsn) == ("CATCHUP", None, (), Lsn(9), Lsn(9))


@pytest.mark.parametrize(("event", "state", "word"), PAIRS, ids=str)
def test_an_errored_table_says_what_helps_and_no_other_does(event: Event, state: TableState, word: str) -> None:
    if word != "-":
        now = after(table(state), event)
        assert (now.error_kind is not None) == (now.state == "ERRORED")


def test_the_kind_of_an_error_is_that_of_the_newest() -> None:
    failed = after(table("STREAMING"), Failed("it needs more memory", LATER, "resource"))
    assert failed.error_kind == "resource"
    assert after(failed, Failed("a bug", LATER, "bug")).error_kind == "bug"
    assert after(failed, Stopped("replaced")).error_kind == "configuration"


def test_failures_are_counted_until_the_table_is_well() -> None:
    failed = after(table("ERRORED"), Failed("again", LATER))
    assert (failed.failures, failed.error, failed.retry_at) == (3, "again", LATER)
    retried = after(failed, Retried())
    assert (retried.state, retried.failures, retried.error, retried.retry_at) == ("CATCHUP", 3, None, None)
    assert after(retried, CaughtUp()).failures == 0
    again = after(replace(failed, position=None), Retried())
    copying = after(again, CopyBegun(Lsn(50)))
    assert (copying.failures, after(copying, Copied(Lsn(9))).failures) == (3, 0)


@pytest.mark.parametrize("event", [Failed("broken", LATER), Retried()], ids=str)
def test_a_table_that_was_stopped_does_not_try_again_by_itself(event: Event) -> None:
    assert after(stopped(), event) == stopped()
    assert after(stopped(), Resumed()).state == "CATCHUP"


def test_a_table_that_is_dropped_receives_what_is_staged_of_it_first() -> None:
    dropped = after(table("STREAMING"), TableDropped(Lsn(9), "dropped"))
    assert (dropped.state, dropped.dropped_lsn, dropped.error) == ("STREAMING", Lsn(9), None)
    assert after(dropped, TableDropped(Lsn(10), "dropped")).dropped_lsn == Lsn(9)
    assert after(dropped, Stopped("dropped")).stopped
    assert after(table("ERRORED"), TableDropped(Lsn(9), "dropped")).stopped


def test_a_table_whose_mirror_went_to_another_has_nothing_in_the_lake() -> None:
    now = after(replace(table("STREAMING"), resync="a gap"), Displaced(Lsn(9), "replaced"))
    assert (now.position, now.copy_lsn, now.resync, now.replaces, now.dropped_lsn) == (None, None, None, (), Lsn(9))
    assert now.stopped


def test_a_table_that_takes_a_place_is_copied_from_then_on() -> None:
    before = replace(table("ERRORED"), dropped_lsn=Lsn(4), resync="a gap", resync_lsn=Lsn(20))
    now = after(before, TookOver("it is new", Lsn(9)))
    assert (now.resync, now.resync_lsn, now.dropped_lsn, now.replaces) == ("it is new", Lsn(9), None, (3,))
