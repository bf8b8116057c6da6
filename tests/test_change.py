"""Positions, of PostgreSQL's stream and of others."""

from __future__ import annotations

import pickle

import pytest

from headwater.change import Lsn, Position


def test_positions_of_one_stream_have_an_order_and_survive_a_trip_to_sparks_workers() -> None:
    assert Lsn(1) < Lsn(2) <= Lsn(2)
    assert max(Position(7), Position(9)) == Position(9)
    assert pickle.loads(pickle.dumps([Lsn(16), Position(16)])) == [Lsn(16), Position(16)]
    assert [str(Lsn(1 << 32 | 16)), str(Position(16))] == ["1/10", "16"]


def test_another_position_of_a_stream_is_of_its_kind() -> None:
    assert Lsn(1).at(16) == Lsn(16)
    assert Position(1).at(16) == Position(16)


def test_positions_of_two_streams_are_never_the_same_and_never_compared() -> None:
    assert Lsn(16) != Position(16)
    with pytest.raises(TypeError):
        _ = Lsn(16) < Position(17)
