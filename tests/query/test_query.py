"""SQL on the lakes, through a real DuckLake made by DuckDB itself."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from headwater.config import Config
from headwater.ducklake.extension import attach, connect
from headwater.ducklake.url import PostgresUrl, SqliteUrl, parse_lake_url
from headwater.errors import ConfigError, Unreachable
from headwater.query import query


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Config:
    """Lakes `main` and `other` with a few rows, and `later`, which does not exist yet."""
    folder = tmp_path_factory.mktemp("lakes")
    with connect() as con:
        for name in ("main", "other"):
            attach(con, SqliteUrl(f"{folder}/{name}.sqlite"), "lake", data_path=f"{folder}/{name}")
            con.execute("CREATE SCHEMA lake.public")
            con.execute("CREATE SCHEMA lake.raw")
            con.execute(f"CREATE TABLE lake.public.orders AS SELECT 1 AS id, '{name}' AS lake")
            con.execute("CREATE TABLE lake.raw.events AS SELECT 2 AS id")
            con.execute("CREATE TABLE lake.main.headwater_quarantine AS SELECT 'NaN' AS value")
            con.execute(f"CREATE TABLE lake.public.items AS SELECT i AS id, '{name}' AS lake FROM range(100) r(i)")
            con.execute("DETACH lake")
    lakes = "".join(
        f'  {n}: {{ducklake: "sqlite:///{n}.sqlite", data_path: {n}}}\n' for n in ("later", "main", "other")
    )
    (folder / "headwater.yaml").write_text(
        f"source: postgresql://db\nlog: log\nlakes:\n{lakes}groups: {{shop: {{lake: main, tables: [orders]}}}}\n"
    )
    return Config.load(folder / "headwater.yaml", {})


@pytest.mark.parametrize(
    ("sql", "rows"),
    [
        ("SELECT lake FROM public.orders", [("main",)]),
        ("SELECT lake FROM orders", [("main",)]),
        ("SELECT lake FROM main.public.orders", [("main",)]),
        ('SELECT lake FROM "main"."public"."orders"', [("main",)]),
        ("SELECT lake FROM MAIN . Public . Orders", [("main",)]),
        ("SELECT main.public.orders.lake FROM main.public.orders", [("main",)]),
        ("SELECT o.lake FROM other.public.orders AS o", [("other",)]),
        ("SELECT m.lake, o.lake FROM main.public.orders m JOIN other.public.orders o USING (id)", [("main", "other")]),
        # Their rows are in files, those of `orders` in the catalogs.
        (
            "SELECT min(m.lake), min(o.lake) FROM main.public.items m JOIN other.public.items o USING (id)",
            [("main", "other")],
        ),
        (
            "SELECT count(*), count(DISTINCT lake) FROM (FROM main.public.items UNION ALL FROM other.public.items)",
            [(200, 2)],
        ),
        ("SELECT id FROM raw.events", [(2,)]),
        ("SELECT value FROM main.headwater_quarantine", [("NaN",)]),
        ("SELECT value FROM main.main.headwater_quarantine", [("NaN",)]),
        ("SELECT value FROM other.main.headwater_quarantine", [("NaN",)]),
        ("SELECT id FROM main.raw.events", [(2,)]),
        ("SELECT lake FROM main.public.orders AT (VERSION => 3)", [("main",)]),
        ("SELECT count(*) > 2 FROM main.snapshots()", [(True,)]),
        ("SELECT count(*) > 2 FROM other.snapshots()", [(True,)]),
        ("SELECT 'main.public.orders' AS a -- main.public.orders", [("main.public.orders",)]),
        ("SELECT 'ü main.public.x', lake /* main.public.y */ FROM main.public.orders;", [("ü main.public.x", "main")]),
        ("FROM main.public.orders SELECT lake", [("main",)]),
        ("WITH main AS (SELECT 5 AS public) SELECT main.public FROM main", [(5,)]),
        ("SELECT 1 WHERE false", []),
        ("EXPLAIN SELECT 1", None),
        ("SHOW TABLES", None),
        ("DESCRIBE public.orders", None),
        ("SUMMARIZE main.public.orders", None),
    ],
)
def test_tables_are_found_by_schema_and_by_lake(
    config: Config, sql: str, rows: list[tuple[object, ...]] | None
) -> None:
    answer = query(config, sql, {})
    if rows is None:
        assert answer.rows
    else:
        assert answer.rows == rows


@pytest.mark.parametrize(
    "sql",
    [
        "INSERT INTO public.orders VALUES (3, 'x')",
        "DELETE FROM main.public.orders",
        "DROP TABLE public.orders",
        "CREATE TABLE public.x (i int)",
        "COPY (SELECT 1) TO '/tmp/headwater-should-not-exist.csv'",
        "ATTACH 'x.db'",
        "SET threads = 1",
        "SELECT 1; DELETE FROM public.orders",
        "CALL ducklake_expire_snapshots('lake_main', versions => [1])",
        "",
        "-- nothing",
    ],
)
def test_only_reading_is_allowed(config: Config, sql: str) -> None:
    before = Path(config.ducklakes["main"].catalog.removeprefix("sqlite:///")).read_bytes()
    with pytest.raises(ConfigError):
        query(config, sql, {})
    assert Path(config.ducklakes["main"].catalog.removeprefix("sqlite:///")).read_bytes() == before


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELEC 1", "syntax error"),
        ("SELECT * FROM public.nothing", "does not exist"),
        ("SELECT 'unterminated", "unterminated"),
        ("SELECT nonsense FROM public.orders", "nonsense"),
    ],
)
def test_a_mistake_in_the_sql_is_reported_in_duckdbs_words(config: Config, sql: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        query(config, sql, {})
    assert caught.value.exit_code == 2


def test_a_lake_that_does_not_exist_yet_matters_only_to_who_asks_it(config: Config) -> None:
    with pytest.raises(Unreachable, match="cannot open lake 'later'") as caught:
        query(config, "SELECT * FROM later.public.orders", {})
    assert "headwater run" in caught.value.hint
    assert not Path(config.ducklakes["later"].data_path).exists()


def test_a_lake_in_postgresql_can_be_asked_and_its_password_stays_hidden(tmp_path: Path, database: str) -> None:
    with connect() as con:
        attach(con, PostgresUrl(database, "books"), "lake", data_path=str(tmp_path / "lake"))
        con.execute("CREATE SCHEMA lake.public")
        con.execute("CREATE TABLE lake.public.t AS SELECT 7 AS i")
    catalogs = {"good": f"{database}&schema=books", "bad": "postgresql://app:hunter2@127.0.0.1:1/lakes?schema=books"}
    for name, catalog in catalogs.items():
        path = tmp_path / f"{name}.yaml"
        lakes = f'{{shop: {{ducklake: "{catalog}", data_path: lake}}}}'
        path.write_text(f"source: postgresql://db\nlog: log\nlakes: {lakes}\n")
    assert query(Config.load(tmp_path / "good.yaml", {}), "SELECT i FROM shop.public.t", {}).rows == [(7,)]
    with pytest.raises(Unreachable) as caught:
        query(Config.load(tmp_path / "bad.yaml", {}), "SELECT i FROM shop.public.t", {})
    assert "hunter2" not in str(caught.value)
    assert caught.value.__cause__ is None
    with psycopg.connect(database) as connection:  # nothing was made by asking
        schemas = connection.execute("SELECT nspname FROM pg_namespace WHERE nspname = 'shop'").fetchall()
    assert schemas == []


def test_a_catalogs_password_is_not_among_what_duckdb_shows(tmp_path: Path, database: str) -> None:
    catalog = database.replace("postgres@", "postgres:${LAKE_PASSWORD}@") + "&schema=books"
    (tmp_path / "headwater.yaml").write_text(
        f"source: postgresql://db\nlog: log\nlakes: {{shop: {{ducklake: '{catalog}', data_path: lake}}}}\n"
    )
    config = Config.load(tmp_path / "headwater.yaml", {"LAKE_PASSWORD": "hunter2"})
    url = parse_lake_url(config.ducklakes["shop"].catalog)
    assert isinstance(url, PostgresUrl)
    assert url.password == "hunter2"
    with connect() as con:
        attach(con, url, "lake", data_path=str(tmp_path / "lake"))
    for sql in ("FROM duckdb_databases()", "FROM duckdb_secrets()", "PRAGMA database_list"):
        assert "hunter2" not in str(query(config, sql, {}).rows)
