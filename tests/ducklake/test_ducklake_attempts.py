"""Files of attempts that did not land are deleted, and no others."""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace

import pyarrow as pa
import pytest
from lakebench import COLUMNS, Bench, T
from pyarrow import fs

from headwater.change import TableName
from headwater.ducklake.attempts import land
from headwater.ducklake.catalog import open_catalog
from headwater.ducklake.lake import Lake
from headwater.ducklake.model import DataFile, NewTable, PlannedCommit, TableChange, numbered
from headwater.ducklake.writing import TableFolder, write_data_file
from headwater.errors import CommitConflict
from headwater.files import inside

O = TableName("public", "o")  # noqa: E741


def write(lake: Lake, attempt: str) -> tuple[NewTable, DataFile]:
    """A file for a table that is still to be created."""
    new = lake.new_table(T, COLUMNS)
    data = pa.table({"id": [1, 2], "s": ["a", "b"]})
    return new, write_data_file(TableFolder(lake.filesystem, new.path, attempt), data, numbered(COLUMNS))


def commit(lake: Lake, attempt: str, new: NewTable, file: DataFile) -> int:
    change = TableChange(T, data_files=(file,))
    return lake.commit(PlannedCommit(lake.snapshot(), "pg", new_tables=(new,), changes=(change,), attempt=attempt))


def files(lake: Lake) -> set[str]:
    found = lake.filesystem.get_file_info(fs.FileSelector(inside(lake.data_path), allow_not_found=True, recursive=True))
    return {each.base_name for each in found if each.type == fs.FileType.File}


def test_what_an_attempt_that_did_not_land_has_written_is_deleted(bench: Bench) -> None:
    lake = bench.lake
    left, theirs, other = lake.begin("pg"), lake.begin("another source"), lake.begin("pg")
    write(lake, left)
    write(lake, other)
    _, kept = write(lake, theirs)
    _, foreign = write(lake, "")  # of no known attempt
    assert lake.collect("pg") == 2
    assert files(lake) == {kept.path, foreign.path}


def test_an_attempt_that_landed_is_left_alone(bench: Bench) -> None:
    attempt = bench.lake.begin("pg")
    commit(bench.lake, attempt, *write(bench.lake, attempt))
    assert bench.lake.collect("pg") == 0
    assert bench.rows() == [(1, "a"), (2, "b")]


def test_an_attempt_whose_files_were_deleted_cannot_land(bench: Bench) -> None:
    """Its process was not dead, only held up for long."""
    attempt = bench.lake.begin("pg")
    new, file = write(bench.lake, attempt)
    bench.lake.collect("pg")
    with pytest.raises(CommitConflict, match="has closed attempt"):
        commit(bench.lake, attempt, new, file)
    assert bench.lake.tables() == {}


def test_a_file_that_a_worker_wrote_after_its_job_had_failed_is_found_at_the_next_look(bench: Bench) -> None:
    attempt = bench.lake.begin("pg")
    assert bench.lake.collect("pg") == 0
    write(bench.lake, attempt)
    assert bench.lake.collect("pg") == 1
    write(bench.lake, attempt)
    assert bench.lake.collect("pg") == 0  # two looks are enough
    assert len(files(bench.lake)) == 1


def test_an_attempt_that_is_noted_elsewhere_stays_closed_but_is_looked_for_twice(bench: Bench) -> None:
    attempt, lake = uuid.uuid4().hex, bench.lake
    new, file = write(lake, attempt)
    planned = PlannedCommit(
        lake.snapshot(), "pg", new_tables=(new,), changes=(TableChange(T, (file,)),), attempt=attempt, noted=False
    )
    assert lake.collect("pg") == 0
    assert lake.collect("pg", [attempt]) == 1
    write(lake, attempt)
    assert lake.collect("pg") == 1
    write(lake, attempt)
    assert lake.collect("pg") == 0
    with pytest.raises(CommitConflict, match="has closed attempt"):
        lake.commit(planned)
    assert lake.collect("another source", [attempt]) == 1


def test_an_attempt_that_is_noted_elsewhere_leaves_no_row_when_it_lands(bench: Bench) -> None:
    attempt, lake = uuid.uuid4().hex, bench.lake
    new, file = write(lake, attempt)
    change = TableChange(T, data_files=(file,))
    planned = PlannedCommit(lake.snapshot(), "pg", new_tables=(new,), changes=(change,), attempt=attempt, noted=False)
    lake.commit(planned)
    assert lake.collect("pg") == 0
    assert lake.collect("pg", [attempt]) == 0
    assert bench.rows() == [(1, "a"), (2, "b")]


def test_whoever_closes_an_attempt_that_is_just_landing_waits_for_its_commit(bench: Bench) -> None:
    attempt, lake = uuid.uuid4().hex, bench.lake
    with closing(open_catalog(lake.url)) as catalog, ThreadPoolExecutor(1) as another:
        with catalog.transaction(write=True) as tx:
            land(tx, attempt, noted=False)
            collected = another.submit(lake.collect, "pg", [attempt])
            with pytest.raises(TimeoutError):
                collected.result(timeout=0.5)
        assert collected.result() == 0
        with pytest.raises(CommitConflict), catalog.transaction(write=True) as tx:
            land(tx, attempt, noted=False)


def test_a_delete_file_that_was_written_again_is_left_to_the_cleanup(bench: Bench) -> None:
    bench.create([(i, "a") for i in range(6)])
    bench.create(name=O)
    planned = bench.plan(delete=[1], inline_limit=0)
    bench.sql("INSERT INTO {l}.public.o VALUES (1, 'takes the predicted snapshot')")
    bench.commit(replace(planned, attempt=bench.lake.begin("pg")))
    ((scheduled,),) = bench.sql(
        "SELECT path FROM ducklake_cleanup_old_files('{l}', cleanup_all => true, dry_run => true)"
    )
    assert scheduled.endswith("-delete.parquet")
    before = files(bench.lake)
    bench.sql("CALL ducklake_cleanup_old_files('{l}', cleanup_all => true)")
    assert before - files(bench.lake) == {scheduled.rsplit("/", 1)[-1]}
    assert [id_ for id_, _ in bench.rows()] == [0, 2, 3, 4, 5]
