"""The whole path on every kind of catalog and of storage: the first copy, all kinds of changes, and the proof."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import boto3
import duckdb
import pytest
from click.testing import CliRunner
from moto.server import ThreadedMotoServer
from pyarrow import fs
from pyspark.sql import SparkSession
from tests.mirror import IcebergMirror, Mirror

from headwater import flow
from headwater.change import TableName
from headwater.commands.cli import cli
from headwater.files import filesystem
from headwater.lake import reading
from headwater.sink.addresses import group_lake
from headwater.supervise.opening import mirroring, open_state
from headwater.supervise.readying import make_ready
from headwater.verify import Verified, verify


class Elsewhere(Mirror):
    """A mirror that finds S3 through the environment, as the program does."""

    def start(self, *tables: str | dict[str, Any], copy: bool = True) -> None:
        self.config = self.configure(*tables)
        state = open_state(self.config)
        make_ready(self.config, state)
        self.m = mirroring(self.config, os.environ, state, "g", self.spark)
        self.capture()
        if copy:
            flow.copy(self.m)

    def verify(self, tables: Iterable[str] = ()) -> list[Verified]:
        self.stop_capture()
        return verify(self.m, [TableName.parse(table) for table in tables], 30)

    def close(self) -> None:
        super().close()
        if hasattr(self, "m"):
            self.m.close()


def drive(mirror: Mirror) -> None:
    """Take the two tables all the way: copied, inserted into, changed in every way, emptied, verified."""
    mirror.execute(
        "CREATE TABLE orders (id bigint PRIMARY KEY, item text, amount numeric(10,2))",
        'CREATE TABLE "Odd Name" ("K" text, b int, v timestamptz, PRIMARY KEY (b, "K"))',
        "INSERT INTO orders SELECT i, 'item ' || i, i * 1.5 FROM generate_series(1, 3000) i",
        "INSERT INTO \"Odd Name\" SELECT 'k' || i, i, now() FROM generate_series(1, 20) i",
    )
    mirror.start("public.orders", 'public."Odd Name"')
    same(mirror)
    mirror.execute("INSERT INTO orders SELECT i, 'new', 1 FROM generate_series(3001, 3100) i")
    mirror.sync()
    same(mirror)
    mirror.transaction(
        "UPDATE orders SET item = 'changed', amount = NULL WHERE id % 7 = 0",
        "DELETE FROM orders WHERE id BETWEEN 10 AND 1500",  # more than the catalog holds: a delete file
        "UPDATE orders SET id = -id WHERE id > 3090",
        "INSERT INTO \"Odd Name\" VALUES ('', 1, NULL)",
        'UPDATE "Odd Name" SET b = b + 100 WHERE b > 15',
    )
    mirror.execute("UPDATE orders SET item = 'again' WHERE id BETWEEN 1 AND 1600")
    mirror.sync()
    same(mirror)
    mirror.execute("DELETE FROM orders WHERE id % 2 = 0", 'TRUNCATE "Odd Name"')
    mirror.execute("INSERT INTO \"Odd Name\" VALUES ('after', 1, now())")
    mirror.sync()
    same(mirror)
    verdicts = mirror.verify()
    assert [(each.table, each.ok, each.source_rows) for each in verdicts] == [
        ('public."Odd Name"', True, 1),
        ("public.orders", True, mirror.rows_of("SELECT count(*) FROM orders")[0][0]),
    ]


def same(mirror: Mirror) -> None:
    mirror.assert_equal("orders", '"Odd Name"')


def test_many_lakes_live_in_one_postgresql_database_each_in_its_schema(
    database: str, other_database: str, spark: SparkSession, tmp_path: Path
) -> None:
    """The first lake lives beside the tables it mirrors, the second mirrors another database into the same one."""
    (tmp_path / "two").mkdir()
    with (
        closing(Elsewhere(database, spark, tmp_path, f"{database}&schema=one")) as one,
        closing(Elsewhere(other_database, spark, tmp_path / "two", f"{database}&schema=Second%20lake")) as two,
    ):
        drive(one)
        one.execute("SELECT pg_drop_replication_slot('headwater_g')")  # slots are the server's, not the database's
        drive(two)
        schemas = "SELECT table_schema FROM information_schema.tables WHERE table_name = 'headwater_position'"
        assert sorted(one.rows_of(schemas)) == [("Second lake",), ("one",)]
        for mirror in (one, two):
            same(mirror)
            assert mirror.m.sink.standings().keys() == {row.oid for row in mirror.m.state.tables("g")}
            ours = "SELECT schema_name, table_name FROM duckdb_tables() WHERE database_name = 'lake' ORDER BY ALL"
            assert mirror.ask(ours) == [("main", "headwater_quarantine"), ("public", "Odd Name"), ("public", "orders")]


@pytest.fixture(scope="module")
def s3_server() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def bucket(s3_server: str, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> str:
    """A bucket, and the environment that leads to it, here and in Spark's workers."""
    settings = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_ENDPOINT_URL": s3_server}
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
        # What spark.executorEnv.* sets, were the session not there before the server: workers are given these.
        monkeypatch.setitem(spark.sparkContext.environment, name, value)
    host = s3_server.removeprefix("http://")
    fs.S3FileSystem(
        access_key="key", secret_key="secret", scheme="http", endpoint_override=host, allow_bucket_creation=True
    ).create_dir("lakes")
    return "s3://lakes"


def test_a_lake_and_a_log_in_s3(bucket: str, database: str, spark: SparkSession, tmp_path: Path) -> None:
    with closing(Elsewhere(database, spark, tmp_path, data=f"{bucket}/{tmp_path.name}/data")) as mirror:
        mirror.log = f"{bucket}/{tmp_path.name}/log"
        drive(mirror)
        assert names(f"{mirror.log}/segments")
        assert names(f"{mirror.log}/scratch") == []  # nothing is left behind after a batch
        assert not (tmp_path / "log").exists()
        assert not (tmp_path / "lake").exists()
        assert_small_deliveries_put_nothing(mirror)


def assert_small_deliveries_put_nothing(mirror: Mirror) -> None:
    """Not even for a moment: the bucket keeps every version of every object."""
    client = boto3.client("s3", region_name="us-east-1")
    client.put_bucket_versioning(Bucket="lakes", VersioningConfiguration={"Status": "Enabled"})

    def put() -> list[str]:
        found = client.list_object_versions(Bucket="lakes", Prefix=mirror.data.removeprefix("s3://lakes/"))
        return [each["VersionId"] for kind in ("Versions", "DeleteMarkers") for each in found.get(kind, ())]

    before = put()
    assert before
    mirror.capture()
    mirror.execute("INSERT INTO orders SELECT i, 'small', 1 FROM generate_series(9000, 9099) i")
    mirror.sync()
    mirror.execute(
        "UPDATE orders SET item = 'moved on' WHERE id % 100 = 1 OR id > 9050", "DELETE FROM orders WHERE id = 1"
    )
    mirror.sync()
    same(mirror)
    assert put() == before


class IcebergElsewhere(Elsewhere, IcebergMirror):
    """An Iceberg lake whose warehouse is anywhere, and with more properties."""

    more: Mapping[str, str] = {}

    @property
    def properties(self) -> dict[str, str]:
        return {"type": "sql", "uri": self.catalog, "warehouse": self.data, **self.more}

    @property
    def entry(self) -> str:
        return f"{{iceberg: {json.dumps(self.properties)}}}"

    def attached(self) -> duckdb.DuckDBPyConnection:
        con = reading.connect()
        queried = group_lake(self.config, os.environ, "g").queried()
        queried.prepare(con)
        queried.attach(con, "lake")
        return con


@pytest.mark.parametrize("keys", ["in the properties", pytest.param("in the environment", marks=pytest.mark.long)])
def test_an_iceberg_lake_in_s3(
    keys: str, bucket: str, database: str, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = f"{bucket}/{tmp_path.name}/warehouse"
    with closing(IcebergElsewhere(database, spark, tmp_path, f"sqlite:///{tmp_path}/ice.sqlite", data)) as mirror:
        if keys == "in the properties":
            names = {"AWS_ACCESS_KEY_ID": "s3.access-key-id", "AWS_SECRET_ACCESS_KEY": "s3.secret-access-key"}
            names["AWS_ENDPOINT_URL"] = "s3.endpoint"
            mirror.more = {name: os.environ[variable] for variable, name in names.items()}
            for variable in names:
                monkeypatch.delenv(variable)
                monkeypatch.delitem(spark.sparkContext.environment, variable)
        drive(mirror)
        assert not (tmp_path / "lake").exists()
        done = CliRunner().invoke(
            cli, ["-c", str(mirror.file), "query", "SELECT count(*) AS c FROM main.public.orders"]
        )
        assert done.exit_code == 0, done.output


def test_an_iceberg_lake_in_a_postgresql_catalog(
    database: str, other_database: str, spark: SparkSession, tmp_path: Path
) -> None:
    with closing(IcebergElsewhere(database, spark, tmp_path, other_database, str(tmp_path / "lake"))) as mirror:
        drive(mirror)


def test_the_keys_of_an_iceberg_lake_are_never_shown(database: str, spark: SparkSession, tmp_path: Path) -> None:
    with closing(
        IcebergElsewhere(database, spark, tmp_path, f"sqlite:///{tmp_path}/ice.sqlite", "s3://lakes/x")
    ) as mirror:
        mirror.more = {"s3.access-key-id": "key", "s3.secret-access-key": "open sesame"}
        mirror.more |= {"s3.endpoint": "http://127.0.0.1:1"}
        mirror.execute("CREATE TABLE t (id int PRIMARY KEY)")
        mirror.configure("public.t")
        done = CliRunner().invoke(cli, ["-c", str(mirror.file), "check"])
        assert done.exit_code == 3
        assert "s3://lakes/x" in done.output
        assert "sesame" not in done.output


def test_a_log_in_s3_and_a_lake_on_disk(bucket: str, database: str, spark: SparkSession, tmp_path: Path) -> None:
    with closing(Elsewhere(database, spark, tmp_path)) as mirror:
        mirror.log = f"{bucket}/{tmp_path.name}/log"
        drive(mirror)
        assert list((tmp_path / "lake").rglob("*.parquet"))
        assert not (tmp_path / "log").exists()


def names(path: str) -> list[str]:
    selector = fs.FileSelector(path.removeprefix("s3://"), recursive=True, allow_not_found=True)
    return [info.path for info in filesystem(path).get_file_info(selector) if info.type == fs.FileType.File]
