"""Merged files show the same rows in every snapshot, and the same changes between any two, whatever happened before.

DuckDB's extension is the judge, by time travel and by its own change feed, and so is our feed.
"""

from __future__ import annotations

import pickle
import random
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lakebench import Bench, T
from tests.feed.feedbench import FeedBench

from headwater.ducklake.ended import ended_files
from headwater.ducklake.expiring import expire, purge_inlined
from headwater.ducklake.extension import attach
from headwater.ducklake.flushing import InlinedBin, due_to_flush
from headwater.ducklake.mergeable import Bin, group_of, mergeable_files, oldest_snapshot
from headwater.ducklake.model import Field
from headwater.ducklake.opening import open_lake
from headwater.lake.maintenance import Chores, FlushLimits
from headwater.sink.ducklake.merging import DuckLakeMerging, late_inline_limit
from headwater.sink.ducklake.rewriting import DuckLakeMergeWriter

Seen = dict[Any, Any]  # rows by snapshot; changes by whose feed they are of, and two snapshots


def merged(bench: Bench, chance: random.Random, chosen: float = 0.8) -> Callable[[], Chores]:
    """Merge any files that can be, and move rows from the catalog, without asking whether it is worth it.

    What comes back commits it.
    """
    lake, table = bench.lake, bench.table()
    inline_limit = late_inline_limit(lake, table.id)
    with lake.reading() as tx:
        oldest = oldest_snapshot(tx)
        found = mergeable_files(tx, lake.data_path, table, table.columns[:1], oldest)
        found += ended_files(tx, lake.data_path, table, oldest)
        flushed = due_to_flush(tx, lake.url, table, FlushLimits(), oldest)
    groups = defaultdict(list)
    for each in found:
        if chance.random() < chosen:
            groups[group_of(table, each)].append(each)
    below = {each.path: each.path.removeprefix(table.path).rpartition("/")[0] for each in found}
    bins: list[Bin | InlinedBin] = [each for each in flushed if chance.random() < chosen]
    bins += [
        Bin(tuple(files), f"{folder}/" if (folder := below[files[0].path]) else "", oldest) for files in groups.values()
    ]
    writer = DuckLakeMergeWriter(table.path, [table.columns[0].id], lake.begin("pg/maintenance"))
    reports = [pickle.loads(pickle.dumps(writer)).write(pickle.loads(pickle.dumps(each))) for each in bins]
    return lambda: DuckLakeMerging(lake, table, bins, writer, inline_limit).commit(reports)


@dataclass
class Judge:
    """What a lake shows of the table: its rows in all snapshots, and the changes between them."""

    bench: Bench
    pairs: int | None  # how many pairs of snapshots are compared; None: all

    def seen(self, chance: random.Random) -> Seen:
        there = [id_ for id_, _ in self.bench.lake.commits() if self._has(id_)]
        found: Seen = {id_: self.rows(id_) for id_ in there}
        spans = [(after, upto) for after in there for upto in there if after < upto]
        chosen = spans if self.pairs is None else chance.sample(spans, min(len(spans), self.pairs))
        for after, upto in chosen:
            found["duckdb", after, upto] = self.duckdb_changes(after, upto)
            found["feed", after, upto] = self.feed.events(after, upto, T)
        return found

    def again(self, before: Seen) -> Seen:
        """The same questions, as far as the snapshots are still there.

        If one between two others has expired, changes that only it showed are gone; the rest still leads to the same.
        """
        there, found = {id_ for id_, _ in self.bench.lake.commits()}, Seen()
        expired = {asked for asked in before if isinstance(asked, int)} - there
        for asked in before:
            match asked:
                case int() if asked in there:
                    found[asked] = self.rows(asked)
                case (_, int(after), int(upto)) if {after, upto} <= there and expired & {*range(after, upto)}:
                    self.feed.check(after, upto, T)
                case ("duckdb", after, upto) if {after, upto} <= there:
                    found[asked] = self.duckdb_changes(after, upto)
                case ("feed", after, upto) if {after, upto} <= there:
                    found[asked] = self.feed.events(after, upto, T)
        return found

    @property
    def feed(self) -> FeedBench:
        return FeedBench(self.bench.lake, self.bench.duck, self.bench.alias)

    def _has(self, snapshot: int) -> bool:
        return self.feed.table(T).at(snapshot) is not None

    def rows(self, snapshot: int) -> Any:
        where = f"{self.bench.alias}.public.t AT (VERSION => {snapshot})"
        rows = self.bench.duck.execute(f"SELECT rowid, * FROM {where}")
        names = [each[0] for each in rows.description or ()]
        found = Counter(rows.fetchall())
        assert self.bench.sql(f"SELECT count(*) FROM {where}") == [(found.total(),)]
        return names, found

    def duckdb_changes(self, after: int, upto: int) -> Any:
        with suppress(duckdb.InvalidInputException):  # the first snapshot of the span is expired
            found = self.bench.sql(
                f"SELECT * FROM ducklake_table_changes('{self.bench.alias}', 'public', 't', {after + 1}, {upto})"
            )
            return Counter(found)
        return None


@dataclass
class Steps:
    """Random changes of the table; keys are unique, as in a mirror."""

    bench: Bench
    chance: random.Random
    ran: list[str] = field(default_factory=list)
    added: int = 0

    @property
    def keys(self) -> list[int]:
        return [row[0] for row in self.bench.rows()]

    def _row(self, key: int) -> tuple[Any, ...]:
        return (key, *self._values())

    def _values(self) -> tuple[Any, ...]:
        return tuple(
            f"{self.chance.choice('abc')}{self.chance.randrange(9)}"
            if each.type == "varchar"
            else self.chance.randrange(9)
            for each in self.bench.table().columns[1:]
        )

    def deliver(self) -> None:
        """A commit of ours: inserts, updates that keep row ids, deletes; all of it in the catalog or in files."""
        here, c = self.keys, self.chance
        new = [key for key in c.sample(range(30), c.choice([0, 1, 3, 12])) if key not in here]
        gone = set(c.sample(here, min(len(here), c.choice([0, 0, 1, 4]))))
        kept = [key for key in here if key not in gone]
        changed = {key: self._values() for key in c.sample(kept, min(len(kept), c.choice([0, 1, 3, 8])))}
        if new or gone or changed:
            limit, inlined = c.choice([1000, 1000, 0]), c.random() < 0.6
            self.bench.apply([self._row(key) for key in new], changed, gone, inline_limit=limit, inlined=inlined)

    def hot(self) -> None:
        """A few rows that change more often than a flush makes files for."""
        chosen = self.keys[: self.chance.choice([1, 2])]
        for _ in range(self.chance.choice([3, 10, 12]) if chosen else 0):
            self.bench.apply([], {key: self._values() for key in chosen}, (), inlined=True)

    def truncate(self) -> None:
        self.bench.commit(self.bench.truncation(insert=[self._row(key) for key in range(self.chance.choice([0, 2]))]))

    def alter(self) -> None:
        columns, c = list(self.bench.table().columns), self.chance
        self.added += 1
        match c.randrange(4):
            case 0:
                columns.append(
                    Field(self.bench.next_id(), f"c{self.added}", "int32", initial_default=c.choice([None, "7"]))
                )
            case 1 if len(columns) > 2:
                columns.pop(c.randrange(1, len(columns)))
            case 2 if len(columns) > 1:
                place = c.randrange(1, len(columns))
                columns[place] = Field(
                    columns[place].id,
                    f"r{self.added}",
                    columns[place].type,
                    initial_default=columns[place].initial_default,
                )
            case _:
                place = c.randrange(len(columns))
                if columns[place].type == "int32":
                    old = columns[place]
                    columns[place] = Field(old.id, old.name, "int64", initial_default=old.initial_default)
        if tuple(columns) != self.bench.table().columns:
            self.bench.alter(columns)

    def duckdb(self) -> None:
        """A statement of another client."""
        c, free = self.chance, [key for key in range(30, 40) if key not in self.keys]
        names = ", ".join(f'"{each.name}"' for each in self.bench.table().columns)
        wanted = c.choice(["insert", "update", "delete"])
        if wanted == "insert" and free:
            values = [repr(each) for each in self._row(c.choice(free))]
            self._sql(f"INSERT INTO {{l}}.public.t ({names}) VALUES ({', '.join(values)})")
        elif wanted == "update" and len(self.bench.table().columns) > 1:
            name = self.bench.table().columns[1].name
            self._sql(f'UPDATE {{l}}.public.t SET "{name}" = {self._values()[0]!r} WHERE id % 4 = {c.randrange(4)}')
        else:
            self._sql(f"DELETE FROM {{l}}.public.t WHERE id % 5 = {c.randrange(5)}")

    def theirs(self) -> None:
        self._sql("CALL ducklake_merge_adjacent_files('{l}')")

    def expire(self) -> None:
        known = [id_ for id_, _ in self.bench.lake.commits()][:-1]
        if known:
            gone = known[: self.chance.randrange(1, len(known) + 1)]
            if self.chance.random() < 0.3:
                gone = self.chance.sample(known, len(gone))
            expire(self.bench.lake, gone)
            purge_inlined(self.bench.lake)

    def _sql(self, query: str) -> None:
        self.ran.append(query)
        self.bench.sql(query)


@contextmanager
def new_bench(duck: duckdb.DuckDBPyConnection, url: str, folder: Path) -> Iterator[Bench]:
    alias = f"l{uuid.uuid4().hex[:8]}"
    url = url.replace("lake.sqlite", f"{alias}.sqlite") if url.startswith("sqlite") else url + alias
    lake = open_lake(url, str(folder / f"data {alias}"))
    attach(duck, lake.url, alias)
    try:
        yield Bench(lake, duck, alias)
    finally:
        lake.close()
        duck.execute(f"DETACH {alias}")


def play(bench: Bench, chance: random.Random, names: Sequence[str], pairs: int | None) -> None:
    steps, judge = Steps(bench, chance), Judge(bench, pairs)
    bench.create([(key, "new") for key in range(chance.choice([0, 5, 20]))])
    for name in names:
        if name in MAINTENANCE:
            work = merged(bench, chance) if name in ("merge", "overtaken") else getattr(steps, name)
            if name == "overtaken":
                steps.deliver()
            before, newest = judge.seen(chance), bench.lake.snapshot().id
            work()
            for asked, found in judge.again(before).items():
                assert found == before[asked], (steps.ran, name, asked)
            assert judge.rows(bench.lake.snapshot().id) == before[newest]
        else:
            getattr(steps, name)()
        steps.ran.append(name)


MAINTENANCE = ("merge", "overtaken", "theirs", "expire")
OURS = ("deliver",) * 6 + ("hot", "truncate", "alter", "expire", "merge", "merge", "overtaken", "overtaken")
ALL = (*OURS, "duckdb", "duckdb", "theirs")


def histories(kinds: Sequence[str], size: int) -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from(kinds), min_size=size // 2, max_size=size).map(lambda names: [*names, "merge"])


def examples(count: int) -> settings:
    slow = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large]
    return settings(max_examples=count, deadline=None, suppress_health_check=slow, database=None)


def test_a_client_that_has_read_a_snapshot_reads_the_same_after_rows_deleted_by_it_were_merged(
    lake_url: str, tmp_path: Path, duck: duckdb.DuckDBPyConnection
) -> None:
    """DuckDB remembers of that snapshot that the catalog had no deleted rows of the table."""
    with new_bench(duck, lake_url, tmp_path) as bench:
        bench.create([(key, "new") for key in range(5)])
        commit = merged(bench, random.Random(1), chosen=1)
        bench.apply([], {}, {0}, inline_limit=0, inlined=False)
        judge, deleted = Judge(bench, None), bench.lake.snapshot().id
        before = judge.rows(deleted)
        commit()
        assert judge.rows(deleted) == before
        assert len(before[1]) == 4


@pytest.mark.parametrize(
    "lake_url", ["sqlite", pytest.param("postgres", marks=[pytest.mark.long, pytest.mark.timeout(1200)])], indirect=True
)
@examples(5)
@given(chance=st.randoms(use_true_random=False), names=histories(ALL, 9))
def test_maintenance_changes_nothing_that_anyone_sees(
    lake_url: str, tmp_path: Path, duck: duckdb.DuckDBPyConnection, chance: random.Random, names: list[str]
) -> None:
    with new_bench(duck, lake_url, tmp_path) as bench:
        play(bench, chance, names, 4)


@pytest.mark.long
@pytest.mark.parametrize("kinds", [OURS, ALL], ids=["ours", "all"])
@pytest.mark.parametrize("seed", range(20))
def test_nor_does_it_in_long_histories(
    seed: int, kinds: Sequence[str], lake_url: str, tmp_path: Path, duck: duckdb.DuckDBPyConnection
) -> None:
    chance = random.Random(seed)
    with new_bench(duck, lake_url, tmp_path) as bench:
        play(bench, chance, [*chance.choices(kinds, k=20), "merge"], 30)
