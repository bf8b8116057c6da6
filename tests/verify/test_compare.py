"""Verify says OK exactly when source and lake are the same, and names the rows where they are not."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest
from tests.mirror import Mirror

from headwater import flow
from headwater.change import TableName
from headwater.errors import Unreachable
from headwater.state.transitions import Paused, Removed, Resumed
from headwater.verify import Verified, verify

# Type → a value in the source, and another one that a user puts into the lake (DuckDB's literal).
VALUES = {
    "smallint": ("1", "2"),
    "integer": ("2147483647", "2147483646"),
    "bigint": ("9223372036854775807", "9223372036854775806"),
    "boolean": ("true", "false"),
    "real": ("0.1", "0.10000001"),
    "double precision": ("0.1", "0.10000000000000002"),
    "numeric(10,2)": ("1.10", "1.11"),
    "numeric(38,10)": ("1234567890123456789012345678.0123456789", "1234567890123456789012345678.0123456788"),
    "text": ("a", "A"),
    "varchar(10)": ("a ", "a"),
    "char(5)": ("a", "a"),  # without its padding
    "date": ("2026-01-01", "2026-01-02"),
    "time": ("12:00:00.000001", "12:00:00"),
    "timestamp": ("2026-01-01 00:00:00.000001", "2026-01-01 00:00:00"),
    "timestamptz": ("2026-01-01 00:00:00+00", "2026-01-01 00:00:00+01"),
    "uuid": ("00000000-0000-0000-0000-000000000001", "00000000-0000-0000-0000-000000000002"),
    "bytea": (r"\x00", r"\x01"),
    "json": ('{"a": 1}', '{"a":1}'),
    "jsonb": ('{"a": 1}', '{"a": 2}'),
    "inet": ("10.0.0.1", "10.0.0.2"),
    "interval": ("1 day", "24:00:00"),
    "int[]": ("{1,2}", "[2, 1]"),
    "numeric": ("1.0", "1.000000000000000001"),
    'text collate "C"': ("", " "),
}
PART = 8  # a verdict shows ten keys
PARTS = [list(VALUES.items())[first : first + PART] for first in range(0, len(VALUES), PART)]


def key_of(verdict: Verified) -> list[int]:
    return sorted(int(json.loads(each.key)["id"]) for each in verdict.differences)


def test_a_changed_value_of_every_type_is_found_and_shown(mirror: Mirror) -> None:
    for number, part in enumerate(PARTS):
        columns = ", ".join(f"c{index} {kind}" for index, (kind, _) in enumerate(part))
        mirror.execute(f"CREATE TABLE t{number} (id int PRIMARY KEY, {columns})")
        values = ", ".join(f"'{value}'" for _, (value, _) in part)
        mirror.execute(
            f"INSERT INTO t{number} SELECT i, {values} FROM generate_series(0, {2 * PART}) i",
            f"INSERT INTO t{number} VALUES (100)",  # nothing but NULLs
        )
    mirror.start()
    mirror.sync()
    mirror.stop_capture()
    assert [(each.table, each.ok, each.differences) for each in mirror.verify()] == [
        (f"public.t{number}", True, ()) for number in range(len(PARTS))
    ]

    for number, part in enumerate(PARTS):
        for index, (_, (_, other)) in enumerate(part):
            mirror.ask(f"UPDATE lake.public.t{number} SET c{index} = '{other}' WHERE id = {index}")
    found = mirror.verify()
    for each, part in zip(found, PARTS, strict=True):
        assert not each.ok
        assert [part[id][0] for id in key_of(each)] == [kind for kind, _ in part]
        for difference in each.differences:
            assert difference.source is not None
            assert difference.lake is not None
            id = int(json.loads(difference.key)["id"])
            one, two = json.loads(difference.source), json.loads(difference.lake)
            if part[id][0] != "char(5)":
                assert one[f"c{id}"] != two[f"c{id}"]

    for number, part in enumerate(PARTS):  # NULL for a value, a value for NULL
        mirror.ask(f"UPDATE lake.public.t{number} SET c0 = NULL WHERE id = {PART}")
        mirror.ask(f"UPDATE lake.public.t{number} SET c0 = '{part[0][1][0]}' WHERE id = 100")
    assert [key_of(each)[-2:] for each in mirror.verify()] == [[PART, 100]] * len(PARTS)


def test_missing_extra_and_doubled_rows_are_reported_apart(mirror: Mirror) -> None:
    mirror.execute(
        "CREATE TABLE t (id int PRIMARY KEY, v text)", "INSERT INTO t SELECT i, 'v' FROM generate_series(1, 100) i"
    )
    mirror.start()
    mirror.sync()
    mirror.stop_capture()
    mirror.ask("DELETE FROM lake.public.t WHERE id = 5")
    mirror.ask("INSERT INTO lake.public.t VALUES (200, 'extra'), (7, 'v'), (8, 'v'), (8, 'v')")
    (found,) = mirror.verify()
    assert (found.ok, found.source_rows, found.lake_rows) == (False, 100, 103)
    shown = {int(json.loads(each.key)["id"]): each for each in found.differences}
    assert shown.keys() == {5, 7, 8, 200}
    assert (shown[5].lake, shown[200].source) == (None, None)
    assert shown[5].source is not None
    assert json.loads(shown[5].source) == {"id": "5", "v": "v"}
    assert shown[200].lake is not None
    assert json.loads(shown[200].lake)["v"] == "extra"
    # The same number of rows, and of the two that differ each is equal to one of the other side
    mirror.ask("DELETE FROM lake.public.t WHERE id IN (200, 8)")
    mirror.ask("INSERT INTO lake.public.t VALUES (8, 'v')")
    (found,) = mirror.verify()
    assert (found.source_rows, found.lake_rows) == (100, 100)
    assert key_of(found) == [5, 7]


def test_equal_content_is_ok_whatever_it_looks_like(mirror: Mirror) -> None:
    mirror.execute(
        "CREATE TABLE empty (id int PRIMARY KEY, v text)",
        'CREATE TABLE "Mixed Case" ("Id" int, "a""b" text, "SELECT" int, PRIMARY KEY ("a""b", "Id"))',
        "CREATE TABLE emptied (id int PRIMARY KEY)",
        "CREATE TABLE nulls (id int PRIMARY KEY, a text, b numeric(5,2), c timestamptz, d bytea, e jsonb)",
        "INSERT INTO \"Mixed Case\" SELECT i, 'k' || i % 3, NULL FROM generate_series(1, 30) i",
        "INSERT INTO emptied SELECT generate_series(1, 30)",
        "INSERT INTO nulls SELECT generate_series(1, 30)",
        "INSERT INTO nulls VALUES (100, '', 0, 'epoch', '', 'null')",
    )
    mirror.start()
    mirror.execute("DELETE FROM emptied", 'UPDATE "Mixed Case" SET "SELECT" = 1 WHERE "Id" = 1')
    mirror.sync()
    mirror.stop_capture()
    found = mirror.verify()
    assert [(each.table, each.ok, each.source_rows, each.lake_rows) for each in found] == [
        ('public."Mixed Case"', True, 30, 30),
        ("public.emptied", True, 0, 0),
        ("public.empty", True, 0, 0),
        ("public.nulls", True, 31, 31),
    ]
    assert [each.table for each in mirror.verify(["public.empty"])] == ["public.empty"]
    mirror.ask("INSERT INTO lake.public.empty VALUES (1, NULL)")
    mirror.ask('UPDATE lake.public."Mixed Case" SET "SELECT" = 2 WHERE "Id" = 1')
    mixed, _, empty, _ = mirror.verify()
    assert (empty.ok, empty.source_rows, empty.lake_rows) == (False, 0, 1)
    ((difference,), ok) = mixed.differences, mixed.ok
    assert not ok
    assert json.loads(difference.key) == {"Id": "1", 'a"b': "k1"}


ODD_KEYS = {
    "bytea": [r"\x41", r"\x00"],
    "double precision": ["1e30", "0.1"],
    "date": ["0044-03-15 BC", "2026-01-01"],
    "timestamp": ["0044-03-15 00:00:00 BC", "2026-01-01 00:00:00"],
    "char(5)": ["a", "b"],
    "inet": ["10.0.0.1", "10.0.0.0/8"],
}


def test_a_key_that_the_two_print_differently_is_still_one_key(mirror: Mirror) -> None:
    names = [f"t{number}" for number in range(len(ODD_KEYS))]
    for name, (kind, keys) in zip(names, ODD_KEYS.items(), strict=True):
        mirror.execute(f"CREATE TABLE {name} (id {kind} PRIMARY KEY, v text)")
        for key in keys:
            mirror.execute(f"INSERT INTO {name} VALUES ('{key}', 'v')")
    mirror.start()
    mirror.sync()
    mirror.stop_capture()
    for name in names:
        mirror.ask(f"UPDATE lake.public.{name} SET v = 'other'")
    for each in mirror.verify():
        assert len(each.differences) == 2, each
        for difference in each.differences:
            assert difference.source is not None, each
            assert difference.lake is not None, each


@contextmanager
def delivering(mirror: Mirror) -> Iterator[None]:
    """Delivery goes on in the background, under the locks that `headwater run` and its delivery hold."""
    stop, trouble = threading.Event(), list[BaseException]()

    def run() -> None:
        try:
            while not stop.is_set():
                flow.deliver(mirror.m)
        except BaseException as error:
            trouble.append(error)

    thread = threading.Thread(target=run)
    with mirror.m.state.lock("run:g"), mirror.m.state.lock("deliver:g"):
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()
    assert trouble == []


def test_the_two_sides_are_compared_at_one_position_while_writes_go_on(mirror: Mirror) -> None:
    mirror.execute(
        "CREATE TABLE t (id int PRIMARY KEY, v int)", "INSERT INTO t SELECT i, 0 FROM generate_series(1, 500) i"
    )
    mirror.start()
    stop = threading.Event()

    def write() -> None:
        with psycopg.connect(mirror.url, autocommit=True) as connection:
            number = 1000
            while not stop.is_set():
                number += 1
                connection.execute("UPDATE t SET v = v + 1 WHERE id %% 50 = %s", (number % 50,))
                connection.execute("INSERT INTO t VALUES (%s, 0)", (number,))
                connection.execute("DELETE FROM t WHERE id = %s", (number - 20,))

    writer = threading.Thread(target=write)
    writer.start()
    try:
        with delivering(mirror):
            first, second = mirror.verify(), mirror.verify()
    finally:
        stop.set()
        writer.join()
    assert [each.ok for each in (*first, *second)] == [True, True], (first, second)
    assert first[0].position != second[0].position
    numbers = [each.snapshot_id for each in (*first, *second)]
    assert numbers == [None, None] if mirror.kind == "iceberg" else (numbers[0] or 0) < (numbers[1] or 0)


def test_a_lake_that_no_process_brings_up_to_date_is_not_compared(mirror: Mirror) -> None:
    mirror.execute("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    mirror.start()
    mirror.sync()
    mirror.execute("INSERT INTO t VALUES (2)")
    mirror.captured()
    with pytest.raises(Unreachable, match="the source is ahead, and nothing delivers"):  # it is staged
        mirror.verify()
    mirror.sync()
    mirror.stop_capture()
    assert mirror.verify()[0].ok
    mirror.execute("INSERT INTO t VALUES (3)")
    with pytest.raises(Unreachable, match="the source is ahead, and nothing delivers"):  # it is still in the slot
        mirror.verify()


def test_a_lake_that_is_up_to_date_is_compared_while_only_capture_runs(mirror: Mirror) -> None:
    mirror.execute("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    mirror.start()
    mirror.sync()
    assert mirror.verify()[0].ok


@pytest.mark.ducklake_only  # has tables that others partition later
def test_a_table_that_cannot_go_on_does_not_keep_the_others_from_being_compared(mirror: Mirror) -> None:
    mirror.execute("CREATE TABLE bad (id int PRIMARY KEY)", "CREATE TABLE good (id int PRIMARY KEY)")
    mirror.start()
    mirror.ask("ALTER TABLE lake.public.bad ADD COLUMN f DOUBLE")
    mirror.ask("ALTER TABLE lake.public.bad SET PARTITIONED BY (f)")  # which we cannot compute
    mirror.execute("INSERT INTO bad VALUES (1)", "INSERT INTO good VALUES (1)")
    mirror.sync()
    mirror.stop_capture()
    bad, good = mirror.verify()
    assert (bad.verdict, bad.ok, good.verdict) == ("not compared", False, "equal")
    assert bad.reason.startswith("it is ERRORED: another client has partitioned")


def test_a_table_that_is_not_mirrored_any_more_is_left_out_and_one_that_is_not_copied_yet_fails(mirror: Mirror) -> None:
    mirror.execute(*(f"CREATE TABLE {name} (id int PRIMARY KEY)" for name in ("kept", "later", "left_out", "paused")))
    mirror.start()
    states = {row.source.name: row.oid for row in mirror.m.state.tables("g")}
    mirror.m.state.record("g", states["paused"], Removed("it was taken out of the config"))
    for event in (Removed("for a while"), Resumed()):
        mirror.m.state.record("g", states["later"], event)
    mirror.execute("INSERT INTO left_out VALUES (1)", "INSERT INTO kept VALUES (1)")
    mirror.sync()
    mirror.ask("DELETE FROM lake.public.left_out")
    verdicts = verify(mirror.m, (), 30, left=[TableName("public", "left_out")])
    found = {each.table.removeprefix("public."): each for each in verdicts}
    assert {name: (each.verdict, each.ok, each.reason) for name, each in found.items()} == {
        "kept": ("equal", True, ""),
        "later": ("not compared", False, "it has not been copied yet"),
        "left_out": ("not compared", True, "it is no longer in the config"),
        "paused": ("not compared", True, "it is REMOVED: it was taken out of the config"),
    }


@pytest.mark.parametrize("change", [Paused("for a test"), Removed("for a test")], ids=["paused", "removed"])
def test_a_group_without_a_table_to_compare_is_not_waited_for(mirror: Mirror, change: Paused | Removed) -> None:
    mirror.execute("CREATE TABLE t (id int PRIMARY KEY)")
    mirror.start("public.t")
    (row,) = mirror.m.state.tables("g")
    mirror.m.state.record("g", row.oid, change)
    with mirror.m.state.lock("run:g"):  # as a service has that will never deliver anything of it
        (found,) = verify(mirror.m, [], 1.0)
        assert (found.verdict, found.ok) == ("not compared", True)
        assert verify(mirror.m, [TableName("public", "another")], 1.0) == []
