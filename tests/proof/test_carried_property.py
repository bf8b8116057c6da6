"""Anything, in any order, arrives: random rows and shapes, small deliveries, restarts; compared at quiet points.

A failing seed is reported, and played again with `HEADWATER_SEED=n HEADWATER_POSTGRES=18 HEADWATER_TRIGGERS=no`; it is
played for as long as one likes by `make soak ARGS="--carried"`.
"""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from itertools import cycle
from pathlib import Path

import psycopg
import pytest
from pyspark.sql import SparkSession
from soak.carried import HISTORY, Carried, create

from headwater import flow
from headwater.capture.run import run_capture
from headwater.capture.watch import Watch
from headwater.supervise.opening import open_log, open_state
from headwater.testing.postgres import EmbeddedPostgres, installed
from tests.brokenoff import break_off
from tests.conftest import LAKE, VERSION, new_database
from tests.mirror import LOOK_EVERY, IcebergMirror, Mirror
from tests.proof.carried import assert_carried

ROUNDS, TRANSACTIONS = 2, 15  # transactions between two quiet points
SEEDS = os.environ.get("HEADWATER_SEED", "1,2,3,any").split(",")
TRIGGERS = [each == "yes" for each in os.environ.get("HEADWATER_TRIGGERS", "yes,no").split(",")]
VERSIONS = [int(each) for each in os.environ.get("HEADWATER_POSTGRES", "").split()] or sorted(installed(), reverse=True)
# On every version of PostgreSQL there is, with event triggers and without.
PLAYED = list(zip(SEEDS, cycle(VERSIONS), cycle(TRIGGERS), strict=False))


class Disturbed(Mirror):
    """A mirror whose parts are stopped and started, and whose capture keeps little in memory.

    Its rows come to be in files and in the lake's catalog, and move from there into files.
    """

    def __init__(self, url: str, spark: SparkSession, folder: Path) -> None:
        super().__init__(url, spark, folder)
        self.chance = random.Random(0)
        self.captures = False

    def capture(self) -> None:
        roll = self.chance.choice((20_000, 200_000, 16 << 20))
        self._stop.clear()

        def run() -> None:
            with closing(open_state(self.config)) as state:
                log = open_log(self.config, state, "g")
                with closing(Watch(self.url, state, log, "g", every=LOOK_EVERY)) as watch:
                    watch.start()
                    run_capture(self.url, state, log, "g", stop=self._stop, roll_bytes=roll)

        self._capture = threading.Thread(target=run)
        self._capture.start()
        self.captures = True

    def toggle_capture(self) -> None:
        if self.captures:
            self.stop_capture()
            self.captures = False
        else:
            self.capture()

    def disturb(self) -> str:
        """Something or nothing; what it was."""
        chance, rows = self.chance.random(), self.chance.choice((1, 5, 50))
        if chance < 0.25:
            done = flow.deliver(self._any_way(rows))
            return f"delivered up to {done.position}"
        if chance < 0.33:
            self.toggle_capture()
            return "capture started" if self.captures else "capture stopped"
        if chance < 0.38:
            self.reopen()
            return "opened again"
        if chance < 0.42:
            return f"copied {flow.copy(self.m)}"
        if chance < 0.45:
            return "a copy was broken off" if break_off(self, lambda _: self.chance.random() < 0.6) else ""
        if chance < 0.51:
            return f"moved {self.flush()} rows into files"
        if chance < 0.56:
            return "removals were placed" if flow.place_removals(self.m) else ""
        return ""

    def _any_way(self, rows: int) -> flow.Mirroring:
        """To deliver so many rows: into files only, or up to so many of a table into the catalog."""
        return replace(self.m, max_rows=rows, inline_rows=self.chance.choice((None, 20, 1_000)))

    def settle(self) -> bool:
        """By small deliveries."""
        if not self.captures:
            self.capture()
        self.looked()
        m, self.m = self.m, self._any_way(self.chance.choice((10, 100, 100_000)))
        copied = super().settle()
        self.m = m
        return copied


class DisturbedIceberg(Disturbed, IcebergMirror):
    """The same into an Iceberg lake."""


DISTURBED = Disturbed if LAKE is Mirror else DisturbedIceberg


@pytest.fixture
def disturbed(database: str, spark: SparkSession, tmp_path: Path) -> Iterator[Disturbed]:
    with closing(DISTURBED(database, spark, tmp_path)) as made:
        yield made


def play(mirror: Disturbed, carried: Carried, other: Carried) -> None:
    for _ in range(20):
        carried.transaction()
    carried.said.append("-- the first copy")
    names = carried.names()
    modes = {names[HISTORY]: "history"}
    mirror.start(*({"table": f"public.{name}", "mode": modes.get(name, "mirror")} for name in names.values()))
    for _ in range(ROUNDS):
        for _ in range(TRANSACTIONS):
            carried.overlapping(other)
            if happened := mirror.disturb():
                carried.said.append(f"-- {happened}")
        carried.said.append("-- a quiet point")
        mirror.settle()
        assert_carried(mirror)
    assert [each for each in mirror.verify() if not each.ok] == []


@pytest.mark.parametrize(
    "played",
    [pytest.param(played, marks=() if played == PLAYED[-1] else pytest.mark.long) for played in PLAYED],
    ids=lambda played: "-".join(map(str, played)),
)
def test_whatever_is_done_to_the_source_arrives(
    servers: Callable[[int], EmbeddedPostgres], spark: SparkSession, tmp_path: Path, played: tuple[str, int, bool]
) -> None:
    _, version, _ = played
    with new_database(servers(version)) as url, closing(DISTURBED(url, spark, tmp_path)) as disturbed:
        play_again_if_it_fails(disturbed, played)


@pytest.mark.long
def test_whatever_is_done_to_the_source_arrives_in_iceberg(database: str, spark: SparkSession, tmp_path: Path) -> None:
    with closing(DisturbedIceberg(database, spark, tmp_path)) as disturbed:
        play_again_if_it_fails(disturbed, (SEEDS[0], VERSION, TRIGGERS[0]))


def play_again_if_it_fails(disturbed: Disturbed, played: tuple[str, int, bool]) -> None:
    """Play it, and tell how a failure is played again."""
    asked, version, disturbed.triggers = played
    seed = random.SystemRandom().randrange(10**6) if asked == "any" else int(asked)
    try:
        _play(disturbed, seed)
    except BaseException as error:
        triggers = "yes" if disturbed.triggers else "no"
        settings = f"HEADWATER_SEED={seed} HEADWATER_POSTGRES={version} HEADWATER_LAKE={disturbed.kind}"
        error.add_note(f"play it again with {settings} HEADWATER_TRIGGERS={triggers}")
        raise


def _play(disturbed: Disturbed, seed: int) -> None:
    disturbed.execute("SET TimeZone = 'UTC'")
    create(disturbed.source)
    disturbed.chance, chance = random.Random(seed), random.Random(seed)
    with psycopg.connect(disturbed.url, autocommit=True) as second:
        carried = Carried(disturbed.source, chance)
        other = Carried(second, chance, carried.said)
        try:
            play(disturbed, carried, other)
        except BaseException as error:
            reported = disturbed.folder / "said.sql"
            reported.write_text("\n".join(carried.said))
            error.add_note(f"all statements are in {reported}")
            raise
        assert carried.done.total() > 50


def test_a_table_renamed_before_a_new_run_begins_is_renamed_in_the_lake(disturbed: Disturbed) -> None:
    disturbed.execute("CREATE TABLE t (id int PRIMARY KEY)")
    disturbed.start("public.t")
    disturbed.execute("ALTER TABLE t RENAME TO u", "INSERT INTO u VALUES (1)")
    disturbed.reopen()
    disturbed.settle()
    assert disturbed.ask("SELECT * FROM lake.public.u") == [(1,)]


def test_a_table_renamed_and_copied_again_is_renamed_in_the_lake(disturbed: Disturbed) -> None:
    disturbed.execute("CREATE TABLE t (id int PRIMARY KEY, v int)", "CREATE TABLE other (id int PRIMARY KEY)")
    disturbed.start()
    disturbed.execute("ALTER TABLE t RENAME TO u", "ALTER TABLE u ALTER v TYPE text", "INSERT INTO u VALUES (1)")
    disturbed.settle()
    assert disturbed.ask("SELECT * FROM lake.public.u") == [(1, None)]


def test_values_in_quarantine_are_settled_when_their_table_is_copied_again(disturbed: Disturbed) -> None:
    disturbed.execute("CREATE TABLE t (id int PRIMARY KEY, at timestamp)", "CREATE TABLE other (id int PRIMARY KEY)")
    disturbed.start()
    disturbed.execute("INSERT INTO t VALUES (2, '294276-01-01'), (3, '294276-01-01')")
    disturbed.settle()
    assert_carried(disturbed)
    disturbed.execute("DELETE FROM t WHERE id = 3", "ALTER TABLE t ALTER at TYPE text USING at::text")
    disturbed.settle()
    assert_carried(disturbed)


def test_a_column_under_a_dropped_ones_name_has_nothing_of_its_quarantine(disturbed: Disturbed) -> None:
    disturbed.execute("CREATE TABLE t (id int PRIMARY KEY, n numeric)", "INSERT INTO t VALUES (1, 'NaN')")
    disturbed.start()
    disturbed.execute("ALTER TABLE t DROP n", "ALTER TABLE t ADD n numeric", "INSERT INTO t VALUES (2)")
    disturbed.settle()
    assert [each for each in disturbed.verify() if not each.ok] == []


@pytest.mark.parametrize("end", ["ROLLBACK TO s; COMMIT", "ROLLBACK", "RELEASE s; ROLLBACK"])
def test_a_large_transaction_that_was_rolled_back_while_capture_was_down(disturbed: Disturbed, end: str) -> None:
    """PostgreSQL 18 reports the end of its subtransactions although it never began to stream it."""
    disturbed.execute(f"ALTER DATABASE {disturbed.source.info.dbname} SET logical_decoding_work_mem = '64kB'")
    disturbed.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
    disturbed.start()
    disturbed.stop_capture()
    many = "INSERT INTO t SELECT i, repeat('x', 100) FROM generate_series(1, 4000) i"
    disturbed.execute(f"BEGIN; SAVEPOINT s; {many}; {end}", "INSERT INTO t VALUES (-1, '')")
    disturbed.capture()
    disturbed.settle()
    assert disturbed.ask("SELECT * FROM lake.public.t") == [(-1, "")]


def test_values_in_quarantine_are_found_again_after_a_change_of_the_key(disturbed: Disturbed) -> None:
    disturbed.execute("CREATE TABLE t (id int PRIMARY KEY, alt int NOT NULL, n numeric)")
    disturbed.execute("INSERT INTO t VALUES (1, 10, 'NaN'), (2, 20, 'NaN')")
    disturbed.start()
    disturbed.execute("ALTER TABLE t DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (alt)", "UPDATE t SET n = 1 WHERE id = 1")
    disturbed.settle()
    assert_carried(disturbed)
