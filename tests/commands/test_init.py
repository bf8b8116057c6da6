"""`headwater init` writes a config that runs, and says of every other table why it is not in it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from click.testing import CliRunner, Result

from headwater.commands.cli import cli
from headwater.config import Config, DuckLake
from headwater.config.starting import group_name
from headwater.testing.postgres import EmbeddedPostgres

ODD = [
    'Odd "name"',
    "it's",
    "a.b",
    "${HOME}",
    "$${x:-y}",
    "tab\there",
    "new\nline",
    "#hash: x",
    "größe 🎁",
    "*",
    "null",
    "\\",
    "x$y",
]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def init(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["init", *arguments])


def execute(url: str, *statements: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())


def tables(config: Config) -> list[str]:
    (group,) = config.groups.values()
    return [str(each.table) for each in group.tables]


def comments(file: Path = Path("headwater.yaml")) -> str:
    """What the comments under the tables say, as running text."""
    lines = file.read_text().split("    tables:")[1].splitlines()
    return " ".join(line.strip().removeprefix("#").strip() for line in lines if line.strip().startswith("#"))


@pytest.fixture
def shop(database: str) -> str:
    execute(
        database,
        "CREATE TABLE orders (id int PRIMARY KEY)",
        "CREATE TABLE customers (id int PRIMARY KEY)",
        "CREATE SCHEMA app",
        "CREATE TABLE app.events (id int, day date, PRIMARY KEY (id, day)) PARTITION BY RANGE (day)",
        *(
            f"CREATE TABLE app.events_{n} PARTITION OF app.events"
            f" FOR VALUES FROM ('2024-01-0{n}') TO ('2024-01-0{n + 1}')"
            for n in range(1, 6)
        ),
        "CREATE TABLE audited (id int)",
        "ALTER TABLE audited REPLICA IDENTITY FULL",
    )
    return database


def test_the_file_lists_the_tables_and_passes_the_check(shop: str) -> None:
    done = init(shop)
    assert (done.exit_code, done.stderr) == (0, "")
    config = Config.load(Path("headwater.yaml"), {})
    assert tables(config) == ["app.events", "public.audited", "public.customers", "public.orders"]
    assert config.source == shop
    assert list(config.groups) == [shop.split("/")[3].split("?")[0]]
    assert "wrote headwater.yaml: 4 tables to mirror; 5 tables left out, with the reason\n" in done.stdout
    assert "\n  headwater check " in done.stdout
    checked = CliRunner().invoke(cli, ["check"])
    assert (checked.exit_code, checked.stdout.splitlines()[-1]) == (0, "check: OK")


def test_the_lake_is_in_a_folder_of_its_own_unless_another_is_named(folder: Path, shop: str) -> None:
    for number, (lake, catalog, data) in enumerate(
        [
            ([], f"sqlite:///{folder}/data/lake.sqlite", f"{folder}/data/lake"),
            (
                ["--lake", "sqlite:///lakes/shop.sqlite"],
                f"sqlite:///{folder}/lakes/shop.sqlite",
                f"{folder}/lakes/shop",
            ),
            (["--lake", "sqlite:////srv/shop"], "sqlite:////srv/shop", "/srv/shop.files"),
            (["--lake", "./files"], f"sqlite:///{folder}/data/lake.sqlite", f"{folder}/files"),
            (["--lake", "s3://bucket/shop"], f"sqlite:///{folder}/data/lake.sqlite", "s3://bucket/shop"),
            (
                ["--lake", "postgresql://lake:pw%20x@db/lakes?schema=shop"],
                "postgresql://lake:pw%20x@db/lakes?schema=shop",
                f"{folder}/data/lake",
            ),
        ]
    ):
        done = init(shop, *lake, "-o", f"{number}.yaml")
        assert done.exit_code == 0, done.stderr
        assert "pw%20x" not in Path(f"{number}.yaml").read_text()
        assert ("export LAKE_PASSWORD=" in done.stdout) == ("postgresql" in catalog)
        config = Config.load(Path(f"{number}.yaml"), {"LAKE_PASSWORD": "pw x"})
        (made,) = config.lakes.values()
        assert isinstance(made, DuckLake)
        assert (made.catalog, made.data_path, config.log.path) == (catalog, data, f"{folder}/data/log")


def test_a_table_that_cannot_be_mirrored_is_a_comment_with_the_reason(shop: str) -> None:
    execute(
        shop,
        "CREATE TABLE keyless (id int)",
        "CREATE UNLOGGED TABLE scratch (id int PRIMARY KEY)",
        'CREATE TABLE twins (id int PRIMARY KEY, "A" int, a int)',
        'CREATE TABLE "Orders" (id int PRIMARY KEY)',
        "CREATE FOREIGN DATA WRAPPER nothing",
        "CREATE SERVER elsewhere FOREIGN DATA WRAPPER nothing",
        "CREATE FOREIGN TABLE remote (id int) SERVER elsewhere",
        "CREATE TABLE made_by_plpgsql (id int PRIMARY KEY)",
        "ALTER EXTENSION plpgsql ADD TABLE made_by_plpgsql",
        "CREATE VIEW seen AS SELECT * FROM orders",
    )
    assert init(shop).exit_code == 0
    assert tables(Config.load(Path("headwater.yaml"), {})) == [
        "app.events",
        'public."Orders"',
        "public.audited",
        "public.customers",
    ]
    said = comments()
    assert "- app.events_1 and 4 more: a partition of app.events, which is mirrored as a whole" in said
    assert "- public.keyless: has no primary key: once it is published" in said
    assert "hint: ALTER TABLE public.keyless REPLICA IDENTITY FULL;" in said
    assert "- public.scratch: is unlogged or temporary" in said
    assert "- public.remote: a foreign table, whose rows are not in the WAL of this server" in said
    assert "- public.made_by_plpgsql: belongs to the extension 'plpgsql'" in said
    assert '- public.orders: to a lake, its name is the same as that of public."Orders"' in said
    assert "'A' and 'a' for the same" in said
    assert "seen" not in said
    assert CliRunner().invoke(cli, ["check"]).exit_code == 0


def test_names_with_odd_characters_are_read_back_as_they_are(database: str) -> None:
    quoted = [name.replace('"', '""') for name in ODD]
    execute(database, *(f'CREATE TABLE "{name}" (id int PRIMARY KEY)' for name in quoted))
    execute(database, *(f'CREATE TABLE "{name} keyless" (id int)' for name in quoted))
    done = init(database)
    assert done.exit_code == 0, done.stderr
    (group,) = Config.load(Path("headwater.yaml"), {}).groups.values()
    assert {each.table.name for each in group.tables} == set(ODD)
    checked = CliRunner().invoke(cli, ["check"])
    assert (checked.exit_code, checked.stderr) == (0, "")


@pytest.fixture
def app(database: str) -> Iterator[str]:
    """The URL of a role that is named like the database, with a password that a URL must encode."""
    name = database.split("/")[3].split("?")[0]
    execute(
        database, f"CREATE ROLE {name} LOGIN REPLICATION PASSWORD 'p@ss:w/rd'", f"ALTER DATABASE {name} OWNER TO {name}"
    )
    execute(database, f"GRANT ALL ON SCHEMA public TO {name}")
    yield database.replace("postgres@", f"{name}:p%40ss%3Aw%2Frd@")
    execute(database, f"ALTER DATABASE {name} OWNER TO postgres", f"DROP OWNED BY {name}", f"DROP ROLE {name}")


@pytest.mark.parametrize("where", ["in front", "parameter"])
def test_the_password_is_not_in_the_file(app: str, where: str) -> None:
    given = app if where == "in front" else app.replace(":p%40ss%3Aw%2Frd@", "@") + "&password=p%40ss%3Aw%2Frd"
    execute(app, "CREATE TABLE orders (id int PRIMARY KEY)")
    done = init(given)
    assert done.exit_code == 0
    text = Path("headwater.yaml").read_text()
    assert re.search("p@ss|p%40ss|w/rd", text + done.output) is None
    assert "# The database to mirror. Its password is not in this file: set PGPASSWORD.\n" in text
    assert "\n  export PGPASSWORD=...  # the file does not have it\n" in done.stdout
    assert Config.load(Path("headwater.yaml"), {"PGPASSWORD": "p@ss:w/rd"}).source == given
    execute(app, "DROP TABLE orders")


def test_a_file_that_exists_is_left_alone(folder: Path) -> None:
    (folder / "headwater.yaml").write_text("precious")
    done = init("postgresql://stranger@127.0.0.1:1/shop")  # not even asked
    assert done.exit_code == 2
    assert done.stderr == (
        "error: the file 'headwater.yaml' exists\nhint: name another one with -o, or remove it first\n"
    )
    assert (folder / "headwater.yaml").read_text() == "precious"


def test_the_config_file_is_what_it_writes(folder: Path, shop: str) -> None:
    assert CliRunner().invoke(cli, ["-c", "shop.yaml", "init", shop]).exit_code == 0
    assert (folder / "shop.yaml").exists()
    done = init(shop, "-c", "a b.yaml")
    assert "\n  headwater -c 'a b.yaml' check " in done.stdout
    both = init(shop, "-c", "one.yaml", "-o", "two.yaml")
    assert (both.exit_code, "'two.yaml'" in both.stderr, "'one.yaml'" in both.stderr) == (2, True, True)


@pytest.mark.parametrize(
    ("arguments", "code", "reported"),
    [
        (["shop"], 2, "not a PostgreSQL URL (write postgresql://user@host/database)"),
        (["postgresql://a:t0p@secret@db/x"], 2, "not a libpq URL"),
        (["postgresql://app:t0psecret@127.0.0.1:1/shop"], 3, "cannot reach database 'shop' on 127.0.0.1:1"),
    ],
)
def test_a_url_that_leads_nowhere_writes_nothing(folder: Path, arguments: list[str], code: int, reported: str) -> None:
    done = init(*arguments)
    assert (done.exit_code, reported in done.stderr) == (code, True)
    assert "secret" not in done.stderr
    assert list(folder.iterdir()) == []


def test_a_lake_that_cannot_be_writes_nothing(folder: Path, shop: str) -> None:
    done = init(shop, "--lake", "mysql://db/lake")
    assert done.exit_code == 2
    assert "neither a folder nor an s3:// place: 'mysql://db/lake'" in done.stderr
    assert list(folder.iterdir()) == []
    assert init(shop, "-o", "nowhere/headwater.yaml").exit_code == 2


@pytest.mark.parametrize("name", ["null", "2024", "on"])
def test_a_database_with_a_name_that_yaml_reads_otherwise(postgres: EmbeddedPostgres, name: str) -> None:
    execute(postgres.url(), f'DROP DATABASE IF EXISTS "{name}"', f'CREATE DATABASE "{name}"')
    try:
        assert init(postgres.url(name)).exit_code == 0
        assert list(Config.load(Path("headwater.yaml"), {}).groups) == [name]
    finally:
        execute(postgres.url(), f'DROP DATABASE "{name}" WITH (FORCE)')


def test_tables_that_the_role_may_not_read_yet_are_listed_and_left_to_the_dbas_script(shop: str) -> None:
    execute(shop, "CREATE ROLE init_reader LOGIN")
    try:
        done = init(shop.replace("postgres@", "init_reader@"))
        assert done.exit_code == 0
        config = Config.load(Path("headwater.yaml"), {})
        assert tables(config) == ["app.events", "public.audited", "public.customers", "public.orders"]
        assert "check --sql  # a script for a DBA: 4 tables may not be read by this role yet\n" in done.stdout
    finally:
        execute(shop, "DROP ROLE init_reader")


def test_a_database_without_a_table_to_mirror_says_so(database: str) -> None:
    done = init(database)
    assert done.exit_code == 0
    assert "0 tables to mirror\n" in done.stdout
    assert "no table can be mirrored as it is" in done.stdout
    assert tables(Config.load(Path("headwater.yaml"), {})) == []


@pytest.mark.parametrize(
    ("database", "group"),
    [("shop", "shop"), ("My-Shop 2", "my_shop_2"), ("größe", "gr_e"), ("日本", "mirror"), ("x" * 63, "x" * 40)],
)
def test_the_group_is_named_after_the_database(database: str, group: str) -> None:
    assert group_name(database) == group
