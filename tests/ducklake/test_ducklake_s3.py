"""A lake whose files are in S3: pyarrow writes them, DuckDB reads them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from lakebench import Bench, T
from moto.server import ThreadedMotoServer
from pyarrow import fs

from headwater.change import Lsn
from headwater.ducklake.extension import attach
from headwater.ducklake.model import Field
from headwater.ducklake.opening import open_lake
from headwater.ducklake.writing import TableFolder, write_data_file
from headwater.errors import ConfigError, Unreachable
from headwater.files import S3, filesystem
from headwater.lake.maintenance import MaintenancePolicy
from headwater.sink.ducklake.maintaining import DuckLakeMaintenance


@pytest.fixture(scope="module")
def s3() -> Iterator[S3]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    access = S3("key", "secret", endpoint=f"http://{host}:{port}")
    admin = fs.S3FileSystem(
        access_key="key", secret_key="secret", scheme="http", endpoint_override=access.host, allow_bucket_creation=True
    )
    admin.create_dir("lakes")
    yield access
    server.stop()


def test_a_lake_in_s3_is_written_and_read(s3: S3, duck: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    lake = open_lake(f"sqlite:///{tmp_path}/lake.sqlite", "s3://lakes/one", s3=s3)
    attach(duck, lake.url, "in_s3", s3=s3, read_only=True)
    bench = Bench(lake, duck, "in_s3")
    bench.create([(i, "a") for i in range(10)])
    bench.apply(insert=[(10, "b")], update={1: "u"}, delete=[2], inline_limit=0)
    snapshot = bench.apply(update={3: "u"}, delete=[4], inline_limit=0)
    held = dict.fromkeys((0, 5, 6, 7, 8, 9), "a") | {1: "u", 3: "u", 10: "b"}
    assert dict(bench.rows()) == held
    assert len(bench.rows(at=snapshot - 1)) == 10
    duck.execute("DETACH in_s3")


def test_files_that_were_never_committed_are_deleted_in_s3_too(s3: S3, tmp_path: Path) -> None:
    lake = open_lake(f"sqlite:///{tmp_path}/lake.sqlite", "s3://lakes/three", s3=s3)
    attempt = lake.begin("pg")
    column = Field(1, "id", "int64")
    for table in ("a", "b"):
        data = pa.table({"id": [1]})
        write_data_file(TableFolder(lake.filesystem, f"s3://lakes/three/public/{table}/", attempt), data, [column])
    assert lake.collect("pg") == 2
    found = lake.filesystem.get_file_info(fs.FileSelector("lakes/three", allow_not_found=True, recursive=True))
    assert [each.path for each in found if each.type == fs.FileType.File] == []


def test_the_environment_says_where_s3_is(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_ENDPOINT_URL": s3.endpoint or ""}
    assert S3.from_environment(environment) == s3
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    files = filesystem("s3://lakes/two")  # Arrow's own reading of it, as in a Spark worker
    with files.open_output_stream("lakes/two/file") as stream:
        stream.write(b"here")
    assert files.get_file_info("lakes/two/file").size == 4


def test_a_bucket_that_is_missing_is_named(s3: S3, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="s3://nowhere"):
        open_lake(f"sqlite:///{tmp_path}/lake.sqlite", "s3://nowhere/x", s3=s3)
    assert not (tmp_path / "lake.sqlite").exists()


def test_an_object_store_that_does_not_answer_is_unreachable(tmp_path: Path) -> None:
    with pytest.raises(Unreachable, match="s3://lakes/x"):
        open_lake(f"sqlite:///{tmp_path}/l.sqlite", "s3://lakes/x", s3=S3("k", "s", endpoint="http://127.0.0.1:1"))


def test_files_in_s3_are_merged_and_deleted_too(s3: S3, duck: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    lake = open_lake(f"sqlite:///{tmp_path}/lake.sqlite", "s3://lakes/merged", s3=s3)
    attach(duck, lake.url, "merged", s3=s3, read_only=True)
    bench = Bench(lake, duck, "merged")
    bench.create([(i, "a") for i in range(10)])
    for turn in range(6):
        bench.apply(insert=[(10 + turn, "b")], update={turn: "u"}, inline_limit=0)
    before, maintenance = {at: bench.rows(at=at) for at in range(1, 8)}, DuckLakeMaintenance(lake, "pg", Lsn)
    merging = maintenance.merging(T, MaintenancePolicy())
    assert merging is not None
    assert merging.commit([merging.writer.write(each) for each in merging.bins]).merged_files == 13
    assert {at: bench.rows(at=at) for at in range(1, 8)} == before
    with lake.catalog.transaction(write=True) as tx:
        tx.execute("UPDATE ducklake_files_scheduled_for_deletion SET schedule_start = '2020-01-01 00:00:00+00'")
    assert maintenance.remove_orphans(T, timedelta(0)).expired_files > 13
    found = lake.filesystem.get_file_info(fs.FileSelector("lakes/merged", recursive=True))
    assert sum(each.type == fs.FileType.File for each in found) == 3
    assert bench.rows() == before[7]
    duck.execute("DETACH merged")
