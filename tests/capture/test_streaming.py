"""Transactions that the server sends while they are in progress: kept on disk, visible at their commit, or never."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict
from tests.captured_group import Captured, Group, transaction, until
from tests.conftest import MORE_VERSIONS, VERSION, VERSIONS, new_database

from headwater.change import Lsn
from headwater.testing.postgres import EmbeddedPostgres

SMALL, LARGE = 100_000, 16 << 20  # bytes of a roll: it spills, it does not

EVERY_WAY = pytest.mark.parametrize(
    ("server", "roll_bytes"),
    [
        *(pytest.param(*each.values, SMALL, marks=each.marks) for each in MORE_VERSIONS),
        (VERSION, LARGE),
    ],
    indirect=["server"],
)


@pytest.fixture(params=MORE_VERSIONS)
def server(request: pytest.FixtureRequest, servers: Callable[[int], EmbeddedPostgres]) -> EmbeddedPostgres:
    return servers(request.param)


@pytest.fixture
def group(server: EmbeddedPostgres, tmp_path: Path) -> Iterator[Group]:
    """Two published tables in a database whose larger transactions are streamed."""
    with new_database(server) as url:
        group = Group.opened(url, tmp_path / "log")
        transaction(
            url,
            f"ALTER DATABASE {conninfo_to_dict(url)['dbname']} SET logical_decoding_work_mem = '64kB'",
            "CREATE TABLE orders (id bigint PRIMARY KEY, note text)",
            "CREATE TABLE lines (id bigint PRIMARY KEY, note text)",
        )
        group.prepare("orders", "lines")
        yield group
        group.state.close()


def insert(connection: psycopg.Connection, first: int, last: int, table: str = "orders") -> None:
    connection.execute(f"INSERT INTO {table} SELECT n, repeat('x', 20) FROM generate_series({first}, {last}) n")


def ids(rows: list[Captured], table: str = "public.orders") -> list[int]:
    return [int(row.new[0] or 0) for row in rows if row.table == table and row.new is not None]


def registered(group: Group) -> int:
    return len(group.log.read(group.begin).segments)


def test_small_transactions_go_on_while_a_large_one_is_open_and_it_shows_at_its_commit(group: Group) -> None:
    with group.capturing(SMALL), psycopg.connect(group.url) as large:
        insert(large, 1, 25_000)
        transaction(group.url, "INSERT INTO orders VALUES (-1, 'during')")
        group.settle()
        insert(large, 25_001, 50_000)
        transaction(group.url, "INSERT INTO orders VALUES (-2, 'during')")
        until(lambda: len(group.files()) > 20)
        group.settle()
        assert ids(group.rows()) == [-1, -2]
        large.commit()
        transaction(group.url, "INSERT INTO orders VALUES (-3, 'after')")
        group.settle()
    rows = group.rows()
    assert ids(rows) == [-1, -2, *range(1, 50_001), -3]
    assert [row.seq for row in rows[2:-1]] == list(range(50_000))
    assert len({row.commit_lsn for row in rows}) == 4
    assert rows[1].commit_lsn < rows[2].commit_lsn < rows[-1].commit_lsn
    assert len(group.files()) == registered(group)


@pytest.mark.parametrize("server", VERSIONS, indirect=True)
def test_the_commit_of_a_streamed_transaction_is_recorded_beside_its_files(group: Group) -> None:
    with group.capturing(SMALL), psycopg.connect(group.url) as large:
        insert(large, 1, 3000)
        now, xid = large.execute("SELECT clock_timestamp(), pg_current_xact_id()::text::bigint").fetchone() or (0, 0)
        large.commit()
        group.settle()
    segments = group.log.read(group.begin).segments
    assert len(segments) > 1
    (commit,) = {segment.commit for segment in segments}
    assert commit is not None
    assert {(segment.first_lsn, segment.last_lsn) for segment in segments} == {(commit.lsn, commit.lsn)}
    assert abs((commit.ts - now).total_seconds()) < 5
    assert commit.xid == xid
    assert sum(part.rows for segment in segments for part in segment.parts) == 3000


@EVERY_WAY
def test_a_large_transaction_that_is_rolled_back_leaves_nothing(group: Group, roll_bytes: int) -> None:
    with group.capturing(roll_bytes), psycopg.connect(group.url) as large:
        insert(large, 1, 20_000)
        large.execute("ALTER TABLE orders ADD COLUMN extra int")
        large.execute("INSERT INTO orders SELECT n, 'x', n FROM generate_series(20001, 30000) n")
        if roll_bytes == SMALL:
            until(lambda: len(group.files()) > 5)
        large.rollback()
        group.settle()
        until(lambda: group.files() == [])
        assert group.rows() == []
        transaction(group.url, "INSERT INTO orders VALUES (-1, 'after')")
        group.settle()
    assert [row.new for row in group.rows()] == [("-1", "after")]
    assert len(group.files()) == 1
    assert group.state.query("SELECT count(*) FROM headwater.relations") == [(1,)]


@EVERY_WAY
def test_subtransactions_that_were_rolled_back_are_left_out(group: Group, roll_bytes: int) -> None:
    with group.capturing(roll_bytes), psycopg.connect(group.url) as large:
        insert(large, 1, 2000)
        large.execute("SAVEPOINT outer_one")
        insert(large, 2001, 5000)
        large.execute("SAVEPOINT inner_one")
        insert(large, 5001, 8000)
        large.execute("RELEASE inner_one")
        insert(large, 1, 3000, "lines")
        large.execute("ROLLBACK TO outer_one")  # with what was released inside it
        insert(large, 8001, 11_000)
        large.execute("SAVEPOINT kept")
        insert(large, 11_001, 14_000)
        large.execute("RELEASE kept")
        for number in range(50):  # a few rows each: rolled back while in memory
            large.execute("SAVEPOINT few")
            insert(large, 20_000, 20_010)
            large.execute("UPDATE orders SET note = 'y' WHERE id <= 10")
            large.execute("ROLLBACK TO few" if number % 2 else "RELEASE few")
            large.execute("DELETE FROM orders WHERE id >= 20000")
        large.commit()
        transaction(
            group.url, "INSERT INTO lines VALUES (1, 'first')"
        )  # reported inside a subtransaction that is no more
        group.settle()
    rows = group.rows()
    inserted = [row for row in rows if row.op == "I"]
    wanted = [*range(1, 2001), *range(8001, 14_001), *(list(range(20_000, 20_011)) * 25)]
    assert ids(inserted) == wanted
    assert ids(inserted, "public.lines") == [1]
    assert sum(row.op == "U" for row in rows) == 25 * 10
    assert sum(row.op == "D" for row in rows) == 25 * 11
    places = [(row.commit_lsn, row.seq) for row in rows]
    assert len(set(places)) == len(places)
    assert len(group.files()) == registered(group)


def test_a_streamed_transaction_of_which_nothing_is_left_is_no_change(group: Group) -> None:
    with group.capturing(SMALL), psycopg.connect(group.url) as large:
        large.execute("SAVEPOINT everything")
        insert(large, 1, 10_000)
        until(lambda: len(group.files()) > 3)
        large.execute("ROLLBACK TO everything")
        large.commit()
        group.settle()
        until(lambda: group.files() == [])
    assert group.rows() == []
    assert group.state.query("SELECT count(*) FROM headwater.relations") == [(0,)]


@pytest.mark.parametrize("server", VERSIONS, indirect=True)
def test_two_large_transactions_at_once_are_kept_apart_and_come_in_commit_order(group: Group) -> None:
    with group.capturing(SMALL), psycopg.connect(group.url) as late, psycopg.connect(group.url) as early:
        with psycopg.connect(group.url) as never:
            for step in range(0, 10_000, 1000):
                insert(late, 100_001 + step, 101_000 + step)
                insert(early, 200_001 + step, 201_000 + step)
                insert(never, 300_001 + step, 301_000 + step)
                transaction(group.url, f"INSERT INTO lines VALUES ({step}, 'between')")
            early.execute("DELETE FROM orders WHERE id BETWEEN 200001 AND 200005")
            early.commit()
            never.rollback()
        insert(late, 110_001, 112_000)
        late.commit()
        group.settle()
    rows = group.rows()
    assert ids(rows) == [*range(200_001, 210_001), *range(100_001, 112_001)]
    assert ids(rows, "public.lines") == list(range(0, 10_000, 1000))
    assert sum(row.op == "D" for row in rows) == 5
    assert len(group.files()) == registered(group)


@EVERY_WAY
def test_truncate_inside_a_streamed_transaction_has_its_place_in_it(group: Group, roll_bytes: int) -> None:
    with group.capturing(roll_bytes), psycopg.connect(group.url) as large:
        insert(large, 1, 3000)
        large.execute("SAVEPOINT undone")
        large.execute("TRUNCATE lines")
        insert(large, 1, 3000, "lines")
        large.execute("ROLLBACK TO undone")
        large.execute("TRUNCATE orders, lines")
        insert(large, 1, 3000)
        large.commit()
        group.settle()
    rows = group.rows()
    kinds = [(row.op, row.table) for row in rows]
    assert kinds[:3000] == kinds[3002:] == [("I", "public.orders")] * 3000
    assert sorted(kinds[3000:3002]) == [("T", "public.lines"), ("T", "public.orders")]


@EVERY_WAY
def test_a_change_of_shape_inside_a_streamed_transaction_begins_at_its_commit(group: Group, roll_bytes: int) -> None:
    with group.capturing(roll_bytes), psycopg.connect(group.url) as large:
        transaction(group.url, "INSERT INTO orders VALUES (0, 'old')")
        group.settle()
        insert(large, 1, 2000)
        large.execute("ALTER TABLE orders ADD COLUMN extra int DEFAULT 7")
        insert(large, 2001, 4000)
        large.execute("ALTER TABLE orders DROP COLUMN extra")
        insert(large, 4001, 6000)
        transaction(group.url, "INSERT INTO lines VALUES (1, 'between')")
        large.commit()
        transaction(group.url, "INSERT INTO orders VALUES (6001, 'after')")
        group.settle()
    rows = [row for row in group.rows() if row.table == "public.orders"]
    assert ids(rows) == list(range(6002))
    names = [[column.name for column in row.relation.columns] for row in rows]
    assert names == [["id", "note"]] * 2001 + [["id", "note", "extra"]] * 2000 + [["id", "note"]] * 2001
    assert all(len(row.new or ()) == len(row.relation.columns) for row in rows)
    versions = group.state.query("SELECT id, lsn FROM headwater.relations WHERE name = 'orders' ORDER BY lsn, id")
    commit = Lsn(rows[1].commit_lsn)
    used = list(dict.fromkeys(row.relation.id for row in rows))
    assert [id for id, _ in versions if id in used] == used
    assert {lsn for _, lsn in versions} == {Lsn(rows[0].commit_lsn), commit}
    assert versions[-1][0] == used[-1]  # the newest in the timeline is the newest in the transaction
    assert rows[2001].relation.columns[2].missing == "7"


@pytest.mark.parametrize("server", VERSIONS[:1], indirect=True)
def test_a_list_of_columns_that_is_changed_beside_a_streamed_transaction_holds_after_it(group: Group) -> None:
    transaction(group.url, "ALTER PUBLICATION headwater_shop SET TABLE orders (id), lines")
    with group.capturing(SMALL), psycopg.connect(group.url) as large:
        insert(large, 1, 3000)
        insert(large, 1, 3000, "lines")  # so that of the other table everything is sent before the commit
        group.settle()
        transaction(group.url, "ALTER PUBLICATION headwater_shop SET TABLE orders, lines")
        transaction(group.url, "INSERT INTO orders VALUES (-1, 'during')")
        group.settle()
        large.commit()
        transaction(group.url, "INSERT INTO orders VALUES (-2, 'after')")
        group.settle()
    rows = group.rows()
    assert [rows[n].new for n in (0, 3000, -1)] == [("-1", "during"), ("3000",), ("-2", "after")]
    assert all(len(row.new or ()) == len(row.relation.columns) for row in rows)


@EVERY_WAY
def test_a_shape_that_was_rolled_back_never_was(group: Group, roll_bytes: int) -> None:
    with group.capturing(roll_bytes), psycopg.connect(group.url) as large:
        insert(large, 1, 2000)
        large.execute("SAVEPOINT undone")
        large.execute("ALTER TABLE orders ADD COLUMN never int")
        large.execute("INSERT INTO orders SELECT n, 'x', n FROM generate_series(2001, 4000) n")
        large.execute("ROLLBACK TO undone")
        insert(large, 4001, 6000)
        large.commit()
        transaction(group.url, "INSERT INTO orders VALUES (6001, 'after')")
        group.settle()
    rows = group.rows()
    assert ids(rows) == [*range(1, 2001), *range(4001, 6002)]
    assert {tuple(column.name for column in row.relation.columns) for row in rows} == {("id", "note")}
    assert group.state.query("SELECT name FROM headwater.relations WHERE position('never' IN columns::text) > 0") == []


def test_what_the_server_cannot_decode_in_progress_is_read_after_its_commit(
    group: Group, caplog: pytest.LogCaptureFixture
) -> None:
    """An ALTER TABLE after another one that was rolled back to a savepoint is too much for PostgreSQL's streaming."""
    with psycopg.connect(group.url) as large:
        insert(large, 1, 2000)
        large.execute("SAVEPOINT undone")
        large.execute("ALTER TABLE orders ADD COLUMN never int")
        large.execute("INSERT INTO orders SELECT n, 'x', n FROM generate_series(2001, 4000) n")
        large.execute("ROLLBACK TO undone")
        insert(large, 4001, 6000)
        large.execute("ALTER TABLE orders ADD COLUMN extra int DEFAULT 7")
        insert(large, 6001, 8000)
    with group.capturing(SMALL):
        group.settle()
    rows = group.rows()
    assert ids(rows) == [*range(1, 2001), *range(4001, 8001)]
    assert [len(row.new or ()) for row in rows] == [2] * 4000 + [3] * 2000
    assert "could not map file" in caplog.text
    assert len(group.files()) == registered(group)


def test_a_column_dropped_and_added_again_under_its_name_is_another_one(group: Group) -> None:
    """The messages cannot tell: an event trigger can. The rows are on disk before the commit."""
    with group.capturing(SMALL), psycopg.connect(group.url) as large:
        transaction(group.url, "INSERT INTO orders VALUES (0, 'old')", "INSERT INTO lines VALUES (0, 'old')")
        group.settle()
        large.execute("ALTER TABLE orders DROP COLUMN note")
        large.execute("ALTER TABLE orders ADD COLUMN note text")
        insert(large, 1, 5000)
        insert(large, 1, 5000, "lines")
        until(lambda: len(group.files()) > 3)
        large.commit()
        group.settle()
    rows = group.rows()
    old, new = ({row.relation for row in rows if row.table == "public.orders" and (row.seq > 0) == n} for n in (0, 1))
    (first,) = {row.relation.id for row in rows if ids([row]) == [0]}
    (second,) = {row.relation.id for row in rows if ids([row]) and ids([row])[0] > 0}
    assert second > first
    assert len({row.relation.id for row in rows if row.table == "public.lines"}) == 1  # that is as it was
    numbers = {relation.id: [column.attnum for column in relation.columns] for relation in old | new}
    assert numbers[first] == [1, 2]
    assert numbers[second] == [1, 3]
    assert ids(rows) == list(range(5001))
    assert len(group.files()) == registered(group)


def test_a_streamed_transaction_does_not_make_new_versions_of_what_is_known(group: Group) -> None:
    with group.capturing(SMALL):
        transaction(group.url, "INSERT INTO orders VALUES (0)", "INSERT INTO lines VALUES (0)")
        group.settle()
        for step in range(3):
            with psycopg.connect(group.url) as large:
                insert(large, 1 + step * 5000, 5000 + step * 5000)
                insert(large, 1 + step * 5000, 5000 + step * 5000, "lines")
        group.settle()
    assert group.state.query("SELECT count(*) FROM headwater.relations") == [(2,)]
    assert ids(group.rows()) == ids(group.rows(), "public.lines") == list(range(15_001))


def test_a_large_prepared_transaction_is_there_when_it_is_committed_and_only_then(group: Group) -> None:
    with group.capturing(SMALL):
        with psycopg.connect(group.url, autocommit=True) as connection:
            for name, first in (("kept", 1), ("gone", 100_001)):
                connection.execute("BEGIN")
                insert(connection, first, first + 9999)
                connection.execute(f"PREPARE TRANSACTION '{name}'")
            transaction(group.url, "INSERT INTO lines VALUES (1, 'between')")
            group.settle()
            assert ids(group.rows()) == []
            connection.execute("COMMIT PREPARED 'kept'")
            connection.execute("ROLLBACK PREPARED 'gone'")
        group.settle()
        until(lambda: len(group.files()) == registered(group))
    rows = group.rows()
    assert ids(rows) == list(range(1, 10_001))
    assert ids(rows[:1], "public.lines") == [1]


def test_what_a_broken_session_left_of_an_open_transaction_is_deleted_and_sent_again(group: Group) -> None:
    with psycopg.connect(group.url) as large:
        for step in range(2):
            with group.capturing(SMALL):
                group.settle()
                insert(large, 1 + step * 10_000, 10_000 + step * 10_000)
                until(lambda: len(group.files()) > 3)
            assert group.files() == []  # an orderly end leaves nothing
        (home,) = group.folder.glob("segments/*/shop")
        stranger = home / "0000000000000000-left.parquet"
        stranger.write_bytes(b"of a session that was killed")
        with group.capturing(SMALL):
            group.settle()
            insert(large, 20_001, 30_000)
            until(lambda: len(group.files()) > 3)
            assert not stranger.exists()
            with psycopg.connect(group.url) as connection:
                connection.execute("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active")
            large.commit()
            group.settle()
    assert ids(group.rows()) == list(range(1, 30_001))
    assert len(group.files()) == registered(group)
