"""Maintenance of a DuckLake, beside deliveries: the same rows in fewer files, and nothing lost that is needed."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest

from headwater import failpoints
from headwater.change import Lsn, TableName
from headwater.commands.maintainview import chores_text
from headwater.ducklake.expiring import expire
from headwater.ducklake.extension import attach, connect
from headwater.ducklake.lake import Lake
from headwater.ducklake.opening import open_lake
from headwater.errors import CommitConflict, TableError
from headwater.feed.source import SourceTable
from headwater.lake import quarantine
from headwater.lake.counts import Counts
from headwater.lake.maintenance import Chores, Maintenance, MaintenancePolicy, Portion, Ready
from headwater.lake.partitioning import PartitionBy
from headwater.sink.ducklake.sink import DuckLakeSink
from headwater.supervise.maintaining import merged_in_the_end
from tests.sink.sinkbench import OID, OTHER, Bench, T, U, column, kinds_of, relation

AT_ONCE, DAY, LONG_AGO = timedelta(0), timedelta(days=1), timedelta(days=2)


@dataclass(frozen=True)
class Kept(Bench):
    """A bench with a DuckLake that is maintained; `duck` has it attached all along, as `l`."""

    lake: Lake = field(kw_only=True)
    duck: duckdb.DuckDBPyConnection = field(kw_only=True)

    @property
    def maintenance(self) -> Maintenance:
        found = self.sink.maintenance()
        assert found is not None
        return found

    @property
    def snapshots(self) -> list[int]:
        return [id_ for id_, _ in self.lake.commits()]

    @property
    def data_files(self) -> set[str]:
        """Those that the newest snapshot has."""
        table = self.lake.table(T)
        assert table is not None
        return {each.path for each in self.lake.files([table.id], self.lake.snapshot())}

    def sql(self, query: str) -> list[tuple[Any, ...]]:
        return self.duck.execute(query).fetchall()

    def by_key(self) -> dict[int, Any]:
        return {row["id"]: row["v"] for row in self.read(T)}

    def on_disk(self) -> set[Path]:
        return {path for path in Path(self.lake.data_path).rglob("*") if path.is_file()}

    def known(self) -> set[Path]:
        """The files that a snapshot needs."""
        with self.lake.reading() as tx:
            found = {
                path
                for table in ("ducklake_data_file", "ducklake_delete_file")
                for (path,) in tx.rows(f"SELECT path FROM {table}")
            }
        return {path for path in self.on_disk() if any(str(path).endswith(each) for each in found)}

    def readers_are_done(self) -> None:
        """As if what was replaced had been replaced long ago."""
        with self.lake.catalog.transaction(write=True) as tx:
            tx.execute(
                "UPDATE ducklake_files_scheduled_for_deletion SET schedule_start = %s", "2020-01-01 00:00:00.000000+00"
            )

    def merge(self, meanwhile: Callable[[], object] = lambda: None, of: TableName = T) -> Chores:
        """What `flow.maintain` does, with nothing but the lake's own parts."""
        merging = self.maintenance.merging(of, MaintenancePolicy())
        if merging is None:
            return Chores()
        writer = pickle.loads(pickle.dumps(merging.writer))
        reports = [writer.write(pickle.loads(pickle.dumps(each))) for each in merging.bins]
        failpoints.hit("maintain.written")
        meanwhile()
        done = merging.commit(reports)
        failpoints.hit("maintain.merged")
        return done

    def history(self) -> dict[int, list[tuple[Any, ...]]]:
        """The rows of every snapshot of the table with their ids, by key."""
        source = SourceTable(self.lake, T)
        return {id_: self.rows_at(id_) for id_ in self.snapshots if source.at(id_) is not None}

    def rows_at(self, snapshot: int) -> list[tuple[Any, ...]]:
        where = f"l.public.t AT (VERSION => {snapshot})"
        found = self.sql(f"SELECT id, rowid, * FROM {where} ORDER BY id, rowid")
        assert self.sql(f"SELECT count(*) FROM {where}") == [(len(found),)]
        return found

    def changes(self, first: int) -> list[tuple[Any, ...]]:
        newest = self.lake.snapshot().id
        found = self.sql(f"SELECT * FROM ducklake_table_changes('l', 'public', 't', {first}, {newest})")
        return sorted(found, key=repr)


@pytest.fixture(scope="module")
def duck() -> Iterator[duckdb.DuckDBPyConnection]:
    with connect(threads=1) as con:
        yield con


@pytest.fixture
def kept(tmp_path: Path, duck: duckdb.DuckDBPyConnection) -> Iterator[Kept]:
    with closing(open_lake(f"sqlite:///{tmp_path}/lake.sqlite", str(tmp_path / "lake"))) as lake:
        attach(duck, lake.url, "l")
        yield kept_of(lake, duck)
        duck.execute("DETACH l")


def kept_of(lake: Lake, duck: duckdb.DuckDBPyConnection, *, inlined: bool = False) -> Kept:
    def read(name: TableName) -> list[dict[str, Any]]:
        found = duck.execute(f'FROM l."{name.schema}"."{name.name}"')
        names = [each[0] for each in found.description or ()]
        return [dict(zip(names, row, strict=True)) for row in found.fetchall()]

    return Kept(lambda *to: DuckLakeSink(lake, *to), read, lake=lake, duck=duck, inlined=inlined)


def make_busy(kept: Kept) -> Kept:
    kept.copy([(number, "copied") for number in range(100)])
    for turn in range(8):
        kept.deliver(
            200 + turn,
            insert=[(1000 - turn, "new")],
            update=[(turn, "changed"), (50 + turn, "changed")],
            delete=[90 + turn],
        )
    return kept


@pytest.fixture
def busy(kept: Kept) -> Kept:
    """A table with many small files: a copy, and eight deliveries with updates and deletes."""
    return make_busy(kept)


def test_merged_files_have_the_same_rows_in_every_snapshot_sorted_by_the_key(busy: Kept) -> None:
    before, files, standing, changes = busy.history(), busy.data_files, busy.standing(), busy.changes(2)
    done = busy.merge()
    assert done.merged_files == len(files) == 17
    assert len(busy.data_files) == 1
    assert done.written_files == 2  # what is gone from the newest snapshot is in another file
    after, newest = busy.history(), busy.lake.snapshot().id
    assert after.pop(newest) == before[newest - 1]
    assert after == before
    assert busy.changes(2) == changes
    ids = [row["id"] for row in busy.read(T)]
    assert ids == sorted(ids)
    there = busy.standing()
    assert (there.position, there.counts) == (standing.position, standing.counts)
    assert busy.merge() == Chores()


def test_a_row_that_changed_many_times_has_each_of_its_versions_in_a_file_of_its_own(kept: Kept) -> None:
    """DuckDB dates the deletes in a file by the ids of its rows: two versions of a row would get one date."""
    kept.copy([(number, "a") for number in range(10)])
    for turn in range(6):
        kept.deliver(200 + turn, update=[(1, f"a{turn}"), (2 + turn, "b")])
    before, changes = kept.history(), kept.changes(2)
    done = kept.merge()
    assert (len(kept.data_files), done.written_files) == (1, 1 + 6)
    assert kept.changes(2) == changes
    assert {id_: rows for id_, rows in kept.history().items() if id_ in before} == before


def test_what_no_snapshot_shows_any_more_is_not_written_again(busy: Kept) -> None:
    busy.maintenance.expire(T, AT_ONCE)
    rows = busy.rows()
    assert busy.merge().written_files == 1
    assert busy.rows() == rows
    ((records, gross),) = busy.sql(
        "SELECT (SELECT sum(record_count) FROM __ducklake_metadata_l.ducklake_data_file WHERE table_id = s.table_id),"
        " record_count FROM __ducklake_metadata_l.ducklake_table_stats s WHERE table_id ="
        f" {busy.lake.table(T).id}"  # type: ignore[union-attr]
    )
    assert records == gross == len(rows)
    assert busy.sql("SELECT min(id), max(id) FROM l.public.t") == [(0, 1000)]


def test_deliveries_go_on_after_a_merge(busy: Kept) -> None:
    plan = busy.sink.plan()
    ids = busy.row_ids(0, 1000)
    busy.merge()
    assert busy.row_ids(0, 1000) == ids
    busy.deliver(300, plan=plan, insert=[(2000, "on the plan of before")])
    busy.deliver(400, update=[(0, "again"), (1000, "again")], delete=[50, 2000])
    rows = busy.by_key()
    assert (rows[0], rows[1000], rows[1]) == ("again", "again", "changed")
    assert not {50, 2000} & rows.keys()
    assert busy.standing().position == Lsn(400)
    assert len(rows) == 100 + 8 - 8 - 1
    assert busy.row_ids(0, 1000) == ids


def test_columns_that_were_dropped_or_added_stay_as_older_snapshots_show_them(kept: Kept) -> None:
    kept.copy([(number, "copied") for number in range(100)])
    wide = relation(column("id", "int8", 1), column("v", "text", 2), column("w", "int4", 3))
    plan, _ = kept.sink.plan().evolved(wide, kinds_of(wide))
    kept.deliver(200, of=wide, plan=plan, update=[(number, "wide", number) for number in range(0, 60, 2)])
    narrow = relation(column("id", "int8", 1), column("w", "int4", 3))
    plan, _ = kept.sink.plan().evolved(narrow, kinds_of(narrow))
    kept.deliver(300, of=narrow, plan=plan, insert=[(1 << 40, 7)], delete=range(1, 80, 2))
    before, changes = kept.history(), kept.changes(2)
    assert kept.merge().merged_files >= 1
    after = kept.history()
    assert {id_: rows for id_, rows in after.items() if id_ in before} == before
    assert kept.changes(2) == changes
    kept.maintenance.expire(T, AT_ONCE)  # from now on, only the newest columns count
    for turn in range(5):
        kept.deliver(400 + turn, of=narrow, insert=[(10_000 + turn, turn)])
    rows = kept.rows()
    kept.merge()
    assert len(kept.data_files) == 1
    assert kept.rows() == rows


def test_a_partitioned_table_is_merged_partition_by_partition(kept: Kept) -> None:
    kept.copy([(1, "a"), (2, None)], partition_by=(PartitionBy("identity", "v"),))
    for turn in range(5):
        kept.deliver(200 + turn, insert=[(10 + turn, "a"), (20 + turn, None), (30 + turn, f"alone {turn}")])
    before = kept.history()
    done = kept.merge()
    assert (done.merged_files, done.written_files) == (12, 2)
    assert {id_: rows for id_, rows in kept.history().items() if id_ in before} == before
    assert kept.sql("SELECT count(*) FROM l.public.t WHERE v = 'a'") == [(6,)]
    assert kept.sql("SELECT count(*) FROM l.public.t WHERE v IS NULL") == [(6,)]
    kept.deliver(300, update=[(10, "moved")], delete=[20])
    assert kept.by_key()[10] == "moved"
    assert 20 not in kept.by_key()
    kept.sql("CALL ducklake_merge_adjacent_files('l')")  # which fails if a file is not in its partition's folder
    assert kept.by_key()[10] == "moved"


def test_a_delivery_while_files_are_merged_keeps_its_changes_and_its_position(busy: Kept) -> None:
    before, files = busy.by_key(), busy.on_disk()
    done = busy.merge(lambda: busy.deliver(300, update=[(10, "meanwhile")], delete=[1000]))
    assert done == Chores()  # both of its files are of the one bin
    assert busy.by_key() == {key: v for key, v in before.items() if key != 1000} | {10: "meanwhile"}
    assert busy.standing().position == Lsn(300)
    assert len(busy.on_disk() - files) == 1  # the delivery's
    assert busy.merge().merged_files == 17
    assert busy.standing().position == Lsn(300)
    assert len(busy.by_key()) == len(before) - 1


def test_only_what_a_delivery_has_touched_is_left_for_later(kept: Kept) -> None:
    kept.copy([(1, "a")])
    for turn in range(6):
        kept.deliver(200 + turn, insert=[(10 + turn, "x")])
    done = kept.merge(lambda: kept.deliver(300, insert=[(100, "only new rows")]))
    assert done.merged_files == 7
    assert len(kept.rows()) == 8
    assert kept.standing().position == Lsn(300)
    assert kept.standing().counts == Counts(copied=1, inserted=7)


def test_a_delivery_that_was_planned_before_a_merge_is_planned_again(busy: Kept) -> None:
    attempt = busy.attempt(update=[(10, "on the old files")])
    busy.merge()
    rows = busy.rows()
    with pytest.raises(CommitConflict):
        attempt.commit(300)
    attempt.discard()
    assert busy.rows() == rows
    busy.deliver(300, update=[(10, "on the new ones")])
    assert busy.by_key()[10] == "on the new ones"
    assert len(busy.rows()) == len(rows)


def test_a_truncate_that_was_planned_before_a_merge_leaves_no_row(busy: Kept) -> None:
    attempt, before = busy.attempt(insert=[(1, "after")], truncate=True), busy.history()
    busy.merge()
    attempt.commit(300)
    assert busy.rows() == [(1, "after")]
    assert {id_: rows for id_, rows in busy.history().items() if id_ in before} == before


def test_a_column_that_is_added_while_files_are_merged_does_not_matter_to_them(busy: Kept) -> None:
    wide = relation(column("id", "int4", 1), column("v", "text", 2), column("w", "int4", 3))

    def alter() -> None:
        plan, _ = busy.sink.plan().evolved(wide, kinds_of(wide))
        busy.deliver(300, of=wide, plan=plan, insert=[(5000, "wide", 1)])

    before = busy.history()
    assert busy.merge(alter).merged_files == 17
    assert {id_: rows for id_, rows in busy.history().items() if id_ in before} == before
    assert {(5000, "wide", 1), (0, "changed", None)} <= set(busy.rows())


def test_readers_who_began_before_a_merge_read_on(busy: Kept) -> None:
    with connect(threads=1) as other:
        attach(other, busy.lake.url, "l", read_only=True)
        rows = sorted(other.execute("SELECT rowid, * FROM l.public.t").fetchall())
        busy.merge()
        busy.maintenance.remove_orphans(T, DAY)
        assert sorted(other.execute("SELECT rowid, * FROM l.public.t").fetchall()) == rows
        assert other.execute("SELECT count(*) FROM l.public.t").fetchall() == [(len(rows),)]
        busy.deliver(300, insert=[(3000, "after")])
        assert other.execute("SELECT count(*) FROM l.public.t").fetchall() == [(len(rows) + 1,)]


def test_the_snapshots_of_a_position_stay_the_same_after_a_merge(busy: Kept) -> None:
    sink = busy.sink
    shown = {at: sink.snapshots_at(Lsn(at)) for at in (100, 150, 203, 206)}
    busy.merge()
    assert {at: busy.sink.snapshots_at(Lsn(at)) for at in shown} == shown
    newest = busy.sink.snapshots_at(Lsn(207))[OID]
    assert (newest.snapshot_id, newest.position) == (busy.lake.snapshot().id, Lsn(207))
    busy.maintenance.expire(T, AT_ONCE)
    assert busy.sink.snapshots_at(Lsn(207))[OID].snapshot_id == busy.lake.snapshot().id


def test_expired_snapshots_take_with_them_exactly_what_only_they_needed(busy: Kept) -> None:
    rows, newest = busy.rows(), busy.lake.snapshot().id
    busy.merge()
    planned = busy.maintenance.plan(T, MaintenancePolicy(merge=False, expire=AT_ONCE))
    done = busy.maintenance.expire(T, AT_ONCE)
    assert done.expired_snapshots == planned.expired_snapshots == newest + 1
    assert busy.snapshots == [newest + 1]
    busy.readers_are_done()
    assert busy.maintenance.expire(T, AT_ONCE).expired_files == 17 + 2
    assert busy.on_disk() == busy.known()
    assert len(busy.on_disk()) == 1
    assert busy.rows() == rows
    busy.deliver(300, update=[(0, "after")])
    assert busy.by_key()[0] == "after"


def test_snapshots_that_are_young_or_needed_stay_readable(busy: Kept) -> None:
    assert busy.maintenance.expire(T, DAY) == Chores()
    before, (old, middle) = busy.history(), busy.snapshots[3:7:3]
    busy.merge()
    busy.maintenance.expire(T, AT_ONCE, {old, middle})
    busy.readers_are_done()
    busy.maintenance.expire(T, AT_ONCE, {old, middle})
    after = busy.history()
    assert set(after) == {old, middle, busy.lake.snapshot().id}
    assert (after[old], after[middle]) == (before[old], before[middle])
    assert busy.merge() == Chores()


def test_snapshots_expire_a_portion_at_a_time_and_nothing_is_held_up_if_none_is_due(busy: Kept) -> None:
    expected, moments = busy.snapshots[-1:], list[int]()

    @contextmanager
    def between() -> Iterator[Ready]:
        moments.append(len(busy.snapshots))
        yield lambda: None

    portion = Portion(4, between)
    done = [busy.maintenance.expire(T, AT_ONCE, portion=portion).expired_snapshots for _ in range(4)]
    assert done == [4, 4, 1, 0]
    assert moments == [10, 6, 2]
    assert busy.snapshots == expected


def test_a_snapshot_that_is_needed_by_the_time_that_deliveries_leave_a_moment_stays(busy: Kept) -> None:
    pinned = set[int]()

    @contextmanager
    def between() -> Iterator[Ready]:
        pinned.add(busy.snapshots[3])
        yield lambda: None

    done = busy.maintenance.expire(T, AT_ONCE, portion=Portion(100, between, lambda: pinned))
    assert done.expired_snapshots == 8
    assert busy.snapshots[:-1] == [*pinned]


def test_what_an_expiry_that_was_killed_has_not_purged_goes_with_the_next_one(
    kept: Kept, duck: duckdb.DuckDBPyConnection
) -> None:
    inlined = kept_of(kept.lake, duck, inlined=True)
    inlined.copy([(number, "copied") for number in range(10)])
    for turn in range(3):
        inlined.deliver(200 + turn, update=[(1, f"turn {turn}")], delete=[2 + turn])
    expire(kept.lake, kept.snapshots[:-1])  # and no more
    assert inlined.maintenance.figures()[T].old_rows == 2
    assert inlined.maintenance.expire(T, DAY) == Chores()
    assert inlined.maintenance.figures()[T].old_rows == 0


def test_merged_files_are_deleted_only_when_their_readers_are_done(busy: Kept) -> None:
    files = busy.on_disk()
    busy.merge()
    busy.maintenance.remove_orphans(T, DAY)
    assert busy.on_disk() >= files
    busy.readers_are_done()
    assert busy.maintenance.plan(T, MaintenancePolicy(orphans=DAY)).expired_files == 17
    assert busy.maintenance.remove_orphans(T, DAY).expired_files == 17
    assert not busy.on_disk() & files
    assert busy.on_disk() == busy.known()
    assert len(busy.history()) == 10


def test_merged_files_are_deleted_though_nothing_expires_and_no_one_looks_for_orphans(busy: Kept) -> None:
    busy.merge()
    assert busy.maintenance.delete_replaced() == Chores()
    busy.readers_are_done()
    due = busy.maintenance.plan(T, MaintenancePolicy())
    assert due == busy.maintenance.delete_replaced() == Chores(expired_files=17)
    assert chores_text(due) == "deleted 17 files that no snapshot has any more"
    assert busy.on_disk() == busy.known()


def test_a_flush_whose_rows_a_delivery_has_changed_lands_nothing_and_fails_no_task(
    kept: Kept, duck: duckdb.DuckDBPyConnection
) -> None:
    inlined = kept_of(kept.lake, duck, inlined=True)
    inlined.copy([])
    inlined.deliver(200, insert=[(1, "a"), (2, "a")])
    turns = iter(range(2))

    def merge() -> Chores:
        merging = inlined.maintenance.merging(T, MaintenancePolicy())
        assert merging is not None
        for turn in turns:
            inlined.deliver(300 + turn, update=[(1, "b")])
            break
        return merging.commit([merging.writer.write(each) for each in merging.bins])

    assert merged_in_the_end(merge, inlined.maintenance, T, MaintenancePolicy()).flushed_rows == 4
    assert list(turns) == []


def age(paths: set[Path]) -> None:
    then = time.time() - LONG_AGO.total_seconds()
    for path in paths:
        os.utime(path, (then, then))


def test_orphans_are_deleted_once_they_are_old_enough_unless_an_attempt_may_bring_them(busy: Kept) -> None:
    known = busy.on_disk()
    dead = busy.attempt(insert=[(1, "never lands")], noted=uuid.uuid4().hex)
    orphans = busy.on_disk() - known
    theirs = next(iter(known)).with_name("theirs.parquet")
    theirs.write_bytes(b"of a client that may still bring it")
    under_way = busy.attempt(insert=[(2, "may still land")])
    assert busy.maintenance.remove_orphans(T, DAY) == Chores()
    age(busy.on_disk())
    planned = busy.maintenance.plan(T, MaintenancePolicy(merge=False, orphans=DAY))
    assert busy.maintenance.remove_orphans(T, DAY) == planned
    assert planned.orphans == len(orphans) == 1
    assert not orphans & busy.on_disk()
    assert busy.on_disk() >= known | {theirs}
    under_way.commit(300)
    assert (2, "may still land") in busy.rows()
    with pytest.raises(CommitConflict):  # its file is gone
        dead.commit(400)


def test_what_a_killed_merge_has_written_is_collected_and_a_delivery_leaves_it_alone(busy: Kept) -> None:
    files = busy.on_disk()
    merging = busy.maintenance.merging(T, MaintenancePolicy())
    assert merging is not None
    reports = [merging.writer.write(each) for each in merging.bins]
    assert busy.sink.collect() == 0
    assert busy.maintenance.remove_orphans(T, AT_ONCE).orphans == 0
    assert busy.maintenance.collect() == 3  # rows that are alive, rows that are not, and when each was deleted
    with pytest.raises(CommitConflict):
        merging.commit(reports)
    assert busy.on_disk() == files
    assert busy.merge().merged_files == 17


def test_files_of_other_clients_are_merged_too_unless_they_name_their_columns(busy: Kept, tmp_path: Path) -> None:
    busy.sql("INSERT INTO l.public.t VALUES (7777, 'theirs')")
    busy.duck.execute(f"COPY (SELECT 8888::INTEGER AS id, 'named' AS v) TO '{tmp_path}/named.parquet'")
    busy.sql(f"CALL ducklake_add_data_files('l', 't', '{tmp_path}/named.parquet', schema => 'public')")
    rows = busy.rows()
    assert busy.merge().merged_files == 18
    assert busy.rows() == rows
    assert len(busy.data_files) == 2


def test_the_quarantine_is_merged_like_any_table(kept: Kept) -> None:
    kept.copy([(1, "a")])
    for turn in range(6):
        kept.attempt(insert=[(10 + turn, "x")]).with_misfits(kept.source, f"bad {turn}").commit(200 + turn)
    assert quarantine.NAME in kept.maintenance.tables()
    assert kept.merge(of=quarantine.NAME).merged_files == 6
    assert sorted(row["value"] for row in kept.read(quarantine.NAME)) == [f"bad {turn}" for turn in range(6)]


def test_files_of_a_table_that_was_replaced_go_with_the_snapshots_that_have_it(kept: Kept) -> None:
    kept.copy([(1, "t")])
    kept.copy([(1, "u")], of=relation(oid=OTHER, name=U))
    old = kept.on_disk()
    kept.copy([(9, "new")], at=300, of=relation(oid=99), replaces=(OID, OTHER))
    kept.maintenance.expire(T, AT_ONCE)
    kept.readers_are_done()
    kept.maintenance.remove_orphans(T, DAY)
    assert not old & kept.on_disk()
    assert kept.rows() == [(9, "new")]


def test_a_table_that_the_lake_has_no_longer_is_an_error_of_its_own(busy: Kept) -> None:
    maintenance = busy.maintenance
    busy.sql("DROP TABLE l.public.t")
    with pytest.raises(TableError, match="no table"):
        maintenance.plan(T, MaintenancePolicy())


KILLED = """
import sys
from contextlib import closing, contextmanager
from headwater.ducklake.opening import open_lake
from tests.sink.test_ducklake_maintenance import AT_ONCE, T, kept_of
with closing(open_lake(sys.argv[1], sys.argv[2])) as lake:
    kept = kept_of(lake, None)
    kept.merge()
    kept.maintenance.expire(T, AT_ONCE)
"""


@pytest.mark.parametrize(
    ("failpoint", "inlined"),
    [
        ("merged", False),
        ("before-commit", True),
        *(
            pytest.param(each, False, marks=pytest.mark.long)
            for each in ("read", "written", "before-commit", "expired")
        ),
        *(pytest.param(each, True, marks=pytest.mark.long) for each in ("read", "written", "merged", "expired")),
    ],
    ids=lambda each: each if isinstance(each, str) else "catalog" if each else "files",
)
def test_maintenance_that_was_killed_leaves_a_right_table_and_nothing_that_stays(
    failpoint: str, tmp_path: Path, duck: duckdb.DuckDBPyConnection, *, inlined: bool
) -> None:
    url, data_path = f"sqlite:///{tmp_path}/lake.sqlite", str(tmp_path / "lake")
    with closing(open_lake(url, data_path)) as lake:
        attach(duck, lake.url, "l")
        rows = make_busy(kept_of(lake, duck, inlined=inlined)).rows()
        duck.execute("DETACH l")
    environment = os.environ | {"HEADWATER_FAILPOINT": f"maintain.{failpoint}"}
    child = subprocess.run(
        [sys.executable, "-c", KILLED, url, data_path], env=environment, capture_output=True, text=True, check=False
    )
    assert child.returncode == -signal.SIGKILL, child.stderr
    with closing(open_lake(url, data_path)) as lake:
        attach(duck, lake.url, "l")
        kept = kept_of(lake, duck)
        assert kept.rows() == rows
        kept.deliver(300, update=[(0, "after")])
        kept.maintenance.collect()
        kept.merge()
        kept.maintenance.expire(T, AT_ONCE)
        kept.readers_are_done()
        kept.maintenance.remove_orphans(T, DAY)
        assert kept.by_key() == dict(rows) | {0: "after"}
        assert kept.on_disk() == kept.known()
        duck.execute("DETACH l")
