from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import psycopg
import pytest

from headwater.change import Lsn, TableName
from headwater.errors import ConfigError, OperatorMustAct, Unreachable
from headwater.lake.counts import Counts
from headwater.state import Configured, Member, Partitions, State, TableOptions
from headwater.state.migrations import MIGRATIONS
from headwater.state.transitions import CaughtUp, Copied, CopyBegun, Failed, TableDropped

ORDERS, RAW = TableName("public", "orders"), TableName("raw", "orders")


@pytest.fixture
def state(database: str) -> Iterator[State]:
    state = State.connect(database)
    state.migrate()
    state.ensure_group("shop", "1/db", "headwater_shop", "headwater_shop")
    yield state
    state.close()


def test_two_processes_may_migrate_at_once(database: str) -> None:
    def migrate(_: int) -> None:
        state = State.connect(database)
        state.migrate()
        state.close()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(migrate, range(4)))
    with psycopg.connect(database) as connection:
        assert connection.execute("SELECT version FROM headwater.migrations").fetchall() == [
            (n + 1,) for n in range(len(MIGRATIONS))
        ]


def test_a_schema_newer_than_the_program_is_refused(state: State) -> None:
    with state.transaction() as connection:
        connection.execute("INSERT INTO headwater.migrations (version) VALUES (99)")
    with pytest.raises(OperatorMustAct, match="version 99"):
        state.migrate()


def test_a_group_of_another_source_is_refused(state: State) -> None:
    with pytest.raises(OperatorMustAct, match="'1/db'"):
        state.ensure_group("shop", "2/db", "headwater_shop", "headwater_shop")


def test_an_lsn_of_the_upper_half_survives(state: State) -> None:
    high = Lsn(0xFFFFFFFF_FFFFFFFE)
    state.begin_capture("shop", high)
    group = state.group("shop")
    assert group is not None
    assert group.captured_lsn == group.confirmed_lsn == group.trimmed_lsn == high


def test_a_group_that_was_not_made_does_not_exist(state: State) -> None:
    assert state.group("other") is None
    assert [group.name for group in state.groups()] == ["shop"]


def test_a_table_keeps_its_state_when_it_is_renamed(state: State) -> None:
    assert state.ensure_table("shop", 7, ORDERS, RAW).state == "PENDING"
    state.record("shop", 7, Copied(Lsn(5)))
    renamed = TableName("public", "orders2")
    row = state.ensure_table("shop", 7, renamed, RAW)
    assert (row.source, row.lake, row.state, row.position, row.copy_lsn) == (renamed, RAW, "CATCHUP", Lsn(5), Lsn(5))


def test_a_table_remembers_what_the_config_calls_it_and_wants_of_it(state: State) -> None:
    options = TableOptions("history", {"x": "varchar"}, "stop", False)
    row = state.ensure_table("shop", 7, TableName("public", "orders2"), RAW, Configured(ORDERS, options))
    assert (row.source, row.configured, row.options) == (TableName("public", "orders2"), ORDERS, options)
    state.rename_table("shop", 7, lake=TableName("raw", "orders2"))
    (row,) = state.tables("shop")
    assert (row.source.name, row.lake) == ("orders2", TableName("raw", "orders2"))


def test_a_table_waits_to_be_copied_again_until_a_copy_shows_enough(state: State) -> None:
    state.ensure_table("shop", 7, ORDERS, RAW)
    state.record("shop", 7, Copied(Lsn(5)))
    state.record("shop", 7, CaughtUp())
    state.request_resync("shop", 7, "a partition was detached", Lsn(9))
    state.request_resync("shop", 7, "and more", Lsn(8))

    def now() -> tuple[str, str | None]:
        (row,) = state.tables("shop")
        return row.state, row.resync

    assert now() == ("PENDING", "a partition was detached")
    state.record("shop", 7, Copied(Lsn(8)))  # a copy that was under way
    assert now() == ("PENDING", "a partition was detached")
    state.record("shop", 7, CopyBegun(Lsn(50)))
    state.record("shop", 7, Copied(Lsn(9)))
    assert now() == ("CATCHUP", None)


def test_what_the_lake_counts_is_kept(state: State) -> None:
    state.ensure_table("shop", 7, ORDERS, RAW)
    state.note_counts("shop", {7: Counts(2, 3, 4, 5, 6), 8: Counts(1)})
    (row,) = state.tables("shop")
    assert (row.copied_rows, row.copy_total, row.inserted, row.updated, row.deleted) == (2, 2, 3, 4, 5)
    assert row.quarantined == 6


def test_what_was_seen_below_a_partitioned_table_is_kept(state: State) -> None:
    state.ensure_table("shop", 7, ORDERS, RAW)
    assert state.partitions("shop") == {}
    found = Partitions(Lsn(5), 2**40, {8: Member(100, 3), 9: Member(0, 4)})
    state.note_partitions("shop", {7: found})
    assert state.partitions("shop") == {7: found}


def test_what_an_event_changes_is_kept(state: State) -> None:
    state.ensure_table("shop", 7, ORDERS, RAW)
    soon = datetime(2030, 1, 1, tzinfo=UTC)
    state.record("shop", 7, Copied(Lsn(5)))
    state.record("shop", 7, Failed("broken by \0", soon))
    (row,) = state.tables("shop")
    assert (row.state, row.error, row.failures, row.retry_at) == ("ERRORED", r"broken by \0", 1, soon)
    state.record("shop", 7, TableDropped(Lsn(9), "it is gone"))
    (row,) = state.tables("shop")
    assert (row.stopped, row.error, row.dropped_lsn, row.position) == (True, "it is gone", Lsn(9), Lsn(5))


def test_an_event_of_a_table_that_is_not_known_any_more_changes_nothing(state: State) -> None:
    state.record("shop", 8, CaughtUp())
    assert state.tables("shop") == []


def test_noting_a_delivery_twice_counts_it_once(state: State) -> None:
    state.ensure_table("shop", 7, ORDERS, RAW)
    state.ensure_table("shop", 8, TableName("public", "quiet"), TableName("raw", "quiet"))
    for _ in range(2):
        state.record_delivery("shop", Lsn(9), 3, {7: Lsn(9), 8: Lsn(9)}, {7: Counts(0, 1, 2, 3)})
    rows = {row.oid: row for row in state.tables("shop")}
    assert (rows[7].inserted, rows[7].updated, rows[7].deleted, rows[7].position) == (1, 2, 3, Lsn(9))
    assert (rows[8].inserted, rows[8].position) == (0, Lsn(9))
    group = state.group("shop")
    assert group is not None
    assert (group.delivered_lsn, group.snapshot_id) == (Lsn(9), 3)


def test_progress_of_a_copy_is_kept(state: State) -> None:
    state.ensure_table("shop", 7, ORDERS, RAW)
    state.record_progress("shop", 7, 10, 100)
    (row,) = state.tables("shop")
    assert (row.copied_rows, row.copy_total) == (10, 100)


def test_a_fence_is_reached_by_the_first_snapshot_that_covers_it(state: State) -> None:
    near, far = state.add_fence("shop", Lsn(10), 60), state.add_fence("shop", Lsn(20), 60)
    state.add_fence("shop", Lsn(5), 0)  # expired at once
    assert [fence.id for fence in state.fences("shop")] == [near, far]
    state.reach_fences("shop", Lsn(10), 41, Lsn(10))
    state.reach_fences("shop", Lsn(30), 42, Lsn(30))
    assert (state.fence(near).reached_snapshot, state.fence(far).reached_snapshot) == (41, 42)
    assert state.fences("shop") == []


def test_a_lock_names_its_holder_and_is_free_afterwards(state: State) -> None:
    with state.lock("shop deliver") as lock:
        lock.keep()
        with state.lock("another"):
            pass
        with pytest.raises(
            OperatorMustAct, match=r"'shop deliver': PostgreSQL pid \d+, 'headwater lock shop deliver'.*since \d"
        ):
            state.lock("shop deliver", patience=0).__enter__()
    with state.lock("shop deliver"):
        pass


def test_a_lock_is_taken_again_after_its_session_was_ended(state: State, database: str) -> None:
    with state.lock("shop") as lock:
        _end_sessions(database)
        lock.keep()
        with pytest.raises(OperatorMustAct, match="another headwater"):
            state.lock("shop", patience=0).__enter__()


def test_a_call_survives_the_loss_of_its_connection(state: State, database: str) -> None:
    _end_sessions(database)
    assert state.group("shop") is not None


def test_threads_may_share_the_state(state: State) -> None:
    failures: list[BaseException] = []

    def work(oid: int) -> None:
        try:
            for _ in range(20):
                state.ensure_table("shop", oid, TableName("public", f"t{oid}"), RAW)
                state.record_progress("shop", oid, 1, 2)
        except BaseException as exc:
            failures.append(exc)

    threads = [threading.Thread(target=work, args=(oid,)) for oid in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(state.tables("shop")) == 4


@pytest.mark.parametrize(
    ("url", "error", "message"),
    [
        ("postgresql://u:topsecret@127.0.0.1:1/db", Unreachable, "127.0.0.1:1"),
        ("postgresql://u:topsecret@[bad", ConfigError, "not a libpq URL"),
    ],
)
def test_a_url_that_leads_nowhere_is_reported_without_its_password(
    url: str, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message) as caught:
        State.connect(url)
    chain, texts = caught.value, []
    while chain is not None:
        texts.append(str(chain))
        chain = chain.__cause__  # type: ignore[assignment]
    assert not any("topsecret" in text for text in texts)


def test_a_missing_database_is_a_config_error(database: str) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        State.connect(database.replace("/t_", "/nothing_"))


def test_a_role_that_may_not_create_the_schema_is_refused(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as admin:
        admin.execute("CREATE ROLE reader_only LOGIN")
        try:
            state = State.connect(database.replace("postgres@", "reader_only@"))
            with pytest.raises(OperatorMustAct, match="permission denied"):
                state.migrate()
            state.close()
        finally:
            admin.execute("DROP ROLE reader_only")


def _end_sessions(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as admin:
        admin.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
