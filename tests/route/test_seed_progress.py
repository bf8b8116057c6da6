"""Seeding thousands of destinations takes minutes: the log says how far it is."""

from __future__ import annotations

import logging

import pytest

from headwater.route.seed import reported


def test_the_log_says_how_many_destinations_are_done(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        assert list(reported(iter("abc"), "seeding: %s of %s lakes are open", 3, every=0.0)) == ["a", "b", "c"]
    assert caplog.messages == [f"seeding: {done} of 3 lakes are open" for done in (1, 2, 3)]


def test_what_is_done_at_once_is_not_reported(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        assert list(reported(range(1_000), "seeding: %s of %s lakes are open", 1_000)) == list(range(1_000))
    assert caplog.messages == []
