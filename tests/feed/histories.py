"""Random histories of a table, written by DuckDB's extension with all that it offers."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

import duckdb

from tests.feed.feedbench import FeedBench, Rows

__all__ = ["CLEANUP", "COMPACTION", "FLUSH", "MERGE", "REWRITE", "DuckDBDied", "History"]

MERGE = "CALL ducklake_merge_adjacent_files('{l}')"
FLUSH = "CALL ducklake_flush_inlined_data('{l}')"
REWRITE = "CALL ducklake_rewrite_data_files('{l}', delete_threshold => 0)"
COMPACTION = (MERGE, FLUSH, REWRITE)
CLEANUP = "CALL ducklake_cleanup_old_files('{l}', cleanup_all => true)"


class DuckDBDied(Exception):
    """An internal error has ended the whole DuckDB, and left the catalog locked."""


@dataclass
class History:
    """Steps on the table `t` of a bench; what was run is kept in `ran`."""

    bench: FeedBench
    chance: random.Random
    ran: list[str] = field(default_factory=list)
    columns: dict[str, str] = field(default_factory=lambda: {"id": "INTEGER", "v": "VARCHAR", "n": "SMALLINT"})
    added: int = 0
    shown: dict[int, Rows] = field(default_factory=dict)  # by snapshot, when it was the newest

    def begin(self, *, partitioned: bool = False) -> None:
        self.run(f"CALL {{l}}.set_option('data_inlining_row_limit', {self.chance.choice([0, 4, 20])})")
        self.run("CREATE TABLE {l}.t (id INTEGER, v VARCHAR, n SMALLINT)")
        if partitioned:
            self.run("ALTER TABLE {l}.t SET PARTITIONED BY (n)")

    def run(self, *queries: str) -> None:
        """Run them, in one transaction if they are several. A step that DuckDB refuses is left out."""
        self.ran += ["BEGIN", *queries, "COMMIT"] if len(queries) > 1 else queries
        try:
            if len(queries) > 1:
                self.bench.together(*queries)
            else:
                self.bench.sql(*queries)
        except duckdb.Error as error:
            self.ran.append(f"-- {str(error).splitlines()[0]}")
            with suppress(duckdb.Error):
                self.bench.sql("ROLLBACK")
            if isinstance(error, (duckdb.InternalException, duckdb.FatalException)):
                raise DuckDBDied(self.ran[-1]) from error
        if self.bench.table().at(self.bench.newest):
            self.shown.setdefault(self.bench.newest, self.bench.shown(self.bench.newest))

    def dml(self) -> str:
        return self.chance.choice(
            [self.insert, self.insert, self.insert, self.update, self.update, self.delete, self.upsert]
        )()

    def insert(self) -> str:
        return f"INSERT INTO {{l}}.t {self.rows(self.chance.choice([1, 2, 3, 3, 15, 40]))}"

    def rows(self, count: int) -> str:
        first = self.chance.randrange(30)
        values = {"id": f"{first} + i", "v": f"'{self.chance.choice('abcdef')}' || i", "n": "i % 3"}
        shown = [values.get(name, f"i + {self.chance.randrange(9)}") for name in self.columns]
        return f"SELECT {', '.join(shown)} FROM range({count}) r(i)"

    def some(self) -> str:
        by = self.chance.choice([2, 3, 5, 9])
        return f"id % {by} = {self.chance.randrange(by)}"

    def update(self) -> str:
        name = self.chance.choice(list(self.columns))
        value = "v || 'x'" if self.columns[name] == "VARCHAR" else f'"{name}" + 1'
        value = value.replace("v ||", f'"{name}" ||')
        return f'UPDATE {{l}}.t SET "{name}" = {value} WHERE {self.some()}'

    def delete(self) -> str:
        everything = self.chance.random() < 0.1
        return f"DELETE FROM {{l}}.t{'' if everything else f' WHERE {self.some()}'}"

    def upsert(self) -> str:
        names = ", ".join(f'"{name}"' for name in self.columns)
        rows = self.rows(self.chance.choice([2, 6]))
        news = ", ".join(f's."{name}"' for name in self.columns)
        sets = ", ".join(f'"{name}" = s."{name}"' for name in self.columns if name != "id")
        return (
            f"MERGE INTO {{l}}.t USING ({rows}) s({names}) ON t.id = s.id"
            f" WHEN MATCHED THEN UPDATE SET {sets} WHEN NOT MATCHED THEN INSERT VALUES ({news})"
        )

    def transaction(self) -> None:
        self.run(*(self.dml() for _ in range(self.chance.randrange(2, 4))))

    def alter(self) -> None:
        others = [name for name in self.columns if name not in ("id", "n")]
        match self.chance.randrange(4):
            case 0:
                self.added += 1
                name = f"c{self.added}"
                default = self.chance.choice(["", " DEFAULT 7"])
                self.run(f"ALTER TABLE {{l}}.t ADD COLUMN {name} INTEGER{default}")
                self.columns[name] = "INTEGER"
            case 1 if others:
                name = self.chance.choice(others)
                self.run(f'ALTER TABLE {{l}}.t DROP COLUMN "{name}"')
                del self.columns[name]
            case 2 if others:
                name = self.chance.choice(others)
                self.added += 1
                self.run(f'ALTER TABLE {{l}}.t RENAME COLUMN "{name}" TO r{self.added}')
                self.columns = {
                    f"r{self.added}" if each == name else each: type_ for each, type_ in self.columns.items()
                }
            case _:
                self.run("ALTER TABLE {l}.t ALTER id SET DATA TYPE BIGINT")

    def expire(self) -> None:
        known = self.bench.snapshots[:-1]
        gone = self.chance.sample(known, self.chance.randrange(1, max(2, len(known) // 3))) if known else []
        if gone:
            self.run(f"CALL ducklake_expire_snapshots('{{l}}', versions => {gone})")
            if self.chance.random() < 0.7:
                self.run(CLEANUP)

    def inline(self) -> None:
        self.run(f"CALL {{l}}.set_option('data_inlining_row_limit', {self.chance.choice([0, 4, 20])})")

    def steps(self, count: int, *, plain: bool = False) -> None:
        """Run some. Plain ones are those after which DuckDB's own feed is right: one statement each, no compaction."""
        often: dict[Callable[[], None], int] = {
            lambda: self.run(self.dml()): 40,
            self.alter: 5,
            lambda: self.run("TRUNCATE {l}.t"): 2,
            self.inline: 5,
        }
        if not plain:
            often |= {self.transaction: 15, self.expire: 4} | {partial(self.run, each): 8 for each in COMPACTION}
        for step in self.chance.choices(list(often), list(often.values()), k=count):
            step()
