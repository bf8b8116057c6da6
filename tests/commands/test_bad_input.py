"""Every problem is reported at once, with its name, the next move and the exit code that fits."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from click.testing import CliRunner

from headwater.commands.cli import cli
from headwater.config import Config
from headwater.ducklake.opening import open_lake
from headwater.supervise.opening import open_state
from headwater.supervise.readying import make_ready
from headwater.testing.postgres import EmbeddedPostgres
from tests.proof.processes import headwater

CONFIG, UNREACHABLE, OPERATOR = 2, 3, 4


class Folder:
    """A folder with a config, and `headwater` run in it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def config(
        self,
        source: str,
        *tables: str,
        log: str = "./log",
        catalog: str = "sqlite:///lake.sqlite",
        data: str = "./lake",
        more: str = "",
    ) -> None:
        (self.path / "headwater.yaml").write_text(
            f"source: {source}\nlog: {log}\nlakes: {{main: {{ducklake: '{catalog}', data_path: {data}}}}}\n"
            f"groups: {{g: {{tables: [{', '.join(tables) or 'public.orders'}]}}}}\n{more}"
        )

    def run(self, *arguments: str, hints: bool = True) -> tuple[int, str]:
        """The exit code, and what was given; with `hints`, each error must name the next move."""
        result = CliRunner().invoke(cli, ["-c", str(self.path / "headwater.yaml"), *arguments])
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        assert "Traceback" not in result.output
        if result.exit_code and hints:
            assert result.stderr.count("hint: ") == result.stderr.count("error: ") > 0, result.stderr
        return result.exit_code, result.stderr


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


@pytest.fixture
def shop(database: str) -> str:
    """A database with the table `orders`."""
    execute(database, "CREATE TABLE orders (id int PRIMARY KEY)")
    return database


@pytest.fixture(scope="module")
def cramped() -> Iterator[EmbeddedPostgres]:
    """A server with room for one slot, whose WAL is not logical."""
    with tempfile.TemporaryDirectory(prefix="headwater-pg-", ignore_cleanup_errors=True) as place:
        settings = {"wal_level": "replica", "max_replication_slots": "1", "max_wal_senders": "1", "fsync": "off"}
        server = EmbeddedPostgres(Path(place) / "pg", settings=settings).start()
        execute(server.url(), "CREATE TABLE orders (id int PRIMARY KEY)")
        yield server
        server.stop()


def execute(url: str, *statements: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement)


def socket(url: str) -> str:
    return str(psycopg.conninfo.conninfo_to_dict(url)["host"])


def test_a_good_config_is_well(folder: Folder, shop: str) -> None:
    folder.config(shop)
    assert folder.run("check") == (0, "")


@pytest.mark.parametrize("command", ["check", "run", "status", "verify"])
def test_an_unreachable_server(folder: Folder, command: str) -> None:
    folder.config("postgresql://app:t0psecret@127.0.0.1:1/shop")
    code, reported = folder.run(command)
    assert code == UNREACHABLE
    assert "cannot reach database 'shop' on 127.0.0.1:1" in reported
    assert "hint: start the server, or correct host and port in the URL" in reported
    assert "t0psecret" not in reported


@pytest.mark.parametrize(
    ("url", "reported"),
    [
        ("postgresql://postgres@/nowhere?host={}", 'database "nowhere" does not exist'),
        ("postgresql://stranger@/postgres?host={}", 'role "stranger" does not exist'),
    ],
)
def test_a_wrong_database_and_a_wrong_role(folder: Folder, postgres: EmbeddedPostgres, url: str, reported: str) -> None:
    folder.config(url.format(socket(postgres.url())))
    code, said = folder.run("check")
    assert code == CONFIG
    assert reported in said
    assert "hint: correct user, password or database in the URL" in said


def test_a_role_without_rights(folder: Folder, shop: str) -> None:
    role = f"weak_{shop.split('/')[3].split('?')[0]}"
    execute(shop, f"CREATE ROLE {role} LOGIN")
    try:
        folder.config(shop.replace("postgres@", f"{role}@"))
        code, reported = folder.run("run")
    finally:
        execute(shop, f"DROP OWNED BY {role}", f"DROP ROLE {role}")
    assert code == OPERATOR
    assert f"error: role '{role}' may not replicate\nhint: ALTER ROLE \"{role}\" REPLICATION" in reported
    assert f"and role '{role}' may not create it for these tables" in reported
    assert "error: table 'public.orders' may not be read" in reported


def test_a_server_that_is_not_made_for_it(folder: Folder, cramped: EmbeddedPostgres) -> None:
    execute(cramped.url(), "SELECT pg_create_physical_replication_slot('taken')")
    try:
        folder.config(cramped.url())
        code, reported = folder.run("check")
    finally:
        execute(cramped.url(), "SELECT pg_drop_replication_slot('taken')")
    assert code == OPERATOR
    assert (
        "has wal_level 'replica', not 'logical'\nhint: ALTER SYSTEM SET wal_level = 'logical'; then restart" in reported
    )
    assert "has 0 free replication slots" in reported
    assert "hint: raise max_replication_slots and restart the server" in reported


def test_room_for_the_slot_of_the_first_copy_is_needed_too(folder: Folder, cramped: EmbeddedPostgres) -> None:
    folder.config(cramped.url())
    code, reported = folder.run("check")
    assert code == OPERATOR
    assert "has 1 free replication slot, 2 are needed (max_replication_slots 1)" in reported
    assert "has 1 free WAL sender, 2 are needed (max_wal_senders 1)" in reported


def test_tables_that_cannot_be_mirrored(folder: Folder, shop: str) -> None:
    execute(shop, "CREATE VIEW seen AS SELECT * FROM orders", "CREATE TABLE keyless (id int)")
    folder.config(shop, "public.ordesr", "public.nothing_like_it", "public.seen", "public.keyless")
    code, reported = folder.run("check")
    assert code == OPERATOR
    assert "error: there is no table 'public.ordesr' in the source\nhint: did you mean public.orders?" in reported
    assert (
        "error: there is no table 'public.nothing_like_it' in the source\nhint: create it, or correct its name"
        in reported
    )
    assert "error: 'public.seen' is a view\nhint: name the table behind it instead" in reported
    assert "error: table 'public.keyless' has no primary key" in reported
    assert "hint: ALTER TABLE public.keyless REPLICA IDENTITY FULL;" in reported


def test_a_missing_table_alone_is_the_configs_fault(folder: Folder, shop: str) -> None:
    folder.config(shop, "public.ordesr")
    code, _ = folder.run("check")
    assert code == CONFIG


@pytest.mark.parametrize("place", ["log", "data", "catalog"])
def test_a_folder_that_cannot_be_written(folder: Folder, shop: str, place: str) -> None:
    (folder.path / "file").write_text("")  # below a file not even root can write
    folder.config(shop, **{place: "sqlite:///file/lake.sqlite" if place == "catalog" else "./file/below"})
    code, reported = folder.run("check")
    assert code == CONFIG
    name = {"log": "log", "data": "data_path", "catalog": "cannot create the catalog"}[place]
    assert f"{name} '{folder.path}/file/" in reported


def test_a_lake_that_is_not_ours_to_write(folder: Folder, shop: str) -> None:
    open_lake(f"sqlite:///{folder.path}/lake.sqlite", str(folder.path / "lake")).close()
    folder.config(shop, data="./elsewhere")
    code, reported = folder.run("check")
    assert code == CONFIG
    assert f"has its data in '{folder.path}/lake/', not in data_path '{folder.path}/elsewhere/'" in reported
    with sqlite3.connect(folder.path / "lake.sqlite") as catalog:
        catalog.execute("UPDATE ducklake_metadata SET value = '0.3' WHERE key = 'version'")
    catalog.close()
    folder.config(shop)
    for command in ("check", "run"):
        code, reported = folder.run(command)
        assert code == OPERATOR
        assert "has catalog version '0.3', Headwater writes '1.0'" in reported
        assert "hint: if it is older, attach it once with DuckDB" in reported


def test_a_catalog_that_is_no_database(folder: Folder, shop: str) -> None:
    (folder.path / "lake.sqlite").write_text("a letter to my aunt, much longer than the header of a database " * 20)
    folder.config(shop)
    code, reported = folder.run("check")
    assert code == OPERATOR
    assert "lake.sqlite" in reported


def test_an_unreachable_catalog(folder: Folder, shop: str) -> None:
    folder.config(shop, catalog="postgresql://lake:t0psecret@127.0.0.1:1/lakes?schema=main")
    code, reported = folder.run("check")
    assert code == UNREACHABLE
    assert "the catalog postgresql://lake@127.0.0.1:1/lakes?schema=main does not answer" in reported
    assert "t0psecret" not in reported


def test_several_problems_are_all_reported_and_the_gravest_decides(folder: Folder, shop: str) -> None:
    (folder.path / "file").write_text("")
    execute(shop, "CREATE TABLE keyless (id int)")
    dead = "postgresql://lake@127.0.0.1:1/lakes"
    folder.config(shop, "public.ordesr", "public.keyless", log="./file/log", catalog=dead)
    code, reported = folder.run("run")
    assert reported.count("error: ") == 4
    for part in ("'public.ordesr'", "'public.keyless'", "file/log'", "127.0.0.1:1"):
        assert part in reported
    assert code == OPERATOR


def test_typos_in_the_config_are_all_reported(folder: Folder) -> None:
    folder.config("postgresql://db/shop", more="spark: {mastr: local}\nsorce: x\nserver: {port: many}\n")
    code, reported = folder.run("run", hints=False)  # what a port must be, its message says
    assert code == CONFIG
    assert "unknown key 'sorce'\nhint: did you mean 'source'?" in reported
    assert "unknown key 'mastr'\nhint: did you mean 'master'?" in reported
    assert "server.port: should be a valid integer" in reported


@pytest.mark.parametrize("command", ["check", "run", "status", "verify"])
def test_a_missing_config(folder: Folder, command: str) -> None:
    code, reported = folder.run(command)
    assert code == CONFIG
    assert f"no config file '{folder.path}/headwater.yaml'" in reported


@pytest.mark.parametrize("arguments", [["status"], ["verify"], ["verify", "public.orders"]])
def test_a_config_that_has_never_run(folder: Folder, shop: str, arguments: list[str]) -> None:
    folder.config(shop)
    code, reported = headwater(folder.path / "headwater.yaml", *arguments)  # in a process: it must not end our Spark
    assert code == CONFIG
    assert "hint: start it with `headwater run`" in reported


def test_an_unknown_table_to_verify(folder: Folder, shop: str) -> None:
    folder.config(shop)
    config = Config.load(folder.path / "headwater.yaml", {})
    with closing(open_state(config)) as state:
        make_ready(config, state)
    code, reported = folder.run("verify", "public.ordres")
    assert code == CONFIG
    assert "error: table 'public.ordres' is not mirrored\nhint: did you mean public.orders?" in reported


@pytest.mark.long
def test_a_table_that_left_the_config_is_not_compared_and_does_not_fail(folder: Folder, shop: str) -> None:
    execute(shop, "CREATE TABLE gone (id int PRIMARY KEY)")
    folder.config(shop, "public.orders", "public.gone")
    config = Config.load(folder.path / "headwater.yaml", {})
    with closing(open_state(config)) as state:
        make_ready(config, state)
    folder.config(shop, "public.orders")
    code, reported = headwater(folder.path / "headwater.yaml", "verify")  # in a process: it must not end our Spark
    assert "public.gone: not compared: it is no longer in the config" in reported
    assert "public.orders: not compared: it has not been copied yet" in reported
    assert "verify: 1 of 2 tables could not be compared; no other table differs" in reported
    assert code == 1
    execute(shop, "DROP TABLE gone")
    code, reported = headwater(folder.path / "headwater.yaml", "verify", "public.gone")
    assert "verify: OK (0 tables, 0 rows; 1 not compared)" in reported
    assert code == 0


def test_run_says_at_once_that_it_will_start_spark(folder: Folder) -> None:
    folder.config("postgresql://app@127.0.0.1:1/shop")
    _, reported = folder.run("run")
    first, second, *_ = reported.splitlines()
    assert "checking the source and the lakes, then starting Spark, which takes some seconds" in first
    assert second.startswith("error: ")


def test_a_fresh_query_while_the_first_run_is_only_starting(folder: Folder, shop: str) -> None:
    folder.config(shop)
    with closing(open_state(Config.load(folder.path / "headwater.yaml", {}))) as state, state.lock("run:g"):
        code, reported = folder.run("query", "--fresh", "SELECT 1")
    assert code == UNREACHABLE
    assert "group 'g'" in reported


@pytest.mark.parametrize(
    ("arguments", "reported"),
    [
        (["chekc"], "No such command 'chekc'"),
        (["run", "--until-cought-up"], "No such option"),
        (["verify", "--timeout", "soon"], "'soon' is not a valid float"),
        (["status", "everything"], "unexpected extra argument"),
    ],
)
def test_wrong_usage(arguments: list[str], reported: str) -> None:
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == CONFIG
    assert reported in result.stderr
