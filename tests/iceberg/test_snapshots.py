"""What we rely on in PyIceberg when we put snapshots together of its parts; read back by PyIceberg and DuckDB."""

from __future__ import annotations

import random
from dataclasses import replace

import pyarrow as pa
import pytest
from pyiceberg.avro.file import AvroFile
from pyiceberg.manifest import DataFileContent, ManifestContent, ManifestEntry, write_manifest_list
from pyiceberg.table.snapshots import Operation

from headwater.errors import CommitConflict, TableError
from headwater.iceberg import snapshots
from headwater.iceberg.manifests import Manifests, with_files
from headwater.iceberg.snapshots import FileChanges, next_snapshot
from tests.iceberg.icebench import IceBench


def test_rows_and_position_deletes_land_in_one_snapshot(ice: IceBench) -> None:
    first = ice.change([(1, "a"), (2, "b"), (3, "c")])
    second = ice.change([(2, "new")], delete=[2, 3])
    assert ice.rows() == [(1, "a"), (2, "new")]
    assert ice.rows(first) == [(1, "a"), (2, "b"), (3, "c")]
    third = ice.change(delete=[1])
    assert ice.rows() == [(2, "new")]
    assert ice.rows(second) == [(1, "a"), (2, "new")]
    said = [each.summary.operation for each in ice.table.metadata.snapshots if each.summary]
    assert said == [Operation.APPEND, Operation.OVERWRITE, Operation.DELETE]
    assert ice.rows(third) == ice.rows()


def test_an_empty_snapshot_is_readable_and_keeps_what_was_there(ice: IceBench) -> None:
    ice.commit(FileChanges(), note="nothing yet")
    assert ice.rows() == []
    ice.change([(1, "a")])
    ice.commit(FileChanges(), note="nothing new")
    assert ice.rows() == [(1, "a")]


def test_the_summary_adds_up_and_has_what_we_say(ice: IceBench) -> None:
    ice.change([(1, "a"), (2, "b")], said="this")
    ice.change([(3, "c")], delete=[1], said="that")
    snapshot = ice.table.metadata.current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    said = snapshot.summary.additional_properties
    totals = {name: said[f"total-{name}"] for name in ("records", "data-files", "delete-files", "position-deletes")}
    assert totals == {"records": "3", "data-files": "2", "delete-files": "1", "position-deletes": "1"}
    assert said["said"] == "that"


def test_files_are_removed_with_their_deletes(ice: IceBench) -> None:
    before = ice.change([(1, "a"), (2, "b")])
    ice.change([(3, "c")], delete=[1])
    gone = [path for each in ice.live() for path in (each.path, *(d.path for d in each.deletes))]
    ice.commit(FileChanges([ice.written([(9, "z")])], gone))
    assert ice.rows() == [(9, "z")]
    assert [each.deletes for each in ice.live()] == [()]
    assert ice.rows(before) == [(1, "a"), (2, "b")]


def test_manifests_are_merged_so_that_their_number_hardly_grows(ice: IceBench) -> None:
    chance, there = random.Random(4), dict[int, str]()
    for step in range(120):
        gone = chance.sample(sorted(there), 1) if step % 3 == 2 else []
        ice.change([(step, f"v{step}")], delete=gone)
        there = {id_: v for id_, v in there.items() if id_ not in gone} | {step: f"v{step}"}
    assert ice.manifests() < 70
    assert ice.rows() == sorted(there.items())
    assert sum(each.rows - each.deleted for each in ice.live()) == len(there)


def test_other_clients_go_on_from_our_snapshots_and_we_from_theirs(ice: IceBench) -> None:
    ice.change([(1, "a"), (2, "b"), (3, "c")])
    ice.change(delete=[2])
    theirs = ice.stock.load_table(("db", "t"))
    theirs.append(pa.table({"id": pa.array([4], pa.int64()), "v": ["theirs"]}))
    theirs.delete("id = 1")  # rewrites our file, without the row that we had deleted
    assert ice.rows() == [(3, "c"), (4, "theirs")]
    ice.refresh()
    ice.change([(5, "ours")], delete=[4])
    assert ice.rows() == [(3, "c"), (5, "ours")]


def test_a_commit_on_a_snapshot_that_is_not_the_newest_is_a_conflict(ice: IceBench) -> None:
    ice.change([(1, "a")])
    ice.stock.load_table(("db", "t")).append(pa.table({"id": pa.array([2], pa.int64()), "v": ["theirs"]}))
    with pytest.raises(CommitConflict):
        ice.change([(3, "late")])
    ice.refresh()
    ice.change([(3, "again")])
    assert ice.rows() == [(1, "a"), (2, "theirs"), (3, "again")]


def test_a_compaction_changes_files_and_no_rows(ice: IceBench) -> None:
    ice.change([(1, "a"), (2, "b")])
    before = ice.change([(3, "c")], delete=[1])
    old = [path for each in ice.live() for path in (each.path, *(d.path for d in each.deletes))]
    ice.commit(FileChanges([ice.written([(2, "b"), (3, "c")])], old, same_rows=True))
    assert ice.rows() == ice.rows(before) == [(2, "b"), (3, "c")]
    snapshot = ice.table.metadata.current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    assert snapshot.summary.operation == Operation.REPLACE
    assert snapshot.summary.additional_properties["total-records"] == "2"


def test_how_long_another_client_wants_snapshots_of_the_branch_to_stay_is_not_forgotten(ice: IceBench) -> None:
    first = ice.change([(1, "a")])
    with ice.stock.load_table(("db", "t")).manage_snapshots() as manage:
        manage.create_branch(first, "main", max_snapshot_age_ms=864_000_000, min_snapshots_to_keep=30)
    ice.refresh()
    ice.change([(2, "b")])
    main = ice.table.metadata.refs["main"]
    assert (main.max_snapshot_age_ms, main.min_snapshots_to_keep) == (864_000_000, 30)


def test_a_data_file_says_whether_it_follows_the_sort_order(ice: IceBench) -> None:
    ice.commit(
        FileChanges([ice.written([(2, "b"), (1, "a")]), replace(ice.written([(1, "a"), (2, "b")]), sorted=True)])
    )
    snapshot = ice.table.metadata.current_snapshot()
    assert snapshot is not None
    (manifest,) = snapshot.manifests(ice.table.io)
    said = [entry.data_file.sort_order_id for entry in manifest.fetch_manifest_entry(ice.table.io)]
    assert said == [None, ice.table.metadata.default_sort_order_id]


def test_manifests_say_all_that_the_specification_asks_for(ice: IceBench) -> None:
    ice.change([(1, "a"), (2, "b")])
    ice.change(delete=[1])
    snapshot = ice.table.metadata.current_snapshot()
    assert snapshot is not None
    for each in snapshot.manifests(ice.table.io):
        with AvroFile[ManifestEntry](ice.table.io.new_input(each.manifest_path)) as file:
            said = {name: file.header.meta[name] for name in ("content", "format-version", "schema-id")}
            content = "data" if each.content == ManifestContent.DATA else "deletes"
            assert said == {"content": content, "format-version": "2", "schema-id": "0"}
            assert {"schema", "partition-spec", "partition-spec-id"} <= file.header.meta.keys()


def test_equality_deletes_of_other_clients_are_refused(ice: IceBench) -> None:
    ice.change([(1, "a"), (2, "b")])
    (delete,) = ice.deleted({1})
    file = snapshots._data_file(delete)
    file._data[0] = DataFileContent.EQUALITY_DELETES
    new = next_snapshot(ice.table, ice.table.schema(), FileChanges(), {}, ice.cache)
    to = Manifests(ice.table, ice.table.schema(), ice.cache, new.id, "equality")
    manifests = [*with_files(to, ManifestContent.DELETES, [file]), *to.current()]
    (list_file,) = new.written
    with write_manifest_list(2, ice.table.io.new_output(list_file), new.id, None, 2, "deflate") as writer:
        writer.add_manifests(manifests)
    ice.table = ice.catalog.commit(ice.table, new.requirements, new.updates)
    with pytest.raises(TableError, match="equality deletes"):
        ice.live()
