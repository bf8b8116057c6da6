"""A query reads the lakes and nothing else: no way leads to a file outside them, and none to writing."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pyarrow as pa
import pytest
from click.testing import CliRunner
from moto.server import ThreadedMotoServer
from pyarrow import fs
from pyiceberg.catalog import load_catalog
from tests.conftest import new_database

from headwater.commands.cli import cli
from headwater.config import Config
from headwater.ducklake.extension import attach, connect
from headwater.ducklake.url import LakeUrl, PostgresUrl, SqliteUrl
from headwater.files import S3
from headwater.query import query
from headwater.testing.postgres import EmbeddedPostgres

STEPS = """
    CREATE SCHEMA lake.public;
    CREATE TABLE lake.public.gone AS FROM range(100);
    DROP TABLE lake.public.gone;
    CALL ducklake_expire_snapshots('lake', older_than => now());
    CALL lake.set_option('data_inlining_row_limit', 0);
    CREATE TABLE lake.public.t (id BIGINT, v VARCHAR);
    INSERT INTO lake.public.t SELECT i, 'v' FROM range(100) r(i);
    INSERT INTO lake.public.t SELECT i, 'v' FROM range(100, 200) r(i);
    UPDATE lake.public.t SET v = 'x' WHERE id < 50;
    CALL lake.set_option('data_inlining_row_limit', 10);
    INSERT INTO lake.public.t VALUES (1000, 'inlined');
"""  # files to clean up, to merge and to rewrite, and rows to flush


class Place:
    """A folder with a config and a lake, next to files that are none of a query's business."""

    def __init__(self, folder: Path, url: LakeUrl, catalog: str) -> None:
        self.folder, self.url = folder, url
        with connect() as con:
            attach(con, url, "lake", data_path=f"{folder}/data")
            con.execute(STEPS)
        (folder / "secret.csv").write_text("secret\n42\n")
        (folder / "data/stray.parquet").write_text("not a file of the lake")
        with sqlite3.connect(folder / "other.sqlite") as other:
            other.execute("CREATE TABLE t (i)")
        other.close()
        lake = f"{{ducklake: '{catalog}', data_path: data}}"
        (folder / "headwater.yaml").write_text(f"source: postgresql://db\nlog: log\nlakes: {{shop: {lake}}}\n")

    def query(self, sql: str) -> tuple[int, str]:
        result = CliRunner().invoke(cli, ["-c", str(self.folder / "headwater.yaml"), "query", self.spelled(sql)])
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return result.exit_code, result.output

    def spelled(self, sql: str) -> str:
        data = next(path for path in sorted(self.folder.glob("data/public/t/*.parquet")) if "delete" not in path.name)
        conninfo = self.url.conninfo if isinstance(self.url, PostgresUrl) else "host=127.0.0.1 port=1"
        return sql.replace("{folder}", str(self.folder)).replace("{data}", str(data)).replace("{conninfo}", conninfo)

    def content(self) -> dict[str, str]:
        """All that is there: each file's hash, and each table of the catalog with its rows."""
        found = {
            str(path): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in self.folder.rglob("*")
            if path.is_file() and not path.name.endswith((".sqlite-wal", ".sqlite-shm"))
        }
        return found | (_rows(self.url.conninfo) if isinstance(self.url, PostgresUrl) else {})


def _rows(conninfo: str) -> dict[str, str]:
    with psycopg.connect(conninfo) as connection:
        tables = connection.execute(
            "SELECT format('%I.%I', schemaname, tablename) FROM pg_tables WHERE schemaname IN ('books', 'public')"
        ).fetchall()
        return {t: str(connection.execute(f"SELECT * FROM {t} AS t ORDER BY t::text").fetchall()) for (t,) in tables}


@pytest.fixture(scope="module")
def on_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Place:
    folder = tmp_path_factory.mktemp("sqlite")
    return Place(folder, SqliteUrl(f"{folder}/lake.sqlite"), "sqlite:///lake.sqlite")


@pytest.fixture(scope="module")
def on_postgres(tmp_path_factory: pytest.TempPathFactory, postgres: EmbeddedPostgres) -> Iterator[Place]:
    with new_database(postgres) as database:
        yield Place(tmp_path_factory.mktemp("postgres"), PostgresUrl(database, "books"), f"{database}&schema=books")


WAYS = [
    # write a file
    "COPY (SELECT 1) TO '{folder}/made.csv'",
    "COPY public.t TO '{folder}/data/made.parquet'",
    "EXPLAIN ANALYZE COPY (SELECT 1) TO '{folder}/made.csv'",
    "EXPLAIN ANALYZE COPY (SELECT 1) TO '{folder}/data/made.csv'",
    "EXPLAIN ANALYZE COPY (SELECT 1) TO '{data}'",
    "EXPLAIN (ANALYZE) COPY (SELECT 1) TO '{data}'",
    "explain /* (analyze) */ analyze -- it\n copy (SELECT 1) TO '{data}'",
    "EXPORT DATABASE '{folder}/made'",
    "ATTACH '{folder}/made.db' AS made",
    "SELECT * FROM enable_logging('QueryLog', storage => 'file', storage_path => '{folder}/data')",
    "PRAGMA enable_profiling = 'json'",
    # read a file that is not the lake's
    "SELECT * FROM read_text('/etc/passwd')",
    "SELECT * FROM read_csv('{folder}/secret.csv')",
    "FROM '{folder}/secret.csv'",
    "SELECT * FROM glob('{folder}/*')",
    "SELECT * FROM read_text('{folder}/data/stray.parquet')",
    "SELECT (SELECT count(*) FROM read_blob('{folder}/headwater.yaml'))",
    "DESCRIBE FROM read_csv('{folder}/secret.csv')",
    "SUMMARIZE FROM '{folder}/secret.csv'",
    "SELECT * FROM sniff_csv('{folder}/secret.csv')",
    "SELECT * FROM query('FROM read_text(''{folder}/secret.csv'')')",
    "SELECT getenv('HOME')",
    # other databases, past DuckDB's own locks
    "SELECT * FROM sqlite_scan('{folder}/other.sqlite', 't')",
    "CALL sqlite_attach('{folder}/other.sqlite')",
    "ATTACH '{folder}/other.sqlite' (TYPE sqlite)",
    "SELECT * FROM sqlite_query('__ducklake_metadata_shop', 'DELETE FROM ducklake_snapshot RETURNING 1')",
    "SELECT * FROM postgres_execute('__ducklake_metadata_shop', 'COMMIT; CREATE TABLE public.made (i int)')",
    "WITH a AS (SELECT * FROM system.main.POSTGRES_EXECUTE('__ducklake_metadata_shop', 'COMMIT; DROP TABLE x')) FROM a",
    "SELECT * FROM query('SELECT * FROM postgres_execute(''__ducklake_metadata_shop'', ''COMMIT; DROP TABLE x'')')",
    "SELECT * FROM json_execute_serialized_sql(json_serialize_sql('FROM postgres_execute(''x'', ''y'')'))",
    "SELECT * FROM postgres_query('__ducklake_metadata_shop', 'SELECT pg_read_file(''/etc/hostname'')')",
    "SELECT * FROM postgres_scan('{conninfo}', 'pg_catalog', 'pg_authid')",
    # DuckDB itself
    "INSTALL spatial",
    "LOAD spatial",
    "SET enable_external_access = true",
    "RESET lock_configuration",
    "PRAGMA threads = 1",
    "CREATE TABLE memory.main.made (i INTEGER)",
    "CREATE SECRET (TYPE s3)",
    "CHECKPOINT",
    "SELECT * FROM checkpoint('shop')",  # DuckLake would flush, merge, expire and delete
    # the lake
    "INSERT INTO public.t VALUES (1, 'made')",
    "EXPLAIN ANALYZE INSERT INTO public.t VALUES (1, 'made')",
    "UPDATE shop.public.t SET v = 'made'",
    "DELETE FROM public.t",
    "DROP TABLE public.t",
    "CREATE TABLE public.made (i INTEGER)",
    "CALL ducklake_expire_snapshots('shop', older_than => now())",
    "SELECT * FROM ducklake_expire_snapshots('shop', older_than => now())",
    "CALL ducklake_cleanup_old_files('shop', cleanup_all => true)",
    "SELECT * FROM ducklake_cleanup_old_files('shop', cleanup_all => true)",
    "SELECT * FROM ducklake_delete_orphaned_files('shop', cleanup_all => true)",
    "SELECT * FROM ducklake_merge_adjacent_files('shop')",
    "SELECT * FROM ducklake_rewrite_data_files('shop', delete_threshold => 0)",
    "SELECT * FROM ducklake_flush_inlined_data('shop')",
    "SELECT * FROM ducklake_set_option('shop', 'parquet_version', '2')",
    "SELECT * FROM shop.set_option('parquet_version', '2')",
    "SELECT * FROM ducklake_add_data_files('shop', 't', '{folder}/data/stray.parquet', schema => 'public')",
    "SELECT 1; DELETE FROM public.t",
]


# What the kind of catalog makes no difference to is tried with one of them.
TRIED = [("on_sqlite", way) for way in WAYS] + [("on_postgres", way) for way in WAYS if "shop" in way or "{con" in way]


@pytest.mark.parametrize(("where", "sql"), TRIED)
def test_every_way_to_write_or_to_read_elsewhere_is_refused(
    where: str, sql: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    place: Place = request.getfixturevalue(where)
    monkeypatch.chdir(tmp_path)
    before = place.content()
    code, reported = place.query(sql)
    assert code == 2, reported
    assert reported.startswith("error: ")
    assert "root:" not in reported
    assert place.content() == before
    assert list(tmp_path.iterdir()) == []


READS = [
    ("SELECT count(*) AS n FROM public.t", 201),
    ("SELECT count(*) AS n FROM public.t WHERE v = 'x'", 50),
    ("SELECT count(*) AS n FROM shop.public.t AT (VERSION => {last} - 1)", 200),
    ("SELECT count(*) AS n FROM shop.table_changes('t', {last}, {last}) WHERE change_type = 'insert'", 1),
    ("SELECT count(*) AS n FROM ducklake_table_changes('shop', 'public', 't', {last} - 1, {last})", 101),
    ("SELECT max(snapshot_id) - {last} AS n FROM shop.snapshots()", 0),
    ("SELECT count(*) AS n FROM ducklake_table_info('shop')", 1),
]


def _last(config: Config, env: dict[str, str]) -> int:
    return int(query(config, "SELECT max(snapshot_id) FROM shop.snapshots()", env).rows[0][0])


@pytest.mark.parametrize("where", ["on_sqlite", "on_postgres"])
def test_all_of_the_lake_can_be_read(where: str, request: pytest.FixtureRequest) -> None:
    place: Place = request.getfixturevalue(where)
    config = Config.load(place.folder / "headwater.yaml", {})
    last = _last(config, {})
    for sql, expected in READS:
        assert query(config, sql.replace("{last}", str(last)), {}).rows == [(expected,)], sql
    for sql in ("EXPLAIN ANALYZE SELECT * FROM public.t", "EXPLAIN (FORMAT json) (SELECT 1)", "SUMMARIZE public.t"):
        assert query(config, sql, {}).rows


@pytest.fixture(scope="module")
def s3() -> Iterator[S3]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    yield S3("key", "secret", endpoint=f"http://{host}:{port}")
    server.stop()


def test_a_lake_in_s3_is_read_and_its_bucket_is_not(s3: S3, tmp_path: Path, database: str) -> None:
    assert s3.endpoint
    env = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_ENDPOINT_URL": s3.endpoint}
    bucket = fs.S3FileSystem(
        access_key="key", secret_key="secret", scheme="http", endpoint_override=s3.host, allow_bucket_creation=True
    )
    bucket.create_dir("lakes")
    with bucket.open_output_stream("lakes/secret.csv") as stream:
        stream.write(b"secret")
    with connect() as con:
        attach(con, PostgresUrl(database, "books"), "lake", data_path="s3://lakes/one", s3=s3)
        con.execute(STEPS)
    lake = f"{{ducklake: '{database}&schema=books', data_path: 's3://lakes/one'}}"
    (tmp_path / "headwater.yaml").write_text(f"source: postgresql://db\nlog: log\nlakes: {{shop: {lake}}}\n")
    config = Config.load(tmp_path / "headwater.yaml", {})
    last = _last(config, env)
    for sql, expected in READS:
        assert query(config, sql.replace("{last}", str(last)), env).rows == [(expected,)], sql
    before = _objects(bucket)
    for sql in (
        "SELECT * FROM read_text('s3://lakes/secret.csv')",
        "SELECT * FROM glob('s3://lakes/*')",
        "EXPLAIN ANALYZE COPY (SELECT 1) TO 's3://lakes/one/made.csv'",
        "SELECT * FROM ducklake_cleanup_old_files('shop', cleanup_all => true)",
        "SELECT * FROM ducklake_flush_inlined_data('shop')",
    ):
        done = CliRunner(env=env).invoke(cli, ["-c", str(tmp_path / "headwater.yaml"), "query", sql])
        assert (done.exit_code, done.output[:7]) == (2, "error: "), done.output
    assert _objects(bucket) == before


def _objects(bucket: fs.FileSystem) -> set[tuple[str, int]]:
    return {(each.path, each.size) for each in bucket.get_file_info(fs.FileSelector("lakes", recursive=True))}


OF_ICEBERG = [
    *("COPY public.t TO '{folder}/data/made.parquet'", "EXPLAIN ANALYZE COPY (SELECT 1) TO '{folder}/data/made.csv'"),
    *("INSERT INTO public.t VALUES (1)", "DELETE FROM shop.public.t", "DROP VIEW public.t"),
    *("SELECT * FROM read_csv('{folder}/secret.csv')", "SELECT * FROM glob('{folder}/data/*')"),
    *("SELECT * FROM iceberg_scan('{folder}/data/public/gone')", "SELECT * FROM read_avro('{folder}/secret.csv')"),
    "SELECT * FROM sqlite_scan('{folder}/ice.sqlite', 'iceberg_tables')",
]


def test_an_iceberg_lake_is_read_and_nothing_else(tmp_path: Path) -> None:
    properties = {"type": "sql", "uri": f"sqlite:///{tmp_path}/ice.sqlite", "warehouse": f"{tmp_path}/data"}
    with closing(load_catalog("default", **properties)) as catalog:
        catalog.create_namespace("public")
        for name in ("t", "gone"):
            rows = pa.table({"id": range(200)})
            catalog.create_table(f"public.{name}", rows.schema).append(rows)
        catalog.drop_table("public.gone")
    (tmp_path / "secret.csv").write_text("secret\n42\n")
    file, lake = tmp_path / "headwater.yaml", f"{{iceberg: {json.dumps(properties)}}}"
    file.write_text(f"source: postgresql://db\nlog: log\nlakes: {{shop: {lake}}}\n")
    assert query(Config.load(file, {}), "SELECT count(*) FROM shop.public.t", {}).rows == [(200,)]
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    for sql in OF_ICEBERG:
        done = CliRunner().invoke(cli, ["-c", str(file), "query", sql.replace("{folder}", str(tmp_path))])
        assert (done.exit_code, done.output[:7]) == (2, "error: "), (sql, done.output)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
