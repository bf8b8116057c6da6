"""What every sink promises: the same tests for a lake in memory and for DuckLake on each of its catalogs."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog

from headwater.change import Lsn, Position, SnapshotId, TableName
from headwater.ducklake.extension import attach, connect
from headwater.ducklake.opening import open_lake
from headwater.ducklake.url import parse_lake_url
from headwater.errors import AlreadyDelivered, CannotFollow, CommitConflict, TableError
from headwater.lake import history, quarantine
from headwater.lake.counts import Counts
from headwater.lake.partitioning import PartitionBy
from headwater.lake.sink import MirrorSpec, Sink
from headwater.lake.sqltext import identifier
from headwater.lake.stream import FEED, WAL, Stream
from headwater.lake.target import SETTLED, Sought, misfits_of, rows_of
from headwater.sink.ducklake import DuckLakeSink
from headwater.sink.iceberg.address import IcebergAddress
from headwater.testing.memory import MemoryLake, MemorySink
from tests.conftest import new_database
from tests.iceberg.restcatalog import rest_catalog
from tests.mirror import Mirror
from tests.sink.sinkbench import (
    OID,
    OTHER,
    Bench,
    Row,
    T,
    U,
    column,
    kinds_of,
    misfits,
    relation,
    taken,
    typed,
    written,
)

DUCKLAKES = ["ducklake-sqlite", "ducklake-postgres", "ducklake-sqlite-inlined", "ducklake-postgres-inlined"]
KINDS = ["memory", *DUCKLAKES, "iceberg-sqlite", "iceberg-postgres", "iceberg-rest"]
# To Iceberg's SQL catalog PostgreSQL and SQLite are the same, but for what tests with EVERY_KIND are about.
LESS = ("iceberg-postgres", "ducklake-postgres-inlined")
MOST_KINDS = [pytest.param(each, marks=pytest.mark.long) if each in LESS else each for each in KINDS]
EVERY_KIND = pytest.mark.parametrize("bench", KINDS, indirect=True)
DUCKLAKE = pytest.mark.parametrize("bench", DUCKLAKES, indirect=True)
IN_FILES = pytest.mark.parametrize("bench", ["ducklake-sqlite", "ducklake-postgres", "iceberg-sqlite"], indirect=True)
EVERY_STREAM = pytest.mark.parametrize("stream", [WAL, FEED], ids=["wal", "feed"], indirect=True)


@pytest.fixture(scope="module")
def duck() -> Iterator[duckdb.DuckDBPyConnection]:
    with connect(threads=1) as connection:
        yield connection


@pytest.fixture
def stream(request: pytest.FixtureRequest) -> Stream[Any]:
    """PostgreSQL's, but in tests with EVERY_STREAM."""
    found: Stream[Any] = getattr(request, "param", WAL)
    return found


@pytest.fixture(params=MOST_KINDS)
def bench(
    request: pytest.FixtureRequest, tmp_path: Path, duck: duckdb.DuckDBPyConnection, stream: Stream[Any]
) -> Iterator[Bench]:
    if request.param == "memory":
        memory = MemoryLake()
        yield Bench(lambda *to: MemorySink(memory, *to), memory.rows, stream=stream)
        return
    if request.param.startswith("iceberg"):
        with ExitStack() as held:
            uri = f"sqlite:///{tmp_path}/contract.sqlite"
            if request.param == "iceberg-postgres":
                uri = held.enter_context(new_database(request.getfixturevalue("postgres")))
            properties = {"type": "sql", "uri": uri, "warehouse": str(tmp_path / "lake")}
            if request.param == "iceberg-rest":
                properties = held.enter_context(rest_catalog(tmp_path)).properties
            address = IcebergAddress(properties)
            yield Bench(
                lambda *to: held.enter_context(closing(address.open(*to))),
                iceberg_rows(address),
                stream=stream,
                row_lineage=False,
                defaults=False,
            )
        return
    with ExitStack() as held:
        url = f"sqlite:///{tmp_path}/contract.sqlite"
        if request.param.startswith("ducklake-postgres"):
            url = held.enter_context(new_database(request.getfixturevalue("postgres")))
        alias, data_path = f"l{uuid.uuid4().hex[:8]}", str(tmp_path / "lake")
        attach(duck, parse_lake_url(url), alias, data_path=data_path)  # which creates it
        held.callback(duck.execute, f"DETACH {alias}")
        duck.execute(f"CALL {alias}.set_option('data_inlining_row_limit', 0)")
        lake = held.enter_context(closing(open_lake(url, data_path)))

        def read(name: TableName) -> list[dict[str, Any]]:
            found = duck.execute(f"FROM {alias}.{identifier(name.schema)}.{identifier(name.name)}")
            names = [each[0] for each in found.description]
            return [dict(zip(names, row, strict=True)) for row in found.fetchall()]

        inlined = request.param.endswith("inlined")
        yield Bench(lambda *to: DuckLakeSink(lake, *to), read, stream=stream, inlined=inlined)


def iceberg_rows(address: IcebergAddress) -> Callable[[TableName], list[dict[str, Any]]]:
    """A table's rows as PyIceberg reads them by itself."""

    def read(name: TableName) -> list[dict[str, Any]]:
        catalog = load_catalog(
            "default",
            **{**address.properties, "uri": address.properties["uri"].replace("postgresql:", "postgresql+psycopg:")},
        )
        with closing(catalog):
            found: list[dict[str, Any]] = catalog.load_table(tuple(name)).scan().to_arrow().to_pylist()
            return found

    return read


@EVERY_STREAM
def test_a_copied_table_has_its_rows_its_name_and_its_position(bench: Bench) -> None:
    landed = bench.copy([(1, "a"), (2, None)], at=100)
    assert landed.counts == {OID: Counts(copied=2)}
    assert bench.rows() == [(1, "a"), (2, None)]
    there = bench.standing()
    assert (there.name, there.position, there.counts) == (T, bench.at(100), Counts(copied=2))


def test_an_empty_table_is_copied_too(bench: Bench) -> None:
    bench.copy()
    assert bench.rows() == []
    assert bench.standing().position == bench.at(100)


@EVERY_KIND
@EVERY_STREAM
def test_changes_and_the_position_land_in_one_snapshot(bench: Bench) -> None:
    copied = bench.copy([(1, "a"), (2, "b"), (3, "c")])
    landed = bench.deliver(200, insert=[(4, "d")], update=[(2, "new")], delete=[3])
    assert landed.snapshot_id > copied.snapshot_id
    assert landed.counts == {OID: Counts(inserted=1, updated=1, deleted=1)}
    assert bench.rows() == [(1, "a"), (2, "new"), (4, "d")]
    assert bench.standing().position == bench.at(200)
    assert bench.standing().counts == Counts(copied=3, inserted=1, updated=1, deleted=1)


def test_a_commit_says_how_much_it_has_put_into_files(bench: Bench) -> None:
    assert bench.copy([(number, "a" * 50) for number in range(1_000)]).bytes > 1_000
    assert bench.deliver(200, delete=[1]).bytes == 0  # the files of deletes are not counted
    assert (bench.deliver(300, insert=[(1_000, "b")]).bytes > 0) is not bench.inlined


@EVERY_STREAM
def test_a_table_without_changes_only_moves_on(bench: Bench) -> None:
    bench.copy([(1, "a")])
    assert bench.deliver(200).counts.get(OID, Counts()) == Counts()
    assert bench.standing().position == bench.at(200)
    assert bench.rows() == [(1, "a")]


@EVERY_STREAM
def test_nothing_is_seen_before_the_commit(bench: Bench) -> None:
    bench.copy([(1, "a")])
    attempt = bench.attempt(insert=[(2, "b")], delete=[1])
    assert bench.rows() == [(1, "a")]
    attempt.discard()
    assert bench.rows() == [(1, "a")]
    assert bench.standing().position == bench.at(100)
    bench.deliver(200, update=[(1, "right all the same")])
    assert bench.rows() == [(1, "right all the same")]


@EVERY_STREAM
def test_what_an_attempt_that_was_killed_has_written_is_collected(bench: Bench) -> None:
    bench.copy([(1, "a")])
    bench.attempt(insert=[(2, "b")], delete=[1])
    bench.sink.collect()
    bench.sink.collect()
    assert bench.sink.collect() == 0
    bench.deliver(200, update=[(1, "there")])
    assert bench.rows() == [(1, "there")]


@DUCKLAKE
def test_an_attempt_of_the_callers_own_that_was_collected_can_no_longer_land(bench: Bench, tmp_path: Path) -> None:
    """One attempt stands for work on many lakes: none of them has a note of it before it is collected.

    Without files, nothing of it is gone, and the lake's position decides whether it lands.
    """
    bench.copy([(1, "a")])
    before, noted = set(tmp_path.rglob("*.parquet")), uuid.uuid4().hex
    suspended = bench.attempt(insert=[(2, "b")], delete=[1], noted=noted)
    assert bench.inlined or set(tmp_path.rglob(f"*-{noted}-*.parquet")) - before
    assert bench.sink.collect() == 0
    assert bool(bench.sink.collect([noted])) is not bench.inlined
    assert set(tmp_path.rglob("*.parquet")) == before
    if bench.inlined:
        suspended.commit(200)
        with pytest.raises((AlreadyDelivered, CommitConflict)):
            suspended.commit(200)
        assert bench.rows() == [(2, "b")]
        return
    for _ in range(3):
        with pytest.raises(CommitConflict, match="has closed attempt"):
            suspended.commit(200)
        assert bench.sink.collect() == 0
    bench.deliver(200, update=[(1, "there")])
    assert bench.rows() == [(1, "there")]


@DUCKLAKE
def test_collecting_leaves_files_alone_that_an_attempt_has_landed(bench: Bench) -> None:
    noted, sink, table = uuid.uuid4().hex, bench.sink, relation()
    copy = sink.begin_copy([sink.new_mirror(MirrorSpec(table, kinds_of(table), T))], {}, noted)
    rows = written(copy.target, rows_of(OID), [(typed(table, [(1, "a"), (2, "b")]), None)])
    copy.commit({OID: bench.at(100)}, {rows_of(OID): rows})
    bench.attempt(insert=[(3, "c")], update=[(2, "new")], noted=noted).commit(200)
    bench.attempt(insert=[(4, "killed")], noted=noted)
    assert sink.collect([noted]) == (0 if bench.inlined else 1)
    assert bench.rows() == [(1, "a"), (2, "new"), (3, "c")]
    assert sink.lost(every_file=True) == {}


@EVERY_STREAM
def test_a_copy_goes_on_beside_deliveries_that_collect_what_others_have_left(bench: Bench) -> None:
    bench.copy([(1, "a")])
    copying, of = bench.sink, relation(oid=OTHER, name=U)
    copy = copying.begin_copy([copying.new_mirror(MirrorSpec(of, kinds_of(of), U))], {})
    rows = written(copy.target, rows_of(OTHER), [(typed(of, [(7, "copied")]), None)])
    bench.deliver(200, insert=[(2, "b")], update=[(1, "new")])
    bench.attempt(insert=[(3, "killed")])
    bench.sink.collect()
    bench.deliver(300, delete=[2])
    copying.look_again()
    copy.commit({OTHER: bench.at(250)}, {rows_of(OTHER): rows})
    assert (bench.rows(T), bench.rows(U)) == ([(1, "new")], [(7, "copied")])
    assert {oid: each.position for oid, each in bench.sink.standings().items()} == {
        OID: bench.at(300),
        OTHER: bench.at(250),
    }
    assert bench.sink.lost(every_file=True) == {}


@IN_FILES
def test_what_a_copy_that_was_killed_has_written_is_collected(bench: Bench) -> None:
    bench.copy([(1, "a")])
    sink, of = bench.sink, relation(oid=OTHER, name=U)
    copy = sink.begin_copy([sink.new_mirror(MirrorSpec(of, kinds_of(of), U))], {})
    written(copy.target, rows_of(OTHER), [(typed(of, [(7, "killed")]), None)])
    assert bench.sink.collect() == 0
    assert bench.sink.collect_copies() == 1
    with pytest.raises(CommitConflict, match="has closed attempt"):
        copy.commit({OTHER: bench.at(200)}, {})


def test_a_copy_goes_on_with_the_files_of_one_that_was_killed(bench: Bench) -> None:
    bench.copy([(1, "other")], of=relation(oid=OTHER, name=U))
    table, to = relation(), rows_of(OID)
    for at in (200, 400):  # its first copy, and another one in its place
        sink = bench.sink
        killed = sink.begin_copy([sink.new_mirror(MirrorSpec(table, kinds_of(table), T))], {})
        rows, note = written(killed.target, to, [(typed(table, [(1, "done")]), None)]), killed.note(OID)
        sink = bench.sink
        assert not sink.has_landed(OID, note)
        sink.collect_copies([killed.name])
        taken_up = sink.taken_up(sink.new_mirror(MirrorSpec(table, kinds_of(table), T)), note, misfits=False)
        assert taken_up is not None
        copy = sink.begin_copy([taken_up], {})
        rows += written(copy.target, to, [(typed(table, [(2, "the rest")]), None)])
        copy.commit({OID: bench.at(at)}, {to: rows})
        assert bench.sink.has_landed(OID, note)
        assert bench.rows() == [(1, "done"), (2, "the rest")]
        bench.sink.collect_copies()
        bench.sink.collect_copies()
        bench.deliver(at + 100, update=[(1, "on")], delete=[2])
        assert bench.rows() == [(1, "on")]
        assert bench.sink.lost(every_file=True) == {}


def test_a_copy_does_not_go_on_with_files_that_were_written_for_other_columns(bench: Bench) -> None:
    sink, table = bench.sink, relation()
    killed = sink.begin_copy([sink.new_mirror(MirrorSpec(table, kinds_of(table), T))], {})
    note = killed.note(OID)
    other = relation(*table.columns, column("more", "text", 3))
    assert sink.taken_up(sink.new_mirror(MirrorSpec(other, kinds_of(other), T)), note, misfits=False) is None


@EVERY_STREAM
def test_redelivery_after_a_crash_changes_nothing(bench: Bench) -> None:
    bench.copy([(1, "a")])
    first, again = bench.attempt(insert=[(2, "b")]), bench.attempt(insert=[(2, "b")])
    first.commit(200)
    with pytest.raises(AlreadyDelivered):
        again.commit(200)
    again.discard()
    assert bench.rows() == [(1, "a"), (2, "b")]
    assert bench.standing().position == bench.at(200)


@EVERY_KIND
def test_rows_that_another_delivery_has_moved_are_a_conflict_and_nothing_lands(bench: Bench) -> None:
    bench.copy([(1, "a"), (2, "b")])
    late = bench.attempt(update=[(1, "late")])
    bench.deliver(200, update=[(1, "first")], delete=[2])
    with pytest.raises((CommitConflict, AlreadyDelivered)):
        late.commit(300)
    late.discard()
    assert bench.rows() == [(1, "first")]
    assert bench.standing().position == bench.at(200)


@EVERY_KIND
def test_rows_are_looked_for_in_the_snapshot_that_was_planned_on(bench: Bench) -> None:
    bench.copy([(1, "a")])
    bench.deliver(200, insert=[(2, "b"), (3, "c")])
    plan = bench.sink.plan()
    bench.deliver(300, delete=[2], update=[(3, "moved")])
    delivery = plan.begin({OID: ("id",)})
    places = delivery.places({OID: Sought()})
    assert {key for place in places for key in taken(delivery.target, place, {1, 2, 3})[0]} == {1, 2, 3}


def test_a_row_keeps_its_id_through_updates_in_a_lake_that_knows_rows_by_id(bench: Bench) -> None:
    if not bench.row_lineage:
        bench.copy([(1, "a")])
        assert bench.row_ids(1) == {1: None}
        return
    bench.copy([(1, "a"), (2, "b"), (3, "c")])
    before = bench.row_ids(1, 2, 3)
    assert len(set(before.values())) == 3
    bench.deliver(200, update=[(2, "new")], insert=[(4, "d")])
    bench.deliver(300, update=[(2, "newer"), (3, "new")], delete=[1])
    after = bench.row_ids(1, 2, 3, 4)
    assert {key: after[key] for key in (2, 3)} == {key: before[key] for key in (2, 3)}
    assert after[4] not in before.values()
    assert 1 not in after


def test_a_row_is_deleted_once(bench: Bench) -> None:
    bench.copy([(1, "a"), (2, "b")])
    bench.deliver(200, delete=[1])
    assert bench.deliver(300, delete=[1, 2]).counts == {OID: Counts(deleted=1)}
    assert bench.rows() == []


def test_rows_of_a_place_can_be_read_back(bench: Bench) -> None:
    bench.copy([(1, "a"), (2, "b"), (3, "c")])
    bench.deliver(200, delete=[2])
    delivery = bench.sink.plan().begin({OID: ("id",)})
    (place,) = delivery.places({OID: Sought()})
    assert (place.oid, place.rows) == (OID, 3)
    gone = delivery.target.gone(place).tolist()
    alive = [at for at in range(3) if at not in gone]
    shown = delivery.target.rows(place, pa.array(alive, pa.int64())).to_pylist()
    assert sorted(row["v"] for row in shown) == ["a", "c"]


@EVERY_STREAM
def test_a_truncated_table_has_what_came_after_only(bench: Bench) -> None:
    bench.copy([(1, "a"), (2, "b")])
    landed = bench.deliver(200, truncate=True, insert=[(3, "c")])
    assert bench.rows() == [(3, "c")]
    assert landed.counts == {OID: Counts(inserted=1, deleted=2)}
    assert bench.deliver(300, truncate=True).counts == {OID: Counts(deleted=1)}
    assert bench.rows() == []


def test_places_that_may_hold_a_key_are_never_left_out(bench: Bench) -> None:
    bench.copy([(at, "x") for at in range(10)])
    for first in (1000, 2000):
        bench.deliver(first, insert=[(first + at, "x") for at in range(10)])
    delivery = bench.sink.plan().begin({OID: ("id",)})
    everything = delivery.places({OID: Sought()})
    assert len(everything) == (2 if bench.inlined else 3)
    for key in (5, 1005, 2009):
        within = delivery.places({OID: Sought((key, key))})
        held = {each for place in within for _, (ids,) in delivery.target.keys(place) for each in ids.to_pylist()}
        assert key in held


WIDER = relation(column("id", "int8", 1), column("w", "text", 2), column("n", "int4", 3, missing="7"))


@EVERY_STREAM
def test_columns_follow_the_relation_in_the_snapshot_of_its_changes(bench: Bench) -> None:
    bench.copy([(1, "a"), (2, "b")])
    wider = relation(column("id", "int8", 1), column("w", "text", 2), column("n", "int4", 3))
    plan, changed = bench.sink.plan().evolved(wider, kinds_of(wider))
    assert changed
    assert not bench.sink.plan().evolved(relation(), kinds_of(relation()))[1]
    bench.deliver(200, of=wider, plan=plan, insert=[(3, "c", 9)], update=[(2, "new", 8)])
    assert [set(row) for row in bench.read(T)] == [{"id", "w", "n"}] * 3
    assert bench.rows() == [(1, "a", None), (2, "new", 8), (3, "c", 9)]
    narrow = relation(column("id", "int8", 1), column("n", "int4", 3))
    plan, changed = bench.sink.plan().evolved(narrow, kinds_of(narrow))
    assert changed
    bench.deliver(300, of=narrow, plan=plan, delete=[3])
    assert bench.rows() == [(1, None), (2, 8)]
    assert [set(row) for row in bench.read(T)] == [{"id", "n"}] * 2


def test_older_rows_show_the_default_of_a_new_column_or_the_table_is_copied_again(bench: Bench) -> None:
    bench.copy([(1, "a"), (2, "b")])
    if not bench.defaults:
        with pytest.raises(CannotFollow, match="with a default"):
            bench.sink.plan().evolved(WIDER, kinds_of(WIDER))
        return
    plan, _ = bench.sink.plan().evolved(WIDER, kinds_of(WIDER))
    bench.deliver(200, of=WIDER, plan=plan, insert=[(3, "c", 9)], update=[(2, "new", None)])
    assert sorted((row["id"], row["n"]) for row in bench.read(T)) == [(1, 7), (2, None), (3, 9)]


def test_a_dropped_column_does_not_come_back_with_its_name(bench: Bench) -> None:
    bench.copy([(1, "old")])
    again = relation(column("id", "int4", 1), column("v", "text", 5))
    plan, _ = bench.sink.plan().evolved(again, kinds_of(again))
    bench.deliver(200, of=again, plan=plan, insert=[(2, "new")])
    assert {row["id"]: row["v"] for row in bench.read(T)} == {1: None, 2: "new"}


def test_columns_that_only_a_new_copy_can_have_are_refused(bench: Bench) -> None:
    bench.copy([(1, "a")])
    plan = bench.sink.plan()
    for odd in (column("v", "int4", 2), replace(column("more", "int4", 3), volatile=True)):
        other = relation(column("id", "int4", 1), odd)
        with pytest.raises(CannotFollow):
            plan.evolved(other, kinds_of(other))


def test_the_key_that_rows_are_known_by_is_remembered(bench: Bench) -> None:
    bench.copy([(1, "a")])
    assert bench.standing().same_key(relation())
    assert not bench.standing().same_key(relation(replace(column("id", "int4", 1), key=False), column("v", "text", 2)))


@EVERY_STREAM
def test_a_table_that_is_copied_again_takes_the_place_of_its_mirror(bench: Bench) -> None:
    bench.copy([(1, "a"), (2, "b")])
    bench.deliver(200, insert=[(3, "c")])
    bench.copy([(9, "again")], at=300)
    assert bench.rows() == [(9, "again")]
    assert (bench.standing().position, bench.standing().counts.copied) == (bench.at(300), 1)
    bench.deliver(400, update=[(9, "goes on")])
    assert bench.rows() == [(9, "goes on")]


def test_a_table_can_take_the_place_of_another_ones_mirror(bench: Bench) -> None:
    bench.copy([(1, "old")])
    bench.copy([(2, "new")], at=200, of=relation(oid=OTHER), replaces=(OID,))
    assert bench.rows() == [(2, "new")]
    assert bench.sink.standings().keys() == {OTHER}


@EVERY_KIND
@EVERY_STREAM
def test_a_mirror_gets_the_name_of_one_that_goes_with_a_copy(bench: Bench) -> None:
    bench.copy([(1, "t")])
    bench.copy([(1, "u")], of=relation(oid=OTHER, name=U))
    sink, of = bench.sink, relation(oid=99)
    copy = sink.begin_copy([sink.new_mirror(MirrorSpec(of, kinds_of(of), T, replaces=(OTHER,)))], {OID: U})
    reports = {rows_of(99): written(copy.target, rows_of(99), [(typed(of, [(2, "new")]), None)])}
    copy.commit({99: bench.at(200)}, reports)
    assert (bench.rows(T), bench.rows(U)) == ([(2, "new")], [(1, "t")])
    assert {oid: each.name for oid, each in bench.sink.standings().items()} == {OID: U, 99: T}


@EVERY_KIND
def test_tables_take_the_places_of_each_others_mirrors(bench: Bench) -> None:
    bench.copy([(1, "t")])
    bench.copy([(1, "u")], of=relation(oid=OTHER, name=U))
    new = {98: (relation(oid=98, name=T), OTHER), 99: (relation(oid=99, name=U), OID)}
    sink = bench.sink
    mirrors = [sink.new_mirror(MirrorSpec(of, kinds_of(of), of.table, replaces=(old,))) for of, old in new.values()]
    copy = sink.begin_copy(mirrors, {})
    reports = {
        rows_of(oid): written(copy.target, rows_of(oid), [(typed(of, [(oid, "new")]), None)])
        for oid, (of, _) in new.items()
    }
    copy.commit(dict.fromkeys(new, bench.at(200)), reports)
    assert (bench.rows(T), bench.rows(U)) == ([(98, "new")], [(99, "new")])
    assert {oid: each.name for oid, each in bench.sink.standings().items()} == {98: T, 99: U}


@EVERY_STREAM
def test_a_copy_that_meets_a_newer_mirror_does_not_land(bench: Bench) -> None:
    bench.copy([(1, "a")])
    sink, table = bench.sink, relation()
    attempt = sink.begin_copy([sink.new_mirror(MirrorSpec(table, kinds_of(table), T))], {})
    bench.deliver(200, insert=[(2, "b")])
    with pytest.raises((AlreadyDelivered, CommitConflict)):
        attempt.commit({OID: bench.at(150)}, {})
    assert bench.rows() == [(1, "a"), (2, "b")]


@EVERY_KIND
def test_mirrors_swap_their_names_in_one_commit(bench: Bench) -> None:
    bench.copy([(1, "t")])
    bench.copy([(1, "u")], of=relation(oid=OTHER, name=U))
    bench.attempt().commit(200, {OID: U, OTHER: T})
    assert (bench.rows(T), bench.rows(U)) == ([(1, "u")], [(1, "t")])
    bench.sink.rename({OID: T, OTHER: U})
    assert (bench.rows(T), bench.rows(U)) == ([(1, "t")], [(1, "u")])
    assert {oid: each.name for oid, each in bench.sink.standings().items()} == {OID: T, OTHER: U}


def test_a_name_is_had_by_one_table_only(bench: Bench) -> None:
    bench.copy([(1, "a")])
    with pytest.raises(TableError, match=r"another table or view 'public\.t'"):
        bench.sink.names([]).take(T)
    names = bench.sink.names([OID])
    names.take(T)
    with pytest.raises(TableError):
        names.take(T)


ODD_NAMES = ["../../escape", "a b/50%25#x?y", "ünï 🦆", 'it\'s "q"', "[1]*?", "a.b\\c:d"]


@pytest.mark.parametrize("name", [TableName("public", ".."), TableName("a.b", "t")], ids=str)
def test_a_name_that_the_lake_cannot_have_is_refused_before_anything_is_copied(bench: Bench, name: TableName) -> None:
    of = relation(name=name)
    if bench.row_lineage:  # any name will do
        bench.copy([(1, "a")], of=of)
        assert bench.rows(name) == [(1, "a")]
        return
    with pytest.raises(TableError, match="cannot be in an Iceberg lake"):
        bench.sink.new_mirror(MirrorSpec(of, kinds_of(of), name))
    with pytest.raises(TableError, match="`as:`"):
        bench.sink.names([]).take(name)


@EVERY_KIND
def test_a_table_may_have_any_name_that_postgresql_allows(bench: Bench, tmp_path: Path) -> None:
    names = [
        *(TableName("public", name) for name in ODD_NAMES),
        *(TableName(n.replace(".", "_"), n) for n in ODD_NAMES),
    ]
    for oid, name in enumerate(names, OID):
        odd = relation(oid=oid, name=name)
        bench.copy([(1, "a"), (2, "b")], of=odd)
        landed = bench.deliver(200, of=odd, insert=[(3, "c")], update=[(1, "A")], delete=[2])
        assert bench.rows(name) == [(1, "A"), (3, "c")]
    reader = bench.sink.reader(landed.snapshot_id)
    with reader.connect() as con:
        reader.attach(con, "lake")
        for name in names:
            found = con.execute(f"FROM lake.{identifier(name.schema)}.{identifier(name.name)} ORDER BY id").fetchall()
            assert found == [(1, "A"), (3, "c")]
    inside = {tmp_path / "lake", tmp_path / "warehouse"}
    assert [path for path in tmp_path.rglob("*.parquet") if not inside & {*path.parents}] == []


def test_the_newest_snapshot_shows_every_table_as_it_is_also_while_one_of_them_waits(bench: Bench) -> None:
    bench.copy([(1, "a")])
    bench.copy([(1, "waits")], of=relation(oid=OTHER, name=U))
    bench.deliver(200, insert=[(2, "b")])
    sink = bench.sink
    reader = sink.reader(sink.plan().snapshot_id)
    with reader.connect() as con:
        reader.attach(con, "lake")
        assert con.execute("FROM lake.public.t ORDER BY id").fetchall() == [(1, "a"), (2, "b")]
        assert con.execute("FROM lake.public.u").fetchall() == [(1, "waits")]


def test_values_in_quarantine_land_with_their_table_or_not_at_all(bench: Bench) -> None:
    bench.copy([(1, "a")])
    failed = bench.attempt(insert=[(2, None)]).with_misfits(bench.source, "unheard of")
    failed.discard()
    landed = bench.attempt(insert=[(2, None)]).with_misfits(bench.source, "bad", "worse").commit(200)
    assert landed.counts == {OID: Counts(inserted=1, quarantined=2)}
    assert bench.standing().counts.quarantined == 2
    assert sorted(row["value"] for row in bench.read(quarantine.NAME)) == ["bad", "worse"]


def test_values_in_quarantine_are_found_and_settled(bench: Bench) -> None:
    bench.copy([(1, "a")])
    bench.attempt().with_misfits(bench.source, "bad", "worse").commit(200)
    delivery = bench.sink.plan().begin({OID: ("id",)})
    (place,) = delivery.quarantine()
    assert place.oid is None
    found = dict(quarantine.unresolved(delivery.target, place, {OID}))
    assert sorted(each.row_key or b"" for each in found.values()) == [b"bad", b"worse"]
    assert list(quarantine.unresolved(delivery.target, place, {OTHER})) == []
    position = next(at for at, each in found.items() if each.row_key == b"bad")
    notes = list(quarantine.rewritten(delivery.target, place, {position: quarantine.settled_by(bench.at(300))}))
    delivery.commit({SETTLED: notes}, set(), {OID: bench.at(300)}, {})
    settled = {row["value"]: row["resolved_lsn"] for row in bench.read(quarantine.NAME)}
    assert settled == {"bad": str(bench.at(300)), "worse": None}


def test_open_values_of_a_table_that_is_copied_again_are_settled(bench: Bench) -> None:
    bench.copy([(1, "a")])
    bench.attempt().with_misfits(bench.source, "old").commit(200)
    sink, table = bench.sink, relation()
    attempt = sink.begin_copy([sink.new_mirror(MirrorSpec(table, kinds_of(table), T))], {})
    bad = written(attempt.target, misfits_of(OID), [(misfits(bench.source, OID, "still bad"), None)])
    assert attempt.commit({OID: bench.at(300)}, {misfits_of(OID): bad}).counts[OID].quarantined == 1
    settled = {row["value"]: row["resolved_lsn"] for row in bench.read(quarantine.NAME)}
    assert settled == {"old": str(bench.at(300)), "still bad": None}


@EVERY_KIND
def test_groups_that_share_a_lake_do_not_see_each_others_positions(bench: Bench) -> None:
    bench.copy([(1, "a")])
    other = replace(bench, source="2/db/g")
    assert other.sink.standings() == {}
    other.copy([(2, "b")], at=50, of=relation(name=U))
    assert (bench.standing().position, other.standing().position) == (bench.at(100), bench.at(50))
    assert (bench.rows(T), other.rows(U)) == ([(1, "a")], [(2, "b")])


@EVERY_KIND
def test_positions_of_two_streams_in_one_lake_do_not_meet(bench: Bench) -> None:
    fed = replace(bench, source="1/feed", stream=FEED)
    bench.copy([(1, "a")], at=100)
    fed.copy([(2, "b")], at=7, of=relation(name=U))
    bench.deliver(200, insert=[(2, "b")])
    fed.deliver(8, of=relation(name=U), delete=[2])
    assert (bench.standing().position, fed.standing().position) == (Lsn(200), SnapshotId(8))
    assert (bench.rows(T), fed.rows(U)) == ([(1, "a"), (2, "b")], [])
    assert bench.sink.snapshots_at(Lsn(150))[OID].position == Lsn(100)
    assert fed.sink.snapshots_at(SnapshotId(7))[OID].position == SnapshotId(7)
    assert fed.sink.snapshots_at(SnapshotId(6)) == {}


@pytest.mark.parametrize("bench", [each for each in KINDS if not each.startswith("iceberg")], indirect=True)
@pytest.mark.parametrize("stream", [FEED], ids=["feed"], indirect=True)
def test_a_lake_of_a_stream_without_misfits_has_no_quarantine(bench: Bench) -> None:
    bench.copy([(1, "a")])
    bench.deliver(200, insert=[(2, "b")], update=[(1, "new")])
    bench.copy([(9, "again")], at=300)
    assert bench.sink.plan().begin({OID: ("id",)}).quarantine() == []
    assert bench.sink.lost(every_file=True) == {}
    bench.sink.names([]).take(quarantine.NAME)  # it is free
    mirror = replace(bench, source="1/db/other", stream=WAL)
    mirror.copy([(1, "u")], of=relation(name=U))
    bench.sink.drop_quarantine()
    assert mirror.read(quarantine.NAME) == []  # that of another stream stays
    bench.deliver(400, update=[(9, "goes on")])
    assert bench.rows() == [(9, "goes on")]


def test_a_history_has_its_own_columns_first(bench: Bench) -> None:
    sink, table = bench.sink, relation()
    mirror = sink.new_mirror(MirrorSpec(table, kinds_of(table), T, history=True))
    sink.begin_copy([mirror], {}).commit({OID: bench.at(100)}, {})
    assert bench.rows() == []
    delivery = sink.plan().begin({OID: ("id",)})
    rows = typed(table, [(1, "a")])
    for at, field in enumerate(history.SCHEMA):
        rows = rows.add_column(at, field, pa.nulls(1, field.type))
    notes = written(delivery.target, rows_of(OID), [(rows, None)])
    delivery.commit({rows_of(OID): notes}, set(), {OID: bench.at(200)}, {})
    ((*head, key, value),) = [list(row.values()) for row in bench.read(T)]
    assert (len(head), key, value) == (len(history.COLUMNS), 1, "a")


@EVERY_STREAM
def test_every_position_that_a_mirror_has_shown_has_its_snapshot(bench: Bench) -> None:
    bench.copy([(1, "a")], at=100)
    bench.copy([(1, "u")], at=100, of=relation(oid=OTHER, name=U))
    bench.deliver(200, insert=[(2, "b")])
    bench.deliver(200, of=relation(oid=OTHER, name=U))  # it had no change
    bench.deliver(300, delete=[1])
    assert bench.sink.snapshots_at(bench.at(99)) == {}
    for at, there in {100: (100, [(1, "a")]), 250: (200, [(1, "a"), (2, "b")]), 300: (300, [(2, "b")])}.items():
        found = bench.sink.snapshots_at(bench.at(at))
        assert found.keys() == {OID, OTHER}
        assert (found[OID].name, found[OID].position) == (T, bench.at(there[0]))
        assert found[OTHER].position <= bench.at(at)
        assert _read(bench, bench.at(at)) == there[1]


@EVERY_STREAM
def test_a_table_that_was_copied_again_is_found_as_it_was(bench: Bench) -> None:
    bench.copy([(1, "a")], at=100)
    bench.copy([(9, "again")], at=300)
    assert bench.sink.snapshots_at(bench.at(300))[OID].position == bench.at(300)
    assert bench.sink.snapshots_at(bench.at(200))[OID].position == bench.at(100)


def _read(bench: Bench, at: Position) -> list[Row]:
    """The table at a position, as DuckDB reads it with the sink's own reader."""
    sink = bench.sink
    # In an Iceberg lake a snapshot is a table's own: a reader of all tables goes by the position.
    number = at.value if not bench.row_lineage else sink.snapshots_at(at)[OID].snapshot_id
    reader = sink.reader(number)
    with reader.connect() as con:
        reader.attach(con, "older")
        return sorted(con.execute("SELECT id, v FROM older.public.t").fetchall())


@pytest.mark.parametrize(
    "bench",
    ["memory", "ducklake-sqlite", *(pytest.param(each, marks=pytest.mark.long) for each in KINDS[2:])],
    indirect=True,
)
def test_a_live_source_is_mirrored_into_any_sink(bench: Bench, mirror: Mirror) -> None:
    """The whole path on Spark: a first copy, every kind of change, a new column, a truncation."""
    mirror.execute(
        "CREATE TABLE t (id int PRIMARY KEY, v text, big text)",
        "ALTER TABLE t ALTER big SET STORAGE EXTERNAL",
        "INSERT INTO t SELECT i, 'copied', repeat('x', 3000) FROM generate_series(1, 20) i",
    )
    mirror.start(copy=False)
    sink: Sink[Any, Lsn] = bench.sink
    mirror.m = replace(mirror.m, sink=sink, lake_id=sink.lake_id())
    assert mirror.settle()
    _assert_same(bench, mirror)
    mirror.execute(
        "UPDATE t SET v = 'changed' WHERE id < 4",  # and the large values are not sent again
        "DELETE FROM t WHERE id = 5",
        "UPDATE t SET id = 100, v = 'moved' WHERE id = 6",
        "INSERT INTO t VALUES (200, 'new', 'b')",
    )
    mirror.sync()
    _assert_same(bench, mirror)
    mirror.execute("ALTER TABLE t ADD n int DEFAULT 7", "INSERT INTO t VALUES (201, 'newer', NULL, 8)")
    assert mirror.settle() != bench.defaults
    _assert_same(bench, mirror)
    mirror.execute("TRUNCATE t", "INSERT INTO t VALUES (1, 'after', NULL, NULL)")
    mirror.sync()
    _assert_same(bench, mirror)


def _assert_same(bench: Bench, mirror: Mirror) -> None:
    ours = sorted(map(repr, (tuple(row.values()) for row in bench.read(T))))
    assert ours == sorted(map(repr, mirror.rows_of("SELECT * FROM t")))


BY = (PartitionBy("identity", "v"), PartitionBy("bucket", "id", 4))


def test_rows_of_a_partitioned_mirror_are_found_wherever_they_are(bench: Bench) -> None:
    bench.copy([(1, "a"), (2, "b"), (3, None), (4, "a")], partition_by=BY)
    bench.deliver(200, insert=[(5, None)], update=[(1, "b"), (3, "a"), (2, None)], delete=[4])
    assert bench.rows() == [(1, "b"), (2, None), (3, "a"), (5, None)]
    bench.deliver(300, update=[(1, "a"), (2, "b/ü ="), (5, "")], delete=[3])
    assert bench.rows() == [(1, "a"), (2, "b/ü ="), (5, "")]
    bench.deliver(400, truncate=True, insert=[(6, "a")])
    assert bench.rows() == [(6, "a")]


def test_only_partitions_that_may_hold_a_key_are_searched(bench: Bench) -> None:
    rows = [(key, "a") for key in range(32)]
    bench.copy(rows, partition_by=(PartitionBy("bucket", "id", 8),))
    delivery = bench.sink.plan().begin({OID: ("id",)})
    assert set(delivery.target.partitioned_by(OID)) <= {"id"}
    everything = delivery.places({OID: Sought()})
    if not delivery.target.partitioned_by(OID):
        assert len(everything) == 1
        return
    assert len(everything) == 8
    for key in range(32):
        partitions = delivery.target.partitions(OID, {"id": pa.array([key], pa.int32())})
        (place,) = delivery.places({OID: Sought(None, partitions)})
        ((_, (found,)),) = delivery.target.keys(place)
        assert key in found.to_pylist()


def test_a_renamed_column_stays_what_a_mirror_is_partitioned_by(bench: Bench) -> None:
    bench.copy([(1, "a"), (2, None)], partition_by=BY)
    renamed = relation(column("id", "int4", 1), column("w", "text", 2))
    plan, changed = bench.sink.plan().evolved(renamed, kinds_of(renamed))
    assert changed
    bench.deliver(200, of=renamed, plan=plan, insert=[(3, "b")], update=[(1, None), (2, "a")])
    assert bench.rows() == [(1, None), (2, "a"), (3, "b")]
    wider = relation(column("id", "int8", 1), column("w", "text", 2))
    plan, _ = bench.sink.plan().evolved(wider, kinds_of(wider))
    bench.deliver(300, of=wider, plan=plan, insert=[(2**40, "b")], update=[(3, "a")])
    assert bench.rows() == [(1, None), (1099511627776, "b"), (2, "a"), (3, "a")]


def test_what_a_mirror_is_partitioned_by_cannot_be_dropped(bench: Bench) -> None:
    bench.copy([(1, "a")], partition_by=BY)
    without = relation(column("id", "int4", 1))
    if not bench.sink.plan().begin({OID: ("id",)}).target.partitioned_by(OID):
        return  # a lake without files
    with pytest.raises(CannotFollow, match="partitioned by column 'v', which is dropped"):
        bench.sink.plan().evolved(without, kinds_of(without))
    with pytest.raises(TableError, match="`partition_by` names the column 'v', which is not mirrored"):
        bench.sink.new_mirror(MirrorSpec(without, kinds_of(without), T, partition_by=BY))


def test_a_copy_may_partition_a_mirror_otherwise(bench: Bench) -> None:
    bench.copy([(1, "a"), (2, "b")], partition_by=BY)
    for at, by in ((200, (PartitionBy("identity", "v"),)), (300, ()), (400, BY)):
        bench.copy([(1, "a"), (2, str(at)), (3, None)], at=at, partition_by=by)
        assert bench.rows() == [(1, "a"), (2, str(at)), (3, None)]
        bench.deliver(at + 50, update=[(1, "b"), (3, "c")], insert=[(4, None)])
        assert bench.rows() == [(1, "b"), (2, str(at)), (3, "c"), (4, None)]


def test_a_partitioned_history_divides_copied_rows_too(bench: Bench) -> None:
    table = relation()
    sink = bench.sink
    spec = MirrorSpec(table, kinds_of(table), T, history=True, partition_by=(PartitionBy("day", "_commit_ts"),))
    attempt = sink.begin_copy([sink.new_mirror(spec)], {})
    moments = [datetime(2026, 1, 1, 23, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC), None]
    rows = pa.Table.from_pylist(
        [{"_op": "copy", "_commit_ts": each, "id": at} for at, each in enumerate(moments)],
        schema=pa.schema([*history.SCHEMA, ("id", pa.int32()), ("v", pa.large_string())]),
    )
    attempt.commit({OID: bench.at(100)}, {rows_of(OID): written(attempt.target, rows_of(OID), [(rows, None)])})
    assert [row["id"] for row in sorted(bench.read(T), key=lambda row: row["id"])] == [0, 1, 2]
