"""What is written to the source while things are broken."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from dataclasses import dataclass

import psycopg

from headwater.commands.demo.workload import TABLES as SHOP
from headwater.commands.demo.workload import Workload
from headwater.commands.demo.workload import create as create_shop
from soak.carried import HISTORY, TABLES, Carried, create

__all__ = ["Work", "random_statements", "web_shop"]

STATEMENTS = 40.0  # row changes that a transaction of random statements counts for


@dataclass(frozen=True, slots=True)
class Work:
    """Tables as the config names them, how to create them, and a writer that goes on until it is stopped."""

    tables: list[dict[str, str]]
    flush_rows: int
    create: Callable[[str], None]
    write: Callable[[psycopg.Connection, threading.Event, float], None]


def web_shop() -> Work:
    """The demo's."""
    tables = [{"table": f"public.{name}"} for name in SHOP]
    return Work(tables, 500_000, create_shop, lambda connection, stop, rate: Workload(connection).run(stop, rate))


def random_statements(seed: int) -> Work:
    """Rows and shapes at random; deliveries are small."""
    chance = random.Random(seed)

    def create_all(url: str) -> None:
        with psycopg.connect(url) as connection:
            create(connection)

    def write(connection: psycopg.Connection, stop: threading.Event, rate: float) -> None:
        connection.autocommit = True  # each transaction begins and ends where the writer says
        with psycopg.connect(connection.info.dsn, autocommit=True) as second:
            Carried(connection, chance).run(Carried(second, chance), stop, rate / STATEMENTS)

    tables = [{"table": f"public.{name}", "mode": "history" if name == HISTORY else "mirror"} for name in TABLES]
    return Work(tables, 100, create_all, write)
