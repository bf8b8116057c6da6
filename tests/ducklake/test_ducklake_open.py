"""A lake is created when missing, recognised when there, and refused when it is not one we may write to."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from lakebench import COLUMNS, Bench, T, at

from headwater.change import Lsn
from headwater.ducklake.extension import connect
from headwater.ducklake.finding import known_lake
from headwater.ducklake.lake import Lake
from headwater.ducklake.model import PlannedCommit, TableChange
from headwater.ducklake.opening import open_lake
from headwater.ducklake.url import PostgresUrl, SqliteUrl, parse_lake_url
from headwater.errors import CommitUnknown, ConfigError, HeadwaterError, OperatorMustAct, Unreachable


def metadata(url: str, statement: str) -> list[tuple[object, ...]]:
    """Run SQL on the catalog behind everybody's back."""
    where = parse_lake_url(url)
    if isinstance(where, SqliteUrl):
        with sqlite3.connect(where.path) as connection:
            rows = connection.execute(statement).fetchall()
        connection.close()
        return rows
    with psycopg.connect(where.conninfo, autocommit=True) as pg:
        pg.execute(f'SET search_path TO "{where.schema}"')
        cursor = pg.execute(statement)
        return cursor.fetchall() if cursor.description else []


def test_a_lake_is_created_when_missing_and_found_again(lake_url: str, tmp_path: Path) -> None:
    data_path = str(tmp_path / "some" / "data")
    lake = open_lake(lake_url, data_path)
    assert lake.snapshot().id == 0
    lake.close()
    again = open_lake(lake_url, data_path + "//")
    assert (again.snapshot().id, again.positions("pg", Lsn), again.tables()) == (0, {}, {})
    again.close()
    assert metadata(lake_url, "SELECT value FROM ducklake_metadata WHERE key = 'data_inlining_row_limit'") == [("0",)]


def test_what_is_asked_at_once_is_of_one_moment(lake_url: str, tmp_path: Path) -> None:
    data_path = str(tmp_path / "data")
    with closing(open_lake(lake_url, data_path)) as lake, closing(open_lake(lake_url, data_path)) as other:
        with lake.at_once():
            before = lake.snapshot()
            new = other.commit(PlannedCommit(before, "pg", new_tables=(other.new_table(T, COLUMNS),)))
            with lake.at_once():
                assert lake.tables() == {}
            assert lake.snapshot() == before
            with pytest.raises(AssertionError, match="nothing is changed"):
                lake.begin("pg")
        assert (lake.snapshot().id, list(lake.tables())) == (new, [T])
        lake.begin("pg")


def test_processes_that_create_the_same_lake_at_once_all_end_well(lake_url: str, tmp_path: Path) -> None:
    program = (
        "import sys; from headwater.ducklake.opening import open_lake; open_lake(sys.argv[1], sys.argv[2]).snapshot()"
    )
    command = [sys.executable, "-c", program, lake_url, str(tmp_path / "data")]
    processes = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    assert [(process.communicate(timeout=60)[1], process.returncode) for process in processes] == [("", 0)] * 2
    assert metadata(lake_url, "SELECT count(*) FROM ducklake_snapshot") == [(1,)]
    assert metadata(lake_url, "SELECT count(*) FROM ducklake_metadata WHERE key = 'data_inlining_row_limit'") == [(1,)]


def test_a_lake_of_another_version_is_refused(bench: Bench, lake_url: str) -> None:
    metadata(lake_url, "UPDATE ducklake_metadata SET value = '1.1-dev1' WHERE key = 'version'")
    with pytest.raises(OperatorMustAct, match=r"version '1.1-dev1'"):
        open_lake(lake_url, bench.lake.data_path)


def test_an_encrypted_lake_is_refused(bench: Bench, lake_url: str) -> None:
    metadata(lake_url, "UPDATE ducklake_metadata SET value = 'true' WHERE key = 'encrypted'")
    with pytest.raises(OperatorMustAct, match="encrypted"):
        open_lake(lake_url, bench.lake.data_path)


def test_another_data_path_than_the_lakes_own_is_refused(bench: Bench, lake_url: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="elsewhere") as caught:
        open_lake(lake_url, str(tmp_path / "elsewhere"))
    assert bench.lake.data_path in caught.value.message


def test_the_same_data_path_may_be_spelled_relatively(
    bench: Bench, lake_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    open_lake(lake_url, "./data/../data").close()
    metadata(lake_url, "UPDATE ducklake_metadata SET value = 'data/' WHERE key = 'data_path'")
    open_lake(lake_url, bench.lake.data_path).close()


def test_a_data_path_that_cannot_be_written_is_named(lake_url: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(ConfigError, match=r"file/data.* is not writable"):
        open_lake(lake_url, str(tmp_path / "file" / "data"))


def test_a_catalog_file_that_cannot_be_created_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(ConfigError, match=r"file/lake\.sqlite"):
        open_lake(f"sqlite:///{tmp_path}/file/lake.sqlite", str(tmp_path / "data"))


@pytest.mark.parametrize("where", ["@127.0.0.1:1/db", "@127.0.0.1:1/db?schema=x&connect_timeout=2"])
def test_a_server_that_does_not_answer_is_unreachable_and_its_password_stays_secret(where: str, tmp_path: Path) -> None:
    with pytest.raises(Unreachable, match="does not answer") as caught:
        open_lake(f"postgresql://me:s3cr3t{where}", str(tmp_path / "data"))
    assert "s3cr3t" not in f"{caught.value}{caught.value.__cause__}"


def test_a_folder_or_database_that_is_no_longer_a_lake_is_refused(bench: Bench, lake_url: str) -> None:
    metadata(lake_url, "DROP TABLE ducklake_snapshot")
    with pytest.raises(OperatorMustAct, match="no longer the lake that was opened"):
        bench.lake.snapshot()


def test_a_known_lake_is_used_without_being_looked_at_first(bench: Bench, lake_url: str) -> None:
    bench.create([(1, "a")])
    known = Bench(known_lake(lake_url, bench.lake.data_path + "/"), bench.duck, bench.alias)
    known.apply(insert=[(2, "b")])
    assert bench.rows() == [(1, "a"), (2, "b")]
    known.lake.close()
    known_lake("postgresql://me@127.0.0.1:1/nowhere", "s3://nowhere/").close()


def test_a_known_lake_that_is_gone_is_missed_at_its_first_use(lake_url: str, tmp_path: Path) -> None:
    lake = known_lake(lake_url, str(tmp_path / "data"))
    with pytest.raises(HeadwaterError, match=r"no longer the lake that was opened|unable to open") as caught:
        lake.snapshot()
    assert caught.value.hint
    assert list(tmp_path.iterdir()) == []


def test_a_sqlite_catalog_that_is_away_for_a_while_is_unreachable_and_then_goes_on(tmp_path: Path) -> None:
    lake = open_lake(f"sqlite:///{tmp_path}/lake.sqlite", str(tmp_path / "data"))
    os.rename(tmp_path / "lake.sqlite", tmp_path / "away")
    with pytest.raises(Unreachable):
        lake.snapshot()
    assert not (tmp_path / "lake.sqlite").exists()  # no empty file was left in its place
    os.rename(tmp_path / "away", tmp_path / "lake.sqlite")
    assert lake.snapshot().id == 0


def test_a_sqlite_catalog_that_is_locked_for_a_moment_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "lake.sqlite"
    lake = open_lake(f"sqlite:///{path}", str(tmp_path / "data"))
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    timer = threading.Timer(0.3, other.execute, ["COMMIT"])
    started = time.monotonic()
    timer.start()
    new = lake.new_table(T, COLUMNS)
    assert lake.commit(PlannedCommit(lake.snapshot(), "pg", new_tables=(new,), changes=(TableChange(T),))) == 1
    assert time.monotonic() - started > 0.2
    timer.join()
    other.close()


@pytest.fixture
def postgres_lake(database: str, tmp_path: Path) -> Lake:
    """A lake that reaches its server through a link of its own, `tmp_path / "socket"`."""
    conninfo = psycopg.conninfo.conninfo_to_dict(database)
    (tmp_path / "socket").symlink_to(str(conninfo["host"]))
    return open_lake(f"postgresql://postgres@/{conninfo['dbname']}?host={tmp_path}/socket", str(tmp_path / "data"))


def hang_up(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as admin:
        admin.execute(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
            " WHERE datname = current_database() AND application_name = 'headwater'"
        )


def test_a_postgres_catalog_that_is_away_for_a_while_is_unreachable_and_then_goes_on(
    postgres_lake: Lake, database: str, tmp_path: Path
) -> None:
    new = postgres_lake.new_table(T, COLUMNS)
    commit = PlannedCommit(postgres_lake.snapshot(), "pg", new_tables=(new,), changes=(TableChange(T),))
    hang_up(database)
    assert postgres_lake.snapshot().id == 0  # a connection lost while idle goes unnoticed
    target = os.readlink(tmp_path / "socket")
    (tmp_path / "socket").unlink()
    hang_up(database)
    with pytest.raises(Unreachable):
        postgres_lake.commit(commit)
    with pytest.raises(Unreachable):
        postgres_lake.snapshot()
    (tmp_path / "socket").symlink_to(target)
    assert postgres_lake.commit(commit) == 1
    postgres_lake.close()


def test_a_connection_lost_during_commit_leaves_the_outcome_unknown(postgres_lake: Lake, database: str) -> None:
    with psycopg.connect(database, autocommit=True) as admin:  # the server hangs up while it commits
        admin.execute(
            "CREATE FUNCTION die() RETURNS trigger LANGUAGE plpgsql AS"
            " $$BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NULL; END$$"
        )
        admin.execute(
            "CREATE CONSTRAINT TRIGGER die AFTER INSERT ON headwater_position DEFERRABLE INITIALLY DEFERRED"
            " FOR EACH ROW EXECUTE FUNCTION die()"
        )
        new = postgres_lake.new_table(T, COLUMNS)
        commit = PlannedCommit(postgres_lake.snapshot(), "pg", new_tables=(new,), changes=(TableChange(T),))
        with pytest.raises(CommitUnknown):
            postgres_lake.commit(at(commit, 1, None, 5, T))
        admin.execute("DROP TRIGGER die ON headwater_position")
    assert postgres_lake.positions("pg", Lsn) == {}
    postgres_lake.commit(at(commit, 1, None, 5, T))
    assert postgres_lake.positions("pg", Lsn)[1].position == Lsn(5)
    postgres_lake.close()


def test_a_process_killed_before_commit_leaves_nothing(bench: Bench, lake_url: str) -> None:
    program = (
        "import sys; sys.path.insert(0, sys.argv[3])\n"
        "from lakebench import Bench; from headwater.ducklake.opening import open_lake\n"
        "Bench(open_lake(sys.argv[1], sys.argv[2]), None, '').create([(1, 'a')])"
    )
    command = [sys.executable, "-c", program, lake_url, bench.lake.data_path, str(Path(__file__).parent)]
    died = subprocess.run(command, env={**os.environ, "HEADWATER_FAILPOINT": "deliver.before-commit"}, check=False)
    assert died.returncode == -9
    assert (bench.lake.snapshot().id, bench.lake.tables()) == (0, {})
    bench.create([(1, "a")])
    assert bench.rows() == [(1, "a")]


def test_duckdb_is_loaded_without_touching_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with connect(threads=1) as con:
        assert con.execute("SELECT loaded FROM duckdb_extensions() WHERE extension_name = 'ducklake'").fetchall() == [
            (True,)
        ]
    assert list(tmp_path.iterdir()) == []


def test_urls_are_read_as_written_and_never_show_a_password() -> None:
    assert parse_lake_url("sqlite:////data/my%20lake.sqlite") == SqliteUrl("/data/my lake.sqlite")
    full = parse_lake_url("postgresql://me:p%40ss@db.example:5433/lakes?schema=our%20lake&sslmode=require")
    assert isinstance(full, PostgresUrl)
    assert psycopg.conninfo.conninfo_to_dict(full.conninfo) == {
        "user": "me",
        "password": "p@ss",
        "host": "db.example",
        "port": "5433",
        "dbname": "lakes",
        "sslmode": "require",
    }
    assert full.schema == "our lake"
    assert str(full) == "postgresql://me@db.example:5433/lakes?schema=our%20lake"
    assert "p@ss" not in repr(full)
    socket = parse_lake_url("postgresql://me@/lakes?host=/run/pg&schema=")
    assert isinstance(socket, PostgresUrl)
    assert (socket.schema, psycopg.conninfo.conninfo_to_dict(socket.conninfo)["host"]) == ("public", "/run/pg")


@pytest.mark.parametrize("url", ["mysql://x/y", "sqlite:///relative", "sqlite://", "postgresql://u:secret@h/db?nope=1"])
def test_urls_that_cannot_be_a_lake_are_refused(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_lake_url(url)
    assert "secret" not in str(caught.value)


def test_workers_can_read_and_write_files_without_loading_duckdb_or_libpq() -> None:
    program = (
        "import sys, headwater.ducklake.contents, headwater.ducklake.deletes, headwater.ducklake.writing\n"
        "print({'duckdb', 'psycopg', 'sqlite3', 'pyspark'} & set(sys.modules))"
    )
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert shown.strip() == "set()"


def test_a_lake_can_be_attached_as_it_was(bench: Bench) -> None:
    first = bench.create([(1, "a")])
    bench.apply(insert=[(2, "b")])
    with bench.lake.attached(read_only=True, snapshot=first) as (con, alias):
        assert con.execute(f"SELECT id FROM {alias}.public.t").fetchall() == [(1,)]
    with pytest.raises(OperatorMustAct, match="snapshot"), bench.lake.attached(snapshot=1000):
        pass
