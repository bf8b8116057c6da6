"""Random histories of a source lake, random turns, crashes, broken destinations: each tenant has exactly its rows."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import duckdb
import pytest
from pyspark.sql import SparkSession

from headwater.feed.source import Bound
from headwater.state import State
from tests.route.killed import turn_and_be_killed
from tests.route.routebench import RouteBench, opened

STEPS = 25
SEED = os.environ.get("HEADWATER_SEED")


class History:
    """What happens to a source, its route and its destinations; every choice comes from `dice`."""

    def __init__(self, route: RouteBench, dice: random.Random) -> None:
        self.route, self.dice = route, dice
        self.next_id = 0
        self.columns = ["amount", "note"]
        self.added = 0
        self.kept: dict[str, Path] = {}  # broken destinations, and where their catalogs are
        self.steps: list[str] = []

    # -- the source, through DuckDB

    def tenant(self) -> str:
        return self.dice.choice(["'a'", "'b'", "'c'", "'d'", "NULL"])  # the route knows three of them

    def insert(self) -> Iterator[str]:
        for _ in range(self.dice.randint(1, 8)):
            self.next_id += 1
            yield f"INSERT INTO orders (id, tenant, amount) VALUES ({self.next_id}, {self.tenant()}, {self.next_id})"

    def key(self) -> int:
        return self.dice.randint(1, max(self.next_id, 1))

    def update(self) -> Iterator[str]:
        yield f"UPDATE orders SET amount = amount + 1 WHERE id % {self.dice.randint(2, 5)} = 0"

    def move(self) -> Iterator[str]:
        yield f"UPDATE orders SET tenant = {self.tenant()} WHERE id IN ({self.key()}, {self.key()})"

    def there_and_back(self) -> Iterator[str]:
        key = self.key()
        yield f"UPDATE orders SET tenant = 'b' WHERE id = {key} AND tenant = 'a'"
        yield f"UPDATE orders SET tenant = 'a' WHERE id = {key} AND tenant = 'b'"

    def change_key(self) -> Iterator[str]:
        self.next_id += 1
        yield f"UPDATE orders SET id = {self.next_id} WHERE id = {self.key()}"

    def delete(self) -> Iterator[str]:
        yield f"DELETE FROM orders WHERE id = {self.key()} OR id % {self.dice.randint(7, 11)} = 0"

    def insert_and_delete(self) -> Iterator[str]:
        self.next_id += 1
        yield f"INSERT INTO orders (id, tenant, amount) VALUES ({self.next_id}, 'a', 0)"
        yield f"DELETE FROM orders WHERE id = {self.next_id}"

    def merge(self) -> Iterator[str]:
        keys = ", ".join(f"({self.key()})" for _ in range(3))
        yield (
            f"MERGE INTO orders USING (SELECT DISTINCT k FROM (VALUES {keys}) v(k)) AS s ON orders.id = s.k"
            " WHEN MATCHED THEN UPDATE SET amount = -amount"
        )

    def empty(self) -> Iterator[str]:
        yield "DELETE FROM orders"

    def alter(self) -> Iterator[str]:
        if self.dice.random() < 0.6 or self.added == 0:
            self.added += 1
            yield f"ALTER TABLE orders ADD COLUMN extra_{self.added} INTEGER DEFAULT {self.dice.randint(0, 9)}"
        else:
            yield f"ALTER TABLE orders DROP COLUMN extra_{self.added}"
            self.added -= 1

    def compact(self) -> Iterator[str]:
        yield self.dice.choice(
            [
                "CALL ducklake_merge_adjacent_files('source')",
                "CALL ducklake_rewrite_data_files('source', delete_threshold => 0.1)",
                "CALL ducklake_flush_inlined_data('source')",
            ]
        )

    def expire(self) -> Iterator[str]:
        yield "CALL ducklake_expire_snapshots('source', older_than => now() + INTERVAL 1 hour)"
        yield "CALL ducklake_cleanup_old_files('source', cleanup_all => true)"

    def write(self) -> None:
        rows: list[Callable[[], Iterator[str]]] = [
            self.insert, self.insert, self.insert, self.update, self.move, self.move, self.there_and_back,
            self.change_key, self.delete, self.insert_and_delete, self.merge,
        ]  # fmt: skip
        if self.dice.random() < 0.3:
            self.run(lambda: (each for _ in range(3) for each in self.dice.choice(rows)()), together=True)
        else:
            self.run(self.dice.choice(rows))

    def run(self, what: Callable[[], Iterator[str]], *, together: bool = False) -> None:
        queries = list(what())
        self.steps += queries
        try:
            (self.route.together if together else self.route.sql)(*queries)
        except duckdb.Error as error:  # of its own making: it cannot flush or merge everything that it has written
            self.steps.append(f"DuckDB failed: {error}")
            self.route.attach()

    # -- the route and its destinations

    def turn(self) -> None:
        self.steps.append("turn")
        self.route.retry()
        self.route.turn()

    def crash(self) -> None:
        failpoint = self.dice.choice(["seed.committed", "route.written:2", "route.committed:2", "route.polled"])
        self.steps.append(f"crash at {failpoint}")
        self.mend()
        while not self.all_take_part():
            self.route.state.resume_destinations(self.route.id.name, ["=a", "=b", "=c"])
            self.route.retry()
            self.route.turns()
        self.route.sql("INSERT INTO orders (id, tenant, amount) VALUES (0, 'a', 0)", "DELETE FROM orders WHERE id = 0")
        for tenant in self.route.tenants:
            self.next_id += 1
            self.route.sql(f"INSERT INTO orders (id, tenant, amount) VALUES ({self.next_id}, '{tenant}', 0)")
        if failpoint.startswith("seed"):
            self.route.state.request_seed(self.route.id.name, ["=a", "=b", "=c"], "for a test")
        self.route.retry()
        turn_and_be_killed(self.route, failpoint)
        self.route.collect()

    def all_take_part(self) -> bool:
        """Whether the next turn has a share for each: of three shares, one of Spark's two workers has two."""
        r = self.route.route
        route, rows = r.state.route(r.id), r.state.destinations(r.name)
        at = route.position if route else None
        return len(rows) == len(self.route.tenants) and all(
            row.state != "PAUSED" and not row.reseed and row.behind is None and at is not None and not r.source.gap(at)
            for row in rows
        )

    def break_one(self) -> None:
        tenant = self.dice.choice(self.route.tenants)
        catalog = self.route.folder / f"tenant_{tenant}.sqlite"
        if tenant not in self.kept and catalog.exists():
            self.steps.append(f"break {tenant}")
            self.kept[tenant] = Path(shutil.move(catalog, catalog.with_suffix(".kept")))
            catalog.write_bytes(b"this is no database" * 100)

    def mend(self) -> None:
        for tenant, kept in self.kept.items():
            for each in self.route.folder.glob(f"tenant_{tenant}.sqlite*"):
                each.unlink()
            shutil.move(kept, self.route.folder / f"tenant_{tenant}.sqlite")
        self.kept.clear()

    def pause(self) -> None:
        self.steps.append("pause, or resume")
        id_ = f"={self.dice.choice(self.route.tenants)}"
        if not self.route.state.resume_destinations(self.route.id.name, [id_]):
            self.route.state.pause_destinations(self.route.id.name, [id_])

    def rest(self) -> None:
        """A quiet point."""
        self.steps.append("rest")
        self.mend()
        self.route.state.resume_destinations(self.route.id.name, ["=a", "=b", "=c"])
        self.route.retry()
        self.route.turns()
        self.route.check()
        self.route.check_no_leak()

    def step(self, *, crashes: bool) -> None:
        weighed = [
            (self.write, 50), (self.turn, 20), (lambda: self.run(self.alter), 4), (lambda: self.run(self.compact), 6),
            (lambda: self.run(self.expire), 2), (lambda: self.run(self.empty), 1), (self.break_one, 3),
            (self.pause, 3), (self.rest, 5), (self.crash, 4 if crashes else 0),
        ]  # fmt: skip
        (step,) = self.dice.choices([each for each, _ in weighed], [weight for _, weight in weighed])
        step()


def play(folder: Path, spark: SparkSession, database: str, seed: int, steps: int, *, crashes: bool) -> None:
    dice = random.Random(seed)
    with ExitStack() as held:
        state = held.enter_context(closing(State.connect(database)))
        state.migrate()
        most = dice.choice([Bound(10, 1 << 30), Bound(10**9, 1 << 40)])
        inline_rows = dice.choice([None, 10, 10_000])  # files only; rows in the catalog until these are ten; rows there
        options = {"most": most, "inline_rows": inline_rows}
        route = held.enter_context(closing(opened(folder, spark, state, **options)))
        route.sql("CREATE TABLE orders (id INTEGER NOT NULL, tenant VARCHAR, amount INTEGER, note VARCHAR)")
        route.sql(f"CALL source.set_option('data_inlining_row_limit', {dice.choice([0, 5])})")
        history = History(route, dice)
        try:
            for _ in range(steps):
                history.step(crashes=crashes)
            history.rest()
        except BaseException:
            print(f"replay with HEADWATER_SEED={seed}; what happened:", *history.steps, sep="\n  ")
            raise


def test_each_tenant_has_exactly_its_rows_after_any_history(spark: SparkSession, database: str, tmp_path: Path) -> None:
    play(tmp_path, spark, database, int(SEED or random.randrange(10**6)), STEPS, crashes=False)


@pytest.mark.long
@pytest.mark.parametrize("number", range(6))
def test_each_tenant_has_exactly_its_rows_after_long_histories_with_crashes(
    spark: SparkSession, database: str, tmp_path: Path, number: int
) -> None:
    seed = int(SEED) if SEED else random.randrange(10**6) * 10 + number
    play(tmp_path, spark, database, seed, 120, crashes=True)
