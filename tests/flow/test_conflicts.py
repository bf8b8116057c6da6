"""Others write to the same lake while we deliver: what we planned either still holds, or is planned again.

What only other clients of Iceberg do is in test_iceberg.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from tests.interrupted import Act, Interrupted
from tests.mirror import Mirror, open_ducklake, standings_of

from headwater import flow
from headwater.errors import AlreadyDelivered, CommitConflict
from headwater.lake.stream import WAL
from headwater.sink.addresses import group_lake
from headwater.supervise.lakes import source_name


@contextmanager
def interrupted(mirror: Mirror, act: Act) -> Iterator[flow.Mirroring]:
    """The mirror with a sink of its own, to which this happens before every commit."""
    group = mirror.m.state.group("g")
    assert group is not None
    with closing(group_lake(mirror.config, {}, "g").open(source_name(group.source_id, "g"), WAL)) as opened:
        sink: Any = Interrupted(opened, act)
        yield replace(mirror.m, sink=sink)


IN_FILES = pytest.mark.parametrize("orders", ["off"], indirect=True)


@pytest.fixture
def orders(request: pytest.FixtureRequest, mirror: Mirror) -> Mirror:
    """Two tables in STREAMING; `orders` has a file, and rows in the catalog; with IN_FILES, two files."""
    mirror.inline = getattr(request, "param", "on")
    mirror.execute(
        "CREATE TABLE orders (id int PRIMARY KEY, item text)",
        "CREATE TABLE other (id int PRIMARY KEY, item text)",
        "INSERT INTO orders SELECT i, 'copied' FROM generate_series(1, 50) i",
        "INSERT INTO other VALUES (1, 'copied'), (2, 'copied')",
    )
    mirror.start()
    mirror.execute("INSERT INTO orders SELECT i, 'streamed' FROM generate_series(51, 60) i")
    mirror.sync()
    return mirror


def change(mirror: Mirror, turn: int = 0) -> None:
    """Something to deliver that touches both copied and streamed rows of `orders`, other rows every time."""
    mirror.execute(
        f"UPDATE orders SET item = 'changed' WHERE id IN ({1 + turn}, {51 + turn})",
        f"DELETE FROM orders WHERE id IN ({11 + turn}, {56 + turn})",
        f"INSERT INTO orders VALUES ({100 + turn}, 'new')",
        "UPDATE other SET item = 'changed' WHERE id = 1",
    )
    mirror.captured()


@pytest.mark.ducklake_only
def test_what_others_do_elsewhere_in_the_lake_does_not_disturb_a_delivery(orders: Mirror) -> None:
    orders.ask("CREATE TABLE lake.main.users (x int)")

    def act() -> None:
        orders.ask("INSERT INTO lake.main.users VALUES (1)")
        orders.ask("CREATE TABLE lake.main.more AS SELECT 1 AS x")
        orders.ask("INSERT INTO lake.public.orders VALUES (-1, 'a row of their own in our table')")

    change(orders)
    with interrupted(orders, act) as m:
        done = flow.deliver(m)
    assert done.landed.keys() == {row.oid for row in orders.m.state.tables("g")}
    assert orders.ask("SELECT * FROM lake.main.users") == [(1,)]
    orders.ask("DELETE FROM lake.public.orders WHERE id = -1")
    orders.assert_equal("orders", "other")


MEANWHILE = {
    "merge": "CALL ducklake_merge_adjacent_files('lake')",
    "flush": "CALL ducklake_flush_inlined_data('lake')",
    "rewrite": "CALL ducklake_rewrite_data_files('lake', delete_threshold => 0)",
    "update": "UPDATE lake.public.orders SET item = 'user' WHERE id = 4",
    "delete": "DELETE FROM lake.public.orders WHERE id = 40",
}


@IN_FILES
@pytest.mark.ducklake_only
def test_what_moves_the_rows_we_found_is_a_conflict_and_the_next_try_is_right(orders: Mirror) -> None:
    for turn, (what, statement) in enumerate(MEANWHILE.items()):
        change(orders, turn)
        deliver_in_vain(orders, statement)
        assert flow.deliver(orders.m).landed, what
        if what == "delete":  # drift: what a user takes away from a mirror is not brought back
            orders.execute("DELETE FROM orders WHERE id = 40")
        orders.sync()
        orders.assert_equal("orders", "other")


FROM_THE_CATALOG = (  # what happens to rows that the same turn changes
    "UPDATE lake.public.orders SET item = 'user' WHERE id = 51",
    "DELETE FROM lake.public.orders WHERE id = 57",
    "CALL ducklake_flush_inlined_data('lake')",
)


@pytest.mark.ducklake_only
def test_rows_that_leave_the_catalog_meanwhile_are_a_conflict_and_the_next_try_is_right(orders: Mirror) -> None:
    meanwhile: list[Act] = [*(partial(orders.ask, each) for each in FROM_THE_CATALOG), orders.flush]
    for turn, act in enumerate(meanwhile):
        orders.execute(f"UPDATE orders SET item = 'again' WHERE id = {99 + turn}")  # the new one of the turn before
        change(orders, turn)
        with interrupted(orders, act) as m, pytest.raises(CommitConflict):
            flow.deliver(m)
        orders.sync()
        orders.assert_equal("orders", "other")


@pytest.mark.ducklake_only
def test_rows_that_leave_the_catalog_before_they_are_read_are_a_conflict_too(orders: Mirror) -> None:
    change(orders)
    sink: Any = Interrupted(orders.m.sink, searched=lambda _: orders.flush())
    with pytest.raises(CommitConflict, match="moved to a file meanwhile"):
        flow.deliver(replace(orders.m, sink=sink))
    assert {row.state for row in orders.m.state.tables("g")} == {"STREAMING"}
    orders.sync()
    orders.assert_equal("orders", "other")


@IN_FILES
@pytest.mark.ducklake_only
def test_a_truncation_that_cannot_land_leaves_no_files(orders: Mirror) -> None:
    orders.execute("DELETE FROM orders WHERE id IN (1, 51)")
    orders.sync()
    orders.execute("TRUNCATE orders")
    orders.captured()

    def act() -> None:
        orders.ask("INSERT INTO lake.public.orders VALUES (-1, 'theirs')")

    with interrupted(orders, act) as m, pytest.raises(CommitConflict, match="is to be truncated"):
        flow.deliver(m)
    left = orders.files() - orders.known_files()
    assert [path for path in left if path.endswith("-delete.parquet")]
    flow.tidy(orders.m)
    assert orders.files() == orders.known_files()
    orders.sync()
    orders.assert_equal("orders")
    assert orders.files() == orders.known_files()


def deliver_in_vain(orders: Mirror, statement: str) -> None:
    """Deliver while this happens: nothing lands, and of the files only those of others are left."""
    seen, written, theirs, content = orders.files(), set[str](), set[str](), list[tuple[object, ...]]()

    def act() -> None:
        written.update(orders.files() - seen)
        orders.ask(statement)
        theirs.update(orders.files() - written)
        content.extend(orders.ask("SELECT * FROM lake.public.orders ORDER BY ALL"))

    with interrupted(orders, act) as m, pytest.raises(CommitConflict):
        flow.deliver(m)
    assert written
    assert orders.files() == theirs
    assert orders.ask("SELECT * FROM lake.public.orders ORDER BY ALL") == content


@pytest.mark.parametrize("orders", ["off", "on"], indirect=True, ids=["files", "catalog"])
@pytest.mark.parametrize(
    ("statement", "error"),
    [
        ("INSERT INTO orders VALUES (100, 'new')", AlreadyDelivered),
        ("UPDATE orders SET item = 'changed' WHERE id = 1", CommitConflict),  # the row is not where it was, either
    ],
)
def test_a_batch_that_another_process_has_delivered_meanwhile_changes_nothing(
    orders: Mirror, statement: str, error: type[Exception]
) -> None:
    orders.execute(statement)
    orders.captured()
    seen: list[set[str]] = []

    def act() -> None:
        flow.deliver(orders.m)
        seen.append(orders.files())

    with interrupted(orders, act) as m, pytest.raises(error):
        flow.deliver(m)
    assert orders.files() <= seen[0]  # ours are discarded, theirs stay
    assert orders.files() < seen[0] or orders.inline == "on"
    orders.assert_equal("orders", "other")
    assert orders.sync() == []
    orders.assert_equal("orders", "other")


@pytest.mark.ducklake_only
def test_a_truncate_that_meets_rows_of_others_is_planned_again(orders: Mirror) -> None:
    orders.execute("TRUNCATE orders", "INSERT INTO orders VALUES (1, 'after')")
    orders.captured()
    with (
        interrupted(orders, lambda: orders.ask("INSERT INTO lake.public.orders VALUES (-1, 'user')")) as m,
        pytest.raises(CommitConflict, match="truncated"),
    ):
        flow.deliver(m)
    assert flow.deliver(orders.m).landed
    orders.assert_equal("orders", "other")


DRIFT = {  # key → what a user does to it
    -1: "INSERT INTO lake.public.orders VALUES (-1, 'a row of their own')",
    20: "INSERT INTO lake.public.orders VALUES (20, 'there twice')",
    21: "DELETE FROM lake.public.orders WHERE id = 21",
    22: "UPDATE lake.public.orders SET item = 'user' WHERE id = 22",
    23: "UPDATE lake.public.orders SET id = 2023 WHERE id = 23",
}


def test_what_users_do_to_our_table_is_drift_that_verify_tells_and_delivery_survives(orders: Mirror) -> None:
    for statement in DRIFT.values():
        orders.ask(statement)
    change(orders)
    orders.sync()
    orders.assert_equal("other")
    orders.stop_capture()
    ours, other = orders.verify()
    assert (ours.ok, other.ok) == (False, True)
    differing = {int(json.loads(each.key)["id"]) for each in ours.differences}
    assert differing == {*DRIFT, 2023}
    orders.capture()
    # What the source touches again is right again, whatever the lake had there.
    orders.execute(
        "UPDATE orders SET item = 'healed' WHERE id BETWEEN 20 AND 23",
        "INSERT INTO orders VALUES (-1, 'x'), (2023, 'x')",
        "UPDATE orders SET item = 'y' WHERE id IN (-1, 2023)",
    )
    orders.sync()
    orders.execute("UPDATE orders SET item = 'z' WHERE id IN (-1, 2023)")
    orders.sync()
    orders.assert_equal("orders", "other")


@IN_FILES
@pytest.mark.ducklake_only
def test_rows_that_others_put_into_the_catalog_are_replaced_where_they_are(orders: Mirror) -> None:
    orders.ask("CALL lake.set_option('data_inlining_row_limit', 10, schema => 'public', table_name => 'orders')")
    with orders.attached() as newcomer:
        newcomer.execute("INSERT INTO lake.public.orders VALUES (200, 'inlined by a user')")
        newcomer.execute("UPDATE lake.public.orders SET item = 'a new version, inlined' WHERE id = 1")
    standings = standings_of(orders.m)
    table = next(each.table for each in standings.values() if each.table.name == "orders")
    with closing(open_ducklake(orders.config)) as lake:
        (theirs,) = lake.inlined_counts([table.id], lake.snapshot())[table.id]
        assert (theirs.rows, theirs.live) == (2, 2)
        orders.execute("UPDATE orders SET item = 'ours' WHERE id IN (1, 2)")
        orders.sync()
        assert lake.inlined_counts([table.id], lake.snapshot())[table.id][0].live == 1, (
            "one was replaced, the other is left alone"
        )
    assert orders.ask("SELECT id, item FROM lake.public.orders WHERE id IN (1, 2, 200) ORDER BY id") == [
        (1, "ours"),
        (2, "ours"),
        (200, "inlined by a user"),
    ]
    orders.ask("DELETE FROM lake.public.orders WHERE id = 200")
    orders.assert_equal("orders", "other")


def states(mirror: Mirror) -> dict[str, tuple[str, str]]:
    return {row.source.name: (row.state, row.error or "") for row in mirror.m.state.tables("g")}


def test_a_table_dropped_in_the_lake_stops_alone(orders: Mirror) -> None:
    change(orders)
    # Tables of Iceberg land one by one: there the other one lands at once.
    fails = pytest.raises(CommitConflict) if orders.kind == "ducklake" else nullcontext()
    with interrupted(orders, lambda: orders.drop_in_lake("orders")) as m, fails:
        flow.deliver(m)
    if orders.kind == "iceberg":
        with pytest.raises(CommitConflict):  # this sink has not seen yet what that one did
            flow.deliver(orders.m)
    orders.sync()
    orders.assert_equal("other")
    state, error = states(orders)["orders"]
    assert state == "ERRORED"
    assert "public.orders" in error
    assert states(orders)["other"] == ("STREAMING", "")
    orders.execute("INSERT INTO other VALUES (3, 'goes on')", "INSERT INTO orders VALUES (300, 'is not there')")
    orders.sync()
    orders.assert_equal("other")
    orders.stop_capture()
    assert [(each.table, each.ok) for each in orders.verify()] == [("public.orders", False), ("public.other", True)]
    orders.capture()
    orders.drop_in_lake("other")  # the last one: that is reported, too, and nothing loops
    orders.execute("INSERT INTO other VALUES (4, 'is not there')")
    assert orders.sync() == []
    assert {state for state, _ in states(orders).values()} == {"ERRORED"}


ALTERATIONS = {  # column → what a user does to it
    "more": "ADD COLUMN more INTEGER",
    "item": "RENAME COLUMN item TO thing",
    "gone": "DROP COLUMN gone",
    "id": "ALTER id TYPE BIGINT",
}


@pytest.mark.ducklake_only
def test_a_table_altered_in_the_lake_is_brought_back_to_its_sources_shape(mirror: Mirror) -> None:
    names = [f"t_{column}" for column in ALTERATIONS]
    for name in names:
        mirror.execute(
            f"CREATE TABLE {name} (id int PRIMARY KEY, item text, gone int)", f"INSERT INTO {name} VALUES (1)"
        )
    mirror.start()
    for column, alteration in ALTERATIONS.items():
        mirror.ask(f"ALTER TABLE lake.public.t_{column} {alteration}")
    for name in names:
        mirror.execute(f"INSERT INTO {name} VALUES (2, 'new', 2)", f"UPDATE {name} SET gone = 3 WHERE id = 1")
    mirror.sync()
    waiting = {row.source.name: row.resync for row in mirror.m.state.tables("g") if row.resync}
    assert waiting.keys() == {"t_gone", "t_id"}  # what could not be undone is copied again
    assert "another client has dropped a column" in (waiting["t_gone"] or "")
    assert "'id' became integer: int64 cannot be read as int32" in (waiting["t_id"] or "")
    assert flow.copy(mirror.m)
    mirror.sync()
    for name in names:
        assert mirror.ask(f"SELECT id, item, gone FROM lake.public.{name} ORDER BY id") == [(1, None, 3), (2, "new", 2)]
    assert mirror.ask("SELECT more FROM lake.public.t_more") == [(None,), (None,)]  # the other client's column stays


@pytest.mark.ducklake_only
def test_deletes_of_others_in_a_format_we_do_not_read_stop_their_table_alone(orders: Mirror) -> None:
    orders.ask("CALL lake.set_option('write_deletion_vectors', true)")
    orders.ask("DELETE FROM lake.public.orders WHERE id = 21")
    change(orders)
    before = orders.files()
    orders.sync()
    orders.assert_equal("other")
    state, error = states(orders)["orders"]
    assert state == "ERRORED"
    assert "has deletes in the format 'puffin'" in error
    assert not [path for path in orders.files() - before if "/orders/" in path]  # what did not land is deleted


@pytest.mark.ducklake_only
def test_a_copy_that_cannot_land_leaves_no_files_and_the_others_go_on(mirror: Mirror) -> None:
    mirror.execute(
        *(f"CREATE TABLE {name} (id int PRIMARY KEY)" for name in ("good", "viewed", "late")),
        "CREATE TABLE bad (id numeric PRIMARY KEY) PARTITION BY RANGE (id)",  # each partition is copied by itself
        "CREATE TABLE bad_1 PARTITION OF bad FOR VALUES FROM (0) TO (10)",
        "CREATE TABLE bad_2 PARTITION OF bad DEFAULT",
        "INSERT INTO bad VALUES (1), ('NaN')",  # which is no key that the lake can hold
        *(f"INSERT INTO {name} VALUES (1)" for name in ("good", "viewed", "late")),
    )
    mirror.start(*(f"public.{name}" for name in ("good", "viewed", "late", "bad")), copy=False)
    mirror.ask("CREATE SCHEMA lake.public")
    mirror.ask("CREATE VIEW lake.public.viewed AS SELECT 1")
    with interrupted(mirror, lambda: mirror.ask("CREATE VIEW lake.public.late AS SELECT 1")) as m:
        assert flow.copy(m) == {}  # planned again, and no table has an error
    assert mirror.files() == set()
    assert {name: state for name, (state, _) in states(mirror).items()} == {
        "good": "SNAPSHOT", "late": "SNAPSHOT", "viewed": "ERRORED", "bad": "ERRORED",
    }  # fmt: skip
    assert "the key of public.bad holds 'NaN'" in states(mirror)["bad"][1]
    assert len(flow.copy(mirror.m)) == 1
    mirror.assert_equal("good")
    assert all("another table or view" in states(mirror)[name][1] for name in ("viewed", "late"))
