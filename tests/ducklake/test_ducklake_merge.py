"""Merging files of a DuckLake: what can be merged with what, and how deleted rows must be kept for DuckDB's feed."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from lakebench import Bench, T
from tests.feed.feedbench import FeedBench

from headwater.change import Lsn
from headwater.ducklake.deletes import write_delete_file
from headwater.ducklake.figures import table_figures
from headwater.ducklake.mergeable import Bin, MergeableFile, group_of, mergeable_files, oldest_snapshot
from headwater.ducklake.model import Field
from headwater.ducklake.replacing import Replacement, replace_files
from headwater.ducklake.versions import NEVER, Layout, Versions, VersionsFile, read_versions, write_versions
from headwater.ducklake.writing import ROW_ID, SNAPSHOT_ID, TableFolder, write_data_file
from headwater.lake.maintenance import Chores, Figures, MaintenancePolicy
from headwater.sink.ducklake.maintaining import DuckLakeMaintenance


def mergeable(bench: Bench) -> list[MergeableFile]:
    with bench.lake.reading() as tx:
        return mergeable_files(tx, bench.lake.data_path, bench.table(), (), oldest_snapshot(tx))


def groups(bench: Bench) -> int:
    return len({group_of(bench.table(), each) for each in mergeable(bench)})


def test_files_from_before_and_after_a_dropped_or_wider_column_are_not_merged_until_no_snapshot_can_tell(
    bench: Bench,
) -> None:
    bench.create([(1, "a")])
    bench.apply([(2, "b")])
    id_, s = bench.table().columns
    bench.alter([id_, Field(s.id, "renamed", "varchar")], insert=[(3, "c")])
    assert groups(bench) == 1
    bench.alter([id_, Field(s.id, "renamed", "varchar"), Field(bench.next_id(), "n", "int32")], insert=[(4, "d", 4)])
    assert groups(bench) == 2
    columns = bench.table().columns
    bench.alter([*columns[:2], Field(columns[2].id, "n", "int64")], insert=[(5, "e", 5)])
    bench.alter([columns[0], Field(columns[2].id, "n", "int64")], insert=[(6, 6)])
    assert groups(bench) == 4
    expired = [id_ for id_, _ in bench.lake.commits()][:-1]
    bench.sql(f"CALL ducklake_expire_snapshots('{{l}}', versions => {expired})")
    assert groups(bench) == 1


def test_files_with_columns_of_types_that_we_do_not_write_are_left_alone(bench: Bench) -> None:
    bench.create([(1, "a")])
    assert len(mergeable(bench)) == 1
    bench.sql("ALTER TABLE {l}.public.t ADD COLUMN i INTERVAL")
    bench.sql("INSERT INTO {l}.public.t VALUES (2, 'b', INTERVAL 1 DAY)")
    assert [each.rows for each in mergeable(bench)] == [1]


def test_files_whose_deletes_another_client_wrote_into_a_file_are_left_alone(bench: Bench) -> None:
    """It may say a snapshot for them that others have taken; `feed.dating` knows better while the file is there."""
    bench.create([(1, "a"), (2, "b"), (3, "c")])
    bench.sql("DELETE FROM {l}.public.t WHERE id = 1")
    assert mergeable(bench) == []


def test_versions_are_divided_so_that_no_row_is_twice_in_a_part() -> None:
    rows = pa.table({ROW_ID: [1, 1, 1, 2, 2, 3, 4], SNAPSHOT_ID: [5, 9, 7, 5, 6, 5, 5]})
    versions = Versions(rows, np.array([7, NEVER, 9, 6, 6, 8, 4]))
    found = [rows.take(each).to_pydict() for each in versions.layers(oldest=4)]
    assert found == [{ROW_ID: [1, 2, 3], SNAPSHOT_ID: [5, 5, 5]}, {ROW_ID: [1], SNAPSHOT_ID: [7]}]
    assert versions.layers(oldest=9) == []
    assert versions.alive().rows.to_pydict() == {ROW_ID: [1], SNAPSHOT_ID: [9]}


def test_duckdb_gives_the_versions_of_a_row_in_one_file_one_date(bench: Bench) -> None:
    """Which is why there is more than one file for them. A test that fails here is good news (extension 1.5.5)."""
    first = bench.create([(1, "a"), (2, "b"), (3, "c"), (4, "d")])
    bench.apply(update={1: "A", 2: "B"})
    third = bench.apply(update={1: "AA", 3: "C"})
    last = bench.apply(update={1: "AAA"})
    wanted = bench.changes(first)
    assert (third, "update_preimage", 1, "A") in wanted
    feed = FeedBench(bench.lake, bench.duck, bench.alias)
    events, table = feed.events(first, last, T), bench.table()
    files = tuple(each for each in mergeable(bench) if each.deleted)
    versions = Versions.joined([read_versions(bench.files, each, table.columns) for each in files])
    dead = versions.take(np.flatnonzero(versions.ended != NEVER))
    where = TableFolder(bench.files, table.path, bench.lake.begin("pg"))
    data = write_data_file(where, dead.rows, table.columns, with_row_ids=True, with_snapshots=True)
    earlier = np.flatnonzero(dead.ended < last)
    deletes = write_delete_file(
        where, where.new_name("-delete"), table.path + data.path, (earlier, dead.ended[earlier])
    )
    new = (
        *write_versions(where, versions, Layout(table.columns, NEVER)),
        VersionsFile(data, first, third, last, deletes),
    )
    bench.lake.changed_by(
        lambda tx: replace_files(tx, bench.lake.data_path, table, where.attempt, [Replacement(Bin(files, "", 0), new)])
    )
    assert bench.rows(at=third) == [(1, "AA"), (2, "B"), (3, "C"), (4, "d")]
    assert feed.events(first, last, T) == events
    assert (third, "update_preimage", 1, "A") not in bench.changes(first, last)


def test_rows_in_the_catalog_itself_stay_there_and_those_that_no_snapshot_shows_are_deleted(bench: Bench) -> None:
    first = bench.create([(key, "a") for key in range(10)])
    for turn in range(5):
        bench.apply([(100 + turn, "b")], {turn: "c"})
    bench.sql("CALL {l}.set_option('data_inlining_row_limit', 10, schema => 'public', table_name => 't')")
    for query in (
        "INSERT INTO {l}.public.t VALUES (50, 'inlined'), (51, 'inlined')",
        "UPDATE {l}.public.t SET s = 'again' WHERE id IN (3, 50)",
        "DELETE FROM {l}.public.t WHERE id IN (4, 51)",
    ):
        bench.sql(query)
    newest = bench.lake.snapshot().id
    before, changes = {at: bench.rows(at=at) for at in range(first, newest + 1)}, bench.changes(first)
    maintenance = DuckLakeMaintenance(bench.lake, "pg", Lsn)
    merging = maintenance.merging(T, MaintenancePolicy(flush=None))
    assert merging is not None
    assert merging.commit([merging.writer.write(each) for each in merging.bins]).merged_files > 5
    assert {at: bench.rows(at=at) for at in range(first, newest + 1)} == before
    assert bench.changes(first, newest) == changes
    assert inlined(bench) == 4
    maintenance.expire(T, timedelta(0))
    assert inlined(bench) == 2
    assert bench.rows() == before[newest]


def figures(bench: Bench) -> Figures:
    with bench.lake.reading() as tx:
        return table_figures(tx, [bench.table().id])[bench.table().id]


def inlined(bench: Bench) -> int:
    """How many versions of rows are in the catalog."""
    with bench.lake.reading() as tx:
        names = tx.rows("SELECT table_name FROM ducklake_inlined_data_tables WHERE table_id = %s", bench.table().id)
        return sum(tx.rows(f"SELECT count(*) FROM {name}")[0][0] for (name,) in names)


@pytest.mark.parametrize("many", [False, True], ids=["in the catalog", "in a file"])
def test_rows_deleted_while_their_files_are_merged_are_deleted_from_the_merged_file(bench: Bench, many: bool) -> None:
    first = bench.create([(key, "a") for key in range(10)])
    for turn in range(1, 6):
        bench.apply([(turn * 1000 + key, "b") for key in range(600)], delete=[turn])
    merging = DuckLakeMaintenance(bench.lake, "pg", Lsn).merging(T, MaintenancePolicy())
    assert merging is not None
    reports = [merging.writer.write(each) for each in merging.bins]
    bench.apply(update={7: "c", 1001: "c"}, delete=[8])
    newest = bench.apply(delete=[9, *(turn * 1000 + key for turn in range(1, 6) for key in range(2, 400 * many + 4))])
    before, changes = {at: bench.rows(at=at) for at in range(first, newest + 1)}, bench.changes(first)
    assert merging.commit(reports).merged_files == 6
    assert {at: bench.rows(at=at) for at in range(first, newest + 1)} == before
    assert bench.changes(first, newest) == changes
    alive = [each for each in bench.live() if each.path.startswith(bench.table().path)]
    assert any(each.delete_file is not None for each in alive) == many
    bench.apply(delete=[6])
    assert bench.rows() == [row for row in before[newest] if row[0] != 6]


def test_a_merge_is_given_up_if_nothing_is_left_of_its_rows(bench: Bench) -> None:
    bench.create([(0, "a")])
    for turn in range(1, 6):
        bench.apply([(turn, "b")])
    merging = DuckLakeMaintenance(bench.lake, "pg", Lsn).merging(T, MaintenancePolicy())
    assert merging is not None
    reports = [merging.writer.write(each) for each in merging.bins]
    for turn in range(6):
        bench.apply(delete=[turn])
    files = set(Path(bench.lake.data_path).rglob("*.parquet"))
    assert merging.commit(reports) == Chores()
    assert bench.rows() == []
    assert set(Path(bench.lake.data_path).rglob("*.parquet")) < files


def test_older_versions_leave_the_catalog_but_for_those_of_rows_that_change_all_the_time(bench: Bench) -> None:
    first = bench.create()
    bench.apply([(key, "a") for key in range(150)], inlined=True)
    for turn in range(3):
        bench.apply(update=dict.fromkeys(range(150), f"b{turn}"), inlined=True)
    for turn in range(9):
        bench.apply(update={7: f"c{turn}"}, inlined=True)
    newest = bench.lake.snapshot().id
    before, changes = {at: bench.rows(at=at) for at in range(first, newest + 1)}, bench.changes(first)
    maintenance = DuckLakeMaintenance(bench.lake, "pg", Lsn)
    merging = maintenance.merging(T, MaintenancePolicy())
    assert merging is not None
    assert merging.commit([merging.writer.write(each) for each in merging.bins]).flushed_rows == 600
    assert inlined(bench) == 9  # each would need a file of its own
    assert len(bench.live()) == 1
    assert {at: bench.rows(at=at) for at in range(first, newest + 1)} == before
    assert bench.changes(first, newest) == changes
    bench.apply(update={7: "d"}, delete=[8], inlined=True)
    assert bench.rows() == [(key, "d" if key == 7 else value) for key, value in before[newest] if key != 8]
    maintenance.expire(T, timedelta(0))
    assert inlined(bench) == 1


def test_files_of_older_versions_are_merged_with_each_other(bench: Bench) -> None:
    first = bench.create([(key, "a") for key in range(600)])
    maintenance = DuckLakeMaintenance(bench.lake, "pg", Lsn)

    def merge() -> Chores:
        merging = maintenance.merging(T, MaintenancePolicy())
        assert merging is not None
        return merging.commit([merging.writer.write(each) for each in merging.bins])

    for turn in range(6):
        for part in range(5):
            begin = 50 * turn + 10 * part
            bench.apply(update={**dict.fromkeys(range(begin, begin + 10), "b"), 599: f"{turn} {part}"})
        asked = range(bench.lake.snapshot().id - 3, bench.lake.snapshot().id)
        before, changes = [bench.rows(at=at) for at in asked], bench.changes(first, asked[-1])
        while maintenance.plan(T, MaintenancePolicy()).merged_files:
            merge()
    assert [bench.rows(at=at) for at in asked] == before
    assert bench.changes(first, asked[-1]) == changes
    with bench.lake.reading() as tx:
        rows = tx.rows("SELECT record_count FROM ducklake_data_file WHERE end_snapshot IS NOT NULL")
    # There were 6 merges, each with a version of many rows, and 30 versions of one that changes all the time.
    assert len([count for (count,) in rows if count > 2]) < 6
