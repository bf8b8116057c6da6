"""Routes straight from the log: what PostgreSQL's transactions do to rows reaches the tenants they belong to."""

from __future__ import annotations

import logging
import sqlite3
from contextlib import closing
from dataclasses import replace
from datetime import timedelta

import pytest
from tests.logroutes import LogRoute
from tests.mirror import IcebergMirror, Mirror

from headwater import flow
from headwater.flow import logsource
from headwater.supervise.grouproutes import GroupRoutes

ORDERS = "CREATE TABLE orders (id int PRIMARY KEY, tenant text, note text)"
FULL = "ALTER TABLE orders REPLICA IDENTITY FULL"
SOME = "INSERT INTO orders SELECT i, chr(97 + i % 3), 'note ' || i FROM generate_series(1, 12) i"

TRANSACTIONS = {
    "new rows": ["INSERT INTO orders VALUES (20, 'a', 'x'), (21, 'b', NULL), (22, 'unknown', 'x'), (23, NULL, 'x')"],
    "changed rows": ["UPDATE orders SET note = 'changed' WHERE id % 2 = 0"],
    "rows that go": ["DELETE FROM orders WHERE id % 2 = 0"],
    "rows that move": ["UPDATE orders SET tenant = 'b' WHERE tenant = 'a'"],
    "rows that leave, and come": [
        "UPDATE orders SET tenant = NULL WHERE tenant = 'a'",
        "UPDATE orders SET tenant = 'a' WHERE tenant = 'b'",
    ],
    "there and back": [
        "UPDATE orders SET tenant = 'b' WHERE id = 3",
        "UPDATE orders SET tenant = 'c', note = 'abroad' WHERE id = 3",
        "UPDATE orders SET tenant = 'a', note = 'home again' WHERE id = 3",
    ],
    "other keys": ["UPDATE orders SET id = id + 100 WHERE id % 2 = 0"],
    "another key and another tenant": ["UPDATE orders SET id = id + 100, tenant = 'c' WHERE tenant = 'a'"],
    "keys that swap": [
        "UPDATE orders SET id = -1 WHERE id = 3",
        "UPDATE orders SET id = 3 WHERE id = 4",
        "UPDATE orders SET id = 4 WHERE id = -1",
    ],
    "one key, many fates": [
        "DELETE FROM orders WHERE id = 3",
        "INSERT INTO orders VALUES (3, 'b', 'second')",
        "DELETE FROM orders WHERE id = 3",
        "INSERT INTO orders VALUES (3, 'c', 'third')",
        "UPDATE orders SET tenant = 'b' WHERE id = 3",
    ],
    "came and went": ["INSERT INTO orders VALUES (50, 'a', 'x')", "DELETE FROM orders WHERE id = 50"],
}


AGAIN = ("DELETE FROM orders", SOME)


def routed(mirror: Mirror, *statements: str, **options: object) -> LogRoute:
    """A route of the table orders, which these statements make; its tenants are seeded."""
    mirror.execute(*statements)
    mirror.start()
    mirror.sync()
    route = LogRoute(mirror, "orders", **options)
    route.settle()
    route.assert_equal()
    return route


@pytest.mark.parametrize(
    "one",
    [
        pytest.param(True, marks=pytest.mark.long, id="in one transaction"),
        pytest.param(False, id="in a transaction each"),
    ],
)
def test_each_tenant_has_its_rows(mirror: Mirror, one: bool) -> None:
    route = routed(mirror, ORDERS, FULL, SOME)
    for statements in TRANSACTIONS.values():
        mirror.transaction(*AGAIN)
        (mirror.transaction if one else mirror.execute)(*statements)
        route.sync()
        route.assert_equal()


# Large values that updates leave alone -------------------------------------------------------------------------------

INDEXED = (
    "ALTER TABLE orders ALTER tenant SET NOT NULL",
    "CREATE UNIQUE INDEX by_tenant ON orders (tenant, id)",
    "ALTER TABLE orders REPLICA IDENTITY USING INDEX by_tenant",
)
LARGE = (
    "ALTER TABLE orders ADD body text, ADD tags text[]",
    "ALTER TABLE orders ALTER body SET STORAGE EXTERNAL, ALTER tags SET STORAGE EXTERNAL",
)
BIG = "repeat(md5(({})::text), 200)"
FILL = (
    f"UPDATE orders SET body = {BIG.format('id')}, tags = ARRAY[{BIG.format('-id')}, NULL, 'x'] WHERE body IS NULL",
)
UNTOUCHED = {
    "left alone": ["UPDATE orders SET note = 'changed'"],
    "moved": ["UPDATE orders SET tenant = 'b' WHERE tenant = 'a'"],
    "there and back": [
        "UPDATE orders SET tenant = 'c' WHERE id = 3",
        "UPDATE orders SET tenant = 'a' WHERE id = 3",
        "UPDATE orders SET tenant = 'b', note = 'n' WHERE id = 3",
    ],
    "one of two changed": [f"UPDATE orders SET body = {BIG.format(7)}", "UPDATE orders SET note = 'n', tenant = 'c'"],
    "another key": ["UPDATE orders SET id = id + 100, note = 'n' WHERE id % 2 = 0"],
    "keys that swap": TRANSACTIONS["keys that swap"],
    "changed, then gone": ["UPDATE orders SET note = 'n'", "DELETE FROM orders WHERE id % 2 = 0"],
    "gone, then there again": [
        "UPDATE orders SET note = 'n' WHERE id = 3",
        "DELETE FROM orders WHERE id = 3",
        f"INSERT INTO orders VALUES (3, 'b', 'again', {BIG.format(33)}, NULL)",
        "UPDATE orders SET tenant = 'c' WHERE id = 3",
    ],
    "set to NULL": ["UPDATE orders SET body = NULL WHERE id = 4", "UPDATE orders SET note = 'n' WHERE id = 4"],
    "a column came in between": [
        "UPDATE orders SET note = 'before'",
        "ALTER TABLE orders ADD added text DEFAULT 'given'",
        "UPDATE orders SET tenant = 'a' WHERE id % 2 = 0",
    ],
}


def large_values(mirror: Mirror, *identity: str) -> None:
    route = routed(mirror, ORDERS, *LARGE, *identity, SOME, *FILL, keys=["id"])
    for statements in UNTOUCHED.values():
        mirror.transaction(*AGAIN, *FILL)
        mirror.sync()
        mirror.execute(*statements)
        mirror.settle()  # Iceberg copies the table again for a new column with a default
        route.settle()
        route.assert_equal()


@pytest.mark.parametrize(
    "identity", [pytest.param((FULL,), marks=pytest.mark.long, id="FULL"), pytest.param(INDEXED, id="an index")]
)
def test_large_values_that_an_update_leaves_alone_are_not_lost(mirror: Mirror, identity: tuple[str, ...]) -> None:
    large_values(mirror, *identity)


@pytest.mark.long
def test_large_values_come_from_an_iceberg_mirror_too(iceberg_mirror: IcebergMirror) -> None:
    large_values(iceberg_mirror, *INDEXED)


def test_who_is_behind_gets_large_values_that_the_mirror_has_changed_since(mirror: Mirror) -> None:
    route = routed(mirror, ORDERS, *LARGE, *INDEXED, SOME, *FILL, keys=["id"], batch={"rows": 1})
    mirror.m.state.pause_destinations("r", ["=a"])
    mirror.execute("UPDATE orders SET note = 'n' WHERE id = 3")
    route.sync()
    mirror.execute(f"UPDATE orders SET body = {BIG.format(1)} WHERE id = 6", "UPDATE orders SET note = 'n'")
    mirror.sync()
    mirror.m.state.resume_destinations("r", ["=a"])
    route.settle()
    route.assert_equal()
    assert not any(row.seeded != 4 for row in route.rows())


# What a table goes through -------------------------------------------------------------------------------------------


def test_the_tenants_of_a_table_that_is_truncated_are_seeded_again(
    mirror: Mirror, caplog: pytest.LogCaptureFixture
) -> None:
    route = routed(mirror, ORDERS, FULL, SOME)
    mirror.execute("INSERT INTO orders VALUES (50, 'a', 'before')")
    mirror.transaction("TRUNCATE orders", "INSERT INTO orders VALUES (51, 'a', 'after')")
    mirror.execute("INSERT INTO orders VALUES (52, 'b', 'after')")
    with caplog.at_level(logging.WARNING):
        route.sync()
    assert f"=a, =b, =c will be seeded again: {logsource.TRUNCATED}" in caplog.text
    route.assert_equal()
    caplog.clear()
    mirror.execute("UPDATE orders SET tenant = 'c'")
    route.sync()
    route.assert_equal()
    assert "seeded again" not in caplog.text


def test_schema_changes_reach_the_tenants_in_order(mirror: Mirror) -> None:
    route = routed(mirror, ORDERS, FULL, SOME)
    mirror.execute(
        "UPDATE orders SET note = 'before'",
        "ALTER TABLE orders ADD amount int DEFAULT 7",
        "INSERT INTO orders VALUES (20, 'a', 'x', 1)",
        "ALTER TABLE orders RENAME note TO remark",
        "UPDATE orders SET remark = 'after', tenant = 'b' WHERE id = 3",
        "ALTER TABLE orders DROP remark",
        "DELETE FROM orders WHERE id = 4",
    )
    route.sync()
    route.assert_equal()
    mirror.execute("ALTER TABLE orders ADD alone text DEFAULT 'given'")  # and not a single row
    route.sync()
    route.assert_equal()


def test_a_table_that_gets_another_key_is_followed(mirror: Mirror) -> None:
    route = routed(mirror, ORDERS, FULL, SOME)
    mirror.execute(
        "UPDATE orders SET note = id::text",
        "ALTER TABLE orders DROP CONSTRAINT orders_pkey, ADD PRIMARY KEY (note)",
        "UPDATE orders SET id = 1, tenant = 'c' WHERE id < 5",
    )
    route.sync()
    route.assert_equal()


def test_a_streamed_transaction_counts_without_what_it_has_rolled_back(mirror: Mirror) -> None:
    mirror.execute(f"ALTER DATABASE {mirror.source.info.dbname} SET logical_decoding_work_mem = '64kB'")
    route = routed(mirror, ORDERS, FULL, SOME)
    mirror.transaction(
        "INSERT INTO orders SELECT i, 'a', 'kept' FROM generate_series(100, 2000) i",
        "SAVEPOINT s",
        "UPDATE orders SET tenant = 'c', note = 'undone'",
        "DELETE FROM orders WHERE id < 1000",
        "ROLLBACK TO s",
        "UPDATE orders SET tenant = 'b' WHERE id % 2 = 0",
        "SAVEPOINT t",
        "TRUNCATE orders",
        "ROLLBACK TO t",
    )
    turn = route.sync()
    assert not turn.seeded
    route.assert_equal()


def test_the_tenants_of_a_table_that_was_copied_again_are_seeded_again(
    mirror: Mirror, caplog: pytest.LogCaptureFixture
) -> None:
    route = routed(mirror, ORDERS, FULL, SOME)
    (row,) = mirror.m.state.tables("g")
    mirror.execute("UPDATE orders SET note = 'not sent'")
    mirror.m.state.request_resync("g", row.oid, "a test wants it")
    assert mirror.settle()
    route.settle()
    assert logsource.COPIED in caplog.text
    route.assert_equal()


def test_who_is_behind_the_log_is_seeded_again_and_the_others_are_not(
    mirror: Mirror, caplog: pytest.LogCaptureFixture
) -> None:
    route = routed(mirror, ORDERS, FULL, SOME)
    broken = mirror.folder / "a.sqlite"
    broken.rename(broken.with_suffix(".away"))
    mirror.execute("UPDATE orders SET note = 'n'")
    assert route.sync().failed.keys() == {"=a"}
    mirror.execute("UPDATE orders SET note = 'm'")
    route.sync()
    (row,) = mirror.m.state.tables("g")
    assert row.position is not None
    assert mirror.m.log.trim(row.position, timedelta(0))
    broken.with_suffix(".away").rename(broken)
    mirror.m.state.resume_destinations("r", ["=a"])
    route.settle()
    assert f"=a will be seeded again: {logsource.TRIMMED}" in caplog.text
    assert "=b" not in caplog.text
    route.assert_equal()


def test_a_destination_that_hangs_holds_up_neither_the_others_nor_the_mirror(mirror: Mirror) -> None:
    route = routed(mirror, ORDERS, FULL, SOME)
    with (
        closing(sqlite3.connect(mirror.folder / "a.sqlite", isolation_level=None)) as other,
        GroupRoutes(route.config, {}, mirror.m, lambda: None) as routes,
    ):
        other.execute("BEGIN IMMEDIATE")
        for note in ("first", "second", "third"):
            mirror.execute(f"UPDATE orders SET note = '{note}'")
            mirror.sync()
            routes.take_turns(landed=True)
            mirror.assert_equal("orders")
            for tenant in "bc":
                assert route.ask(tenant, "SELECT DISTINCT note FROM t") == [(note,)]
        (row,) = [each for each in route.rows() if each.state == "ERRORED"]
        assert (row.id, "stayed locked" in (row.error or "")) == ("=a", True)
    mirror.m.state.resume_destinations("r", ["=a"])
    route.settle()
    route.assert_equal()


def test_segments_that_a_route_has_not_read_stay_in_the_log(mirror: Mirror) -> None:
    route = routed(mirror, ORDERS, FULL, SOME)
    read = mirror.m.log.end()
    mirror.execute("UPDATE orders SET note = 'n'")
    mirror.sync()
    flow.tidy(replace(mirror.m, retention=timedelta(0)), [read])
    assert not route.settle().seeded
    route.assert_equal()
