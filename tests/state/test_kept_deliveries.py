from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from headwater.change import Lsn, TableName
from headwater.lake.counts import Counts
from headwater.state import Phases, State, Work

PHASES = Phases(wait=0.5, fold=0.1, locate=0.2, write=0.3, commit=0.4)


@pytest.fixture
def state(database: str) -> Iterator[State]:
    state = State.connect(database)
    state.migrate()
    for group in ("shop", "app"):
        state.ensure_group(group, "1/db", f"headwater_{group}", f"headwater_{group}")
        state.ensure_table(group, 7, TableName("public", "orders"), TableName("raw", "orders"))
    yield state
    state.close()


def work(oldest: datetime | None = None) -> Work:
    return Work(12, 4096, oldest or datetime.now(UTC), PHASES, Counts(inserted=5, updated=3, deleted=1), (7,))


def deliver(state: State, group: str, position: int, done: Work | None = None) -> None:
    state.record_delivery(group, Lsn(position), position, {7: Lsn(position)}, {}, work=done or work())


def test_a_delivery_is_kept_with_what_it_did_and_where_its_time_went(state: State) -> None:
    deliver(state, "shop", 9, work(datetime.now(UTC) - timedelta(seconds=90)))
    (row,) = state.deliveries("shop")
    assert (row.group, row.position, row.snapshot_id) == ("shop", Lsn(9), 9)
    assert (row.changes, row.tables, row.inserted, row.updated, row.deleted, row.bytes) == (12, 1, 5, 3, 1, 4096)
    assert (row.phases, row.oids) == (PHASES, (7,))
    assert 90 <= row.lag_seconds < 900
    assert abs(row.at - datetime.now(UTC)) < timedelta(minutes=10)


def test_a_delivery_that_is_noted_again_after_its_answer_was_lost_is_there_once(state: State) -> None:
    for _ in range(2):
        deliver(state, "shop", 9)
    assert len(state.deliveries("shop")) == 1


def test_a_source_whose_clock_is_ahead_makes_no_negative_lag(state: State) -> None:
    deliver(state, "shop", 9, work(datetime.now(UTC) + timedelta(hours=1)))
    assert [row.lag_seconds for row in state.deliveries("shop")] == [0]


def test_a_step_that_changed_no_table_is_no_delivery(state: State) -> None:
    state.record_delivery("shop", Lsn(9), 3, {7: Lsn(9)}, {})
    assert state.deliveries("shop") == []


def test_the_newest_come_first_of_one_group_or_of_all_and_only_those_after_an_id(state: State) -> None:
    for position, group in enumerate(("shop", "app", "shop", "shop"), start=1):
        deliver(state, group, position)
    ids = {row.position: row.id for row in state.deliveries()}
    assert [row.position for row in state.deliveries()] == [Lsn(4), Lsn(3), Lsn(2), Lsn(1)]
    assert [row.position for row in state.deliveries("shop")] == [Lsn(4), Lsn(3), Lsn(1)]
    assert [row.position for row in state.deliveries("shop", limit=1)] == [Lsn(4)]
    assert [row.position for row in state.deliveries(after=ids[Lsn(2)])] == [Lsn(4), Lsn(3)]


def test_old_deliveries_are_forgotten_except_the_newest_of_the_group(state: State) -> None:
    for position in range(1, 6):
        deliver(state, "shop", position)
    deliver(state, "app", 1)
    with state.transaction() as connection:
        connection.execute("UPDATE headwater.deliveries SET at = at - interval '3 hours' WHERE position <= '0/4'")
    state.forget_deliveries("shop", at_least=3)
    assert [row.position for row in state.deliveries("shop")] == [Lsn(5), Lsn(4), Lsn(3)]
    assert len(state.deliveries("app")) == 1  # another group's is not counted
    state.forget_deliveries("shop", at_least=1)
    assert [row.position for row in state.deliveries("shop")] == [Lsn(5)]


def test_the_deliveries_of_a_dropped_group_are_gone(state: State) -> None:
    deliver(state, "shop", 9)
    deliver(state, "app", 9)
    state.drop_group("shop")
    assert [row.group for row in state.deliveries()] == ["app"]


def test_noting_the_delivery_costs_no_statement_of_its_own(state: State) -> None:
    with state.transaction() as connection:
        connection.execute("CREATE TABLE headwater.seen (statement timestamptz)")
        connection.execute(
            "CREATE FUNCTION headwater.seen() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
            " INSERT INTO headwater.seen VALUES (statement_timestamp()); RETURN NULL; END $$"
        )
        for event in ("INSERT ON headwater.deliveries", "UPDATE ON headwater.groups"):
            connection.execute(f"CREATE TRIGGER seen AFTER {event} EXECUTE FUNCTION headwater.seen()")
    deliver(state, "shop", 9)
    assert state.query("SELECT count(*), count(DISTINCT statement) FROM headwater.seen") == [(2, 1)]
