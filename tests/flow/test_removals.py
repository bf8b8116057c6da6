"""Partitions that are detached, dropped or truncated: their rows go from the mirror without a copy of the table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from tests.interrupted import Interrupted
from tests.logroutes import LogRoute
from tests.mirror import Mirror

from headwater import flow
from headwater.change import Lsn
from headwater.flow import logsource
from headwater.state.transitions import Paused, Resumed

DAYS = (
    "CREATE TABLE p (id int, day date, v text, PRIMARY KEY (id, day)) PARTITION BY RANGE (day)",
    "CREATE TABLE p1 PARTITION OF p FOR VALUES FROM ('2026-01-01') TO ('2026-02-01')",
    "CREATE TABLE p2 PARTITION OF p FOR VALUES FROM ('2026-02-01') TO ('2026-03-01')",
    "CREATE TABLE p3 PARTITION OF p FOR VALUES FROM ('2026-03-01') TO ('2026-04-01') PARTITION BY LIST (id)",
    "CREATE TABLE p3a PARTITION OF p3 FOR VALUES IN (1, 2, 3)",
    "CREATE TABLE p3b PARTITION OF p3 DEFAULT",
)
ROWS = "INSERT INTO p SELECT i, date '2026-01-15' + 30 * (i % 3), 'v' || i FROM generate_series(1, 12) i"
AGAIN = "CREATE TABLE p1b PARTITION OF p FOR VALUES FROM ('2026-01-01') TO ('2026-02-01')"
THERE = "INSERT INTO p VALUES (3, '2026-01-15', 'new'), (77, '2026-01-20', 'new')"


def after(mirror: Mirror, *statements: str) -> bool:
    """Do this, and deliver what comes of it; whether the table was copied again."""
    mirror.looked()
    mirror.execute(*statements)
    mirror.looked()
    copied = mirror.settle()
    mirror.assert_equal("p")
    assert [each.verdict for each in mirror.verify()] == ["equal"]
    assert mirror.m.state.removals("g") == []
    return copied


def started(mirror: Mirror, *statements: str, **options: Any) -> None:
    mirror.execute(*statements)
    mirror.start({"table": "public.p", **options})


REMOVED = {
    "detached": ["ALTER TABLE p DETACH PARTITION p1"],
    "dropped": ["DROP TABLE p1"],
    "truncated": ["TRUNCATE p1"],
    "partitioned itself": ["ALTER TABLE p DETACH PARTITION p3"],
    "below another one": ["TRUNCATE p3a"],
    "two at once": ["TRUNCATE p1", "DROP TABLE p2"],
    "with rows of other times": [
        "UPDATE p SET day = '2026-02-02' WHERE day < '2026-01-20' AND id < 8",
        "UPDATE p SET day = '2026-01-02' WHERE id = 1",
        "DROP TABLE p1",
        "UPDATE p SET v = 'later' WHERE day < '2026-03-01'",
    ],
    "made anew without rows": ["DROP TABLE p1", AGAIN],
}
COPIED = {
    "made anew with rows": ["ALTER TABLE p DETACH PARTITION p1", AGAIN, THERE],
    "filled again": ["TRUNCATE p1", THERE],
    "the default one": ["TRUNCATE p3b"],
    "one comes with rows": ["ALTER TABLE p DETACH PARTITION p1", "ALTER TABLE p ATTACH PARTITION p1 DEFAULT"],
}


def first_of(cases: Mapping[str, object], few: int = 1) -> list[Any]:
    """The others take as long."""
    return [pytest.param(each, marks=() if at < few else pytest.mark.long) for at, each in enumerate(cases)]


@pytest.mark.parametrize("case", first_of(REMOVED, 3))
def test_the_rows_of_a_partition_go_without_a_copy(mirror: Mirror, case: str) -> None:
    started(mirror, *DAYS, ROWS)
    mirror.execute("INSERT INTO p VALUES (100, '2026-01-07', 'in the catalog'), (101, '2026-02-07', 'x')")
    assert not after(mirror, *REMOVED[case])


@pytest.mark.parametrize("case", first_of(COPIED))
def test_a_partition_whose_bounds_do_not_tell_its_rows_has_the_table_copied_again(mirror: Mirror, case: str) -> None:
    started(mirror, *DAYS, ROWS)
    assert after(mirror, *COPIED[case])


KEYS = {
    "bigint": ("bigint", "FROM (MINVALUE) TO (10)", "FROM (10) TO (20)", ("-5", "15")),
    "timestamptz": (
        "timestamptz",
        "FROM ('2026-01-01 00:00+02') TO ('2026-02-01 00:00+02')",
        "FROM ('2026-02-01 00:00+02') TO ('2026-03-01 00:00+02')",
        ("'2026-01-31 21:59:59.999999+00'", "'2026-01-31 22:00+00'"),
    ),
    "timestamp": (
        "timestamp",
        "FROM ('2026-01-01') TO ('2026-02-01')",
        "FROM ('2026-02-01') TO ('2026-03-01')",
        ("'2026-01-31 23:59:59.999999'", "'2026-02-01'"),
    ),
    "text": ("text", "IN ('it''s, ok', '')", "IN ('b')", ("'it''s, ok'", "'b'")),
}


@pytest.mark.parametrize("kind", first_of(KEYS))
def test_the_bounds_are_those_of_postgresql(mirror: Mirror, kind: str) -> None:
    type_, first, second, (inside, outside) = KEYS[kind]
    how = "LIST" if kind == "text" else "RANGE"
    started(
        mirror,
        f"CREATE TABLE p (id int, k {type_}, PRIMARY KEY (id, k)) PARTITION BY {how} (k)",
        f"CREATE TABLE p1 PARTITION OF p FOR VALUES {first}",
        f"CREATE TABLE p2 PARTITION OF p FOR VALUES {second}",
        f"INSERT INTO p VALUES (1, {inside}), (2, {outside})",
    )
    assert not after(mirror, "DROP TABLE p1", "UPDATE p SET id = 3")
    assert mirror.ask("SELECT id FROM lake.public.p") == [(3,)]


UNLIKE: dict[str, tuple[str, str, dict[str, Any]]] = {
    "a hash": ("HASH (id)", "WITH (MODULUS 1, REMAINDER 0)", {}),
    "an expression": ("RANGE ((id + 0))", "FROM (0) TO (10)", {}),
    "two columns": ("RANGE (id, n)", "FROM (0, 0) TO (10, 0)", {}),
    "a number that is none in the lake": ("RANGE (n)", "FROM (0) TO (10)", {}),
    "another type in the lake": ("RANGE (id)", "FROM (0) TO (10)", {"types": {"id": "varchar"}}),
    "a column that is not mirrored": ("RANGE (id)", "FROM (0) TO (10)", {"exclude": ["id"]}),
    "a history": ("RANGE (id)", "FROM (0) TO (10)", {"mode": "history"}),
}


@pytest.mark.parametrize("case", first_of(UNLIKE))
def test_bounds_that_the_lake_may_compare_otherwise_have_the_table_copied_again(mirror: Mirror, case: str) -> None:
    by, bounds, options = UNLIKE[case]
    started(
        mirror,
        f"CREATE TABLE p (id int NOT NULL, n numeric NOT NULL, k int NOT NULL) PARTITION BY {by}",
        f"CREATE TABLE p1 PARTITION OF p FOR VALUES {bounds}",
        "ALTER TABLE p REPLICA IDENTITY FULL",
        "ALTER TABLE p1 REPLICA IDENTITY FULL",
        "INSERT INTO p VALUES (1, 1, 1)",
        **options,
    )
    mirror.looked()
    mirror.execute("TRUNCATE p1")
    mirror.looked()
    assert mirror.settle()
    assert mirror.ask("SELECT count(*) FROM lake.public.p") == [(0,)]


def test_rows_of_a_table_without_a_key_go_with_their_doubles(mirror: Mirror) -> None:
    started(
        mirror,
        "CREATE TABLE p (n int, v text) PARTITION BY RANGE (n)",
        "CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10)",
        "CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (10) TO (20)",
        *(f"ALTER TABLE {table} REPLICA IDENTITY FULL" for table in ("p", "p1", "p2")),
        "INSERT INTO p VALUES (1, 'twice'), (1, 'twice'), (11, 'twice'), (11, 'twice')",
    )
    assert not after(mirror, "TRUNCATE p1")
    assert mirror.ask("SELECT n FROM lake.public.p") == [(11,), (11,)]


def test_values_in_quarantine_have_the_table_copied_again(mirror: Mirror) -> None:
    started(
        mirror,
        "CREATE TABLE p (id int PRIMARY KEY, n numeric) PARTITION BY RANGE (id)",
        "CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10)",
        "INSERT INTO p VALUES (1, 'NaN'), (2, 3)",
    )
    mirror.looked()
    mirror.execute("TRUNCATE p1")
    mirror.looked()
    assert mirror.settle()
    mirror.assert_equal("p")


def test_a_removal_searches_only_files_within_the_bounds_and_whole_files_go(mirror: Mirror) -> None:
    started(mirror, *DAYS)
    for month in (1, 2, 3):  # a file each
        mirror.execute(
            f"INSERT INTO p SELECT i, '2026-0{month}-05', repeat('long ', 20) FROM generate_series(1, 2000) i"
        )
        mirror.sync()
    mirror.looked()
    searched: list[int] = []
    sink: Any = Interrupted(mirror.m.sink, searched=searched.append)
    files = mirror.files()
    mirror.execute("DROP TABLE p1")
    mirror.looked()
    mirror.m = replace(mirror.m, sink=sink)
    mirror.sync()
    assert flow.place_removals(mirror.m)
    done = mirror.sync()
    assert searched == [1]
    assert mirror.files() == files  # neither a data file nor one of deletes was written
    mirror.assert_equal("p")
    (row,) = mirror.m.state.tables("g")
    assert (row.state, row.deleted) == ("STREAMING", 2000)
    assert done[-1].snapshot_id


@pytest.mark.ducklake_only
def test_readers_of_the_changes_see_the_rows_go(mirror: Mirror) -> None:
    started(mirror, *DAYS, ROWS)
    assert not after(mirror, "TRUNCATE p2")
    ((last,),) = mirror.ask("SELECT max(snapshot_id) FROM lake.snapshots()")
    changes = f"ducklake_table_changes('lake', 'public', 'p', 0, {last})"
    gone = mirror.ask(f"SELECT id FROM {changes} WHERE change_type = 'delete' ORDER BY id")
    assert gone == [(1,), (4,), (7,), (10,)]


class Broken(Exception):
    pass


def fail() -> None:
    raise Broken


def broken(mirror: Mirror, act: Callable[[], None]) -> None:
    """The next commit is one of a removal, and fails."""
    mirror.looked()
    mirror.execute("DROP TABLE p1")
    mirror.looked()
    mirror.sync()
    assert flow.place_removals(mirror.m)
    mirror.captured()
    sink = mirror.m.sink
    broken_sink: Any = Interrupted(sink, act)
    mirror.m = replace(mirror.m, sink=broken_sink)
    with pytest.raises(Broken):
        mirror.sync()
    mirror.m = replace(mirror.m, sink=sink)


def test_a_removal_that_is_broken_off_is_done_later(mirror: Mirror) -> None:
    started(mirror, *DAYS, ROWS)
    broken(mirror, fail)
    mirror.reopen()
    assert not mirror.settle()
    mirror.assert_equal("p")


def test_a_removal_that_has_landed_unnoticed_removes_nothing_more(mirror: Mirror) -> None:
    started(mirror, *DAYS, ROWS)
    mirror.looked()
    mirror.execute("DROP TABLE p1")
    mirror.looked()
    (removal,) = mirror.m.state.removals("g")
    assert not mirror.settle()
    (row,) = mirror.m.state.tables("g")
    mirror.m.state.request_removal("g", row.oid, removal.reason, removal.conditions)
    mirror.reopen()
    assert not mirror.settle()
    mirror.assert_equal("p")
    (after_it,) = mirror.m.state.tables("g")
    assert after_it.deleted == row.deleted == 4


def test_a_removal_that_the_lake_has_passed_is_placed_anew(mirror: Mirror) -> None:
    started(mirror, *DAYS, ROWS)
    mirror.looked()
    mirror.execute("DROP TABLE p1", "INSERT INTO p VALUES (50, '2026-02-03', 'x')")
    mirror.looked()
    mirror.sync()
    (row,) = mirror.m.state.tables("g")
    assert row.position is not None
    mirror.m.state.place_removals(mirror.m.state.removals("g"), row.position)
    mirror.sync()
    (waiting,) = mirror.m.state.removals("g")
    assert waiting.lsn is None
    assert not mirror.settle()
    mirror.assert_equal("p")


def test_a_table_that_fails_keeps_its_removal_until_it_goes_on(mirror: Mirror) -> None:
    started(mirror, *DAYS, ROWS)
    mirror.looked()
    mirror.execute("DROP TABLE p1")
    mirror.looked()
    (row,) = mirror.m.state.tables("g")
    flow.mirroring.fail(mirror.m, row, "a test wants it")
    mirror.settle()
    assert len(mirror.m.state.removals("g")) == 1
    flow.mirroring.try_again(mirror.m.state, "g")
    assert not mirror.settle()
    mirror.settle()
    mirror.assert_equal("p")
    assert mirror.m.state.removals("g") == []


def test_large_values_that_later_updates_leave_alone_stay(mirror: Mirror) -> None:
    big = "(SELECT string_agg(md5(i::text), '') FROM generate_series(1, 4000) i)"
    started(
        mirror, *DAYS, f"INSERT INTO p SELECT i, date '2026-01-15' + 30 * (i % 2), {big} FROM generate_series(1, 4) i"
    )
    assert not after(mirror, "DROP TABLE p1", "UPDATE p SET id = id + 100")


def test_the_tenants_of_a_route_from_the_group_lose_the_rows_too(
    mirror: Mirror, caplog: pytest.LogCaptureFixture
) -> None:
    mirror.execute(
        "CREATE TABLE orders (id int, tenant text, note text, PRIMARY KEY (id)) PARTITION BY RANGE (id)",
        "CREATE TABLE orders1 PARTITION OF orders FOR VALUES FROM (0) TO (10)",
        "CREATE TABLE orders2 PARTITION OF orders FOR VALUES FROM (10) TO (20)",
        *(f"ALTER TABLE {table} REPLICA IDENTITY FULL" for table in ("orders", "orders1", "orders2")),
        "INSERT INTO orders SELECT i, chr(97 + i % 3), 'note ' || i FROM generate_series(1, 19) i",
    )
    mirror.start("public.orders")
    mirror.sync()
    route = LogRoute(mirror, "orders")
    route.settle()
    mirror.looked()
    mirror.execute("DROP TABLE orders1")
    mirror.looked()
    assert not mirror.settle()
    route.settle()
    assert logsource.REMOVED in caplog.text
    route.assert_equal()
    caplog.clear()
    mirror.execute("UPDATE orders SET note = 'later' WHERE id = 12")
    mirror.sync()
    route.settle()
    assert logsource.REMOVED not in caplog.text
    route.assert_equal()


def wait_for_it(mirror: Mirror, how: str) -> None:
    (row,) = mirror.m.state.tables("g")
    if how == "paused":
        mirror.m.state.record("g", row.oid, Paused("it was asked for"))
    else:
        flow.mirroring.fail(mirror.m, row, "a test wants it")


@pytest.mark.parametrize("how", ["paused", "errored"])
def test_a_table_that_waits_loses_the_rows_once_it_goes_on_without_a_copy(mirror: Mirror, how: str) -> None:
    started(mirror, *DAYS, ROWS)
    mirror.looked()
    wait_for_it(mirror, how)
    mirror.execute("INSERT INTO p VALUES (50, '2026-01-03', 'goes, too'), (51, '2026-02-03', 'stays')", "DROP TABLE p1")
    mirror.looked()
    assert not mirror.settle()
    (row,) = mirror.m.state.tables("g")
    mirror.m.state.record("g", row.oid, Resumed())
    assert not mirror.settle()
    mirror.settle()
    mirror.assert_equal("p")
    assert mirror.m.state.removals("g") == []


def test_a_removal_does_not_say_that_a_table_that_is_behind_is_there_too(mirror: Mirror) -> None:
    mirror.execute("CREATE TABLE q (id int PRIMARY KEY)")
    mirror.execute(*DAYS, ROWS)
    mirror.start("public.p", "public.q")
    mirror.sync()
    q = next(row.oid for row in mirror.m.state.tables("g") if row.source.name == "q")
    mirror.m.state.record("g", q, Paused("a test wants it"))
    mirror.execute("INSERT INTO q VALUES (1)", "INSERT INTO p VALUES (90, '2026-02-03', 'the others go on')")
    mirror.sync()
    mirror.looked()
    mirror.execute("DROP TABLE p1")
    mirror.looked()
    assert flow.place_removals(mirror.m)
    mirror.m.state.record("g", q, Resumed())
    mirror.captured()
    mirror.execute("DELETE FROM headwater.fences")  # those of the looks, at which deliveries would stop
    before = delivered(mirror)
    flow.deliver(mirror.m, leave_behind=True)
    assert mirror.m.state.removals("g") == []
    assert delivered(mirror) == before < max(each.position for each in mirror.m.sink.standings().values())


def delivered(mirror: Mirror) -> Lsn:
    """How far the group as a whole is said to be."""
    group = mirror.m.state.group("g")
    assert group is not None
    assert group.delivered_lsn is not None
    return group.delivered_lsn
