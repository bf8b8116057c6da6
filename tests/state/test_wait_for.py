"""`headwater.wait_for` against a log that is really captured, with deliveries noted by hand."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import psycopg
import pytest
from psycopg import errors
from tests.captured_group import Group, execute, transaction, until

from headwater.change import Lsn, TableName
from headwater.copy.snapshot import exported_snapshot
from headwater.source.server import wal_target
from headwater.state import State
from headwater.state.transitions import CaughtUp, Copied, Failed, Paused, RecopyRequested, Removed, Resumed

FAR_AWAY = datetime(2100, 1, 1, tzinfo=UTC)


class Waiting:
    """A group `shop` with the tables `orders` and `notes`, captured."""

    def __init__(self, group: Group) -> None:
        self.group, self.state, self.url = group, group.state, group.url
        execute(self.url, *(f"CREATE TABLE {each} (id int PRIMARY KEY)" for each in ("orders", "notes")))
        self.begin = group.prepare("public.orders", "public.notes")
        self.oids = {name: self._oid(name) for name in ("orders", "notes")}
        for name, oid in self.oids.items():
            self.state.ensure_table("shop", oid, TableName("public", name), TableName("public", name))
            self.state.record("shop", oid, Copied(self.begin))
            self.state.record("shop", oid, CaughtUp())

    def _oid(self, name: str) -> int:
        ((oid,),) = self.state.query("SELECT %s::regclass::oid::bigint", (f"public.{name}",))
        return int(oid)

    def delivered(self, *names: str) -> None:
        """Note that all there is in the log was delivered to these tables, or to all."""
        end = self.group.log.end()
        positions = {self.oids[name]: end for name in names or self.oids}
        self.state.record_delivery("shop", end, 1, positions, {})

    def wait(self, lsn: Lsn | None = None, timeout: str = "0s", group: str | None = None) -> bool:
        """On a connection of its own: capture uses the state meanwhile."""
        with psycopg.connect(self.url) as connection:
            row = connection.execute(
                "SELECT headwater.wait_for(%s::pg_lsn, %s::interval, %s)", (lsn and str(lsn), timeout, group)
            ).fetchone()
        assert row is not None
        return bool(row[0])


@pytest.fixture
def shop(group: Group) -> Iterator[Waiting]:
    waiting = Waiting(group)
    with group.capturing():
        group.settle()
        yield waiting


def test_an_idle_source_is_contained_as_soon_as_capture_has_seen_that_it_is_idle(shop: Waiting) -> None:
    for _ in range(3):
        execute(shop.url, "CREATE TABLE other (id int)", "DROP TABLE other")  # WAL without a change of our tables
        begun = time.monotonic()
        assert shop.wait(timeout="30s")
        assert time.monotonic() - begun < 5  # without being hurried, capture records such a position every 10 seconds


def test_what_an_idle_server_has_not_flushed_is_not_waited_for(shop: Waiting) -> None:
    """It is no commit. A message that no transaction has stays there for a while."""
    with psycopg.connect(shop.url, autocommit=True) as connection:
        connection.execute("SET synchronous_commit = off")
        for _ in range(3):
            connection.execute("SELECT pg_logical_emit_message(false, 'test', repeat('x', 100))")
            begun = time.monotonic()
            assert shop.wait(timeout="30s")
            assert time.monotonic() - begun < 5


def test_a_commit_that_does_not_wait_for_the_disk_is_waited_for(shop: Waiting) -> None:
    with psycopg.connect(shop.url, autocommit=True) as connection:
        connection.execute("SET synchronous_commit = off")
        for number in range(5):
            connection.execute("INSERT INTO orders VALUES (%s)", (number,))
            assert not shop.wait()
            shop.group.settle()
            shop.delivered()
            assert shop.wait(timeout="30s")


def test_a_change_is_contained_once_it_was_delivered(shop: Waiting) -> None:
    before = wal_target(shop.url)
    execute(shop.url, "INSERT INTO orders VALUES (1)")
    (lsn,) = shop.state.query("SELECT pg_current_wal_lsn()")[0]
    assert shop.wait(before, "30s")
    shop.group.settle()
    assert not shop.wait(lsn)
    assert not shop.wait()
    assert shop.wait(before)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(shop.wait, timeout="20s")
        time.sleep(0.3)
        assert not waiting.done()
        shop.delivered()
        assert waiting.result(10)
    assert shop.wait(lsn)


def test_the_wait_ends_with_its_time(shop: Waiting) -> None:
    execute(shop.url, "INSERT INTO orders VALUES (1)")
    begun = time.monotonic()
    assert not shop.wait(timeout="0.5s")
    assert 0.5 <= time.monotonic() - begun < 5


def test_every_table_of_the_group_counts(shop: Waiting) -> None:
    execute(shop.url, "INSERT INTO orders VALUES (1)", "INSERT INTO notes VALUES (1)")
    lsn = shop.group.settle()
    shop.delivered("orders")
    assert not shop.wait(lsn)
    shop.delivered("notes")
    assert shop.wait(lsn)


def test_a_schema_change_without_a_row_counts_too(shop: Waiting) -> None:
    execute(shop.url, "ALTER TABLE orders ADD note text")
    lsn = shop.group.settle()
    assert not shop.wait(lsn)
    shop.delivered()
    assert shop.wait(lsn)


def test_an_open_transaction_is_not_waited_for(shop: Waiting) -> None:
    with psycopg.connect(shop.url) as connection:
        connection.execute("INSERT INTO orders VALUES (1)")
        assert shop.wait(timeout="30s")
        connection.commit()
        assert not shop.wait()


def test_one_transaction_in_two_tables_is_contained_with_both(shop: Waiting) -> None:
    transaction(shop.url, "INSERT INTO orders VALUES (1)", "INSERT INTO notes VALUES (1)")
    lsn = shop.group.settle()
    shop.delivered("notes")
    assert not shop.wait(lsn)
    shop.delivered("orders")
    assert shop.wait(lsn)


def test_a_table_that_is_being_copied_or_has_failed_counts_and_one_that_is_left_alone_does_not(shop: Waiting) -> None:
    orders, lsn = shop.oids["orders"], shop.group.settle()
    assert shop.wait(lsn)
    shop.state.record("shop", orders, RecopyRequested("it was asked for"))
    assert not shop.wait(lsn)
    shop.state.record("shop", orders, Copied(lsn))
    assert shop.wait(lsn)
    shop.state.record("shop", orders, Failed("it broke", FAR_AWAY))
    assert shop.wait(lsn)  # it contains that, whatever came later
    later = shop.group.settle()
    assert not shop.wait(later)
    shop.state.record("shop", orders, Resumed())
    shop.state.record("shop", orders, Paused("it was asked for"))
    assert shop.wait(later)
    shop.state.record("shop", orders, Removed("it was taken out of the config"))
    assert shop.wait(later)


def test_a_wait_does_not_hold_up_the_copy_that_it_waits_for(shop: Waiting) -> None:
    """An export waits for transactions that have written something."""
    shop.state.record("shop", shop.oids["orders"], RecopyRequested("it was asked for"))
    before = shop.state.awaited("shop")
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(shop.wait, timeout="20s")
        until(lambda: shop.state.awaited("shop") > before)
        with exported_snapshot(shop.url) as exported:
            assert not waiting.done()
        shop.state.record("shop", shop.oids["orders"], Copied(exported.lsn))
        assert waiting.result()


def test_groups_are_waited_for_unless_they_are_disabled(shop: Waiting) -> None:
    lsn = shop.group.settle()
    ((source,),) = shop.state.query("SELECT source_id FROM headwater.groups")
    shop.state.ensure_group("new", source, "headwater_new", "headwater_new")
    shop.state.ensure_table("new", 7, TableName("public", "t"), TableName("public", "t"))
    assert not shop.wait(lsn)
    assert not shop.wait(lsn, group="new")
    assert shop.wait(lsn, group="shop")
    shop.state.disable_group("new")
    assert shop.wait(lsn)
    with pytest.raises(errors.RaiseException, match="group 'new' is disabled, and stays where it is"):
        shop.wait(lsn, group="new")
    with pytest.raises(errors.RaiseException, match="there is no group 'shpo'"):
        shop.wait(lsn, group="shpo")
    shop.state.declare("/log", {"soon": ["public.t"]})
    assert not shop.wait(lsn)  # it has not even begun


def test_a_transaction_that_only_reads_may_wait(shop: Waiting) -> None:
    with psycopg.connect(shop.url) as connection:
        connection.read_only = True
        answer = connection.execute("SELECT headwater.wait_for(timeout => '30s')").fetchone()
    assert answer == (True,)


def test_a_transaction_that_sees_nothing_new_is_refused(shop: Waiting) -> None:
    with psycopg.connect(shop.url) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        with pytest.raises(errors.RaiseException, match="that is REPEATABLE READ does not see what others commit"):
            connection.execute("SELECT headwater.wait_for()")


def test_a_position_that_is_still_to_come_is_not_contained_and_hurries_later_waits_no_less(shop: Waiting) -> None:
    assert not shop.wait(Lsn(0x7FFF_0000_0000_0000))
    execute(shop.url, "CREATE TABLE other (id int)")
    begun = time.monotonic()
    assert shop.wait(timeout="30s")
    assert time.monotonic() - begun < 5


def test_the_end_of_a_page_of_the_wal_is_reached_by_an_idle_server(shop: Waiting) -> None:
    """`pg_current_wal_insert_lsn` is behind the next page's header then, to which nothing was written."""
    shop.delivered()
    shop.group.settle()
    end = shop.group.log.end()
    page = Lsn((end.value // 8192) * 8192)
    assert shop.wait(page)
    with shop.state.transaction() as connection:
        connection.execute("UPDATE headwater.groups SET captured_lsn = %s", (page,))
        connection.execute("UPDATE headwater.tables SET position = %s", (page,))
        ((header,),) = connection.execute("SELECT headwater.wait_for(%s, '0s')", (Lsn(page.value + 24),)).fetchall()
        ((first,),) = connection.execute("SELECT headwater.wait_for(%s, '0s')", (Lsn(page.value + 40),)).fetchall()
        ((more,),) = connection.execute("SELECT headwater.wait_for(%s, '0s')", (Lsn(page.value + 48),)).fetchall()
        assert (header, first, more) == (True, True, False)
        raise psycopg.Rollback


def test_outside_of_the_source_the_position_must_be_given(database: str) -> None:
    state = State.connect(database)
    state.migrate()
    with pytest.raises(errors.RaiseException, match="there is no group to wait for"):
        state.query("SELECT headwater.wait_for()")
    state.ensure_group("shop", "1/db", "headwater_shop", "headwater_shop")
    with pytest.raises(errors.RaiseException, match="the position of the source is not known in this database"):
        state.query("SELECT headwater.wait_for()")
    state.ensure_table("shop", 7, TableName("public", "t"), TableName("public", "t"))
    state.record("shop", 7, Copied(Lsn(10)))
    assert state.query("SELECT headwater.wait_for('0/A')") == [(True,)]
    assert state.query("SELECT headwater.wait_for('0/B', '0s')") == [(False,)]
    assert state.awaited("shop") == Lsn(0)
    state.close()


def test_what_is_waited_for_is_seen_before_the_wait_is_over(shop: Waiting) -> None:
    execute(shop.url, "INSERT INTO orders VALUES (1)")
    lsn = shop.group.settle()
    assert shop.state.awaited("shop") >= lsn  # of the fence of `settle`
    with shop.state.transaction() as connection:
        connection.execute("DELETE FROM headwater.fences")
    assert shop.state.awaited("shop") < lsn
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(shop.wait, timeout="20s")
        until(lambda: shop.state.awaited("shop") >= lsn)
        shop.delivered()
        shop.group.settle()
        assert waiting.result(10)


def test_a_wait_is_over_when_its_call_is_and_not_its_transaction(shop: Waiting) -> None:
    shop.group.settle()
    with shop.state.transaction() as connection:
        connection.execute("DELETE FROM headwater.fences")
    with psycopg.connect(shop.url) as connection:
        assert connection.execute("SELECT headwater.wait_for(timeout => '30s')").fetchone() == (True,)
        assert shop.state.awaited("shop") == Lsn(0)
