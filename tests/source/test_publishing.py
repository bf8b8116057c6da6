"""The publication follows the config, if our role may alter it."""

from __future__ import annotations

import psycopg
import pytest
from tests.captured_group import Group, execute

from headwater.change import TableName
from headwater.errors import ConfigError, OperatorMustAct
from headwater.postgres.connect import connect
from headwater.source.publications import places, publication_tables
from headwater.source.publishing import ensure_publication
from headwater.source.server import identify


def test_the_publication_follows_the_list_of_tables(group: Group) -> None:
    execute(group.url, *(f"CREATE TABLE {name} (id int PRIMARY KEY)" for name in ("one", "two", "three")))
    one, two, three = (TableName("public", name) for name in ("one", "two", "three"))
    with connect(group.url) as connection:

        def tables() -> set[TableName]:
            return {each.table for each in (publication_tables(connection, "headwater_shop") or {}).values()}

        for wanted in ([one, two], [two, three], [two, three], []):
            ensure_publication(connection, "headwater_shop", wanted)
            assert tables() == set(wanted)
        with pytest.raises(ConfigError, match="nothing"):
            ensure_publication(connection, "headwater_shop", [TableName("public", "nothing")])
        # `stored`, from PostgreSQL 18 on
        asked = "SELECT pubviaroot, coalesce(to_jsonb(p)->>'pubgencols', 's') FROM pg_publication p"
        row = connection.execute(asked).fetchone()
    assert row == (True, "s")


def test_a_publication_that_sends_less_is_set_right(group: Group) -> None:
    execute(group.url, "CREATE TABLE one (id int PRIMARY KEY)")
    one = [TableName("public", "one")]
    with connect(group.url) as connection:
        ensure_publication(connection, "p", one)
        assert places(connection, "p")
        for option in ("publish = 'insert'", "publish_via_partition_root = false"):
            execute(group.url, f"ALTER PUBLICATION p SET ({option})")
            assert places(connection, "p") == {}
            ensure_publication(connection, "p", one)
            assert places(connection, "p")
        execute(group.url, "DROP PUBLICATION p", "CREATE PUBLICATION p FOR ALL TABLES")
        with pytest.raises(OperatorMustAct, match=r"publication 'p' is FOR ALL TABLES, and must list its tables"):
            ensure_publication(connection, "p", one)


def test_a_publication_keeps_renamed_tables_and_row_filters_and_follows_lists_of_columns(group: Group) -> None:
    execute(group.url, *(f"CREATE TABLE {name} (id int PRIMARY KEY, x int, y int)" for name in ("one", "two")))
    one, two, uno = (TableName("public", name) for name in ("one", "two", "uno"))
    with connect(group.url) as connection:

        def lists() -> dict[TableName, tuple[frozenset[str] | None, str | None]]:
            found = publication_tables(connection, "p") or {}
            return {each.table: (each.columns, each.row_filter) for each in found.values()}

        ensure_publication(connection, "p", {one: ("id", "x"), two: None})
        assert lists() == {one: (frozenset({"id", "x"}), None), two: (None, None)}
        execute(group.url, "ALTER PUBLICATION p SET TABLE one (id, x) WHERE (id > 5), two WHERE (x IS NULL)")
        execute(group.url, "ALTER TABLE one RENAME TO uno")
        ensure_publication(connection, "p", {uno: ("id", "x"), two: None})
        assert lists() == {uno: (frozenset({"id", "x"}), "(id > 5)"), two: (None, "(x IS NULL)")}
        ensure_publication(connection, "p", {uno: None, two: ("id", "y")})
        assert lists() == {uno: (None, "(id > 5)"), two: (frozenset({"id", "y"}), "(x IS NULL)")}
        with pytest.raises(ConfigError, match="refuses the list of columns"):
            ensure_publication(connection, "p", {uno: ("id", "nothing")})


def test_a_table_of_another_owner_cannot_be_published(group: Group) -> None:
    execute(group.url, "CREATE TABLE one (id int PRIMARY KEY)", "CREATE ROLE stranger LOGIN REPLICATION")
    name = psycopg.conninfo.conninfo_to_dict(group.url)["dbname"]
    execute(group.url, f"GRANT CREATE ON DATABASE {name} TO stranger")
    try:
        with connect(group.url.replace("postgres@", "stranger@")) as connection:
            assert identify(connection).database == name
            with pytest.raises(OperatorMustAct, match="role 'stranger' may not create it for these tables") as refused:
                ensure_publication(connection, "p", [TableName("public", "one")])
            assert 'run: CREATE PUBLICATION "p" FOR TABLE "public"."one" WITH (publish = ' in refused.value.hint
    finally:
        execute(group.url, "DROP OWNED BY stranger", "DROP ROLE stranger")
