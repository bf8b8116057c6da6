"""The demo's shop, on a real PostgreSQL."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from threading import Event, Thread
from typing import Any

import psycopg
import pytest

from headwater.commands.demo.workload import COMPANIES, TABLES, Workload, create


@pytest.fixture
def shop(database: str) -> Iterator[psycopg.Connection[Any]]:
    create(database)
    with psycopg.connect(database, autocommit=True) as connection:
        yield connection


def counts(connection: psycopg.Connection[Any]) -> dict[str, int]:
    return {table: connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in TABLES}  # type: ignore[index]


def test_the_shop_can_be_created_again_without_harm(shop: psycopg.Connection[Any], database: str) -> None:
    before = counts(shop)
    create(database)
    assert counts(shop) == before
    assert before["customers"] == 500
    assert before["products"] == 200


def test_every_table_has_a_key_and_the_tables_hang_together(shop: psycopg.Connection[Any]) -> None:
    keys = shop.execute(
        "SELECT conrelid::regclass::text FROM pg_constraint"
        " WHERE contype = 'p' AND connamespace = 'public'::regnamespace"
    ).fetchall()
    assert {table for (table,) in keys} == set(TABLES)
    (foreign,) = shop.execute("SELECT count(*) FROM pg_constraint WHERE contype = 'f'").fetchone() or (0,)
    assert foreign == 3


def test_what_it_counts_is_what_the_database_saw(shop: psycopg.Connection[Any]) -> None:
    seed = counts(shop)
    workload = Workload(shop, random.Random(7))
    for _ in range(400):
        workload.step()
    tally = workload.tally
    assert tally.transactions == 400
    assert min(tally.inserted, tally.updated, tally.deleted) > 0
    after = counts(shop)
    assert sum(after.values()) - sum(seed.values()) == tally.inserted - tally.deleted
    wrong = shop.execute(
        "SELECT o.id FROM orders AS o JOIN order_items AS i ON i.order_id = o.id"
        " GROUP BY o.id HAVING sum(i.quantity * i.price) <> o.total"
    ).fetchall()
    assert wrong == []  # an order and its items are one transaction
    statuses = {status for (status,) in shop.execute("SELECT DISTINCT status FROM orders")}
    assert {"new", "paid", "shipped"} <= statuses


def test_orders_are_of_three_companies_and_now_and_then_one_moves(shop: psycopg.Connection[Any]) -> None:
    workload = Workload(shop, random.Random(3))
    first: dict[int, str] = {}
    moved = set()
    for _ in range(300):
        workload.step()
        for id_, company in shop.execute("SELECT id, company FROM orders"):
            if first.setdefault(id_, company) != company:
                moved.add(id_)
    assert set(first.values()) == set(COMPANIES)
    assert 0 < len(moved) < len(first) / 2


def test_a_shop_of_an_earlier_version_gets_its_companies(shop: psycopg.Connection[Any], database: str) -> None:
    workload = Workload(shop, random.Random(5))
    for _ in range(20):
        workload.step()
    shop.execute("ALTER TABLE orders DROP COLUMN company")
    create(database)
    assert shop.execute("SELECT DISTINCT company FROM orders").fetchall() == [("acme",)]
    Workload(shop, random.Random(6)).place_order()


def test_goods_neither_appear_nor_vanish(shop: psycopg.Connection[Any]) -> None:
    workload = Workload(shop, random.Random(11))
    for _ in range(300):
        workload.step()
    (left,) = shop.execute("SELECT sum(stock) FROM products").fetchone() or (0,)
    (sold,) = shop.execute(
        "SELECT coalesce(sum(quantity), 0) FROM order_items JOIN orders ON id = order_id WHERE status <> 'cancelled'"
    ).fetchone() or (0,)
    assert left + sold == 200 * 1000


def test_it_keeps_its_rate_stops_when_asked_and_continues_later(shop: psycopg.Connection[Any]) -> None:
    for _ in range(2):
        workload, stop = Workload(shop), Event()
        thread = Thread(target=workload.run, args=(stop, 300))
        begun = time.monotonic()
        thread.start()
        while workload.tally.changes < 200:
            assert thread.is_alive()
            time.sleep(0.02)
        stop.set()
        thread.join(timeout=30)
        assert not thread.is_alive()
        # A transaction more than is due at most, and none has 20 changes: only so much is sure on a slow machine.
        assert workload.tally.changes <= (time.monotonic() - begun) * 300 + 20
