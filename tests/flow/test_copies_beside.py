"""Tables are copied while the others of their group are delivered: nothing is lost, and no table waits."""

from __future__ import annotations

import shutil
import threading

import pytest
from tests.brokenoff import beside
from tests.captured_group import until
from tests.mirror import Mirror

from headwater import flow
from headwater.change import Lsn
from headwater.config.groups import Copy
from headwater.flow.gaps import LOST, mend
from headwater.state import TableRow
from headwater.supervise.copying import Copying
from headwater.supervise.precedence import Precedence


@pytest.fixture
def orders(mirror: Mirror) -> Mirror:
    """`orders` is mirrored, `items` waits for its first copy."""
    mirror.execute(
        *(f"CREATE TABLE {name} (id int PRIMARY KEY, item text)" for name in ("orders", "items")),
        *(f"INSERT INTO {name} SELECT i, 'copied' FROM generate_series(1, 50) i" for name in ("orders", "items")),
    )
    mirror.start("public.orders")
    mirror.sync()
    mirror.reopen("public.orders", "public.items")
    return mirror


def row_of(mirror: Mirror, name: str) -> TableRow:
    return next(row for row in mirror.m.state.tables("g") if row.source.name == name)


def change(mirror: Mirror, name: str, first: int) -> None:
    mirror.execute(
        f"UPDATE {name} SET item = 'changed' WHERE id = {first}",
        f"DELETE FROM {name} WHERE id = {first + 1}",
        f"INSERT INTO {name} VALUES ({first + 100}, 'new')",
        f"UPDATE {name} SET id = {first + 200} WHERE id = {first + 2}",
    )


def test_others_are_delivered_and_tidied_up_after_while_a_table_is_copied(orders: Mirror) -> None:
    delivered = []

    def act() -> None:
        for first in (1, 11):
            change(orders, "orders", first)
            change(orders, "items", first)
            delivered.extend(orders.sync())
            flow.tidy(orders.m)
        orders.assert_equal("orders")

    with beside(orders, act) as m:
        assert len(flow.copy(m)) == 1
    assert len(delivered) >= 2
    row, lead = row_of(orders, "items"), row_of(orders, "orders").position
    assert row.state == "CATCHUP"
    assert row.position is not None
    assert lead is not None
    assert row.position < lead
    change(orders, "items", 21)
    orders.m.sink.look_again()
    orders.sync()
    orders.assert_equal("orders", "items")
    assert row_of(orders, "items").state == "STREAMING"
    assert [each.ok for each in orders.verify()] == [True, True]


def test_a_table_that_is_copied_again_is_not_delivered_meanwhile(orders: Mirror) -> None:
    """Or the copy would meet a newer mirror, and be for nothing."""
    assert flow.copy(orders.m)
    orders.sync()
    orders.m.state.request_resync("g", row_of(orders, "items").oid, "a test asks for it")

    def act() -> None:
        for name in ("orders", "items"):
            change(orders, name, 1)
        assert [len(each.landed) for each in orders.sync() if each.landed] == [1]
        assert orders.ask("SELECT count(*) FROM lake.public.items WHERE item = 'copied'") == [(50,)]  # until it lands

    with beside(orders, act) as m:
        assert len(flow.copy(m)) == 1
    orders.m.sink.look_again()
    orders.sync()
    orders.assert_equal("orders", "items")


def test_others_need_not_wait_until_a_table_has_caught_up(orders: Mirror) -> None:
    def act() -> None:
        change(orders, "orders", 1)
        change(orders, "items", 1)
        orders.sync()

    with beside(orders, act) as m:
        flow.copy(m)
    behind = row_of(orders, "items").position
    change(orders, "orders", 11)
    change(orders, "items", 11)
    orders.captured()
    orders.m.sink.look_again()
    waiting = orders.m.state.add_fence("g", orders.m.log.end(), 60)
    done = flow.deliver(orders.m, leave_behind=True)
    assert done.upto.keys() == {row_of(orders, "orders").oid}
    orders.assert_equal("orders")
    assert (row_of(orders, "items").state, row_of(orders, "items").position) == ("CATCHUP", behind)
    assert done.position == behind  # of the lake as a whole
    while (again := flow.deliver(orders.m, leave_behind=True)).upto:
        assert again.upto.keys() == {row_of(orders, "orders").oid}
    assert again.position == behind
    assert orders.m.state.fence(waiting).reached_snapshot is None
    assert row_of(orders, "items").state == "CATCHUP"
    orders.sync()
    orders.assert_equal("orders", "items")
    assert row_of(orders, "items").state == "STREAMING"
    assert orders.m.state.fence(waiting).reached_snapshot is not None


def test_the_log_is_kept_from_where_a_copy_has_begun(orders: Mirror) -> None:
    kept = []

    def act() -> None:
        for first in (1, 11, 21):
            change(orders, "items", first)
            change(orders, "orders", first)
            orders.sync()
        begun = row_of(orders, "items")
        assert (begun.state, begun.position) == ("SNAPSHOT", None)
        with orders.m.state.transaction() as connection:  # as if they had been there for long
            connection.execute("UPDATE headwater.segments SET created_at = created_at - interval '1 day'")
        flow.tidy(orders.m)
        kept.append((begun.copy_lsn, orders.m.log.begin()))

    with beside(orders, act) as m:
        flow.copy(m)
    ((at, begin),) = kept
    assert at is not None
    assert begin <= at
    orders.m.sink.look_again()
    orders.sync()
    orders.assert_equal("orders", "items")


def test_a_copy_that_needs_segments_which_are_gone_is_followed_by_another(orders: Mirror) -> None:
    def act() -> None:
        change(orders, "items", 1)
        orders.captured()
        shutil.rmtree(orders.folder / "log")
        mend(orders.m)

    with beside(orders, act) as m:
        flow.copy(m)
    row = row_of(orders, "items")
    assert (row.state, row.resync) == ("PENDING", LOST)
    assert row.position is not None
    assert row.resync_lsn > row.position > Lsn(0)
    orders.m.sink.look_again()
    assert orders.settle()
    orders.assert_equal("orders", "items")


def test_a_partition_loses_its_rows_while_another_table_is_copied_for_long(mirror: Mirror) -> None:
    mirror.execute(
        "CREATE TABLE parted (id int PRIMARY KEY) PARTITION BY RANGE (id)",
        "CREATE TABLE parted1 PARTITION OF parted FOR VALUES FROM (0) TO (10)",
        "CREATE TABLE parted2 PARTITION OF parted FOR VALUES FROM (10) TO (20)",
        "INSERT INTO parted VALUES (1), (11)",
        "CREATE TABLE large (id int PRIMARY KEY, item text)",
        "INSERT INTO large SELECT i, repeat(md5(i::text), 30) FROM generate_series(1, 300) i",
    )
    mirror.start("public.parted")
    mirror.sync()
    mirror.reopen("public.parted", "public.large")
    mirror.looked()
    slow = mirror.config.groups["g"].model_copy(update={"copying": Copy(rate=15_000)})
    config = mirror.config.model_copy(update={"groups": {"g": slow}})
    with Copying(config, {}, "g", mirror.spark, threading.Event(), Precedence()):
        until(lambda: row_of(mirror, "large").state == "SNAPSHOT")
        mirror.execute("DROP TABLE parted1")
        mirror.looked()
        until(lambda: any(each.lsn for each in mirror.m.state.removals("g")))
        mirror.sync()
        assert row_of(mirror, "large").state == "SNAPSHOT"  # it is still being copied
        assert mirror.ask("SELECT id FROM lake.public.parted") == [(11,)]
        assert mirror.m.state.removals("g") == []
        until(lambda: row_of(mirror, "large").state == "CATCHUP", 60)
