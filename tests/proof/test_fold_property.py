"""The fold means what it says: histories played on PostgreSQL, captured, cut anywhere, delivered by the Spark plan.

After every delivery the lake, read by DuckDB, is what PostgreSQL had at that position and what folding the staged
messages in plain Python gives.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from headwater import flow
from headwater.change import Lsn
from headwater.merge import SPLIT_FROM
from headwater.merge.fold import Event, Key, Row, apply, fold
from headwater.merge.tuples import Tuples, split
from tests.mirror import Mirror

Content = dict[str, dict[Key, Row]]  # a row by its key, in PostgreSQL's text

TABLES = {
    "pairs": "CREATE TABLE pairs (a int, v text, b text, PRIMARY KEY (b, a))",
    "words": "CREATE TABLE words (w text PRIMARY KEY, v text)",
    "money": "CREATE TABLE money (v text, id bigint PRIMARY KEY, amount numeric(12,3), moment timestamptz)",
    "only": "CREATE TABLE only_key (id uuid PRIMARY KEY)",
}
NAMES = {"pairs": "pairs", "words": "words", "money": "money", "only": "only_key"}
KEYS: dict[str, list[dict[str, Any]]] = {
    "pairs": [{"a": a, "b": b} for a in (1, 2, 11) for b in ("", "1", "x")],  # (1, '1') and (11, '') must not meet
    "words": [{"w": w} for w in ("", " ", "a", "A", "ä", "a'b", "longer than sixteen bytes, and then some")],
    "money": [{"id": n} for n in (-(2**63), -1, 0, 1, 2, 3, 2**63 - 1)],
    "only": [{"id": f"00000000-0000-0000-0000-{n:012}"} for n in range(5)],
}
VALUES = {"pairs": "v", "words": "v", "money": "v", "only": None}

keys = st.integers(0, 8)
steps = st.tuples(
    st.sampled_from(["insert"] * 5 + ["update"] * 4 + ["move"] * 4 + ["delete"] * 3 + ["again"] * 2 + ["many"]),
    st.sampled_from(sorted(TABLES)),
    keys,
    keys,
    st.sampled_from(["x", "", "NULL", "ünï", "t" * 50]),
)
truncates = st.tuples(
    st.just("truncate"), st.sampled_from(["money", "words, pairs", "only_key"]), keys, keys, st.just("")
)
plain = st.lists(st.one_of(steps, steps, steps, steps, steps, steps, truncates), min_size=1, max_size=6)
savepoint = st.tuples(st.sampled_from(["keep", "undo"]), plain)
transactions = st.tuples(
    st.sampled_from(["commit"] * 6 + ["rollback"]), st.lists(st.one_of(plain, plain, savepoint), min_size=1, max_size=3)
)
histories = st.lists(transactions, min_size=15, max_size=25)
cuts = st.sets(st.integers(0, 14), min_size=2, max_size=3)


def where(key: dict[str, Any]) -> str:
    return " AND ".join(f"{name} = %({name})s" for name in key)


def play(source: psycopg.Connection, step: tuple[Any, ...]) -> None:
    """One step, which touches no row where it cannot be done."""
    op, table, at, to, value = step
    if op == "truncate":
        source.execute(f"TRUNCATE {table}")
        return
    name, choice, column = NAMES[table], KEYS[table], VALUES[table]
    key, other = choice[at % len(choice)], choice[to % len(choice)]
    value = None if value == "NULL" else value
    columns, marks = ", ".join(key), ", ".join(f"%({each})s" for each in key)
    with_value = (f", {column}", ", %(value)s") if column else ("", "")
    insert = f"INSERT INTO {name} ({columns}{with_value[0]}) VALUES ({marks}{with_value[1]}) ON CONFLICT DO NOTHING"
    delete = f"DELETE FROM {name} WHERE {where(key)}"
    asked = {**key, "value": value}
    match op:
        case "insert":
            source.execute(insert, asked)
        case "update" if column:
            source.execute(f"UPDATE {name} SET {column} = %(value)s WHERE {where(key)}", asked)
        case "move":
            new = ", ".join(f"{each} = %(to_{each})s" for each in other)
            free = where(other).replace("%(", "%(to_")
            source.execute(
                f"UPDATE {name} SET {new} WHERE {where(key)} AND NOT EXISTS (SELECT FROM {name} WHERE {free})",
                asked | {f"to_{each}": each_value for each, each_value in other.items()},
            )
        case "delete":
            source.execute(delete, asked)
        case "again":
            source.execute(delete, asked)
            source.execute(insert, asked)
        case "many" if table == "money":
            source.execute("UPDATE money SET v = v || 'm', amount = coalesce(amount, 0) + 0.125, moment = now()")
            source.execute("INSERT INTO money SELECT 'many', i FROM generate_series(10, 60) i ON CONFLICT DO NOTHING")
            source.execute("DELETE FROM money WHERE id BETWEEN 20 AND 25")


class Undone(Exception):
    pass


def perform(source: psycopg.Connection, outcome: str, parts: list[Any]) -> None:
    """One transaction, some of it under savepoints, which may be rolled back as may the whole."""
    try:
        with source.transaction():
            for part in parts:
                kept, inner = part if isinstance(part, tuple) else ("", part)
                if not kept:
                    for step in inner:
                        play(source, step)
                    continue
                try:
                    with source.transaction():
                        for step in inner:
                            play(source, step)
                        if kept == "undo":
                            raise Undone
                except Undone:
                    pass
            if outcome == "rollback":
                raise Undone
    except Undone:
        pass


def rows_by_key(rows: list[tuple[Any, ...]], at: tuple[int, ...]) -> dict[Key, Row]:
    found: dict[Key, Row] = {tuple(row[index] for index in at): tuple(row) for row in rows}
    assert len(found) == len(rows), "a key is there twice"
    return found


KEY_PLACES = {"pairs": (0, 2), "words": (0,), "money": (1,), "only_key": (0,)}
COLUMNS = {"pairs": "a v b", "words": "w v", "money": "v id amount moment", "only_key": "id"}


def in_source(mirror: Mirror) -> Content:
    found = {}
    for table, at in KEY_PLACES.items():
        texts = ", ".join(f"{column}::text" for column in COLUMNS[table].split())
        found[table] = rows_by_key(mirror.rows_of(f"SELECT {texts} FROM {table}"), at)
    return found


def in_lake(mirror: Mirror, snapshot: int) -> Content:
    found = {}
    for table, at in KEY_PLACES.items():
        texts = ", ".join(f"CAST({column} AS VARCHAR)" for column in COLUMNS[table].split())
        rows = mirror.ask(f"SELECT {texts} FROM {mirror.at(table, snapshot)}")
        assert mirror.ask(f"SELECT count(*) FROM {mirror.at(table, snapshot)}") == [(len(rows),)]
        found[table] = rows_by_key(rows, at)
    return found


def staged_events(mirror: Mirror, start: Lsn, upto: Lsn) -> dict[str, list[Event]]:
    """What the log holds between two positions, read back one message at a time."""
    batch = mirror.m.log.read(start, upto)
    relations = mirror.m.log.relations(part.relation_id for each in batch.segments for part in each.parts)
    rows = [row for each in batch.segments for row in pq.read_table(each.path).to_pylist()]
    found: defaultdict[str, list[Event]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: (row["commit_lsn"], row["seq"])):
        if start.value <= row["commit_lsn"] < upto.value:
            relation = relations[row["relation"]]
            found[relation.table.name].append(event_of(row["message"], len(relation.columns), relation.key))
    return found


def event_of(message: bytes, count: int, key: tuple[int, ...]) -> Event:
    if message[:1] == b"T":
        return Event("truncate")
    parts = split(pa.array([message], pa.binary()), count)
    new, old = row_of(parts.new, count), row_of(parts.old, count)
    new_key = tuple(new[index] for index in key) if new else None
    old_key = tuple(old[index] for index in key) if old else None
    match message[:1]:
        case b"I":
            return Event("insert", new_key, new)
        case b"U":
            return Event("update", new_key, new, old_key)
        case _:
            return Event("delete", old_key)


def row_of(tuples: Tuples, count: int) -> Row:
    if not len(tuples.rows):
        return ()
    cells = (tuples.cells[column].text[0].as_py() for column in range(count))
    return tuple(None if cell is None else cell.decode() for cell in cells)


@pytest.fixture
def played(mirror: Mirror) -> Mirror:
    mirror.execute("SET TimeZone = 'UTC'", *TABLES.values())
    mirror.execute("INSERT INTO money SELECT 'copied', i, i * 0.5, now() FROM generate_series(1, 40) i")
    mirror.execute("INSERT INTO words VALUES ('a', 'copied'), ('', 'copied')", "INSERT INTO pairs VALUES (1, 'c', '1')")
    mirror.inline = "{rows: 150}"  # soon there are as many: then rows go into files, until others are moved there
    mirror.start()
    return mirror


@pytest.mark.long
def test_any_history_cut_anywhere_arrives_as_postgresql_has_it(played: Mirror) -> None:
    mirror = played
    delivered: list[int] = []  # changes, by delivery
    moved: list[int] = []  # rows from the catalog into files

    @settings(
        max_examples=6,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],  # not shrunk: an example builds on those before it
        suppress_health_check=list(HealthCheck),
    )
    @given(histories, cuts, st.sampled_from([1, SPLIT_FROM]))
    def check(history: list[Any], cut: set[int], split_from: int) -> None:
        mirror.sync()
        stands = in_source(mirror)
        expected: dict[Lsn, Content] = {}
        for number, (outcome, parts) in enumerate(history):
            perform(mirror.source, outcome, parts)
            if number in cut:
                ((here,),) = mirror.rows_of("SELECT pg_current_wal_insert_lsn()::text")
                expected[Lsn.parse(here)] = in_source(mirror)
                mirror.m.state.add_fence("g", Lsn.parse(here), 600)
        last = in_source(mirror)
        before = min(each.position for each in mirror.m.sink.standings().values())
        mirror.captured()
        while mirror.m.state.fences("g"):
            done = flow.deliver(replace(mirror.m, split_from=split_from))
            assert set(done.upto.values()) <= {done.position}
            lake = in_lake(mirror, done.snapshot_id)
            events = staged_events(mirror, before, done.position)
            assert lake == {table: apply(fold(events.get(table, [])), rows) for table, rows in stands.items()}
            assert lake == expected.pop(done.position, lake)
            stands, before = lake, done.position
            delivered.append(sum(map(len, events.values())))
            if mirror.kind == "ducklake" and len(delivered) % 4 == 0:
                moved.append(mirror.flush())
                assert in_lake(mirror, done.snapshot_id) == lake
        assert expected == {}, "a delivery did not stop at a fence"
        assert stands == last

    check()
    assert len(delivered) > 15
    assert sum(delivered) > 150
    assert sum(moved) > 20 or mirror.kind == "iceberg"


def test_a_cut_between_two_transactions_of_one_segment_delivers_each_of_them_once(mirror: Mirror) -> None:
    mirror.execute("CREATE TABLE t (id int PRIMARY KEY)")
    mirror.start()
    mirror.sync()
    for number in range(0, 20, 2):  # until both are in one segment: it is closed some 250 ms after the first of them
        before = min(each.position for each in mirror.m.sink.standings().values())
        mirror.execute(f"INSERT INTO t VALUES ({number})")
        ((here,),) = mirror.rows_of("SELECT pg_current_wal_insert_lsn()::text")
        mirror.execute(f"INSERT INTO t VALUES ({number + 1})")
        mirror.captured()
        mirror.m.state.add_fence("g", Lsn.parse(here), 600)
        shared = len(mirror.m.log.read(before).segments) == 1
        first, second = flow.deliver(mirror.m), flow.deliver(mirror.m)
        assert [each.inserted for done in (first, second) for each in done.landed.values()] == [1, 1]
        assert mirror.ask(f"SELECT max(id) FROM {mirror.at('t', first.snapshot_id)}") == [(number,)]
        mirror.assert_equal("t")
        if shared:
            return
    pytest.fail("capture never put two transactions into one segment")
