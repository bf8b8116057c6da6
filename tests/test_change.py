"""Positions, of PostgreSQL's stream and of others."""

from __future__ import annotations

import pickle

import pytest

from headwater.change import Lsn, Position, SnapshotId


def test_positions_of_one_stream_have_an_order_and_survive_a_trip_to_sparks_workers() -> None:
    assert Lsn(1) < Lsn(2) <= Lsn(2)
    assert max(SnapshotId(7), SnapshotId(9)) == SnapshotId(9)
    assert pickle.loads(pickle.dumps([Lsn(16), SnapshotId(16)])) == [Lsn(16), SnapshotId(16)]


@pytest.mark.parametrize(("position", "text"), [(Lsn(1 << 32 | 16), "1/10"), (SnapshotId(16), "16")])
def test_a_position_is_read_back_from_its_text(position: Position, text: str) -> None:
    assert str(position) == text
    assert type(position).parse(text) == position
    with pytest.raises(ValueError, match="nowhere"):
        position.parse("nowhere")


def test_another_position_of_a_stream_is_of_its_kind() -> None:
    assert Lsn(1).at(16) == Lsn(16)
    assert SnapshotId(1).at(16) == SnapshotId(16)


def test_positions_of_two_streams_are_never_the_same_and_never_compared() -> None:
    lsn: Position = Lsn(16)
    assert lsn != SnapshotId(16)
    with pytest.raises(TypeError):
        _ = lsn < SnapshotId(17)
