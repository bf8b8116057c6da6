"""An Iceberg lake under a mirror: tables land one by one, and other clients do what only Iceberg's can."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyiceberg.manifest import DataFileContent, ManifestContent, write_manifest_list
from pyiceberg.table import Table
from pyiceberg.types import LongType, StringType
from pyspark.sql import SparkSession
from tests.iceberg.restcatalog import TOKEN, RestCatalogServer, rest_catalog
from tests.interrupted import Act, Interrupted
from tests.mirror import IcebergMirror
from tests.proof.processes import headwater, headwater_json

from headwater import flow
from headwater.change import TableName
from headwater.errors import CommitError, Unreachable
from headwater.files import filesystem
from headwater.iceberg import snapshots
from headwater.iceberg.catalog import open_catalog
from headwater.iceberg.files import live_files
from headwater.iceberg.manifests import ManifestCache, Manifests, with_files
from headwater.iceberg.snapshots import FileChanges, next_snapshot
from headwater.iceberg.writing import DataFolder, write_delete_file
from headwater.lake import reading
from headwater.sink.iceberg.reader import ReadTable, load_iceberg, scan

OPEN = "SELECT value FROM lake.headwater_quarantine WHERE resolved_lsn IS NULL ORDER BY value"


@contextmanager
def interrupted(mirror: IcebergMirror, act: Act) -> Iterator[flow.Mirroring]:
    """The mirror, to which this happens before every commit."""
    sink: Any = Interrupted(mirror.m.sink, act)
    yield replace(mirror.m, sink=sink)


def filled(mirror: IcebergMirror) -> IcebergMirror:
    mirror.execute(
        *(f"CREATE TABLE {name} (id int PRIMARY KEY, item text, n numeric)" for name in ("orders", "other")),
        "INSERT INTO orders SELECT i, 'copied', i FROM generate_series(1, 50) i",
        "INSERT INTO other VALUES (1, 'copied', 'NaN'), (2, 'copied', 2)",
    )
    mirror.start()
    mirror.execute("INSERT INTO orders SELECT i, 'streamed', i FROM generate_series(51, 60) i")
    mirror.sync()
    return mirror


@pytest.fixture
def orders(iceberg_mirror: IcebergMirror) -> IcebergMirror:
    """Two tables in STREAMING; `orders` has two files, `other` a value in quarantine."""
    return filled(iceberg_mirror)


def change(mirror: IcebergMirror, turn: int = 0) -> None:
    mirror.transaction(
        f"UPDATE orders SET item = 'changed', n = 'NaN' WHERE id IN ({1 + turn}, {51 + turn})",
        f"DELETE FROM orders WHERE id IN ({11 + turn}, {56 + turn})",
        f"INSERT INTO orders VALUES ({100 + turn}, 'new', 1)",
        f"INSERT INTO other VALUES ({100 + turn}, 'new', 'Infinity')",
    )
    mirror.captured()


def states(mirror: IcebergMirror) -> dict[str, tuple[str, str]]:
    return {row.source.name: (row.state, row.error or "") for row in mirror.m.state.tables("g")}


def assert_whole(mirror: IcebergMirror) -> None:
    """Lake and source are equal, and so is the quarantine, without anything twice."""
    for name in ("orders", "other"):
        assert mirror.ask(f"SELECT id, item, n FROM lake.public.{name} ORDER BY id") == mirror.rows_of(
            f"SELECT id, item, CASE WHEN n < 'Infinity' THEN n END FROM {name} ORDER BY id"
        )
    misfits = "SELECT n::text FROM {} WHERE n >= 'Infinity'"
    expected = mirror.rows_of(f"{misfits.format('orders')} UNION ALL {misfits.format('other')} ORDER BY 1")
    assert mirror.ask(OPEN) == expected


def test_a_table_that_others_changed_meanwhile_comes_up_with_the_next_delivery(orders: IcebergMirror) -> None:
    change(orders)
    with interrupted(orders, lambda: orders.table("orders").delete("id = 20")) as m:
        done = flow.deliver(m)
    oids = {row.source.name: row.oid for row in orders.m.state.tables("g")}
    assert done.landed.keys() == {oids["other"]}
    orders.execute("DELETE FROM orders WHERE id = 20")
    assert states(orders) == {"orders": ("STREAMING", ""), "other": ("STREAMING", "")}
    orders.sync()
    assert_whole(orders)
    assert [each.ok for each in orders.verify()] == [True, True]
    flow.tidy(orders.m)
    assert orders.files() == orders.known_files()


def compacted(mirror: IcebergMirror) -> None:
    """Other files, the same rows."""
    table = mirror.table("orders")
    table.overwrite(table.scan().to_arrow())


def test_a_truncate_that_meets_a_compaction_leaves_no_row(orders: IcebergMirror) -> None:
    orders.transaction("TRUNCATE orders", "INSERT INTO orders VALUES (1, 'after', 1)")
    orders.captured()
    with interrupted(orders, lambda: compacted(orders)) as m, suppress(CommitError):
        flow.deliver(m)
    orders.sync()
    assert_whole(orders)


def test_a_copy_that_meets_a_compaction_has_no_row_twice(orders: IcebergMirror) -> None:
    orders.execute("ALTER TABLE orders ADD more int DEFAULT 5")
    orders.looked()
    orders.sync()
    with interrupted(orders, lambda: compacted(orders)) as m:
        flow.copy(m)
    orders.settle()
    assert_whole(orders)


def test_rows_that_others_append_or_delete_are_drift_that_verify_reports(orders: IcebergMirror) -> None:
    orders.ask("INSERT INTO lake.public.orders VALUES (-1, 'theirs', NULL)")
    orders.table("orders").delete("id = 20")
    change(orders)
    orders.sync()
    orders.stop_capture()
    ours, other = orders.verify()
    assert (ours.ok, other.ok) == (False, True)
    assert {int(json.loads(each.key)["id"]) for each in ours.differences} == {-1, 20}
    orders.capture()
    orders.execute("UPDATE orders SET item = 'healed' WHERE id = 20", "INSERT INTO orders VALUES (-1)")
    orders.execute("UPDATE orders SET item = 'ours' WHERE id = -1")
    orders.sync()
    orders.execute("UPDATE orders SET n = 1 WHERE id = -1")
    orders.sync()
    assert_whole(orders)


def renamed(mirror: IcebergMirror) -> None:
    with mirror.other_client() as catalog:
        catalog.rename_table(("public", "orders"), ("public", "theirs"))


def dropped(mirror: IcebergMirror) -> None:
    mirror.drop_in_lake("orders")


def upgraded(mirror: IcebergMirror) -> None:
    """To format 3, which PyIceberg cannot do yet: by hand."""
    old = mirror.table("orders").metadata_location.removeprefix("file://")
    metadata = json.loads(Path(old).read_text()) | {"format-version": 3, "next-row-id": 1000}
    new = Path(old).with_name("90000-upgraded.metadata.json")
    new.write_text(json.dumps(metadata))
    with closing(sqlite3.connect(mirror.catalog_file)) as catalog, catalog:
        catalog.execute("UPDATE iceberg_tables SET metadata_location = ? WHERE table_name = 'orders'", (str(new),))


def deleted_by_equality(mirror: IcebergMirror) -> None:
    table, cache = mirror.table("orders"), ManifestCache()
    live, *_ = live_files(table, cache)
    folder = DataFolder(filesystem(table.location()), table.location(), "e" * 32)
    file = snapshots._data_file(write_delete_file(folder, live, [0]))  # type: ignore[arg-type]
    file._data[0] = DataFileContent.EQUALITY_DELETES
    new = next_snapshot(table, table.schema(), FileChanges(), {}, cache)
    to = Manifests(table, table.schema(), cache, new.id, "equality")
    manifests = [*with_files(to, ManifestContent.DELETES, [file]), *to.current()]
    sequence = table.metadata.next_sequence_number()
    with write_manifest_list(2, table.io.new_output(new.written[-1]), new.id, None, sequence, "deflate") as writer:
        writer.add_manifests(manifests)
    with closing(open_catalog(mirror.properties, frozenset(), create=False)) as catalog:
        catalog.commit(table, new.requirements, new.updates)


@pytest.mark.parametrize("meanwhile", [False, True], ids=["before", "meanwhile"])
@pytest.mark.parametrize(
    ("act", "reason"),
    [
        (renamed, "the lake has no table public.orders any more"),
        (dropped, "the lake has no table public.orders any more"),
        (upgraded, "another client has made public.orders a table of format 3"),
        (deleted_by_equality, "another client has written equality deletes to public.orders"),
    ],
)
def test_what_others_make_of_a_table_stops_it_alone(
    orders: IcebergMirror, act: Any, reason: str, meanwhile: bool
) -> None:
    change(orders)
    if meanwhile:
        with interrupted(orders, lambda: act(orders)) as m, suppress(CommitError):
            flow.deliver(m)
    else:
        act(orders)
        orders.reopen()
    orders.sync()
    orders.execute("INSERT INTO other VALUES (3, 'goes on', 3)", "INSERT INTO orders VALUES (300, 'waits', 3)")
    orders.sync()
    state, error = states(orders)["orders"]
    assert state == "ERRORED"
    assert reason in error
    assert "hint: " in error
    assert states(orders)["other"] == ("STREAMING", "")
    assert orders.ask("SELECT count(*) FROM lake.public.other") == orders.rows_of("SELECT count(*) FROM other")
    assert [value for (value,) in orders.ask(OPEN) if value == "Infinity"] == ["Infinity"]


def test_columns_that_others_alter_are_brought_back(iceberg_mirror: IcebergMirror) -> None:
    mirror = iceberg_mirror
    names = ("added", "renamed", "dropped", "widened")
    for name in names:
        mirror.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, item text, n int)", f"INSERT INTO {name} VALUES (1)")
    mirror.start()
    with mirror.table("added").update_schema() as update:
        update.add_column("more", StringType())
    with mirror.table("renamed").update_schema() as update:
        update.rename_column("item", "thing")
    with mirror.table("dropped").update_schema(allow_incompatible_changes=True) as update:
        update.delete_column("n")
    with mirror.table("widened").update_schema() as update:
        update.update_column("n", LongType())
    mirror.reopen()
    for name in names:
        mirror.execute(f"INSERT INTO {name} VALUES (2, 'new', 2)", f"UPDATE {name} SET n = 3 WHERE id = 1")
    mirror.settle()
    for name in names:
        assert mirror.ask(f"SELECT id, item, n FROM lake.public.{name} ORDER BY id") == [(1, None, 3), (2, "new", 2)]
    assert mirror.ask("SELECT more FROM lake.public.added") == [(None,), (None,)]  # the other client's column stays


class Rows:
    """A table's rows at each of its snapshots, as PostgreSQL had them."""

    def __init__(self, mirror: IcebergMirror, table: str) -> None:
        self.mirror, self.table = mirror, table
        self.had: dict[int, tuple[list[str], Counter[tuple[Any, ...]]]] = {}

    def record(self) -> None:
        cursor = self.mirror.source.execute(f"SELECT * FROM {self.table}")
        names = [column.name for column in cursor.description or ()]
        self.had[self._newest()] = (names, Counter(cursor.fetchall()))

    def check(self) -> None:
        """PyIceberg and DuckDB's own extension agree with it at every snapshot."""
        table = self.mirror.table(self.table)
        with reading.connect() as con:
            load_iceberg(con)
            for snapshot, (names, rows) in self.had.items():
                assert self._by_pyiceberg(table, snapshot) == (names, rows)
                assert self._by_duckdb(con, table, snapshot) == (names, rows)

    def _newest(self) -> int:
        snapshot = self.mirror.table(self.table).current_snapshot()
        assert snapshot is not None
        return snapshot.snapshot_id

    def _by_pyiceberg(self, table: Table, snapshot: int) -> tuple[list[str], Counter[tuple[Any, ...]]]:
        found = table.scan(snapshot_id=snapshot).to_arrow()
        return found.column_names, Counter(tuple(row.values()) for row in found.to_pylist())

    def _by_duckdb(
        self, con: duckdb.DuckDBPyConnection, table: Table, snapshot: int
    ) -> tuple[list[str], Counter[tuple[Any, ...]]]:
        found = con.execute(f"FROM {scan(ReadTable(table.metadata_location, snapshot))}")
        return [name for name, *_ in found.description or ()], Counter(found.fetchall())


STEPS = (
    "UPDATE t SET v = 'once' WHERE id % 2 = 0",
    "UPDATE t SET v = 'twice' WHERE id % 3 = 0",
    "DELETE FROM t WHERE id % 5 = 0",
    "ALTER TABLE t RENAME v TO word; UPDATE t SET word = 'renamed' WHERE id % 7 = 0",
    "ALTER TABLE t ADD more int; UPDATE t SET more = id WHERE id % 11 = 0",
    "ALTER TABLE t ALTER n TYPE bigint; UPDATE t SET n = 5000000000 WHERE id % 4 = 1",
    "ALTER TABLE t DROP word; INSERT INTO t SELECT i, 1, 2 FROM generate_series(9001, 9100) i",
    "ALTER TABLE t ADD word text; UPDATE t SET word = 'another column' WHERE id % 13 = 0",
    "UPDATE t SET id = -id WHERE id % 17 = 0",
    "DELETE FROM t WHERE id > 4000",
)


@pytest.mark.long
def test_others_read_every_snapshot_as_postgresql_had_it(iceberg_mirror: IcebergMirror) -> None:
    """Through thousands of position deletes, and changes of the schema."""
    mirror = iceberg_mirror
    mirror.execute("CREATE TABLE t (id int PRIMARY KEY, v text, n int)")
    mirror.execute("INSERT INTO t SELECT i, 'copied', i FROM generate_series(1, 8000) i")
    mirror.start()
    rows = Rows(mirror, "t")
    rows.record()
    for step in STEPS:
        mirror.execute(step)
        assert not mirror.settle()
        rows.record()
    newest = mirror.table("t").current_snapshot()
    assert newest is not None
    assert newest.summary is not None
    assert int(newest.summary.additional_properties["total-position-deletes"]) > 5000
    assert len(rows.had) == len(STEPS) + 1
    rows.check()
    assert mirror.verify()[0].ok


def test_values_in_quarantine_are_settled_when_they_are_gone_and_when_their_table_is_copied_again(
    orders: IcebergMirror,
) -> None:
    change(orders)
    orders.sync()
    assert orders.ask(OPEN) == [("Infinity",), ("NaN",), ("NaN",), ("NaN",)]
    orders.execute("UPDATE orders SET n = 1 WHERE id = 1", "DELETE FROM other WHERE id = 100")
    orders.execute("ALTER TABLE other ADD more int DEFAULT 5")
    assert orders.settle()
    assert_whole(orders)
    assert orders.ask(OPEN) == [("NaN",), ("NaN",)]
    count = "SELECT count(*) FILTER (WHERE resolved_lsn IS NOT NULL), count(*) FROM lake.headwater_quarantine"
    assert orders.ask(count) == [(3, 5)]


class RestMirror(IcebergMirror):
    """Into a REST catalog."""

    server: RestCatalogServer

    @property
    def properties(self) -> dict[str, str]:
        return self.server.properties

    @property
    def entry(self) -> str:
        return f"{{iceberg: {json.dumps(self.properties)}}}"

    @property
    def catalog_file(self) -> Path:
        return self.folder / "rest.sqlite"  # the server's own


@pytest.fixture
def in_rest(database: str, spark: SparkSession, tmp_path: Path) -> Iterator[RestMirror]:
    with rest_catalog(tmp_path) as server, closing(RestMirror(database, spark, tmp_path)) as mirror:
        mirror.server = server
        filled(mirror)
        yield mirror


def test_commits_whose_outcome_is_unknown_land_once(in_rest: RestMirror) -> None:
    mirror, unknown = in_rest, list[int]()
    for nth in range(4):  # the quarantine's commit, those of both tables, and none
        change(mirror, nth)
        mirror.server.answered, mirror.server.lose_answers = nth, 1
        try:
            flow.deliver(mirror.m)
        except CommitError:
            unknown.append(nth)
        mirror.server.answered = mirror.server.lose_answers = 0
        mirror.sync()
        assert_whole(mirror)
    assert unknown == [0, 1, 2]
    assert [each.ok for each in mirror.verify()] == [True, True]


def test_a_copy_whose_outcome_is_unknown_lands_once(in_rest: RestMirror) -> None:
    mirror = in_rest
    for nth in range(4):  # the quarantine's commits, the table's, and the ledger's
        mirror.execute(f"ALTER TABLE other ADD more_{nth} int DEFAULT 5")
        mirror.looked()
        mirror.sync()
        mirror.server.answered, mirror.server.lose_answers = nth, 1
        with suppress(CommitError):
            flow.copy(mirror.m)
        mirror.server.answered = mirror.server.lose_answers = 0
        mirror.settle()
        assert_whole(mirror)
    assert [each.ok for each in mirror.verify()] == [True, True]


def test_a_catalog_that_does_not_answer_is_asked_again_later(in_rest: RestMirror) -> None:
    mirror = in_rest
    for nth in (1, 2, 3):
        change(mirror, nth)
        mirror.server.unavailable = nth
        with suppress(Unreachable, CommitError):
            flow.deliver(mirror.m)
        mirror.server.unavailable = 0
        mirror.sync()
        assert_whole(mirror)


@pytest.mark.long
def test_the_commands_work_on_an_iceberg_lake(orders: IcebergMirror) -> None:
    orders.stop_capture()
    change_staged = "INSERT INTO orders VALUES (500, 'by the run', 1)"
    orders.execute(change_staged, "DELETE FROM orders WHERE id < 10")
    code, said = headwater(orders.file, "run", "--until-caught-up")
    assert code == 0, said
    assert_whole(orders)
    code, said = headwater(orders.file, "verify")
    assert code == 0, said
    assert "verify: OK (2 tables, 54 rows)" in said
    code, said = headwater(orders.file, "query", "SELECT count(*) AS c FROM main.public.orders")
    assert code == 0, said
    assert "52" in said
    code, found = headwater_json(orders.file, "status")
    assert code == 0, found
    (group,) = found["groups"]
    assert {each["state"] for each in group["tables"]} == {"STREAMING"}
    assert (group["snapshot_id"], bool(group["delivered_lsn"])) == (None, True)
    assert TOKEN not in json.dumps(found)


def test_files_that_are_gone_are_found_and_check_names_their_table(orders: IcebergMirror) -> None:
    name = TableName("public", "orders")
    assert orders.m.sink.lost(every_file=True) == {}
    for path in {each.path for each in live_files(orders.table("orders"), ManifestCache())}:
        Path(path).unlink()
    assert orders.m.sink.lost().keys() == {name}
    code, said = headwater(orders.file, "check")
    assert code == 4, said
    assert "has lost data files: of public.orders" in said
