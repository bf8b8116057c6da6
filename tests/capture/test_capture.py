from __future__ import annotations

import struct
import threading
import time
from dataclasses import replace
from itertools import islice
from pathlib import Path

import psycopg
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from tests.captured_group import Group, transaction, until

from headwater.capture import stream
from headwater.capture.pending import has_pending_changes
from headwater.change import Lsn
from headwater.errors import OperatorMustAct, SlotLost
from headwater.postgres.connect import Connection, connect
from headwater.source.slots import slot_of
from headwater.state import State
from headwater.testing.postgres import EmbeddedPostgres


def orders(group: Group, *more: str) -> None:
    transaction(group.url, "CREATE TABLE orders (id bigint PRIMARY KEY, note text)", *more)


def test_every_kind_of_change_is_staged_with_its_values(group: Group) -> None:
    orders(group, "CREATE TABLE lines (id int, pos int, PRIMARY KEY (id, pos))", "CREATE TABLE other (id int)")
    group.prepare("orders", "lines")
    with group.capturing():
        transaction(group.url, "INSERT INTO orders VALUES (1, 'a'), (2, NULL)", "INSERT INTO lines VALUES (1, 1)")
        transaction(group.url, "INSERT INTO other VALUES (1)")
        transaction(group.url, "UPDATE orders SET id = 3 WHERE id = 2", "DELETE FROM lines")
        transaction(group.url, "TRUNCATE orders, lines")
        group.settle()
    rows = group.rows()
    assert [(row.op, row.table, row.old, row.new) for row in rows[:-2]] == [
        ("I", "public.orders", None, ("1", "a")),
        ("I", "public.orders", None, ("2", None)),
        ("I", "public.lines", None, ("1", "1")),
        ("U", "public.orders", ("2", None), ("3", None)),
        ("D", "public.lines", ("1", "1"), None),
    ]
    assert sorted((row.op, row.table) for row in rows[-2:]) == [("T", "public.lines"), ("T", "public.orders")]
    assert [row.seq for row in rows] == [0, 1, 2, 0, 1, 0, 1]
    assert len({row.commit_lsn for row in rows}) == len({row.xid for row in rows}) == 3


def test_interleaved_transactions_come_in_commit_order(group: Group) -> None:
    orders(group)
    group.prepare("orders")
    with group.capturing(), psycopg.connect(group.url) as late, psycopg.connect(group.url) as early:
        late.execute("INSERT INTO orders VALUES (1, 'late')")
        early.execute("INSERT INTO orders VALUES (2, 'early')")
        late.execute("INSERT INTO orders VALUES (3, 'late')")
        early.commit()
        late.commit()
        group.settle()
    rows = group.rows()
    assert [row.new for row in rows] == [("2", "early"), ("1", "late"), ("3", "late")]
    assert rows[0].commit_lsn < rows[1].commit_lsn == rows[2].commit_lsn


def test_an_aborted_transaction_leaves_nothing(group: Group) -> None:
    orders(group)
    group.prepare("orders")
    with group.capturing(roll_bytes=1000), psycopg.connect(group.url) as connection:
        connection.execute("INSERT INTO orders SELECT n FROM generate_series(1, 1000) n")
        connection.rollback()
        group.settle()
    assert group.rows() == []


def test_transactions_that_are_all_larger_than_a_roll_are_registered_one_by_one(group: Group) -> None:
    """The first is spilled to its last row when the second begins to spill: they must not be mixed up."""
    transaction(group.url, "CREATE TABLE orders (id int PRIMARY KEY, note text)")
    group.prepare("orders")
    large = "INSERT INTO orders SELECT {0} + n, repeat('x', 2000) FROM generate_series(0, {1}) n"
    transaction(
        group.url, large.format(0, 0), large.format(10, 3), large.format(20, 0), "INSERT INTO orders VALUES (30)"
    )
    transaction(group.url, large.format(40, 0), large.format(50, 5))
    with group.capturing(roll_bytes=1000):
        group.settle()
    assert [row.new and row.new[0] for row in group.rows()] == [
        str(n) for n in (0, *range(10, 14), 20, 30, 40, *range(50, 56))
    ]


def test_capture_goes_on_where_it_stopped_and_nothing_is_doubled(group: Group) -> None:
    orders(group)
    group.prepare("orders")
    for start in range(0, 30, 10):
        transaction(group.url, f"INSERT INTO orders SELECT n FROM generate_series({start}, {start + 4}) n")
        with group.capturing():
            transaction(group.url, f"INSERT INTO orders SELECT n FROM generate_series({start + 5}, {start + 9}) n")
            group.settle()
    rows = group.rows()
    assert [row.new for row in rows] == [(str(n), None) for n in range(30)]
    assert len({(row.commit_lsn, row.seq) for row in rows}) == 30


def test_after_a_stop_everything_read_is_registered_and_the_slot_knows(group: Group) -> None:
    orders(group)
    group.prepare("orders")
    with group.capturing():
        transaction(group.url, "INSERT INTO orders VALUES (1)")
        group.settle()
    with connect(group.url) as connection:
        slot = slot_of(connection, "headwater_shop")
    row = group.state.group("shop")
    assert slot is not None
    assert row is not None
    assert slot.confirmed_lsn == row.confirmed_lsn == row.captured_lsn


def test_a_change_of_shape_inside_a_transaction_makes_a_new_relation_version(group: Group) -> None:
    orders(group)
    group.prepare("orders")
    with group.capturing():
        transaction(
            group.url,
            "INSERT INTO orders VALUES (1, 'a')",
            "ALTER TABLE orders ADD COLUMN extra int DEFAULT 7",
            "INSERT INTO orders VALUES (2, 'b')",
        )
        group.settle()
    assert [row.new for row in group.rows()] == [("1", "a"), ("2", "b", "7")]
    assert group.state.query("SELECT count(*) FROM headwater.relations") == [(2,)]


def test_a_relation_version_begins_at_the_commit_of_the_very_transaction_that_sent_it(group: Group) -> None:
    orders(group)
    group.prepare("orders")
    for number in range(3):  # all of them before capture begins: they come in one chunk
        transaction(group.url, f"INSERT INTO orders (id) VALUES ({number})")
        transaction(group.url, f"ALTER TABLE orders ADD COLUMN extra_{number} int")
    transaction(group.url, "INSERT INTO orders (id) VALUES (9)", "INSERT INTO orders (id) VALUES (10)")
    with group.capturing():
        group.settle()
    rows = group.rows()
    assert [len(row.relation.columns) for row in rows] == [2, 3, 4, 5, 5]
    versions = dict(group.state.query("SELECT id, lsn FROM headwater.relations WHERE seen = 'rows'"))
    # What is known from an event trigger begins where its table was altered, before the row.
    assert versions.items() <= {row.relation.id: Lsn(row.commit_lsn) for row in rows}.items()
    altered = group.state.query("SELECT lsn FROM headwater.relations WHERE seen = 'ddl' ORDER BY lsn")
    commits = [Lsn(row.commit_lsn) for row in rows]
    assert all(before < lsn < after for before, (lsn,), after in zip(commits, altered, commits[1:], strict=False))
    assert len(altered) == 3


def test_whether_a_slot_holds_changes_is_found_without_reading_it(group: Group) -> None:
    orders(group, "CREATE TABLE unrelated (id int)")
    begin = group.prepare("orders")
    names = "headwater_shop", "headwater_shop"
    transaction(group.url, "INSERT INTO unrelated VALUES (1)")
    with connect(group.url) as connection:
        (between,) = connection.execute("SELECT pg_current_wal_insert_lsn()").fetchone() or (Lsn(0),)
        transaction(group.url, "INSERT INTO orders SELECT n FROM generate_series(1, 5000) n")
        (end,) = connection.execute("SELECT pg_current_wal_insert_lsn()").fetchone() or (Lsn(0),)
    assert [has_pending_changes(group.url, *names, at) for at in (begin, between, end)] == [False, False, True]
    with group.capturing():
        group.settle()
        assert has_pending_changes(group.url, *names, end) is None  # another client reads it
    assert has_pending_changes(group.url, *names, end) is False
    with connect(group.url) as connection:
        connection.execute("SELECT pg_drop_replication_slot('headwater_shop')")
    with pytest.raises(OperatorMustAct, match=r"slot 'headwater_shop' cannot be read: replication slot .* not exist"):
        has_pending_changes(group.url, *names, end)


def test_a_reconnect_does_not_make_new_relation_versions(group: Group) -> None:
    orders(group)
    group.prepare("orders")
    for number in range(2):
        with group.capturing():
            transaction(group.url, f"INSERT INTO orders VALUES ({number})")
            group.settle()
    assert group.state.query("SELECT count(*) FROM headwater.relations") == [(1,)]


def test_a_large_transaction_is_rolled_over_several_segments_and_registered_at_once(group: Group) -> None:
    orders(group)
    group.prepare("orders")
    sizes: set[int] = set()
    done = threading.Event()

    def watch() -> None:
        with psycopg.connect(group.url, autocommit=True) as connection:
            while not done.wait(0.01):
                row = connection.execute("SELECT coalesce(sum(rows), 0)::int FROM headwater.segments").fetchone()
                sizes.update(row or ())

    watcher = threading.Thread(target=watch)
    watcher.start()
    with group.capturing(roll_bytes=1 << 20):
        transaction(group.url, "INSERT INTO orders VALUES (-1, 'before')")
        transaction(group.url, "INSERT INTO orders SELECT n, 'x' FROM generate_series(1, 300000) n")
        transaction(group.url, "INSERT INTO orders VALUES (-2, 'after')")
        group.settle()
    done.set()
    watcher.join()
    assert sizes <= {0, 1, 300_001, 300_002}
    batch = group.log.read(group.begin, max_rows=10)
    assert batch.segments[0].rows == 1
    rest = group.log.read(batch.upto, max_rows=10).segments
    assert len(rest) > 5
    assert sum(segment.rows for segment in rest) in (300_000, 300_001)
    table = pa.concat_tables(pq.read_table(segment.path) for segment in rest)
    large = table.filter(pc.equal(table["commit_lsn"], rest[0].first_lsn.value))
    assert large["seq"].to_pylist() == list(range(300_000))
    values = (b"%d" % n for n in range(1, 300_001))
    assert large["message"].to_pylist()[::1000] == [_insert(table, value) for value in islice(values, 0, None, 1000)]


def test_an_idle_slot_follows_the_wal_and_a_fence_is_answered_promptly(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "_IDLE_SECONDS", 3600.0)  # it is not the time that has it follow
    monkeypatch.setattr(stream, "_STATUS_SECONDS", 25.0)  # and a slow machine has time enough
    orders(group, "CREATE TABLE unrelated (t text)")
    group.prepare("orders")
    with group.capturing():
        group.settle()
        transaction(group.url, "INSERT INTO unrelated SELECT repeat('x', 1000) FROM generate_series(1, 12000)")
        with connect(group.url) as connection:
            (lsn,) = connection.execute("SELECT pg_current_wal_lsn()").fetchone() or (Lsn(0),)
            near = Lsn(lsn.value - (8 << 20))
            until(lambda: _confirmed(connection) > near)
        group.settle(stream._STATUS_SECONDS - 2)  # sooner than the server hears of us anyway
    assert group.rows() == []


def test_an_idle_source_is_not_kept_busy_by_our_own_notes(group: Group) -> None:
    def noted() -> list[tuple[object, ...]]:
        return group.state.query("SELECT xmin::text FROM headwater.groups")

    def quiet(seconds: float) -> bool:
        before = noted()
        time.sleep(seconds)
        return noted() == before

    orders(group)
    group.prepare("orders")
    with group.capturing():
        group.settle()
        until(lambda: quiet(1))  # what the start and the fence had to note
        assert quiet(3)


def test_values_are_printed_the_same_whatever_the_database_prefers(group: Group) -> None:
    transaction(group.url, "CREATE TABLE odd (id int PRIMARY KEY, t timestamptz, i interval, b bytea, f float8)")
    name = psycopg.conninfo.conninfo_to_dict(group.url)["dbname"]
    odd = ("datestyle = German", "intervalstyle = iso_8601", "bytea_output = escape", "timezone = 'Asia/Tokyo'")
    for setting in (*odd, "extra_float_digits = -5"):
        transaction(group.url, f"ALTER DATABASE {name} SET {setting}")
    group.prepare("odd")
    with group.capturing():
        values = "1, '2024-05-06 07:08:09+00', '1 day', '\\x00ff', 0.1::float8 + 0.2::float8"
        transaction(group.url, f"INSERT INTO odd VALUES ({values})")
        group.settle()
    (row,) = group.rows()
    assert row.new == ("1", "2024-05-06 07:08:09+00", "1 day", "\\x00ff", "0.30000000000000004")


def test_the_state_may_live_in_another_database(group: Group, postgres: EmbeddedPostgres, tmp_path: Path) -> None:
    with psycopg.connect(postgres.url(), autocommit=True) as admin:
        admin.execute("CREATE DATABASE elsewhere")
    try:
        elsewhere = State.connect(postgres.url("elsewhere"))
        elsewhere.migrate()
        moved = Group(group.url, elsewhere, type(group.log)(elsewhere, "shop", str(tmp_path / "else")), tmp_path)
        orders(moved)
        moved.prepare("orders")
        with moved.capturing():
            transaction(moved.url, "INSERT INTO orders VALUES (1, 'a')")
            moved.settle()
        assert [row.new for row in moved.rows()] == [("1", "a")]
        elsewhere.close()
    finally:
        with psycopg.connect(postgres.url(), autocommit=True) as admin:
            admin.execute("DROP DATABASE elsewhere WITH (FORCE)")


def test_a_slot_that_is_gone_is_reported_as_lost_and_noted(group: Group) -> None:
    orders(group)
    group.prepare("orders")
    transaction(group.url, "SELECT pg_drop_replication_slot('headwater_shop')")
    with pytest.raises(SlotLost, match="'headwater_shop' of group 'shop' is gone"), group.capturing():
        until(lambda: _error(group) is not None)
    assert "is gone" in str(_error(group))


def test_a_slot_that_another_client_moved_is_refused(group: Group) -> None:
    orders(group)
    group.prepare("orders")
    transaction(group.url, "INSERT INTO orders VALUES (1)")
    transaction(group.url, "SELECT pg_replication_slot_advance('headwater_shop', pg_current_wal_lsn())")
    with pytest.raises(OperatorMustAct, match="was moved to"), group.capturing():
        until(lambda: _error(group) is not None)


def test_another_cluster_is_refused(group: Group) -> None:
    orders(group)
    group.prepare("orders")
    with group.state.transaction() as connection:
        connection.execute("UPDATE headwater.groups SET source_id = '1/elsewhere'")
    with pytest.raises(OperatorMustAct, match="was captured from source '1/elsewhere'"), group.capturing():
        until(lambda: _error(group) is not None)


def test_a_dropped_publication_is_reported(group: Group) -> None:
    orders(group)
    group.prepare("orders")
    transaction(group.url, "DROP PUBLICATION headwater_shop")
    with pytest.raises(OperatorMustAct, match="publication 'headwater_shop'"), group.capturing():
        until(lambda: _error(group) is not None)


def test_changes_from_a_time_without_the_publication_are_read_over_or_end_capture_with_the_next_move(
    group: Group,
) -> None:
    orders(group)
    group.prepare("orders")
    transaction(group.url, "DROP PUBLICATION headwater_shop", "INSERT INTO orders VALUES (1)")
    group.prepare("orders")
    with connect(group.url) as connection:
        reads_over = connection.info.server_version >= 180000
    if reads_over:
        with group.capturing():
            group.settle()
        assert group.rows() == []
        return
    with pytest.raises(OperatorMustAct, match="does not exist") as reported, group.capturing():
        until(lambda: _error(group) is not None)
    assert "`headwater group drop` the group" in reported.value.hint


def test_a_login_that_is_refused_is_reported_and_tried_until_it_works_again(
    group: Group, caplog: pytest.LogCaptureFixture
) -> None:
    orders(group)
    transaction(group.url, "CREATE ROLE reader LOGIN SUPERUSER")
    reader = replace(group, url=group.url.replace("postgres@", "reader@"))
    reader.prepare("orders")
    end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'reader'"
    try:
        with reader.capturing():
            group.settle()
            transaction(group.url, "ALTER ROLE reader NOLOGIN")
            transaction(group.url, end)
            until(lambda: _error(group) is not None)
            assert "not permitted to log in" in str(_error(group))
            assert "hint: correct user, password or database in the URL" in str(_error(group))
            transaction(group.url, "ALTER ROLE reader LOGIN", "INSERT INTO orders VALUES (9)")
            group.settle()
            assert _error(group) is None
    finally:
        transaction(group.url, "DROP OWNED BY reader", "DROP ROLE reader")
    assert [row.new for row in group.rows()][-1] == ("9", None)
    assert next(each.levelname for each in caplog.records if "not permitted to log in" in each.message) == "ERROR"


def test_a_new_password_is_read_from_its_file_while_capture_runs(
    own_postgres: EmbeddedPostgres, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    access, passwords = own_postgres.folder / "pg_hba.conf", tmp_path / "passwords"
    passwords.write_text("*:*:*:app:first")
    passwords.chmod(0o600)
    with psycopg.connect(own_postgres.url(), autocommit=True) as admin:
        admin.execute("CREATE ROLE app LOGIN SUPERUSER PASSWORD 'first'")
        admin.execute("CREATE TABLE orders (id int PRIMARY KEY)")
        access.write_text("local all app scram-sha-256\nlocal replication app scram-sha-256\n" + access.read_text())
        admin.execute("SELECT pg_reload_conf()")
        url = own_postgres.url(passfile=str(passwords)).replace("postgres@", "app@")
        group = Group.opened(url, tmp_path / "log")
        group.prepare("orders")
        with group.capturing():
            group.settle()
            admin.execute("ALTER ROLE app PASSWORD 'second'")
            admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'app'")
            until(lambda: "password authentication failed" in caplog.text)
            admin.execute("INSERT INTO orders VALUES (1)")
            passwords.write_text("*:*:*:app:second")
            until(lambda: len(group.rows()) == 1)
        group.state.close()
        until(lambda: not admin.execute("SELECT FROM pg_replication_slots WHERE active").fetchall())
        admin.execute("SELECT pg_drop_replication_slot('headwater_shop')")
    assert "second" not in caplog.text


@pytest.mark.parametrize(
    ("predecessor", "reported"),
    [(90.0, "still in use"), (0.1, "slot 'headwater_shop' is in use")],
    ids=["soon", "late"],
)
def test_a_reader_that_still_holds_the_slot_is_waited_for_and_not_an_error(
    group: Group, caplog: pytest.LogCaptureFixture, predecessor: float, reported: str
) -> None:
    orders(group)
    group.prepare("orders")
    other = Group.opened(group.url, group.folder)
    with other.capturing() as gone:
        other.settle()
        with group.capturing(predecessor=predecessor):
            until(lambda: reported in caplog.text)
            assert _error(group) is None
            gone.set()
            transaction(group.url, "INSERT INTO orders VALUES (1, 'a')")
            group.settle()
    assert [row.new for row in group.rows()] == [("1", "a")]
    other.state.close()


def _confirmed(connection: Connection) -> Lsn:
    slot = slot_of(connection, "headwater_shop")
    assert slot is not None
    return slot.confirmed_lsn


def _error(group: Group) -> str | None:
    row = group.state.group("shop")
    return row.error if row else None


def _insert(table: pa.Table, id: bytes) -> bytes:
    """The message of an insert of (id, 'x') into the table's only relation."""
    oid: bytes = table["message"][0].as_py()[1:5]
    return b"I" + oid + b"N\0\2t" + struct.pack("!I", len(id)) + id + b"t\0\0\0\1x"
