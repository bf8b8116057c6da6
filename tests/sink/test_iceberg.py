"""An Iceberg lake that others change while we write to it, and what becomes of a delivery or a copy then."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.manifest import DataFileContent
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import StringType

from headwater.change import Lsn, TableName
from headwater.errors import CannotFollow, CommitConflict, CommitError, OperatorMustAct, Unreachable
from headwater.iceberg.model import DELETED_PATH
from headwater.lake import quarantine
from headwater.lake.partitioning import PartitionBy
from headwater.lake.reading import connect as duckdb_connect
from headwater.lake.sink import MirrorSpec
from headwater.lake.sqltext import identifier
from headwater.lake.stream import WAL
from headwater.lake.target import rows_of
from headwater.sink.iceberg.address import IcebergAddress
from headwater.sink.iceberg.delivery import IcebergDelivery
from headwater.sink.iceberg.lake import IcebergLake
from headwater.sink.iceberg.quarantine import keep
from headwater.sink.iceberg.standing import IcebergStanding
from tests.iceberg.restcatalog import rest_catalog
from tests.sink.sinkbench import OID, OTHER, Attempt, Bench, T, U, column, kinds_of, relation, typed, written


class Ice(Bench):
    """One lake, and the catalog of another client of it."""

    stock: Catalog

    def theirs(self, name: TableName = T) -> Table:
        return self.stock.load_table(tuple(name))

    def compacted(self, name: TableName = T) -> None:
        """Another client writes all rows of a table into one file."""
        table = self.theirs(name)
        with warnings.catch_warnings(action="ignore"):  # it cannot merge on read, as the table's properties ask for
            table.overwrite(table.scan().to_arrow())


@pytest.fixture(params=["sql", "rest"])
def ice(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ice]:
    with ExitStack() as held:
        properties = {"type": "sql", "uri": f"sqlite:///{tmp_path}/ice.sqlite", "warehouse": f"{tmp_path}/warehouse"}
        if request.param == "rest":
            properties = held.enter_context(rest_catalog(tmp_path)).properties
        address = IcebergAddress(properties)

        def read(name: TableName) -> list[dict[str, Any]]:
            found: list[dict[str, Any]] = bench.theirs(name).scan().to_arrow().to_pylist()
            return found

        bench = Ice(
            lambda *to: held.enter_context(closing(address.open(*to))),
            read,
            row_lineage=False,
            defaults=False,
        )
        with closing(address.open("0/db/g", WAL)):
            stock = held.enter_context(closing(load_catalog("default", **properties)))
        object.__setattr__(bench, "stock", stock)
        yield bench


def test_a_truncate_empties_the_table_though_another_client_has_compacted_it_meanwhile(ice: Ice) -> None:
    ice.copy([(1, "a"), (2, "b")])
    ice.deliver(200, insert=[(3, "c")])
    attempt = ice.attempt(insert=[(4, "d")], truncate=True)
    ice.compacted()
    attempt.commit(300)
    assert ice.rows() == [(4, "d")]


def test_a_copy_in_place_replaces_all_rows_though_another_client_has_compacted_them_meanwhile(ice: Ice) -> None:
    ice.copy([(1, "a"), (2, "b")])
    ice.deliver(200, insert=[(3, "c")])
    sink, of = ice.sink, relation()
    copy = sink.begin_copy([sink.new_mirror(MirrorSpec(of, kinds_of(of), T))], {})
    reports = {rows_of(OID): written(copy.target, rows_of(OID), [(typed(of, [(5, "new")]), None)])}
    ice.compacted()
    copy.commit({OID: Lsn(300)}, reports)
    assert ice.rows() == [(5, "new")]


def test_a_column_of_ours_never_gets_the_field_id_of_one_that_another_client_adds_meanwhile(ice: Ice) -> None:
    ice.copy([(1, "a")])
    wider = relation(column("id", "int4", 1), column("v", "text", 2), column("w", "text", 3))
    plan, _ = ice.sink.plan().evolved(wider, kinds_of(wider))
    attempt = ice.attempt(of=wider, plan=plan, insert=[(2, "b", "ours")])
    with ice.theirs().update_schema() as update:
        update.add_column("x", StringType())
    with pytest.raises(CommitConflict, match="altered"):
        attempt.commit(200)
    plan, _ = ice.sink.plan().evolved(wider, kinds_of(wider))
    ice.attempt(of=wider, plan=plan, insert=[(2, "b", "ours")]).commit(200)
    assert [tuple(row.items()) for row in ice.read(T) if row["id"] == 2] == [
        (("id", 2), ("v", "b"), ("x", None), ("w", "ours"))
    ]


def test_a_commit_to_another_branch_is_no_obstacle(ice: Ice) -> None:
    ice.copy([(1, "a")])
    attempt = ice.attempt(insert=[(2, "b")])
    table = ice.theirs()
    snapshot = table.current_snapshot()
    assert snapshot is not None
    table.manage_snapshots().create_branch(snapshot.snapshot_id, "theirs").commit()
    table.append(pa.table({"id": pa.array([9], pa.int32()), "v": ["z"]}, schema=_required(table)), branch="theirs")
    attempt.commit(200)
    assert ice.rows() == [(1, "a"), (2, "b")]


def test_rows_that_another_client_appends_meanwhile_are_no_obstacle_and_rows_that_it_moves_are(ice: Ice) -> None:
    ice.copy([(1, "a"), (2, "b")])
    attempt = ice.attempt(insert=[(3, "c")], update=[(1, "changed")])
    table = ice.theirs()
    table.append(pa.table({"id": pa.array([9], pa.int32()), "v": ["theirs"]}, schema=_required(table)))
    attempt.commit(200)
    assert ice.rows() == [(1, "changed"), (2, "b"), (3, "c"), (9, "theirs")]
    attempt = ice.attempt(update=[(2, "late")])
    ice.compacted()
    with pytest.raises(CommitConflict, match="another client has changed rows"):
        attempt.commit(300)
    ice.deliver(300, update=[(2, "planned again")])
    assert ice.rows() == [(1, "changed"), (2, "planned again"), (3, "c"), (9, "theirs")]


def lake_of(attempt: Attempt) -> IcebergLake[Lsn]:
    assert isinstance(attempt.delivery, IcebergDelivery)
    return attempt.delivery.plan.lake


def _required(table: Table) -> pa.Schema:
    schema: pa.Schema = table.schema().as_arrow()
    return pa.schema([field.with_type(pa.string() if field.name == "v" else field.type) for field in schema])


def test_a_table_that_another_client_drops_meanwhile_is_a_conflict(ice: Ice) -> None:
    ice.copy([(1, "a")])
    attempt = ice.attempt(insert=[(2, "b")])
    ice.stock.drop_table(tuple(T))
    with pytest.raises(CommitError):
        attempt.commit(200)
    assert OID not in ice.sink.standings()


def test_a_commit_that_cannot_reach_the_tables_files_is_tried_again(ice: Ice) -> None:
    ice.copy([(1, "a")])
    ice.deliver(200, insert=[(2, "b")])
    attempt = ice.attempt(insert=[(3, "c")])
    metadata = Path(ice.theirs().metadata.location, "metadata")
    away = metadata.rename(metadata.with_name("away"))
    metadata.touch()  # nothing can be made there
    with pytest.raises(Unreachable, match="a file of the warehouse cannot be reached: NotADirectoryError"):
        attempt.commit(300)
    metadata.unlink()
    away.rename(metadata)
    ice.deliver(300, insert=[(3, "c")])
    assert ice.rows() == [(1, "a"), (2, "b"), (3, "c")]


def test_the_position_survives_the_expiry_of_our_snapshots_by_another_client(ice: Ice) -> None:
    ice.copy([(1, "a"), (2, "b")])
    ice.deliver(200, insert=[(3, "c")])
    ours = [each.snapshot_id for each in ice.theirs().metadata.snapshots]
    ice.compacted()
    ice.theirs().maintenance.expire_snapshots().by_ids(ours).commit()
    assert ice.standing().position == Lsn(200)
    assert read_at(ice, 250) == [(1, "a"), (2, "b"), (3, "c")]
    with pytest.raises(duckdb.CatalogException):
        read_at(ice, 150)
    ice.deliver(300, insert=[(4, "d")], delete=[1])
    assert ice.rows() == [(2, "b"), (3, "c"), (4, "d")]


def read_at(ice: Ice, at: int) -> list[Any]:
    """The table as `verify` reads it."""
    reader = ice.sink.reader(at)
    with closing(reader.connect()) as con:
        reader.attach(con, "lake")
        return con.execute("FROM lake.public.t ORDER BY id").fetchall()


def test_values_in_quarantine_of_a_table_that_did_not_land_are_taken_back_by_the_next_plan(ice: Ice) -> None:
    ice.copy([(1, "a")])
    sink = ice.sink
    attempt = ice.attempt(plan=sink.plan(), update=[(1, "b")]).with_misfits(ice.source, "odd")
    ice.compacted()
    assert attempt.commit(200).missed == {OID}
    sink.standings()  # as many do between two deliveries
    again = ice.attempt(plan=sink.plan(), update=[(1, "b")]).with_misfits(ice.source, "odd")
    again.commit(200)
    assert [row["value"] for row in ice.read(quarantine.NAME)] == ["odd"]


def test_values_in_quarantine_that_move_while_their_table_is_copied_again_are_settled_by_the_next_try(ice: Ice) -> None:
    ice.copy([(1, "a")])
    ice.attempt(insert=[(2, "b")]).with_misfits(ice.source, "bad").commit(200)
    sink, of = ice.sink, relation()
    copy = sink.begin_copy([sink.new_mirror(MirrorSpec(of, kinds_of(of), T))], {})
    ice.compacted(quarantine.NAME)  # which may be another group's doing, too
    with pytest.raises(CommitConflict, match="another client has changed rows of main"):
        copy.commit({OID: Lsn(300)}, {})
    ice.copy([(2, "b")], at=300)
    assert [(row["value"], row["resolved_lsn"]) for row in ice.read(quarantine.NAME)] == [("bad", "0/12C")]


def test_a_table_that_is_not_the_quarantine_is_refused_every_time(ice: Ice) -> None:
    ice.stock.drop_table(tuple(quarantine.NAME))
    ice.stock.create_table(tuple(quarantine.NAME), pa.schema([pa.field("x", pa.int64())]))
    for _ in range(2):
        with pytest.raises(OperatorMustAct, match="not ours"):
            _ = ice.sink


def test_files_of_a_copy_that_has_landed_stay_whatever_fails_after_it(tmp_path: Path) -> None:
    with rest_catalog(tmp_path) as server, closing(IcebergAddress(server.properties).open("1/db/g", WAL)) as sink:
        of = {oid: relation(oid=oid, name=name) for oid, name in ((OID, T), (OTHER, U), (99, T))}
        for oid, replaced in ((OID, ()), (OTHER, ()), (99, (OID, OTHER))):
            server.accepted = 2 if replaced else None  # the ledger and the table: nothing after it
            spec = MirrorSpec(of[oid], kinds_of(of[oid]), of[oid].table, replaces=replaced)
            copy = sink.begin_copy([sink.new_mirror(spec)], {})
            reports = {rows_of(oid): written(copy.target, rows_of(oid), [(typed(of[oid], [(oid, "a")]), None)])}
            try:
                copy.commit({oid: Lsn(100)}, reports)
            except CommitConflict:  # as if nothing had landed
                copy.discard(reports)
        assert server.catalog.load_table(tuple(T)).scan().to_arrow().to_pylist() == [{"id": 99, "v": "a"}]


def test_a_plan_that_only_looks_leaves_the_values_of_a_delivery_that_is_about_to_land(ice: Ice) -> None:
    ice.copy([(1, "a")])
    attempt = ice.attempt(update=[(1, "b")]).with_misfits(ice.source, "odd")
    looking = ice.sink
    keep(lake_of(attempt), attempt.reports, {OID: Lsn(200)})  # the first half of a commit
    looking.plan()
    assert [row["value"] for row in ice.read(quarantine.NAME)] == ["odd"]


@pytest.mark.parametrize("name", ["../../outside", "a/b", "what?#", "100%25", "ein Name", "テーブル", "it's [x]*"])
def test_whatever_a_table_is_called_its_files_are_in_a_folder_of_its_own_below_the_warehouse(
    tmp_path: Path, name: str
) -> None:
    warehouse = tmp_path / "100% ware'house é"
    address = IcebergAddress({"type": "sql", "uri": f"sqlite:///{tmp_path}/i.sqlite", "warehouse": str(warehouse)})
    of = relation(name=TableName(name.replace(".", "-"), name))
    with closing(address.open("1/db/g", WAL)) as sink:
        bench = Bench(lambda *_: sink, lambda _: [])
        bench.copy([(1, "a"), (2, "b")], of=of)
        bench.deliver(200, of=of, update=[(1, "c")])
        location = sink.standings()[OID].table.metadata.location
        reader = sink.reader(200)
    folder = Path(location.removeprefix(f"{warehouse}/"))
    assert len(folder.parts) == 2
    assert re.fullmatch("[-A-Za-z0-9_]*", "".join(folder.parts))
    with closing(reader.connect()) as con:
        reader.attach(con, "lake")
        found = con.execute(f"FROM lake.{identifier(of.table.schema)}.{identifier(name)} ORDER BY id").fetchall()
    assert found == [(1, "c"), (2, "b")]


def test_a_warehouse_that_is_not_mounted_is_reported_as_lost_and_nothing_is_given_up(tmp_path: Path) -> None:
    warehouse = tmp_path / "warehouse"
    address = IcebergAddress({"type": "sql", "uri": f"sqlite:///{tmp_path}/i.sqlite", "warehouse": str(warehouse)})
    with closing(address.open("1/db/g", WAL)) as sink:
        Bench(lambda *_: sink, lambda _: []).copy([(1, "a")])
    warehouse.rename(tmp_path / "elsewhere")
    found = address.find("1/db/g", WAL)
    assert found is not None
    with closing(found):
        assert quarantine.NAME in found.lost()
    with closing(address.open("1/db/g", WAL)) as sink:  # as `run` does, which then asks what is lost
        assert quarantine.NAME in sink.lost()
        with pytest.raises(OperatorMustAct, match="metadata"):
            sink.reader(100)
    (tmp_path / "elsewhere").rename(warehouse)
    with closing(address.open("1/db/g", WAL)) as sink:
        assert sink.standings()[OID].position == Lsn(100)


def test_a_reader_goes_on_however_many_deliveries_come_meanwhile(ice: Ice) -> None:
    ice.copy([(1, "a")])
    with closing(ice.sink) as sink:
        reader = sink.reader(100)
    for at in range(200, 230):
        ice.deliver(at, insert=[(at, "later")])
    there = ice.standing()
    assert isinstance(there, IcebergStanding)
    assert (
        len(list(Path(there.table.metadata.location, "metadata").glob("*.metadata.json"))) <= 23
    )  # old ones are deleted
    with closing(reader.connect()) as con:
        reader.attach(con, "lake")
        assert con.execute("FROM lake.public.t").fetchall() == [(1, "a")]


def test_files_of_an_attempt_that_landed_stay_though_another_client_has_renamed_its_table(ice: Ice) -> None:
    ice.copy([(1, "a")])
    killed = ice.attempt(insert=[(2, "b")])
    assert isinstance(killed.delivery, IcebergDelivery)
    lake, marker = lake_of(killed), killed.delivery.target.attempt
    killed.commit(200)
    folder = Path(lake.attempts._folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / marker).write_text(json.dumps([ice.theirs().metadata.location]))  # as if the process had died here
    ice.stock.rename_table(tuple(T), tuple(U))
    ice.sink.collect()
    assert ice.rows(U) == [(1, "a"), (2, "b")]


def test_tables_that_duckdb_cannot_read_do_not_keep_others_from_being_queried(tmp_path: Path) -> None:
    address = IcebergAddress({"type": "sql", "uri": f"sqlite:///{tmp_path}/i.sqlite", "warehouse": f"{tmp_path}/w"})
    with closing(address.open("1/db/g", WAL)) as sink:
        Bench(lambda *_: sink, lambda _: []).copy([(1, "a")])
    with closing(load_catalog("default", **address.properties)) as stock:
        stock.create_table(("public", "T"), pa.schema([pa.field("id", pa.int64())]))  # DuckDB takes it for `t`
        stock.create_namespace(("nested", "deeper"))
        stock.create_table(("nested", "deeper", "t"), pa.schema([pa.field("id", pa.int64())]))
        broken = stock.create_table(("public", "broken"), pa.schema([pa.field("id", pa.int64())]))
        broken.append(pa.table({"id": [1]}))
        snapshot = broken.current_snapshot()
        assert snapshot is not None
        Path(snapshot.manifest_list).unlink()
        empty = stock.create_table(("public", "empty"), pa.schema([pa.field("id", pa.int64())]))
        assert empty.current_snapshot() is None
    queried = address.queried()
    with closing(duckdb_connect()) as con:
        queried.prepare(con)
        queried.attach(con, "lake")
        assert con.execute("FROM lake.public.t").fetchall() == [(1, "a")]
        assert con.execute("FROM lake.public.empty").fetchall() == []
        queried.files(con, "lake")


def test_a_mirror_that_another_client_drops_before_it_is_renamed_is_a_conflict(ice: Ice) -> None:
    ice.copy([(1, "a")])
    sink = ice.sink
    assert OID in sink.standings()
    ice.stock.drop_table(tuple(T))
    with pytest.raises(CommitConflict, match="another client"):
        sink.rename({OID: U})
    assert OID not in sink.standings()


BY = (PartitionBy("identity", "v"), PartitionBy("bucket", "id", 4))


def _opened_by_java(metadata: TableMetadata) -> bool:
    """Java's library refuses a table, also for a spec of its past, as `PartitionSpec.checkCompatibility` does."""
    by_id = {field.field_id: field for field in metadata.schema().fields}
    by_name = {field.name: field.field_id for field in metadata.schema().fields}
    fields = [field for spec in metadata.partition_specs for field in spec.fields]
    return all(
        field.source_id in by_id
        and field.transform.can_transform(by_id[field.source_id].field_type)
        and by_name.get(field.name, field.source_id) == field.source_id
        for field in fields
    )


def test_a_table_that_is_copied_again_keeps_its_columns_and_its_partitions(ice: Ice) -> None:
    ice.copy([(1, "a"), (2, "b")], partition_by=BY)
    before = ice.theirs().metadata
    ice.copy([(1, "a"), (3, "c")], at=200, partition_by=BY)
    now = ice.theirs().metadata
    assert (now.schema().fields, now.spec()) == (before.schema().fields, before.spec())
    assert len(now.partition_specs) == 1
    assert before.current_snapshot_id is not None
    assert sorted(ice.theirs().scan(snapshot_id=before.current_snapshot_id).to_arrow()["id"].to_pylist()) == [1, 2]


def test_every_reader_opens_a_table_that_is_copied_again_with_other_columns_and_partitions(ice: Ice) -> None:
    ice.copy([(1, "a"), (2, "b")], partition_by=BY)
    ice.deliver(150, update=[(1, "c")])
    wider = relation(column("id", "int4", 1), column("v", "text", 2), column("w", "text", 3))
    by_id = PartitionBy("bucket", "id", 4)
    ice.copy([(1, "a", "x"), (3, "c", "y")], at=200, of=wider, partition_by=(by_id, PartitionBy("truncate", "w", 1)))
    metadata = ice.theirs().metadata
    ids = {field.name: field.field_id for spec in metadata.partition_specs for field in spec.fields}
    assert ids == {"v": 1000, "id_bucket_4": 1001, "w_trunc_1": 1002}
    assert len(metadata.snapshots) == 3
    assert _opened_by_java(metadata)
    without = relation(column("id", "int4", 1), column("w_trunc_1", "text", 3))
    ice.copy([(1, "x"), (4, "y")], at=300, of=without, partition_by=(by_id,))
    metadata = ice.theirs().metadata
    assert _opened_by_java(metadata)
    assert [[field.name for field in spec.fields] for spec in metadata.partition_specs] == [["id_bucket_4"]]
    assert len(metadata.snapshots) == 1  # the others had files in partitions by columns that are gone
    ice.deliver(400, of=without, update=[(1, "z")])
    assert ice.rows() == [(1, "z"), (4, "y")]


def test_a_column_that_gets_the_name_of_a_partition_field_needs_another_copy(ice: Ice) -> None:
    ice.copy([(1, "a"), (2, "b")], partition_by=BY)
    named = relation(column("id", "int4", 1), column("v", "text", 2), column("id_bucket_4", "text", 3))
    with pytest.raises(CannotFollow, match="a column with the name of its partition field 'id_bucket_4'"):
        ice.sink.plan().evolved(named, kinds_of(named))
    ice.copy([(1, "a", "x")], at=200, of=named, partition_by=BY)
    assert _opened_by_java(ice.theirs().metadata)
    assert ice.rows() == [(1, "a", "x")]


def lost_data(table: Table) -> set[str]:
    return {task.file.file_path for task in table.scan().plan_files()}


def lost_deletes(table: Table) -> set[str]:
    return {each.file_path for task in table.scan().plan_files() for each in task.delete_files}


def lost_manifests(table: Table) -> set[str]:
    snapshot = table.current_snapshot()
    assert snapshot is not None
    return {each.manifest_path for each in snapshot.manifests(table.io)}


def lost_manifest_list(table: Table) -> set[str]:
    snapshot = table.current_snapshot()
    assert snapshot is not None
    return {snapshot.manifest_list}


def lost_metadata(table: Table) -> set[str]:
    return {table.metadata_location}


def lost_folder(table: Table) -> set[str]:
    return {str(path) for path in Path(table.location()).rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    "which", [lost_data, lost_deletes, lost_manifests, lost_manifest_list, lost_metadata, lost_folder]
)
def test_a_table_that_has_lost_files_is_found_and_can_be_copied_again(
    which: Callable[[Table], set[str]], tmp_path: Path
) -> None:
    address = IcebergAddress({"type": "sql", "uri": f"sqlite:///{tmp_path}/i.sqlite", "warehouse": f"{tmp_path}/w"})
    with ExitStack() as held:
        stock = held.enter_context(closing(load_catalog("default", **address.properties)))

        def read(name: TableName) -> list[dict[str, Any]]:
            found: list[dict[str, Any]] = stock.load_table(tuple(name)).scan().to_arrow().to_pylist()
            return found

        bench = Bench(lambda *to: held.enter_context(closing(address.open(*to))), read)
        bench.copy([(1, "a"), (2, "b")])
        bench.deliver(200, insert=[(3, "c")], delete=[1])
        for path in which(stock.load_table(tuple(T))):
            Path(path).unlink()
        sink = bench.sink
        assert OID not in sink.standings() or sink.lost(every_file=True).keys() == {T}  # `run --recopy` asks for both
        bench.copy([(5, "again")], at=300)
        assert bench.rows() == [(5, "again")]
        bench.deliver(400, insert=[(6, "on")], update=[(5, "changed")])
        assert bench.rows() == [(5, "changed"), (6, "on")]
        summary = stock.load_table(tuple(T)).metadata.snapshots[-1].summary
        assert summary is not None
        assert (summary["total-records"], summary["total-data-files"]) == ("2", "1")
        assert bench.sink.lost(every_file=True) == {}
        maintenance = bench.sink.maintenance()
        assert maintenance is not None
        maintenance.expire(T, timedelta(0))
        maintenance.remove_orphans(T, timedelta(0))
        assert bench.rows() == [(5, "changed"), (6, "on")]


def test_delete_files_have_the_partition_of_their_data_file_and_entries_keep_their_sequence_numbers(ice: Ice) -> None:
    ice.copy([(key, "ab"[key % 2]) for key in range(24)], partition_by=BY[:1])
    for step in range(10):  # one after the other, from the end to the beginning
        ice.deliver(200 + step, delete=[18 - 2 * step])
    ice.deliver(300, insert=[(100, "a"), (101, "b")])
    ice.deliver(301, delete=[101])  # one of two files in a manifest, which is written again
    table = ice.theirs()
    snapshot = table.current_snapshot()
    assert snapshot is not None
    written = {each.snapshot_id: each.sequence_number or 0 for each in table.metadata.snapshots}
    places: dict[str, tuple[int, Any]] = {}
    deletes = []
    for manifest in snapshot.manifests(table.io):
        for entry in manifest.fetch_manifest_entry(table.io):
            sequence = written[entry.snapshot_id or 0]
            assert entry.sequence_number == entry.file_sequence_number == sequence
            assert manifest.min_sequence_number <= sequence <= manifest.sequence_number
            file = entry.data_file
            if file.content == DataFileContent.DATA:
                places[file.file_path] = (file.spec_id, file.partition[0])
            else:
                deletes.append(file)
    assert sorted(value for _, value in places.values()) == ["a", "a", "b"]
    for file in deletes:
        of = file.lower_bounds[DELETED_PATH]
        assert of == file.upper_bounds[DELETED_PATH]
        assert places[of.decode()] == (file.spec_id, file.partition[0]) == (0, "a")
        rows = pq.read_table(file.file_path)
        assert rows["pos"].to_pylist() == sorted(rows["pos"].to_pylist())
        assert set(rows["file_path"].to_pylist()) == {of.decode()}
    assert sorted(file.record_count for file in deletes) == [1, 9]  # the first nine became one


def test_a_conflict_over_a_table_that_has_lost_files_is_a_conflict_too(tmp_path: Path) -> None:
    with rest_catalog(tmp_path) as server, closing(IcebergAddress(server.properties).open("1/db/g", WAL)) as sink:
        bench = Bench(
            lambda *_: sink, lambda name: server.catalog.load_table(tuple(name)).scan().to_arrow().to_pylist()
        )
        bench.copy([(1, "a")])
        for path in lost_manifest_list(server.catalog.load_table(tuple(T))):
            Path(path).unlink()
        server.accepted = 1  # the ledger, and nothing after it
        with pytest.raises(CommitConflict):
            bench.copy([(2, "b")], at=200)
        server.accepted = None
        bench.copy([(2, "b")], at=300)
        assert bench.rows() == [(2, "b")]
