"""The fold means what it says: against a table kept as a dict, and against PostgreSQL itself."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.merge.fold import UNCHANGED, Event, Folded, Key, NetChange, Row, apply, fold
from headwater.merge.tuples import TEXT, Tuples, split
from headwater.merge.tuples import UNCHANGED as UNCHANGED_CELL
from headwater.testing.postgres import EmbeddedPostgres

BEFORE: dict[Key, Row] = {1: (1, "small", "big one"), 2: (2, "small", "big two")}
keys = st.integers(1, 4)
values = st.sampled_from("abc")
steps = st.one_of(
    st.tuples(st.just("insert"), keys, values, values),
    st.tuples(st.just("set small"), keys, values, values),
    st.tuples(st.just("set big"), keys, values, values),
    st.tuples(st.just("move"), keys, keys, values),
    st.tuples(st.just("delete"), keys, values, values),
    st.tuples(st.just("truncate"), keys, values, values),
)


def play(table: dict[Any, Row], step: tuple[Any, ...]) -> Event | None:
    """Do one step on a dict as PostgreSQL would on a table; the event it would send, if any row was touched."""
    match step:
        case ("insert", key, small, big) if key not in table:
            table[key] = (key, small, big)
            return Event("insert", key, table[key])
        case ("set small", key, small, _) if key in table:
            table[key] = (key, small, table[key][2])
            return Event("update", key, (key, small, UNCHANGED))
        case ("set big", key, _, big) if key in table:
            table[key] = (key, table[key][1], big)
            return Event("update", key, table[key])
        case ("move", key, to, small) if key in table and to not in table:
            table[to] = (to, small, table.pop(key)[2])
            return Event("update", to, (to, small, UNCHANGED), old_key=key)
        case ("delete", key, _, _) if key in table:
            del table[key]
            return Event("delete", key)
        case ("truncate", *_):
            table.clear()
            return Event("truncate")
    return None


@settings(max_examples=500)
@given(st.lists(steps, max_size=25))
def test_a_folded_history_applied_is_the_history_played(history: list[tuple[Any, ...]]) -> None:
    table = dict(BEFORE)
    events = [event for step in history if (event := play(table, step))]
    folded = fold(events)
    assert apply(folded, BEFORE) == table
    assert folded.truncated == any(event.op == "truncate" for event in events)
    for key, net in folded.net.items():
        assert net.existed == (key in BEFORE and not folded.truncated)
        assert net.event in events


@settings(max_examples=200)
@given(st.lists(steps, max_size=20), st.integers(0, 20))
def test_two_batches_mean_the_same_as_one(history: list[tuple[Any, ...]], cut: int) -> None:
    table = dict(BEFORE)
    events = [event for step in history if (event := play(table, step))]
    assert apply(fold(events[cut:]), apply(fold(events[:cut]), BEFORE)) == apply(fold(events), BEFORE)


def test_a_changed_key_is_a_delete_of_the_old_and_an_upsert_of_the_new() -> None:
    moved = Event("update", 9, (9, "a", UNCHANGED), old_key=1)
    assert fold([moved]).net == {
        1: NetChange("delete", moved, existed=True),
        9: NetChange("upsert", moved, existed=False, row=(9, "a", UNCHANGED), base=1),
    }


def test_an_old_key_equal_to_the_new_is_no_change_of_key() -> None:
    respelled = Event("update", 1, (1, "a", "b"), old_key=1)  # as 1.0 and 1.00 are in a numeric key
    assert fold([respelled]).net == {1: NetChange("upsert", respelled, existed=True, row=(1, "a", "b"))}


def test_a_row_inserted_and_deleted_in_the_batch_was_never_in_the_lake() -> None:
    deleted = Event("delete", 1)
    assert fold([Event("insert", 1, (1, "a", "b")), deleted]).net == {1: NetChange("delete", deleted, existed=False)}


def test_a_truncate_drops_what_came_before_it_and_says_so() -> None:
    events = [Event("insert", 1, (1, "a", "b")), Event("truncate"), Event("insert", 2, (2, "a", "b"))]
    assert fold(events) == Folded({2: NetChange("upsert", events[2], existed=False, row=(2, "a", "b"))}, truncated=True)


@pytest.fixture(scope="module")
def source(postgres: EmbeddedPostgres) -> Iterator[psycopg.Connection]:
    """A table whose column `big` is always TOASTed, with a publication and a slot named as the database."""
    name = f"fold_{uuid.uuid4().hex[:8]}"
    with psycopg.connect(postgres.url(), autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name}")
        with psycopg.connect(postgres.url(name), autocommit=True) as conn:
            conn.execute("CREATE TABLE t (id int PRIMARY KEY, small text, big text)")
            conn.execute("ALTER TABLE t ALTER big SET STORAGE EXTERNAL")
            conn.execute("CREATE PUBLICATION p FOR TABLE t")
            conn.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (name,))
            yield conn
            conn.execute("SELECT pg_drop_replication_slot(%s)", (name,))
        admin.execute(f"DROP DATABASE {name} WITH (FORCE)")


CHANGES = (
    "SELECT data FROM pg_logical_slot_get_binary_changes"
    "(%s, NULL, NULL, 'proto_version', '1', 'publication_names', 'p')"
)
STATEMENTS = {
    "insert": "INSERT INTO t VALUES (%(key)s, %(small)s, repeat(%(big)s, 3000)) ON CONFLICT DO NOTHING",
    "set small": "UPDATE t SET small = %(small)s WHERE id = %(key)s",
    "set big": "UPDATE t SET big = repeat(%(big)s, 3000) WHERE id = %(key)s",
    "move": "UPDATE t SET id = %(small)s::int, small = %(big)s WHERE id = %(key)s"
    " AND NOT EXISTS (SELECT FROM t WHERE id = %(small)s::int)",
    "delete": "DELETE FROM t WHERE id = %(key)s",
    "truncate": "TRUNCATE t",
}


def changes(conn: psycopg.Connection) -> list[bytes]:
    return [
        data
        for (data,) in conn.execute(CHANGES, (conn.info.dbname,)).fetchall()
        if data[:1] in (b"I", b"U", b"D", b"T")
    ]


def row_of(tuples: Tuples, index: int) -> Row:
    marks = {UNCHANGED_CELL: UNCHANGED}
    row: list[Any] = [
        cells.text[index].as_py().decode() if cells.kind[index] == TEXT else marks.get(int(cells.kind[index]))
        for cells in (tuples.cells[column] for column in range(3))
    ]
    return (int(row[0]), *row[1:])


def events_of(messages: list[bytes]) -> Iterator[Event]:
    for message in messages:
        if message[:1] == b"T":
            yield Event("truncate")
            continue
        parts = split(pa.array([message]), 3)
        new = row_of(parts.new, 0) if len(parts.new.rows) else ()
        old_key = row_of(parts.old, 0)[0] if len(parts.old.rows) else None
        match message[:1]:
            case b"I":
                yield Event("insert", new[0], new)
            case b"U":
                yield Event("update", new[0], new, old_key)
            case b"D":
                yield Event("delete", old_key)


def test_a_folded_history_of_postgresql_is_what_postgresql_has(source: psycopg.Connection) -> None:
    @settings(max_examples=40, deadline=None)
    @given(st.lists(steps, min_size=5, max_size=20))
    def check(history: list[tuple[Any, ...]]) -> None:
        source.execute("TRUNCATE t")
        source.execute("INSERT INTO t SELECT id, 'small', repeat('z', 3000) FROM generate_series(1, 2) id")
        before: dict[Key, Row] = {row[0]: row for row in source.execute("SELECT * FROM t").fetchall()}
        changes(source)
        with source.transaction():
            for name, key, small, big in history:
                source.execute(STATEMENTS[name], {"key": key, "small": small, "big": big})
        after = {row[0]: row for row in source.execute("SELECT * FROM t").fetchall()}
        assert apply(fold(events_of(changes(source))), before) == after

    check()
