"""Maintenance of an Iceberg lake, beside deliveries: the same rows in fewer files, and nothing lost that is needed."""

from __future__ import annotations

import os
import pickle
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation

from headwater.change import Lsn
from headwater.errors import CommitConflict, TableError
from headwater.iceberg.manifests import ManifestCache
from headwater.iceberg.snapshots import FileChanges, next_snapshot
from headwater.lake import quarantine
from headwater.lake.counts import Counts
from headwater.lake.maintenance import Chores, Maintenance, MaintenancePolicy
from headwater.lake.partitioning import PartitionBy
from headwater.lake.reading import connect
from headwater.lake.sink import MirrorSpec
from headwater.lake.target import rows_of
from headwater.sink.iceberg.address import IcebergAddress
from headwater.sink.iceberg.copying import IcebergCopy
from headwater.sink.iceberg.reader import ReadTable, load_iceberg, scan
from tests.sink.sinkbench import OID, OTHER, Bench, T, U, column, kinds_of, relation, typed, written

AT_ONCE, DAY = timedelta(0), timedelta(days=1)


@dataclass(frozen=True)
class Kept(Bench):
    """A bench with an Iceberg lake that is maintained."""

    catalog: Catalog = field(kw_only=True)

    @property
    def maintenance(self) -> Maintenance:
        found = self.sink.maintenance()
        assert found is not None
        return found

    @property
    def table(self) -> Table:
        return self.catalog.load_table(tuple(T))

    @property
    def data_files(self) -> set[str]:
        return {task.file.file_path for task in self.table.scan().plan_files()}

    def by_key(self) -> dict[int, Any]:
        return {row["id"]: row["v"] for row in self.read(T)}

    def on_disk(self) -> set[str]:
        return {str(path) for path in Path(self.table.location()).rglob("*") if path.is_file()}

    def merge(self, meanwhile: Callable[[], object] = lambda: None, of: Any = T) -> Chores:
        """What `flow.maintain` does, with nothing but the lake's own parts."""
        merging = self.maintenance.merging(of, MaintenancePolicy())
        if merging is None:
            return Chores()
        writer = pickle.loads(pickle.dumps(merging.writer))
        reports = [writer.write(pickle.loads(pickle.dumps(each))) for each in merging.bins]
        meanwhile()
        return merging.commit(reports)

    def history(self) -> dict[int, list[dict[str, Any]]]:
        """The rows of every snapshot, on which PyIceberg and DuckDB agree."""
        found, table = {}, self.table
        with connect(threads=1) as con:
            load_iceberg(con)
            for each in table.metadata.snapshots:
                rows = table.scan(snapshot_id=each.snapshot_id).to_arrow()
                sql = f"FROM {scan(ReadTable(table.metadata_location, each.snapshot_id))}"
                theirs = con.execute(sql).to_arrow_table()
                assert _sorted(rows) == _sorted(theirs.select(rows.column_names)), each
                found[each.snapshot_id] = _sorted(rows)
        return found


def _sorted(rows: pa.Table) -> list[dict[str, Any]]:
    return sorted(rows.to_pylist(), key=repr)


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Kept]:
    properties = {"type": "sql", "uri": f"sqlite:///{tmp_path}/lake.sqlite", "warehouse": str(tmp_path / "lake")}
    address = IcebergAddress(properties)
    with ExitStack() as held:
        catalog = held.enter_context(closing(load_catalog("default", **properties)))

        def read(name: Any) -> list[dict[str, Any]]:
            found: list[dict[str, Any]] = catalog.load_table(tuple(name)).scan().to_arrow().to_pylist()
            return found

        yield Kept(
            lambda *to: held.enter_context(closing(address.open(*to))),
            read,
            row_lineage=False,
            defaults=False,
            catalog=catalog,
        )


@pytest.fixture
def busy(kept: Kept) -> Kept:
    """A table with many small files: a copy, and eight deliveries with updates and deletes."""
    kept.copy([(number, "copied") for number in range(100)])
    for turn in range(8):
        kept.deliver(
            200 + turn,
            insert=[(1000 - turn, "new")],
            update=[(turn, "changed"), (50 + turn, "changed")],
            delete=[90 + turn],
        )
    return kept


def test_merged_files_have_the_same_rows_in_every_snapshot_sorted_by_the_key(busy: Kept) -> None:
    before, files, standing = busy.history(), busy.data_files, busy.standing()
    done = busy.merge()
    assert done.merged_files == len(files) == 9
    assert done.written_files == len(busy.data_files) == 1
    after = busy.history()
    newest = busy.table.current_snapshot()
    assert newest is not None
    assert after.pop(newest.snapshot_id) == before[newest.parent_snapshot_id or 0]
    assert after == before
    ids = [row["id"] for row in busy.read(T)]
    assert ids == sorted(ids)
    there = busy.standing()
    assert (there.position, there.counts) == (standing.position, standing.counts)
    assert newest.summary is not None
    assert newest.summary.operation == Operation.REPLACE
    assert newest.summary["total-records"] == str(len(ids))
    assert newest.summary["total-delete-files"] == newest.summary["total-position-deletes"] == "0"
    assert busy.merge() == Chores()


def test_deliveries_go_on_after_a_merge(busy: Kept) -> None:
    sink = busy.sink
    plan = sink.plan()
    busy.merge()
    busy.deliver(300, plan=plan, insert=[(2000, "on the plan of before")])
    busy.deliver(400, update=[(0, "again"), (1000, "again")], delete=[50, 2000])
    rows = busy.by_key()
    assert (rows[0], rows[1000], rows[1]) == ("again", "again", "changed")
    assert not {50, 2000} & rows.keys()
    assert busy.standing().position == Lsn(400)
    assert len(rows) == 100 + 8 - 8 - 1


def test_a_merge_follows_the_columns_and_thousands_of_deletes(kept: Kept) -> None:
    kept.copy([(number, "copied") for number in range(5000)])
    wide = relation(column("id", "int8", 1), column("v", "text", 2), column("w", "int4", 3))
    plan, _ = kept.sink.plan().evolved(wide, kinds_of(wide))
    kept.deliver(200, of=wide, plan=plan, update=[(number, "wide", number) for number in range(0, 3000, 2)])
    narrow = relation(column("id", "int8", 1), column("w", "int4", 3))
    plan, _ = kept.sink.plan().evolved(narrow, kinds_of(narrow))
    kept.deliver(300, of=narrow, plan=plan, insert=[(1 << 40, 7)], delete=range(1, 4000, 2))
    before = kept.rows()
    assert kept.merge().merged_files >= 1
    assert kept.rows() == before
    assert len(kept.history()[kept.table.metadata.current_snapshot_id or 0]) == len(before) == 3001


def test_a_partitioned_table_is_merged_partition_by_partition(kept: Kept) -> None:
    kept.copy([(1, "a"), (2, None)], partition_by=(PartitionBy("identity", "v"),))
    for turn in range(5):
        kept.deliver(200 + turn, insert=[(10 + turn, "a"), (20 + turn, None), (30 + turn, f"alone {turn}")])
    before = kept.rows()
    done = kept.merge()
    assert (done.merged_files, done.written_files) == (12, 2)
    assert kept.rows() == before
    kept.history()
    assert kept.table.scan("v = 'a'").to_arrow().num_rows == 6
    assert kept.table.scan("v is null").to_arrow().num_rows == 6
    kept.deliver(300, update=[(10, "moved")], delete=[20])
    assert kept.by_key()[10] == "moved"
    assert 20 not in kept.by_key()


def test_rows_that_are_much_alike_are_merged_in_portions_and_only_once(kept: Kept) -> None:
    text = "all the same " * 10_000
    kept.copy([(number, text) for number in range(700)])
    for turn in range(5):
        kept.deliver(200 + turn, insert=[(1000 * (turn + 1) + number, text) for number in range(700)])
    done = kept.merge()
    assert (done.merged_files, done.written_files) == (6, 3)
    assert kept.merge() == Chores()
    assert len(kept.by_key()) == 6 * 700


def test_a_delivery_while_files_are_merged_keeps_its_changes_and_its_position(busy: Kept) -> None:
    before = busy.by_key()
    done = busy.merge(lambda: busy.deliver(300, update=[(10, "meanwhile")], delete=[1000]))
    assert done == Chores()  # both of its files are of the one bin
    assert busy.by_key() == {key: v for key, v in before.items() if key != 1000} | {10: "meanwhile"}
    assert busy.standing().position == Lsn(300)
    assert busy.merge().written_files == 1
    assert busy.standing().position == Lsn(300)
    assert not _unknown(busy)


def test_only_what_a_delivery_has_touched_is_left_for_later(kept: Kept) -> None:
    for oid, name in ((OID, "t"), (OID + 1, "u")):
        kept.copy([(1, "a")], of=relation(oid=oid, name=T._replace(name=name)))
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
    attempt = busy.attempt(insert=[(1, "after")], truncate=True)
    busy.merge()
    attempt.commit(300)
    assert busy.rows() == [(1, "after")]


def test_a_copy_that_was_begun_before_a_merge_replaces_all_rows(busy: Kept) -> None:
    sink, of = busy.sink, relation()
    mirror = sink.new_mirror(MirrorSpec(of, kinds_of(of), T))
    attempt = sink.begin_copy([mirror], {})
    busy.merge()
    attempt.commit({OID: Lsn(500)}, {})
    assert busy.rows() == []
    assert busy.standing().position == Lsn(500)


def test_a_table_that_was_altered_while_its_files_were_merged_is_left_alone(busy: Kept) -> None:
    wide = relation(column("id", "int4", 1), column("v", "text", 2), column("w", "int4", 3))

    def alter() -> None:
        plan, _ = busy.sink.plan().evolved(wide, kinds_of(wide))
        busy.deliver(300, of=wide, plan=plan, insert=[(5000, "wide", 1)])

    assert busy.merge(alter) == Chores()
    assert busy.merge().written_files == 1
    assert (5000, "wide", 1) in busy.rows()
    assert not _unknown(busy)


def test_files_of_other_clients_are_not_merged(busy: Kept) -> None:
    rows = pa.table({"id": pa.array([7777], pa.int32()), "v": ["theirs"]}, schema=busy.table.schema().as_arrow())
    busy.table.append(rows)
    (theirs,) = {path for path in busy.data_files if not Path(path).name.startswith("headwater-")}
    busy.merge()
    assert theirs in busy.data_files
    assert len(busy.data_files) == 2
    assert busy.standing().position == Lsn(207)


def test_expired_snapshots_take_with_them_exactly_what_only_they_needed(busy: Kept) -> None:
    busy.merge()
    rows, standing = busy.rows(), busy.standing()
    planned = busy.maintenance.plan(T, MaintenancePolicy(merge=False, expire=AT_ONCE))
    done = busy.maintenance.expire(T, AT_ONCE)
    assert done == planned
    assert done.expired_snapshots == 9
    assert busy.rows() == rows
    assert (busy.standing().position, busy.standing().counts) == (standing.position, standing.counts)
    assert not _unknown(busy)
    assert len(busy.data_files) == 1
    assert busy.maintenance.expire(T, AT_ONCE) == Chores()
    busy.deliver(300, update=[(10, "on")])
    assert busy.by_key()[10] == "on"


def test_snapshots_that_are_young_or_tagged_or_of_branches_stay_readable(busy: Kept) -> None:
    assert busy.maintenance.expire(T, DAY) == Chores()
    old = busy.table.metadata.snapshots
    busy.table.manage_snapshots().create_tag(old[2].snapshot_id, "audit").commit()
    busy.table.manage_snapshots().create_branch(old[4].snapshot_id, "test").commit()
    before = busy.history()
    busy.merge()
    assert busy.maintenance.expire(T, AT_ONCE).expired_snapshots == 4
    after = busy.history()
    assert {old[2].snapshot_id, old[4].snapshot_id} <= after.keys()
    assert {id_: rows for id_, rows in before.items() if id_ in after} == {
        id_: rows for id_, rows in after.items() if id_ in before
    }
    assert not _unknown(busy)


def test_the_position_survives_whatever_others_commit_after_it(busy: Kept) -> None:
    rows = pa.table({"id": pa.array([7777], pa.int32()), "v": ["theirs"]}, schema=busy.table.schema().as_arrow())
    for _ in range(3):
        busy.table.append(rows)
    assert busy.maintenance.expire(T, AT_ONCE).expired_snapshots == 8
    assert busy.standing().position == Lsn(207)
    assert busy.standing().counts.copied == 100


def _unknown(kept: Kept) -> set[str]:
    """Files in the table's folder that no snapshot and no metadata has."""
    table = kept.table
    known = {table.metadata_location, *(each.metadata_file for each in table.metadata.metadata_log)}
    for snapshot in table.metadata.snapshots:
        known.add(snapshot.manifest_list)
        for manifest in snapshot.manifests(table.io):
            known.add(manifest.manifest_path)
            known |= {entry.data_file.file_path for entry in manifest.fetch_manifest_entry(table.io)}
    return kept.on_disk() - known


def age(paths: set[str], by: timedelta = 2 * DAY) -> None:
    for path in paths:
        then = time.time() - by.total_seconds()
        os.utime(path, (then, then))


def test_orphans_are_deleted_once_they_are_old_enough_unless_an_attempt_may_bring_them(busy: Kept) -> None:
    known = busy.on_disk()
    dead = busy.attempt(insert=[(1, "never lands")])
    busy.sink._lake.attempts.end(dead.delivery.target.attempt)  # type: ignore[attr-defined]
    orphans = busy.on_disk() - known
    for name in ("data/theirs.parquet", "metadata/x-m0.avro", "metadata/00009-x.metadata.json"):
        orphans.add(f"{busy.table.location()}/{name}")
        Path(busy.table.location(), name).write_bytes(b"of a client that died")
    Path(busy.table.location(), "metadata/version-hint.text").write_text("1")
    under_way = busy.attempt(insert=[(2, "may still land")])
    assert busy.maintenance.remove_orphans(T, DAY) == Chores()
    age(busy.on_disk())
    planned = busy.maintenance.plan(T, MaintenancePolicy(merge=False, orphans=DAY))
    assert busy.maintenance.remove_orphans(T, DAY) == planned
    assert planned.orphans == len(orphans) == 4
    assert not orphans & busy.on_disk()
    assert busy.on_disk() >= known
    under_way.commit(300)
    assert (2, "may still land") in busy.rows()


def test_what_removed_snapshots_needed_is_an_orphan_only_when_their_readers_are_done(busy: Kept) -> None:
    busy.merge()
    *removed, newest = busy.table.metadata.snapshots
    reader = busy.table.scan(snapshot_id=removed[-1].snapshot_id)
    rows = reader.to_arrow().num_rows
    busy.table.maintenance.expire_snapshots().by_ids([each.snapshot_id for each in removed]).commit()
    age(busy.on_disk())
    age({removed[-1].manifest_list}, timedelta(hours=30))
    age({newest.manifest_list}, timedelta(minutes=50))  # until then, its parent was the newest
    assert busy.maintenance.remove_orphans(T, DAY).orphans > 0
    assert reader.to_arrow().num_rows == rows
    age({newest.manifest_list}, timedelta(minutes=70))
    assert busy.maintenance.remove_orphans(T, DAY).orphans > 0
    assert not _unknown(busy)
    assert busy.by_key()[10] == "copied"


def replaced(kept: Kept) -> set[str]:
    """The files of a table of ours that was dropped, because a third one has taken the place of two."""
    kept.copy([(1, "t")])
    kept.copy([(1, "u")], of=relation(oid=OTHER, name=U))
    kept.deliver(200, of=relation(oid=OTHER, name=U), insert=[(2, "u")])
    old = files_in(kept.catalog.load_table(tuple(U)).location())
    kept.copy([(9, "new")], at=300, of=relation(oid=99), replaces=(OID, OTHER))
    assert not kept.catalog.table_exists(tuple(U))
    return old


def files_in(folder: str) -> set[str]:
    return {str(path) for path in Path(folder).rglob("*") if path.is_file()}


def markers(kept: Kept) -> set[str]:
    return files_in(f"{kept.catalog.load_table(tuple(quarantine.NAME)).location()}/dropped")


def test_files_of_a_table_that_was_replaced_are_deleted_once_its_readers_are_done(kept: Kept) -> None:
    old = replaced(kept)
    maintenance, orphans = kept.maintenance, MaintenancePolicy(orphans=DAY)
    assert U in maintenance.tables()
    age(old)
    assert maintenance.remove_orphans(U, DAY) == Chores()  # it was dropped a moment ago
    age(markers(kept))
    planned = maintenance.plan(U, orphans)
    assert planned.orphans == len(old)
    assert {path for path in old if Path(path).exists()} == old
    assert (maintenance.merging(U, MaintenancePolicy()), maintenance.expire(U, AT_ONCE)) == (None, Chores())
    assert maintenance.remove_orphans(U, DAY) == planned
    assert not any(Path(path).parent.parent.exists() for path in old)
    assert U not in maintenance.tables()
    assert kept.rows() == [(9, "new")]


def test_files_of_a_dropped_table_stay_if_another_client_brings_it_back(kept: Kept) -> None:
    old = replaced(kept)
    age(old | markers(kept))
    newest = max(path for path in old if path.endswith(".metadata.json"))
    kept.catalog.register_table(("public", "back"), newest)
    assert kept.maintenance.remove_orphans(U, DAY) == Chores()
    assert files_in(str(Path(newest).parent.parent)) >= old
    assert U not in kept.maintenance.tables()
    assert sorted(row["id"] for row in kept.catalog.load_table(("public", "back")).scan().to_arrow().to_pylist()) == [
        1,
        2,
    ]


def test_a_table_of_others_that_has_the_name_of_a_dropped_one_is_left_alone(kept: Kept) -> None:
    old = replaced(kept)
    theirs = kept.catalog.create_table(tuple(U), pa.schema([pa.field("id", pa.int64())]))
    theirs.append(pa.table({"id": [1]}))
    theirs.append(pa.table({"id": [2]}))
    stray = Path(theirs.location(), "data", "stray.parquet")
    stray.write_bytes(b"of their own")
    age(old | markers(kept) | files_in(theirs.location()))
    assert kept.maintenance.merging(U, MaintenancePolicy()) is None
    assert kept.maintenance.expire(U, AT_ONCE) == Chores()
    assert kept.maintenance.remove_orphans(U, DAY).orphans == len(old)
    assert stray.exists()
    assert len(kept.catalog.load_table(tuple(U)).metadata.snapshots) == 2


def test_a_mirror_that_a_copy_replaces_goes_though_the_process_dies_before_it_is_dropped(kept: Kept) -> None:
    kept.copy([(1, "t")])
    kept.copy([(1, "u")], of=relation(oid=OTHER, name=U))
    of, sink = relation(oid=99), kept.sink
    copy = sink.begin_copy([sink.new_mirror(MirrorSpec(of, kinds_of(of), T, replaces=(OID, OTHER)))], {})
    assert isinstance(copy, IcebergCopy)
    copy._announce(copy.mirrors)  # the first half of a commit
    kept.deliver(200, insert=[(2, "t")])
    assert kept.sink.standings().keys() == {OID, OTHER}  # it has not landed, so nothing is dropped
    sink = kept.sink
    copy = sink.begin_copy([sink.new_mirror(MirrorSpec(of, kinds_of(of), T, replaces=(OID, OTHER)))], {})
    assert isinstance(copy, IcebergCopy)
    copy._announce(copy.mirrors)
    copy._landed(copy.mirrors, {}, {99: Lsn(300)}, kept=False)
    assert kept.catalog.table_exists(tuple(U))
    kept.sink.collect()
    assert not kept.catalog.table_exists(tuple(U))
    assert kept.sink.standings().keys() == {99}
    assert U in kept.maintenance.tables()  # its files go later
    kept.deliver(400, of=of, insert=[(3, "on")])
    assert kept.rows() == [(3, "on")]


def test_nothing_is_left_of_a_copy_that_dies_before_its_table_is_created(kept: Kept) -> None:
    kept.copy([(1, "t")])
    before, of = files_in(kept.catalog.properties["warehouse"]), relation(oid=OTHER, name=U)
    sink = kept.sink
    copy = sink.begin_copy([sink.new_mirror(MirrorSpec(of, kinds_of(of), U))], {})
    assert isinstance(copy, IcebergCopy)
    written(copy.target, rows_of(OTHER), [(typed(of, [(1, "u")]), None)])
    new = copy.mirrors[0].new
    assert new is not None
    next_snapshot(new._table, new._table.schema(), FileChanges(), {}, ManifestCache())  # as far as the commit came
    assert kept.sink.collect_copies() == 2
    assert files_in(kept.catalog.properties["warehouse"]) == before


def test_a_copy_whose_name_another_client_has_taken_leaves_no_file(kept: Kept) -> None:
    sink, of = kept.sink, relation()
    copy = sink.begin_copy([sink.new_mirror(MirrorSpec(of, kinds_of(of), T))], {})
    kept.catalog.create_table(tuple(T), pa.schema([pa.field("id", pa.int64())]))
    reports = {rows_of(OID): written(copy.target, rows_of(OID), [(typed(of, [(1, "t")]), None)])}
    before = files_in(kept.table.location())
    with pytest.raises((TableError, CommitConflict)):
        copy.commit({OID: Lsn(100)}, reports)
    copy.discard(reports)
    location = copy.target.landing(rows_of(OID)).location  # type: ignore[attr-defined]
    assert location != kept.table.location()
    assert files_in(location) == set()
    assert files_in(kept.table.location()) == before


def test_what_a_killed_merge_has_written_is_collected_and_a_delivery_leaves_it_alone(busy: Kept) -> None:
    merging = busy.maintenance.merging(T, MaintenancePolicy())
    assert merging is not None
    reports = [merging.writer.write(each) for each in merging.bins]
    assert busy.sink.collect() == 0
    assert busy.maintenance.remove_orphans(T, AT_ONCE).orphans == 0
    assert busy.maintenance.collect() == 1
    with pytest.raises(CommitConflict):
        merging.commit(reports)
    assert not _unknown(busy)
    assert busy.merge().written_files == 1


def test_values_in_quarantine_that_may_be_taken_back_are_not_merged(kept: Kept) -> None:
    kept.copy([(1, "a")])
    for turn in range(6):
        kept.attempt(insert=[(10 + turn, "x")]).with_misfits(kept.source, f"bad {turn}").commit(200 + turn)
    done = kept.merge(of=quarantine.NAME)
    assert done.merged_files == 5  # the last one may have come for a table that did not land
    assert sorted(row["value"] for row in kept.read(quarantine.NAME)) == [f"bad {turn}" for turn in range(6)]


def test_a_table_that_the_lake_has_no_longer_is_an_error_of_its_own(busy: Kept) -> None:
    maintenance = busy.maintenance
    busy.catalog.drop_table(tuple(T))
    with pytest.raises(TableError, match="no table"):
        maintenance.plan(T, MaintenancePolicy())


def test_deliveries_keep_the_number_of_snapshots_within_bounds(kept: Kept) -> None:
    kept.copy([(1, "a")])
    with kept.table.transaction() as change:
        change.set_properties({"history.expire.min-snapshots-to-keep": "3"})
    sink, most = kept.sink, 0
    for turn in range(30):
        kept.deliver(200 + turn, plan=sink.plan(), insert=[(10 + turn, "x")])
        most = max(most, len(kept.table.metadata.snapshots))
    assert most == 28
    assert len(kept.table.metadata.snapshots) < 10
    assert len(kept.rows()) == 31
    assert kept.standing().position == Lsn(229)
    assert len(kept.history()) == len(kept.table.metadata.snapshots)
