"""The processes that deliver from one log share its groups, by what each of them counts in the state's database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing

import pytest
from tests.captured_group import until

from headwater.state.sharing import Share

GROUPS = 4


@pytest.fixture
def first(database: str) -> Iterator[Share]:
    with closing(Share(database, "/log")) as share:
        share.look(GROUPS)
        yield share


def test_a_process_that_is_alone_takes_all_groups_and_no_more(first: Share) -> None:
    assert [first.part().take() for _ in range(GROUPS + 1)] == [True] * GROUPS + [False]


def test_processes_of_one_log_take_equal_shares_and_those_of_another_do_not_count(first: Share, database: str) -> None:
    with ExitStack() as others:
        for log in ("/log", "/another"):
            others.enter_context(closing(Share(database, log))).look(GROUPS)
        first.look(GROUPS)
        assert [first.part().take() for _ in range(GROUPS)] == [True, True, False, False]
    ours = first.part()

    def may_have_more() -> bool:
        first.look(GROUPS)
        return ours.take()

    until(may_have_more)  # once the server has noticed that the others have ended


def test_no_more_groups_are_given_up_than_another_process_may_take(first: Share, database: str) -> None:
    parts = [first.part() for _ in range(GROUPS)]
    assert all(each.take() for each in parts)
    assert not any(each.is_too_much() for each in parts)
    with closing(Share(database, "/log")) as second:
        second.look(GROUPS)
        first.look(GROUPS)
        assert [each.is_too_much() for each in parts] == [True, True, False, False]
        assert [each.take() for each in parts] == [False, False, True, True]


def test_a_thread_that_ends_does_not_give_up_what_the_one_that_replaces_it_has_taken(first: Share) -> None:
    first.look(1)
    old, new = first.part(), first.part()
    assert old.take()
    assert not new.take()  # while the old one drains
    old.give_up()
    assert new.take()
    old.give_up()
    assert not first.part().take()
