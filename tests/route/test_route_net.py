"""The Arrow fold means what `fold.py` says in plain Python."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.route.fold import Event, apply, fold
from headwater.route.net import DESTINATION, POSITION, SEQ, UPSERT, shares
from headwater.values.keys import known_by
from headwater.values.types import LakeType

BIGINT = LakeType("bigint", pa.int64(), "int64")
TEXT = LakeType("text", pa.large_string(), "string")

KEYS = st.tuples(st.one_of(st.none(), st.integers(0, 2)), st.one_of(st.none(), st.sampled_from(["", "a"])))


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[int, Event]]:
    """Events as a source with unique keys has them: a row that ends was made before, at most one of a key is alive.

    In a snapshot a key has one fate; a transaction of the WAL may do to it whatever it likes, one step after another.
    """
    ordered = draw(st.booleans())
    alive: dict[Any, tuple[int, int]] = draw(st.dictionaries(KEYS, st.tuples(st.integers(0, 2), st.integers(0, 9))))
    found: list[tuple[int, Event]] = []
    for position in range(1, draw(st.integers(1, 5))):
        for step, key in enumerate(draw(st.lists(KEYS, unique=not ordered, max_size=5))):
            seq = step if ordered else 0
            if key in alive:
                destination, value = alive.pop(key)
                found.append((destination, Event(position, False, key, (*key, value), seq)))
            if draw(st.booleans()):
                alive[key] = draw(st.integers(0, 2)), draw(st.integers(0, 9))
                destination, value = alive[key]
                found.append((destination, Event(position, True, key, (*key, value), seq)))
    return draw(st.permutations(found))


def table(events: list[tuple[int, Event]]) -> pa.Table:
    seq = {SEQ: pa.array([each.seq for _, each in events], pa.int64())} if any(each.seq for _, each in events) else {}
    return pa.table(
        {
            **seq,
            POSITION: pa.array([each.position for _, each in events], pa.int64()),
            UPSERT: pa.array([each.upsert for _, each in events], pa.bool_()),
            "a": pa.array([each.row[0] for _, each in events], pa.int64()),
            "b": pa.array([each.row[1] for _, each in events], pa.large_string()),
            "value": pa.array([each.row[2] for _, each in events], pa.int64()),
            DESTINATION: pa.array([number for number, _ in events], pa.int32()),
        }
    )


def bytes_of(keys: list[Any]) -> list[bytes]:
    columns = [pa.array([key[0] for key in keys], pa.int64()), pa.array([key[1] for key in keys], pa.large_string())]
    return [known_by([each.slice(at, 1) for each in columns], [BIGINT, TEXT])[0].as_py() for at in range(len(keys))]


@given(histories(), st.dictionaries(st.integers(0, 2), st.integers(0, 4)))
def test_each_destination_gets_what_the_fold_in_plain_python_says(
    events: list[tuple[int, Event]], positions: dict[int, int]
) -> None:
    after = {number: positions.get(number, 0) for number in range(3)}
    by_destination: defaultdict[int, list[Event]] = defaultdict(list)
    for number, event in events:
        by_destination[number].append(event)
    found = {each.destination: each for each in shares(table(events), {"a": BIGINT, "b": TEXT}, after)}
    for number, mine in by_destination.items():
        want = fold(mine, after[number])
        if number not in found:
            assert not want.upserts
            assert not want.gone
            continue
        share = found[number]
        rows = [tuple(row.values()) for row in share.upserts.to_pylist()]
        assert sorted(rows, key=repr) == sorted(want.upserts.values(), key=repr)
        assert sorted(share.gone.to_pylist()) == sorted(bytes_of(list(want.gone)))
        assert share.keys.to_pylist() == bytes_of([row[:2] for row in rows])


@pytest.mark.parametrize(
    ("events", "before", "after"),
    [
        pytest.param([Event(1, True, 7, (7, "x"))], {}, {7: (7, "x")}, id="a new row comes"),
        pytest.param([Event(2, False, 7), Event(2, True, 7, (7, "y"))], {7: (7, "x")}, {7: (7, "y")}, id="an update"),
        pytest.param([Event(2, False, 7)], {7: (7, "x")}, {}, id="a row that left, or was deleted, goes"),
        pytest.param([Event(1, True, 7, (7, "x")), Event(2, False, 7)], {}, {}, id="what came and went leaves nothing"),
        pytest.param(
            [Event(1, False, 7), Event(2, True, 7, (7, "z"))], {7: (7, "x")}, {7: (7, "z")}, id="there and back again"
        ),
        pytest.param(
            [
                Event(2, False, 7, seq=1),
                Event(2, True, 7, (7, "y"), 1),
                Event(2, False, 7, seq=2),
            ],
            {7: (7, "x")},
            {},
            id="updated and deleted in one transaction",
        ),
        pytest.param([Event(3, False, 7), Event(3, True, 8, (8, "x"))], {7: (7, "x")}, {8: (8, "x")}, id="a new key"),
    ],
)
def test_the_last_event_of_a_key_wins(events: list[Event], before: dict[Any, Any], after: dict[Any, Any]) -> None:
    assert apply(fold(events, 0), before) == after
    assert apply(fold(reversed(events), 0), before) == after


def test_events_that_a_destination_has_already_are_left_out() -> None:
    events = [(0, Event(1, True, (1, "a"), (1, "a", 1))), (0, Event(2, True, (2, "a"), (2, "a", 2)))]
    (share,) = shares(table(events), {"a": BIGINT, "b": TEXT}, {0: 1})
    assert share.upserts["a"].to_pylist() == [2]


def test_without_a_key_every_row_comes() -> None:
    events = [(0, Event(1, True, None, (1, "a", 1))), (0, Event(1, True, None, (1, "a", 1)))]
    (share,) = shares(table(events), {}, {0: 0})
    assert share.upserts.num_rows == 2
