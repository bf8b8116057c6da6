"""A source that is promoted is followed; what the old primary had beyond is not believed."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from tests.captured_group import Group, execute, until
from tests.standby import Pair, pair_of_servers

from headwater.capture.promotion import BEYOND
from headwater.change import Lsn, TableName
from headwater.errors import OperatorMustAct, SlotLost, Unreachable
from headwater.log import Log
from headwater.postgres.connect import connect
from headwater.source.server import pass_wal, wal_end
from headwater.source.slots import slot_of
from headwater.state import Configured, GroupRow, State, TableOptions

TABLE = "CREATE TABLE orders (id int PRIMARY KEY)"
ORDERS = TableName("public", "orders")


@pytest.fixture
def pair() -> Iterator[Pair]:
    with pair_of_servers() as made:
        yield made


def opened(pair: Pair, folder: Path) -> Group:
    execute(pair.url, TABLE)
    group = Group.opened(pair.url, folder / "log")
    group.prepare("orders")
    return group


def row(group: Group) -> GroupRow:
    found = group.state.group(group.name)
    assert found is not None
    return found


def staged(group: Group) -> list[int]:
    return [int(each.new[0]) for each in group.rows() if each.new and each.new[0]]


def test_a_promoted_standby_is_followed_and_nothing_is_missing(
    pair: Pair, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with closing(opened(pair, tmp_path).state) as state:
        group = Group(pair.url, state, Log(state, "shop", str(tmp_path / "log")), tmp_path / "log")
        with group.capturing():
            execute(pair.url, "INSERT INTO orders VALUES (1), (2)")
            group.settle()
            pair.kept("headwater_shop")
            execute(pair.url, "INSERT INTO orders VALUES (3)")
            pair.level()
            pair.promote()
            execute(pair.url, "INSERT INTO orders VALUES (4)")
            group.settle()
        assert staged(group) == [1, 2, 3, 4]
        before = row(group)
        assert before.timeline is not None
        assert before.timeline.endswith(" 2")
        with group.capturing():  # and a second start has nothing to say about it
            execute(pair.url, "INSERT INTO orders VALUES (5)")
            group.settle()
        assert staged(group) == [1, 2, 3, 4, 5]
    said = [each.message for each in caplog.records if "the source was promoted" in each.message]
    assert len(said) == 1
    assert "timeline 1 → 2 at 0/" in said[0]
    assert [each.levelno for each in caplog.records if each.message == said[0]] == [logging.WARNING]


def test_a_slot_that_the_standby_did_not_have_is_named_with_what_would_have_kept_it(tmp_path: Path) -> None:
    with pair_of_servers(synchronised=False) as pair, closing(opened(pair, tmp_path).state) as state:
        group = Group(pair.url, state, Log(state, "shop", str(tmp_path / "log")), tmp_path / "log")
        with group.capturing():
            group.settle()
        pair.level()
        pair.promote()
        lost = r"promoted to timeline 2, and that standby did not have the slot .*sync_replication_slots"
        with pytest.raises(SlotLost, match=lost), group.capturing():
            until(lambda: row(group).capture_error)
        with pytest.raises(SlotLost, match=lost):
            group.prepare("orders")


def test_the_old_primary_is_not_taken_for_the_source_again(pair: Pair, tmp_path: Path) -> None:
    with closing(opened(pair, tmp_path).state) as state, closing(State.connect(pair.url)) as later:
        group = Group(pair.url, state, Log(state, "shop", str(tmp_path / "log")), tmp_path / "log")
        with group.capturing():
            group.settle()
            pair.kept("headwater_shop")
            pair.level()
            pair.promote()
            group.settle()
        later.close()
        pair.primary.start()
        old = Group(pair.primary.url(), state, group.log, group.folder)
        with pytest.raises(OperatorMustAct, match=r"to timeline 1@0/\w+ 2, and this server is on 1"), old.capturing():
            until(lambda: row(group).capture_error)


def test_a_standby_is_waited_for_until_it_is_promoted(
    pair: Pair, tmp_path: Path, caplog: pytest.LogCaptureFixture, other_database: str
) -> None:
    execute(pair.url, TABLE)
    with closing(State.connect(other_database)) as state:
        state.migrate()
        log = Log(state, "shop", str(tmp_path / "log"))
        group = Group(pair.primary.url(), state, log, tmp_path / "log")
        group.prepare("orders")
        with group.capturing():
            group.settle()
            pair.kept("headwater_shop")
        moved = Group(pair.standby.url(), state, log, tmp_path / "log")  # a name that leads to the standby too early
        with moved.capturing():
            until(lambda: "is a standby" in caplog.text)
            pair.level()
            pair.promote()
            execute(pair.url, "INSERT INTO orders VALUES (1)")
            moved.settle()
        assert staged(moved) == [1]


def test_a_log_that_has_more_than_the_new_primary_is_given_up(
    pair: Pair, tmp_path: Path, caplog: pytest.LogCaptureFixture, other_database: str
) -> None:
    execute(pair.url, TABLE)
    with closing(State.connect(other_database)) as state:
        state.migrate()
        group = Group(pair.url, state, Log(state, "shop", str(tmp_path / "log")), tmp_path / "log")
        group.prepare("orders")
        with psycopg.connect(pair.url) as source:
            ((oid,),) = source.execute("SELECT 'orders'::regclass::oid::bigint").fetchall()
        state.ensure_table("shop", oid, ORDERS, ORDERS, Configured(ORDERS, TableOptions()))
        with group.capturing():
            execute(pair.url, "INSERT INTO orders VALUES (1)")
            group.settle()
            pair.kept("headwater_shop")
            pair.level()
            pair.standby.stop()
            execute(pair.url, "INSERT INTO orders SELECT generate_series(100, 20000)")
            beyond = group.settle()
            pair.promote()
            until(lambda: row(group).forked_lsn is not None)
            fork = row(group).forked_lsn
            (table,) = state.tables("shop")
            execute(pair.url, "INSERT INTO orders VALUES (2)")
            group.settle()
        assert fork is not None
        assert fork < beyond
        assert "which the new primary never had" in caplog.text
        assert (table.resync, table.resync_lsn > beyond) == (BEYOND, True)
        new = [each for each in group.rows() if each.commit_lsn > table.resync_lsn.value]
        assert [each.new for each in new] == [("2",)]  # what a copy after the end of the old log still needs


def test_a_slot_that_came_further_than_the_state_begins_the_log_anew(pair: Pair, tmp_path: Path) -> None:
    with closing(opened(pair, tmp_path).state) as state:
        group = Group(pair.url, state, Log(state, "shop", str(tmp_path / "log")), tmp_path / "log")
        with group.capturing():
            execute(pair.url, "INSERT INTO orders VALUES (1)")
            group.settle()
            pair.kept("headwater_shop")
        pair.level()
        pair.promote()
        with connect(pair.url) as source:  # as if its note had not come over any more
            slot = slot_of(source, "headwater_shop")
            assert slot is not None
            before = Lsn(slot.confirmed_lsn.value - 8)
            source.execute("UPDATE headwater.groups SET captured_lsn = %s, confirmed_lsn = NULL", (before,))
        group.prepare("orders")
        with group.capturing():
            execute(pair.url, "INSERT INTO orders VALUES (2)")
            group.settle()
        assert group.begin == slot.confirmed_lsn
        assert staged(group) == [2]


def test_a_slot_is_offered_to_standbys_where_the_server_knows_that(group: Group) -> None:
    group.prepare()
    with connect(group.url) as connection:
        slot = slot_of(connection, "headwater_shop")
        assert slot is not None
        assert slot.failover


def test_a_slot_that_was_made_without_it_is_offered_when_it_is_read(group: Group) -> None:
    group.prepare()
    with connect(group.url) as connection:
        if connection.info.server_version < 170000:
            pytest.skip("this server has no failover slots")
        connection.execute("SELECT pg_drop_replication_slot('headwater_shop')")
        connection.execute("SELECT pg_create_logical_replication_slot('headwater_shop', 'pgoutput')")
        with group.state.transaction() as state:
            state.execute("UPDATE headwater.groups SET captured_lsn = pg_current_wal_lsn()")
        with group.capturing():
            group.settle()
        slot = slot_of(connection, "headwater_shop")
    assert slot is not None
    assert slot.failover


def test_the_wal_is_brought_past_a_position_that_the_source_had_before(group: Group) -> None:
    with connect(group.url) as connection:
        ahead = Lsn(wal_end(connection).value + (3 << 20))
        pass_wal(group.url, ahead)
        assert wal_end(connection) > ahead
        now = wal_end(connection)
        pass_wal(group.url, ahead)
        assert wal_end(connection).value - now.value < 1 << 20
        with pytest.raises(Unreachable, match=r"is 1\d\d\d MiB of WAL behind"):
            pass_wal(group.url, Lsn(now.value + (1 << 30)))
