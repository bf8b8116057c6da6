"""Capture into a log that is full: it waits, says so, keeps its connection, and goes on when there is room."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict
from tests.captured_group import Group, execute, transaction, until

from headwater.capture import quota, stream
from headwater.change import Lsn, TableName
from headwater.flow.room import LogRoom
from headwater.log import Log
from headwater.postgres.connect import connect
from headwater.source.slots import slot_of
from headwater.state import State
from headwater.state.transitions import Copied, CopyBegun, Repositioned
from headwater.testing.postgres import EmbeddedPostgres

ROLL = 100_000  # bytes of messages in a segment
LIMIT = 300_000  # three of them, about
# A kilobyte each, which no compression makes much smaller.
ROWS = """
    INSERT INTO {table} SELECT n, (SELECT string_agg(md5(random()::text || n || i), '') FROM generate_series(1, 30) i)
    FROM generate_series({first}, {last}) n
"""


def write(url: str, transactions: int, *, rows: int = 100, table: str = "orders") -> int:
    """So many transactions of about 100 kB, unless they have other `rows`; how many rows there are now."""
    with psycopg.connect(url, autocommit=True) as connection:
        ((before,),) = connection.execute(f"SELECT count(*) FROM {table}").fetchall()
        for first in range(before + 1, before + transactions * rows, rows):
            connection.execute(ROWS.format(table=table, first=first, last=first + rows - 1))
    return int(before) + transactions * rows


def mirrored(group: Group) -> Group:
    """The group has one table, mirrored up to where the log begins."""
    transaction(group.url, "CREATE TABLE orders (id bigint PRIMARY KEY, note text)")
    begin = group.prepare("orders")
    with psycopg.connect(group.url) as connection:
        ((oid,),) = connection.execute("SELECT 'orders'::regclass::oid::bigint").fetchall()
    name = TableName("public", "orders")
    group.state.ensure_table("shop", oid, name, name)
    group.state.record("shop", oid, CopyBegun(begin))
    group.state.record("shop", oid, Copied(begin))
    return group


@pytest.fixture
def shop(group: Group) -> Group:
    return mirrored(group)


def room(group: Group, max_bytes: int = LIMIT) -> LogRoom:
    return LogRoom(group.state, group.log, max_bytes)


@contextmanager
def delivering(group: Group) -> Iterator[list[int]]:
    """As deliveries do, take what is registered and pass it: the ids, in the order in which they come."""
    ids: list[int] = []
    done = threading.Event()

    def deliver() -> None:
        while not done.wait(0.05):
            (row,) = group.state.tables("shop")
            end = group.log.end()
            assert row.position is not None
            if end > row.position:
                ids.extend(int(each.new[0] or 0) for each in group.rows(row.position, end) if each.new)
                group.state.record("shop", row.oid, Repositioned(end))

    thread = threading.Thread(target=deliver)
    thread.start()
    try:
        yield ids
    finally:
        done.set()
        thread.join()


def error(group: Group) -> str | None:
    row = group.state.group("shop")
    return row.capture_error if row else None


def confirmed(group: Group) -> Lsn:
    with closing(connect(group.url)) as connection:
        slot = slot_of(connection, "headwater_shop")
    assert slot is not None
    return slot.confirmed_lsn


def _reached(group: Group, lsn: Lsn) -> bool:
    return confirmed(group) >= lsn


def reader_of_slot(group: Group) -> int | None:
    with closing(connect(group.url)) as connection:
        row = connection.execute("SELECT active_pid FROM pg_replication_slots WHERE slot_name = 'headwater_shop'")
        return (row.fetchone() or (None,))[0]


def test_capture_waits_while_the_log_is_full_and_says_so_again_and_again_and_then_all_is_there(
    shop: Group, other_database: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quota, "_REPORT_EVERY", 0.6)
    monkeypatch.setattr(stream, "_STATUS_SECONDS", 0.5)
    monkeypatch.setattr(stream, "_IDLE_SECONDS", 0.5)
    with shop.capturing(roll_bytes=ROLL, room=room(shop)):
        written = write(shop.url, 20)
        until(lambda: "is full" in (error(shop) or ""))
        before, size = confirmed(shop), shop.log.size()
        assert LIMIT <= size < LIMIT + 2 * ROLL  # a segment more than the limit, at most
        execute(other_database, "CREATE TABLE t AS SELECT repeat('x', 1000) FROM generate_series(1, 12000)")
        time.sleep(2)
        assert (confirmed(shop), shop.log.size()) == (before, size)  # nothing is confirmed that is not in the log
        assert "table public.orders, which is CATCHUP, needs it" in (error(shop) or "")
        assert caplog.text.count("the log of group 'shop' is full") > 1
        with delivering(shop) as ids:
            until(lambda: len(ids) >= written)
        assert error(shop) is None
        assert confirmed(shop) > before
    assert ids == list(range(1, written + 1))
    assert "the log of group 'shop' was full for" in caplog.text


def test_the_connection_outlives_the_servers_patience_while_the_log_is_full(
    shop: Group, caplog: pytest.LogCaptureFixture
) -> None:
    execute(shop.url, f"ALTER DATABASE {conninfo_to_dict(shop.url)['dbname']} SET wal_sender_timeout = '3s'")
    with shop.capturing(roll_bytes=ROLL, room=room(shop)):
        written = write(shop.url, 40)  # more than fits into buffers and sockets: the server cannot send on
        until(lambda: error(shop))
        reader = reader_of_slot(shop)
        time.sleep(7)
        assert reader_of_slot(shop) == reader is not None
        with delivering(shop) as ids:
            until(lambda: len(ids) >= written)
    assert ids == list(range(1, written + 1))
    assert "lost the stream" not in caplog.text


def test_a_stop_while_the_log_is_full_is_prompt_and_the_next_start_waits_again(shop: Group) -> None:
    written = write(shop.url, 20)
    for _ in range(2):
        begun = time.monotonic()
        with shop.capturing(roll_bytes=ROLL, room=room(shop)):
            until(lambda: error(shop))
            begun = time.monotonic()
        assert time.monotonic() - begun < 10
        assert error(shop) is None
        assert LIMIT <= shop.log.size() < LIMIT + 2 * ROLL
    with delivering(shop) as ids, shop.capturing(roll_bytes=ROLL, room=room(shop)):
        until(lambda: len(ids) >= written)
    assert ids == list(range(1, written + 1))
    assert len(shop.files()) == len(shop.log.read(shop.begin).segments)  # what was given up is swept away


def test_a_source_can_shut_down_while_the_log_is_full(
    own_postgres: EmbeddedPostgres, database: str, tmp_path: Path
) -> None:
    """Its walsender cannot send, and would wait for a reader that keeps answering; the state is elsewhere, and well."""
    state = State.connect(database)
    state.migrate()
    shop = mirrored(Group(own_postgres.url(), state, Log(state, "shop", str(tmp_path / "log")), tmp_path))
    with closing(state), shop.capturing(roll_bytes=ROLL, room=room(shop)):
        written = write(shop.url, 40)
        until(lambda: error(shop))
        own_postgres.restart()  # which fails after a minute
        with delivering(shop) as ids:
            until(lambda: len(ids) >= written)
    assert ids == list(range(1, written + 1))


def test_a_log_smaller_than_a_segment_lets_one_through_at_a_time(shop: Group) -> None:
    with delivering(shop) as ids, shop.capturing(roll_bytes=ROLL, room=room(shop, 10)):
        written = write(shop.url, 5)
        until(lambda: len(ids) >= written)
    assert ids == list(range(1, written + 1))


@pytest.mark.parametrize("memory", ["64kB", "64MB"], ids=["while it is open", "after its commit"])
def test_a_transaction_larger_than_the_log_gets_through_once_the_rest_is_delivered(
    shop: Group, memory: str, caplog: pytest.LogCaptureFixture
) -> None:
    name = conninfo_to_dict(shop.url)["dbname"]
    execute(shop.url, f"ALTER DATABASE {name} SET logical_decoding_work_mem = '{memory}'")
    with shop.capturing(roll_bytes=ROLL, room=room(shop)):
        write(shop.url, 1)
        written = write(shop.url, 1, rows=2000)
        until(lambda: error(shop))
        with delivering(shop) as ids:
            write(shop.url, 1, table="orders")
            written = write(shop.url, 1)
            until(lambda: len(ids) >= written)
    assert ids == list(range(1, written + 1))
    assert "transactions in progress have" in caplog.text


@pytest.mark.parametrize("where", ["another database", "a table that is not published"])
def test_an_idle_slot_moves_though_nothing_comes_for_us(
    shop: Group, other_database: str, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "_STATUS_SECONDS", 0.5)
    monkeypatch.setattr(stream, "_IDLE_SECONDS", 0.5)
    url = other_database if where == "another database" else shop.url
    with shop.capturing(room=room(shop)):
        shop.settle()
        for attempt in range(2):
            execute(url, f"CREATE TABLE idle_{attempt} AS SELECT repeat('x', 100) FROM generate_series(1, 1000)")
            with closing(connect(url)) as connection:
                ((lsn,),) = connection.execute("SELECT pg_current_wal_lsn()").fetchall()
            until(partial(_reached, shop, lsn))
    assert shop.rows() == []
