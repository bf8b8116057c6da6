"""Consistent across tables: money moves between two tables, and in every snapshot of the lake the total is the same."""

from __future__ import annotations

import random
import threading

import psycopg

from headwater import flow
from tests.mirror import Mirror

ACCOUNTS, BALANCE, WRITERS, SNAPSHOTS = 50, 1000, 4, 6


def move_money(url: str, seed: int, stop: threading.Event) -> None:
    chance = random.Random(seed)
    with psycopg.connect(url) as connection:
        while not stop.wait(0.01):  # often enough for any delivery to meet some
            amount, here, there = chance.randint(1, 50), chance.randint(1, ACCOUNTS), chance.randint(1, ACCOUNTS)
            tables = chance.sample(["checking", "savings"], 2)
            try:
                for table, account, change in zip(tables, (here, there), (-amount, amount), strict=True):
                    connection.execute(
                        f"INSERT INTO {table} VALUES (%(id)s, %(change)s)"
                        f" ON CONFLICT (id) DO UPDATE SET balance = {table}.balance + %(change)s",
                        {"id": account, "change": change},
                    )
                if chance.random() < 0.8:
                    connection.commit()
                else:
                    connection.rollback()
            except psycopg.errors.DeadlockDetected:
                connection.rollback()


def test_every_snapshot_shows_the_same_total(mirror: Mirror) -> None:
    mirror.execute(
        "CREATE TABLE checking (id int PRIMARY KEY, balance bigint)",
        "CREATE TABLE savings (id int PRIMARY KEY, balance bigint)",
        f"INSERT INTO checking SELECT i, {BALANCE} FROM generate_series(1, {ACCOUNTS}) i",
    )
    stop = threading.Event()
    writers = [threading.Thread(target=move_money, args=(mirror.url, seed, stop)) for seed in range(WRITERS)]
    for writer in writers:
        writer.start()  # the first copy meets transfers, too
    try:
        mirror.start()
        landed = 0
        while landed < SNAPSHOTS:
            landed += bool(flow.deliver(mirror.m).landed)
    finally:
        stop.set()
    for writer in writers:
        writer.join()
    mirror.sync()
    snapshots = sorted({*mirror.snapshots("checking"), *mirror.snapshots("savings")})
    totals = [
        mirror.ask(
            f"SELECT (SELECT sum(balance) FROM {mirror.at('checking', snapshot)})"
            f" + coalesce((SELECT sum(balance) FROM {mirror.at('savings', snapshot)}), 0)"
        )
        for snapshot in snapshots
    ]
    assert len(snapshots) > SNAPSHOTS
    assert totals == [[(ACCOUNTS * BALANCE,)]] * len(snapshots)
    mirror.assert_equal("checking", "savings")
