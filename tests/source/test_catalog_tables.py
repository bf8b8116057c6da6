"""Tables by pattern in a real catalog: which there are, which of them cannot be mirrored, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.captured_group import execute

from headwater.config import Config
from headwater.control.expanding import Skipped, with_patterns, with_patterns_of
from headwater.postgres.connect import Connection, connect
from headwater.source.patterns import catalog_tables


@pytest.fixture
def connection(database: str) -> Iterator[Connection]:
    with closing(connect(database)) as opened:
        yield opened


def config(url: str, folder: Path, *entries: str, lake: str = "{ducklake: 'sqlite:///l', data_path: ./d}") -> Config:
    file = folder / "headwater.yaml"
    groups = f"{{g: {{tables: [{', '.join(entries)}]}}}}"
    file.write_text(f"source: {url}\nlog: ./log\nlakes: {{main: {lake}}}\ngroups: {groups}\n")
    return Config.load(file, {})


def expanded(url: str, folder: Path, *entries: str) -> tuple[list[str], list[Skipped]]:
    found, skipped = with_patterns(config(url, folder, *entries))
    return [str(each.table) for each in found.groups["g"].tables], skipped


def test_ordinary_and_partitioned_tables_can_match_and_nothing_else(database: str, connection: Connection) -> None:
    execute(
        database,
        "CREATE SCHEMA app",
        "CREATE SCHEMA headwater",
        "CREATE SCHEMA lake",
        "CREATE SCHEMA ice",
        "CREATE TABLE app.orders (id int PRIMARY KEY)",
        "CREATE TABLE app.parts (id int PRIMARY KEY) PARTITION BY RANGE (id)",
        "CREATE TABLE app.part PARTITION OF app.parts DEFAULT",
        "CREATE TABLE headwater.mine (id int PRIMARY KEY)",
        "CREATE TEMPORARY TABLE passing (id int PRIMARY KEY)",
        "CREATE UNLOGGED TABLE app.unlogged (id int PRIMARY KEY)",
        "CREATE VIEW app.view AS SELECT 1 AS id",
        "CREATE TABLE app.ducklake_ours (id int PRIMARY KEY)",
        "CREATE TABLE lake.ducklake_metadata (id int PRIMARY KEY)",
        "CREATE TABLE lake.ducklake_snapshot (id int PRIMARY KEY)",
        "CREATE TABLE lake.headwater_position (id int PRIMARY KEY)",
        "CREATE TABLE lake.orders (id int PRIMARY KEY)",
        "CREATE TABLE ice.iceberg_tables (id int PRIMARY KEY)",
        "CREATE TABLE ice.iceberg_namespace_properties (id int PRIMARY KEY)",
    )
    found = [str(each.name) for each in catalog_tables(connection)]
    assert found == ["app.orders", "app.parts", "app.unlogged", "app.ducklake_ours", "lake.orders"]


def test_tables_that_cannot_be_mirrored_are_left_out_with_the_remedy(database: str, tmp_path: Path) -> None:
    execute(
        database,
        "CREATE TABLE good (id int PRIMARY KEY)",
        "CREATE TABLE whole (id int)",
        "ALTER TABLE whole REPLICA IDENTITY FULL",
        "CREATE TABLE indexed (id int NOT NULL UNIQUE)",
        "ALTER TABLE indexed REPLICA IDENTITY USING INDEX indexed_id_key",
        "CREATE TABLE keyless (id int)",
        "CREATE TABLE late (id int PRIMARY KEY DEFERRABLE)",
        "CREATE TABLE nothing (id int PRIMARY KEY)",
        "ALTER TABLE nothing REPLICA IDENTITY NOTHING",
        "CREATE UNLOGGED TABLE unlogged (id int PRIMARY KEY)",
        'CREATE TABLE alike (id int PRIMARY KEY, "É" int, "é" int)',
        "CREATE TABLE reserved (id int PRIMARY KEY, rowid int)",
        "CREATE TABLE parts (id int PRIMARY KEY) PARTITION BY RANGE (id)",
        "CREATE TABLE part PARTITION OF parts DEFAULT",
        "ALTER TABLE part REPLICA IDENTITY NOTHING",
        "CREATE TABLE rooted (id int PRIMARY KEY) PARTITION BY RANGE (id)",
    )
    tables, skipped = expanded(database, tmp_path, "public.*")
    assert tables == ["public.good", "public.whole", "public.indexed", "public.rooted"]
    reasons = {str(each.table): each for each in skipped}
    assert list(reasons) == [
        f"public.{name}" for name in ("keyless", "late", "nothing", "unlogged", "alike", "reserved", "parts")
    ]
    keyless = reasons["public.keyless"]
    assert keyless.reason.startswith("has no primary key: once it is published")
    assert keyless.hint.startswith("ALTER TABLE public.keyless REPLICA IDENTITY FULL;")
    assert str(keyless).startswith("table 'public.keyless' matches a pattern of group 'g', and is not mirrored: has no")
    assert reasons["public.unlogged"].hint == "ALTER TABLE public.unlogged SET LOGGED"
    only, left = expanded(database, tmp_path, "{table: public.*, append_only: true, exclude: ['public.?a*']}")
    assert "public.keyless" in only
    assert [str(each.table) for each in left] == ["public.unlogged", "public.alike", "public.reserved"]


def test_the_older_of_two_tables_that_would_land_in_one_place_stays(database: str, tmp_path: Path) -> None:
    execute(
        database,
        *(f"CREATE SCHEMA {name}" for name in "ba"),
        *(f"CREATE TABLE {name}.orders (id int PRIMARY KEY)" for name in "ba"),
        "CREATE TABLE a.items (id int PRIMARY KEY)",
    )
    tables, (skipped,) = expanded(database, tmp_path, "{table: '?.*', as: raw.*}")
    assert tables == ["b.orders", "a.items"]
    assert (str(skipped.table), skipped.reason) == (
        "a.orders",
        "it would land in 'raw.orders' of lake 'main', as b.orders of group 'g' does",
    )


def test_a_pattern_without_tables_is_fine_and_one_needs_no_source_without_patterns(
    database: str, tmp_path: Path
) -> None:
    assert expanded(database, tmp_path, "app.*") == ([], [])
    assert expanded("postgresql://127.0.0.1:1/none", tmp_path, "public.a") == (["public.a"], [])


def test_what_a_role_may_not_read_or_publish_is_left_out(database: str, tmp_path: Path) -> None:
    role = f"r_{database.split('/')[3].split('?')[0]}"
    url = database.replace("postgres@", f"{role}@")
    execute(
        database,
        f"CREATE ROLE {role} LOGIN",
        f"CREATE SCHEMA app; GRANT USAGE ON SCHEMA app TO {role}",
        "CREATE TABLE app.a (id int PRIMARY KEY)",
        "CREATE TABLE app.b (id int PRIMARY KEY)",
        "CREATE TABLE app.hidden (id int PRIMARY KEY)",
        f"GRANT SELECT ON app.a, app.b TO {role}",
    )
    try:
        tables, skipped = expanded(url, tmp_path, "app.*")
        assert tables == ["app.a", "app.b"]  # `check` says how the publication is made, with all of them
        assert [(str(each.table), each.reason) for each in skipped] == [("app.hidden", "may not be read")]
        execute(database, "CREATE PUBLICATION headwater_g FOR TABLE app.a")
        tables, skipped = expanded(url, tmp_path, "app.*")
        assert tables == ["app.a"]
        lacking = next(each for each in skipped if str(each.table) == "app.b")
        assert lacking.reason == f"publication 'headwater_g' does not list it, and role {role!r} may not add it"
        assert lacking.hint.endswith('run: ALTER PUBLICATION "headwater_g" ADD TABLE "app"."b";')
    finally:
        execute(database, f"DROP OWNED BY {role} CASCADE", f"DROP ROLE {role}")


def test_many_tables_are_matched_with_two_queries(database: str, tmp_path: Path) -> None:
    execute(database, *(f"CREATE TABLE t{n} (id int PRIMARY KEY)" for n in range(50)))
    whole, trace = config(database, tmp_path, "public.*"), tmp_path / "trace"
    with closing(connect(database)) as connection, trace.open("w") as file:
        connection.pgconn.trace(file.fileno())
        assert len(with_patterns_of(connection, whole)[0].groups["g"].tables) == 50
        connection.pgconn.untrace()
    assert trace.read_text().count("\tParse\t") == 2
