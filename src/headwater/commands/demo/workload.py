"""A small web shop at work: real transactions on four tables, at a steady rate of row changes."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from threading import Event
from typing import Any, LiteralString

import psycopg

__all__ = ["COMPANIES", "TABLES", "Tally", "Workload", "create"]

TABLES = ("customers", "products", "orders", "order_items")
COMPANIES = ("acme", "globex", "initech")  # whose orders the shop takes

_SCHEMA = """
CREATE TABLE IF NOT EXISTS customers (
    id          uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    email       text NOT NULL UNIQUE,
    name        text NOT NULL,
    born        date,
    newsletter  boolean NOT NULL DEFAULT false,
    profile     jsonb NOT NULL DEFAULT '{}',
    created_at  timestamptz NOT NULL DEFAULT now()
);
CREATE TABLE IF NOT EXISTS products (
    id          integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    sku         text NOT NULL UNIQUE,
    name        text NOT NULL,
    price       numeric(10,2) NOT NULL CHECK (price > 0),
    stock       integer NOT NULL,
    active      boolean NOT NULL DEFAULT true,
    updated_at  timestamptz NOT NULL DEFAULT now()
);
CREATE TABLE IF NOT EXISTS orders (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    customer_id uuid NOT NULL REFERENCES customers,
    company     text NOT NULL,
    status      text NOT NULL DEFAULT 'new' CHECK (status IN ('new', 'paid', 'shipped', 'cancelled')),
    total       numeric(12,2) NOT NULL,
    placed_at   timestamptz NOT NULL DEFAULT now(),
    paid_at     timestamptz,
    note        text
);
CREATE TABLE IF NOT EXISTS order_items (
    order_id    bigint NOT NULL REFERENCES orders ON DELETE CASCADE,
    line        smallint NOT NULL,
    product_id  integer NOT NULL REFERENCES products,
    quantity    integer NOT NULL CHECK (quantity > 0),
    price       numeric(10,2) NOT NULL,
    PRIMARY KEY (order_id, line)
);
ALTER TABLE orders ADD COLUMN IF NOT EXISTS company text NOT NULL DEFAULT 'acme';  -- a demo of an earlier version
CREATE INDEX IF NOT EXISTS orders_by_status ON orders (status, id);
"""
_SEED = """
INSERT INTO customers (email, name, born, newsletter, profile)
SELECT 'customer' || n || '@example.com', 'Customer ' || n, DATE '1950-01-01' + n * 7 % 20000, n % 3 = 0,
       jsonb_build_object('city', (ARRAY['Oslo', 'Łódź', '東京', 'São Paulo'])[1 + n % 4], 'visits', n % 50)
FROM generate_series(1, 500) AS n;
INSERT INTO products (sku, name, price, stock)
SELECT 'SKU-' || lpad(n::text, 5, '0'), 'Product ' || n, 1 + (n * 37 % 20000) / 100.0, 1000
FROM generate_series(1, 200) AS n;
"""
_NEXT = "SELECT id FROM orders WHERE status = %s ORDER BY id LIMIT 1 FOR UPDATE"
_PAUSE = 0.05


@dataclass
class Tally:
    """What the shop has done since it was started."""

    transactions: int = 0
    inserted: int = 0
    updated: int = 0
    deleted: int = 0

    @property
    def changes(self) -> int:
        return self.inserted + self.updated + self.deleted


def create(url: str, *, routes_the_log: bool = False) -> None:
    """Make the shop's tables and its first customers and products, unless they are there.

    A route that reads the log has to know of which company an order was: the replica identity includes that then.
    """
    with psycopg.connect(url) as connection:
        connection.execute(_SCHEMA)
        if routes_the_log:
            connection.execute("ALTER TABLE orders REPLICA IDENTITY FULL")
        if connection.execute("SELECT 1 FROM customers LIMIT 1").fetchone() is None:
            connection.execute(_SEED)


class Workload:
    """The shop at work on one connection. `tally` may be read while it runs."""

    def __init__(self, connection: psycopg.Connection[Any], chance: random.Random | None = None) -> None:
        connection.autocommit = True  # each action opens its own transaction
        self.tally = Tally()
        self._connection = connection
        self._chance = chance or random.Random()
        self._customers = [row[0] for row in connection.execute("SELECT id FROM customers")]
        self._products = [row[0] for row in connection.execute("SELECT id FROM products")]
        self._actions: dict[Callable[[], None], int] = {
            self.place_order: 40,
            self.pay: 30,
            self.ship: 20,
            self.cancel: 6,
            self.hand_over: 4,
            self.forget_cancelled: 5,
            self.reprice: 4,
            self.register: 4,
            self.edit_profile: 6,
        }

    def run(self, stop: Event, rate: float = 300) -> None:
        """Change about `rate` rows a second until `stop` is set, but finish the transaction in progress."""
        began = time.monotonic()
        while not stop.is_set():
            if self.tally.changes > (time.monotonic() - began) * rate:
                stop.wait(_PAUSE)
            else:
                self.step()

    def step(self, action: Callable[[], None] | None = None) -> None:
        """One transaction: this one, or one that is picked by chance, and may find nothing to do."""
        (picked,) = self._chance.choices(list(self._actions), list(self._actions.values()))
        with self._connection.transaction():
            (action or picked)()
        self.tally.transactions += 1

    def place_order(self) -> None:
        products = sorted(self._chance.sample(self._products, self._chance.randint(1, 5)))
        order = self._change(
            "INSERT INTO orders (customer_id, company, total, note) VALUES (%s, %s, 0, %s) RETURNING id",
            self._chance.choice(self._customers),
            self._chance.choice(COMPANIES),
            self._chance.choice([None, None, "please ring twice", "a gift 🎁"]),
        )
        total = Decimal(0)
        for line, product in enumerate(products, 1):
            quantity = self._chance.randint(1, 4)
            price = self._change(
                "UPDATE products SET stock = stock - %s, updated_at = now() WHERE id = %s RETURNING price",
                quantity,
                product,
            )
            self._change("INSERT INTO order_items VALUES (%s, %s, %s, %s, %s)", order, line, product, quantity, price)
            total += quantity * price
        self._change("UPDATE orders SET total = %s WHERE id = %s", total, order)

    def pay(self) -> None:
        if order := self._next("new"):
            self._change("UPDATE orders SET status = 'paid', paid_at = now() WHERE id = %s", order)

    def ship(self) -> None:
        if order := self._next("paid"):
            self._change("UPDATE orders SET status = 'shipped' WHERE id = %s", order)

    def cancel(self) -> None:
        if order := self._next("new"):
            self._change("UPDATE orders SET status = 'cancelled', note = 'cancelled' WHERE id = %s", order)
            self._change(
                "UPDATE products AS p SET stock = p.stock + i.quantity, updated_at = now()"
                " FROM order_items AS i WHERE i.order_id = %s AND i.product_id = p.id",
                order,
            )

    def hand_over(self) -> None:
        """An order moves to another company."""
        if order := self._next("paid"):
            company = self._chance.choice(COMPANIES)
            self._change("UPDATE orders SET company = %s WHERE id = %s AND company <> %s", company, order, company)

    def forget_cancelled(self) -> None:
        if order := self._next("cancelled"):
            self._change("DELETE FROM order_items WHERE order_id = %s", order)
            self._change("DELETE FROM orders WHERE id = %s", order)

    def reprice(self) -> None:
        factor = Decimal(self._chance.randint(90, 111)) / 100
        self._change(
            "UPDATE products SET price = greatest(round(price * %s, 2), 0.01), updated_at = now() WHERE id = ANY(%s)",
            factor,
            self._chance.sample(self._products, 5),
        )

    def register(self) -> None:
        name = f"{self._chance.choice(['Ada', 'Grace', 'Edsger', 'Barbara'])} {self._chance.randrange(10**9):09d}"
        customer = self._change(
            "INSERT INTO customers (email, name, born) VALUES (%s, %s, DATE '1960-01-01' + %s::integer) RETURNING id",
            f"{name.replace(' ', '.').lower()}@example.com",
            name,
            self._chance.randrange(15000),
        )
        self._customers.append(customer)

    def edit_profile(self) -> None:
        seen = json.dumps({"seen": self._chance.randrange(100), "tags": ["a", "b"][: self._chance.randint(0, 2)]})
        self._change(
            "UPDATE customers SET profile = profile || %s::jsonb, newsletter = NOT newsletter WHERE id = %s",
            seen,
            self._chance.choice(self._customers),
        )

    def _next(self, status: str) -> int | None:
        row = self._connection.execute(_NEXT, (status,)).fetchone()
        return None if row is None else int(row[0])

    def _change(self, sql: LiteralString, *parameters: object) -> Any:
        """Run a changing statement and count its rows; the first returned value, if it returns any."""
        cursor = self._connection.execute(sql, parameters)
        kind = (cursor.statusmessage or "").split()[0]
        match kind:
            case "INSERT":
                self.tally.inserted += cursor.rowcount
            case "UPDATE":
                self.tally.updated += cursor.rowcount
            case "DELETE":
                self.tally.deleted += cursor.rowcount
        row = cursor.fetchone() if cursor.description else None
        return row[0] if row else None
