"""Commits to many lakes at once: each lands or fails on its own, on both kinds of catalog and on both at a time."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import duckdb
import psycopg
import pytest
from lakebench import COLUMNS, Bench, T, at

from headwater.change import Lsn
from headwater.ducklake.catalog import open_catalog
from headwater.ducklake.extension import attach
from headwater.ducklake.lake import Lake
from headwater.ducklake.model import PlannedCommit, TableChange
from headwater.ducklake.opening import open_lake
from headwater.ducklake.together import commit_together
from headwater.ducklake.url import PostgresUrl, parse_lake_url
from headwater.errors import AlreadyDelivered, CommitConflict, CommitUnknown, HeadwaterError, TimedOut, Unreachable


@pytest.fixture
def new_bench(duck: duckdb.DuckDBPyConnection, database: str, tmp_path: Path) -> Iterator[Callable[[str], Bench]]:
    """A new lake of a kind, with the table T, whose position is 1."""
    made: list[Bench] = []

    def of_kind(kind: str) -> Bench:
        name = f"l{uuid.uuid4().hex[:8]}"
        url = f"sqlite:///{tmp_path}/{name}.sqlite" if kind == "sqlite" else f"{database}&schema={name}"
        lake = open_lake(url, f"{tmp_path}/{name}")
        attach(duck, parse_lake_url(url), name)
        bench = Bench(lake, duck, name)
        new = lake.new_table(T, COLUMNS)
        create = PlannedCommit(lake.snapshot(), "pg", new_tables=(new,), changes=(TableChange(T),))
        lake.commit(at(create, 1, None, 1, T))
        made.append(bench)
        return bench

    yield of_kind
    for bench in made:
        duck.execute(f"DETACH {bench.alias}")
        bench.lake.close()


KINDS = [["sqlite"] * 3, ["postgres"] * 3, ["postgres", "sqlite", "postgres"]]


@pytest.fixture(params=KINDS, ids=["sqlite", "postgres", "both"])
def benches(request: pytest.FixtureRequest, new_bench: Callable[[str], Bench]) -> list[Bench]:
    return [new_bench(kind) for kind in request.param]


def step(bench: Bench, row: int, before: int = 1) -> PlannedCommit:
    """A commit that brings a row and moves the position from `before` to the next."""
    return at(bench.plan(insert=[(row, "x")]), 1, before, before + 1, bench.table().id)


def together(benches: Sequence[Bench], commits: Sequence[PlannedCommit]) -> list[int | HeadwaterError]:
    return commit_together([(bench.lake, commit) for bench, commit in zip(benches, commits, strict=True)])


def keys(bench: Bench) -> list[int]:
    return [row[0] for row in bench.rows()]


def test_each_lake_gets_its_own_rows_and_position(benches: list[Bench]) -> None:
    commits = [step(bench, index) for index, bench in enumerate(benches)]
    assert together(benches[::-1], commits[::-1]) == [2, 2, 2]
    assert [keys(bench) for bench in benches] == [[0], [1], [2]]
    again = [
        at(bench.plan(insert=[(10, "y")], update={i: "u"}), 1, 2, 3, bench.table().id)
        for i, bench in enumerate(benches)
    ]
    assert together(benches, again) == [3, 3, 3]
    assert [bench.rows() for bench in benches] == [[(i, "u"), (10, "y")] for i in range(3)]
    assert {bench.lake.positions("pg", Lsn)[1].position for bench in benches} == {Lsn(3)}


@pytest.mark.parametrize("held", [[1], [0, 1, 3], [0, 1, 2, 3]])
def test_lakes_that_stay_locked_are_given_up_and_the_others_of_the_transaction_land(
    new_bench: Callable[[str], Bench], database: str, held: list[int]
) -> None:
    benches = [new_bench("postgres") for _ in range(4)]
    commits = [step(bench, 5) for bench in benches]
    urls = [replace(bench.lake.url, wait=1) for bench in benches]
    lakes = [Lake(url, bench.lake.data_path, open_catalog(url), None) for url, bench in zip(urls, benches, strict=True)]
    with psycopg.connect(database) as other:
        for each in held:
            other.execute(f'LOCK TABLE "{benches[each].alias}".ducklake_snapshot'.encode())
        outcomes = commit_together(list(zip(lakes, commits, strict=True)))
    assert [index for index, outcome in enumerate(outcomes) if isinstance(outcome, TimedOut)] == held
    assert [keys(bench) for bench in benches] == [[] if index in held else [5] for index in range(4)]
    again = commit_together([(lakes[each], commits[each]) for each in held])
    assert again == [2] * len(held)


def test_nothing_to_commit_is_nothing() -> None:
    assert commit_together([]) == []


@pytest.mark.parametrize("failing", [0, 1, 2])
def test_what_fails_in_one_lake_leaves_the_others_alone(benches: list[Bench], failing: int) -> None:
    commits = [step(bench, 5) for bench in benches]
    commits[failing] = step(benches[failing], 5, before=7)
    outcomes = together(benches, commits)
    assert isinstance(outcomes.pop(failing), AlreadyDelivered)
    assert outcomes == [2, 2]
    assert [keys(bench) for bench in benches] == [[] if index == failing else [5] for index in range(3)]
    assert [bench.lake.snapshot().id for bench in benches] == [1 if index == failing else 2 for index in range(3)]


def test_a_conflict_is_the_outcome_of_its_lake(benches: list[Bench]) -> None:
    commits = [step(bench, 5) for bench in benches]
    benches[1].sql("ALTER TABLE {l}.public.t ADD COLUMN more INT")
    outcomes = together(benches, commits)
    assert isinstance(outcomes.pop(1), CommitConflict)
    assert outcomes == [2, 2]


def test_what_cannot_even_be_sent_is_the_outcome_of_its_lake(new_bench: Callable[[str], Bench]) -> None:
    benches = [new_bench("postgres") for _ in range(3)]
    commits = [step(bench, 5) for bench in benches]
    commits[1] = replace(commits[1], attempt="no\0text")
    first, failed, last = together(benches, commits)
    assert (first, last) == (2, 2)
    assert isinstance(failed, HeadwaterError)
    assert str(benches[1].lake.url) in failed.message


def test_two_commits_to_one_lake_follow_each_other(benches: list[Bench]) -> None:
    bench = benches[0]
    assert commit_together([(bench.lake, step(bench, 1)), (bench.lake, step(bench, 2, before=2))]) == [2, 3]
    assert keys(bench) == [1, 2]


def test_a_lake_that_another_writer_holds_tries_again_and_the_others_have_landed(
    new_bench: Callable[[str], Bench], database: str
) -> None:
    benches = [new_bench("postgres") for _ in range(3)]
    url = benches[1].lake.url
    assert isinstance(url, PostgresUrl)
    commits = [step(bench, 5) for bench in benches]
    outcomes: list[int | HeadwaterError] = []
    with psycopg.connect(database) as other:  # it has taken snapshot 2, and commits it while ours waits
        other.execute(f'INSERT INTO "{url.schema}".ducklake_snapshot SELECT 2, now(), 1, 3, 9'.encode())
        thread = threading.Thread(target=lambda: outcomes.extend(together(benches, commits)))
        thread.start()
        waiting = (
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
        with psycopg.connect(database, autocommit=True) as admin:
            while admin.execute(waiting.encode()).fetchone() != (1,):
                pass
        other.commit()
        thread.join(60)
    assert outcomes == [2, 3, 2]
    assert [keys(bench) for bench in benches] == [[5]] * 3


def test_processes_that_commit_to_the_same_lakes_do_not_deadlock(new_bench: Callable[[str], Bench]) -> None:
    benches = [new_bench("postgres") for _ in range(4)]
    failures: list[BaseException] = []

    def work(first: int) -> None:
        try:
            for row in range(first, first + 10):
                mine = benches[:: 1 if first else -1]
                outcomes = together(mine, [bench.plan(insert=[(row, "x")]) for bench in mine])
                assert all(isinstance(each, int) for each in outcomes), outcomes
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(first,)) for first in (0, 100)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert [keys(bench) for bench in benches] == [[*range(10), *range(100, 110)]] * 4


DIE = "AS $$BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NULL; END$$"


@pytest.mark.parametrize("when", ["during COMMIT", "before it"])
def test_a_lost_connection_is_every_lakes_trouble(new_bench: Callable[[str], Bench], database: str, when: str) -> None:
    benches = [new_bench("postgres") for _ in range(3)]
    commits = [step(bench, 5) for bench in benches]
    url = benches[1].lake.url
    assert isinstance(url, PostgresUrl)
    timing = "DEFERRABLE INITIALLY DEFERRED" if when == "during COMMIT" else ""
    with psycopg.connect(database, autocommit=True) as admin:
        admin.execute(f"CREATE FUNCTION die() RETURNS trigger LANGUAGE plpgsql {DIE}".encode())
        admin.execute(
            f"CREATE CONSTRAINT TRIGGER die AFTER INSERT ON {url.schema}.ducklake_snapshot_changes {timing}"
            " FOR EACH ROW EXECUTE FUNCTION die()".encode()
        )
        outcomes = together(benches, commits)
        admin.execute(f"DROP TRIGGER die ON {url.schema}.ducklake_snapshot_changes".encode())
    kind = CommitUnknown if when == "during COMMIT" else Unreachable
    assert [type(each) for each in outcomes] == [kind] * 3
    assert all(str(bench.lake.url) in str(each) for bench, each in zip(benches, outcomes, strict=True))
    assert [keys(bench) for bench in benches] == [[], [], []]
    assert together(benches, commits) == [2, 2, 2]


def test_more_lakes_than_fit_one_transaction_all_land(
    new_bench: Callable[[str], Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.ducklake.together._SHARING", 2)
    benches = [new_bench("postgres") for _ in range(5)]
    assert together(benches, [step(bench, 5) for bench in benches]) == [2] * 5
    assert [keys(bench) for bench in benches] == [[5]] * 5
