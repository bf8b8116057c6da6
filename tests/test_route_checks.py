"""`headwater check` refuses routes that could not be delivered: every problem at once, each with what to do."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from headwater.checks import check
from headwater.config.model import Spark
from headwater.errors import ConfigError, OperatorMustAct
from tests.routed import RoutedShop


@pytest.fixture
def shop(database: str, tmp_path: Path) -> Iterator[RoutedShop]:
    with closing(RoutedShop(database, tmp_path)) as made:
        yield made


def problems(shop: RoutedShop) -> list[str]:
    return [each.message for each in check(shop.config, {})]


def test_a_route_that_can_be_delivered_is_well_without_any_group_and_nothing_is_created(shop: RoutedShop) -> None:
    assert problems(shop) == []
    assert {path.name for path in shop.folder.iterdir()} >= {"headwater.yaml", "shop.sqlite"}
    assert not {path.name for path in shop.folder.iterdir()} & {"acme.sqlite", "acme", "rest", "log"}
    done = shop.cli("check")
    assert (done.exit_code, done.output) == (0, "check: OK\n")


def test_everything_that_the_source_table_lacks_is_reported_at_once(shop: RoutedShop) -> None:
    shop.sql("ALTER TABLE shop.main.orders ADD COLUMN tags VARCHAR[]")
    shop.rewrite(
        ("by: company", "by: firm"),
        ("keys: [id]", "keys: [number, tags]\n    exclude: [margin]\n    where: amount > 1"),
    )
    found = check(shop.config, {})
    assert [each.message.partition(" cannot be evaluated")[0] for each in found] == [
        "route 'by_company': main.orders has no column 'firm'",
        "route 'by_company': main.orders has no column 'number'",
        "route 'by_company': main.orders has no column 'margin'",
        "route 'by_company': column 'tags' is a list, which cannot be a key",
        "route 'by_company': `where: amount > 1`",
    ]
    assert found[0].hint == "it has id, company, total, tags: correct the route, or the table"


def test_a_key_must_be_known_and_a_column_must_be_of_a_type_that_can_route(shop: RoutedShop) -> None:
    shop.sql("ALTER TABLE shop.main.orders ADD COLUMN tags VARCHAR[]")
    shop.rewrite(("    keys: [id]\n", ""))
    assert problems(shop) == ["route 'by_company': nothing tells what identifies a row of main.orders"]
    shop.rewrite(("by: company", "by: tags\n    keys: [id]"))
    assert "rows cannot be routed by a column of type list" in problems(shop)[0]


def test_values_that_the_column_cannot_have_or_that_are_one_are_refused(shop: RoutedShop) -> None:
    more = "{value: '7', lake: acme, as: main.seven}, {value: '07', lake: acme, as: main.other}"
    shop.rewrite(("by: company", "by: id"), ("{value: globex, lake: globex}", more))
    assert problems(shop) == [
        "route 'by_company': 'acme' is no value of a column of type int32",
        "route 'by_company': '7' and '07' are one value of the routing column",
    ]


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        ("UPDATE ducklake_metadata SET value = 'true' WHERE key = 'encrypted'", OperatorMustAct, "is encrypted"),
        ("UPDATE ducklake_metadata SET value = '9.0' WHERE key = 'version'", OperatorMustAct, "catalog version '9.0'"),
    ],
)
def test_a_source_that_headwater_cannot_read_is_refused(
    shop: RoutedShop, change: str, kind: type[Exception], message: str
) -> None:
    shop.sql("DETACH shop")
    with closing(sqlite3.connect(shop.folder / "shop.sqlite")) as catalog:
        catalog.execute(change)
        catalog.commit()
    (problem,) = check(shop.config, {})
    assert isinstance(problem, kind)
    assert problem.message.startswith("route 'by_company': the lake sqlite:")
    assert message in problem.message


def test_a_source_that_is_not_there_is_refused_unless_a_group_or_a_route_is_to_make_it(shop: RoutedShop) -> None:
    shop.rewrite(("table: main.orders", "table: main.invoices"))
    (missing,) = problems(shop)
    assert "has no table 'main.invoices'" in missing
    with psycopg.connect(shop.url, autocommit=True) as source:
        source.execute("CREATE TABLE invoices (id int PRIMARY KEY, company text)")
    shop.rewrite(
        ("routes:", "groups: {g: {lake: shop, tables: [{table: public.invoices, as: main.invoices}]}}\nroutes:")
    )
    assert problems(shop) == []
    shop.rewrite(("lake: shop, table: main.invoices", "lake: new, table: main.invoices"), ("lakes:", "lakes:\n" + NEW))
    assert [each.split("new.sqlite")[0] for each in problems(shop)] == [
        f"route 'by_company': there is no lake in sqlite:///{shop.folder}/"
    ]
    shop.rewrite(("routes:", "routes:\n" + FEEDING))
    assert problems(shop) == []


GROUP = "groups: {g: {lake: shop, tables: [{table: public.invoices, as: main.invoices}]}}"
NEW = '  new: {ducklake: "sqlite:///new.sqlite", data_path: ./new}'
FEEDING = (
    "  feeding: {from: {lake: shop, table: main.orders}, by: company, keys: [id],"
    " to: [{value: x, lake: new, as: main.invoices}]}"
)


def test_lakes_of_destinations_that_cannot_be_opened_are_reported_and_of_many_the_first(shop: RoutedShop) -> None:
    (shop.folder / "acme").write_text("a file where a folder belongs")
    with closing(sqlite3.connect(shop.folder / "rest.sqlite")) as catalog:
        catalog.execute("CREATE TABLE ducklake_metadata (key TEXT, value TEXT, scope TEXT, scope_id INTEGER)")
        catalog.execute("INSERT INTO ducklake_metadata VALUES ('version', '9.0', NULL, NULL)")
        catalog.commit()
    acme, rest = problems(shop)
    assert f"route 'by_company': data_path '{shop.folder}/acme' is not writable" in acme
    assert "rest.sqlite has catalog version '9.0'" in rest

    listed(shop, "value text, ducklake text, data_path text")
    with psycopg.connect(shop.url, autocommit=True) as source:
        source.execute(
            "INSERT INTO tenants SELECT i, 'sqlite:////x' || i || '.sqlite', %s || i FROM generate_series(1, 25) i",
            (f"{shop.folder}/acme/",),
        )
    found = problems(shop)
    assert len(found) == 21
    assert found[-1] == "6 more lakes of destinations cannot be opened"


def listed(shop: RoutedShop, columns: str) -> None:
    """Have the destinations listed by a table."""
    with psycopg.connect(shop.url, autocommit=True) as source:
        source.execute("DROP TABLE IF EXISTS tenants")
        source.execute(f"CREATE TABLE tenants ({columns})".encode())
    old = "to: [{value: acme, lake: acme}, {value: globex, lake: globex}]"
    if old in shop.file.read_text():
        shop.rewrite((old, "to: {from_table: public.tenants}"))


@pytest.mark.parametrize(
    ("ducklake", "data_path", "reached"),
    [
        ("sqlite:////srv/x.sqlite", "s3://bucket/x", False),
        ("postgresql://lake@db/lakes?schema=x", "/srv/x", False),
        ("postgresql://lake@127.0.0.1:1/lakes?schema=x", "s3://bucket/x", True),
    ],
)
def test_a_spark_cluster_gets_no_destination_that_its_executors_cannot_reach(
    shop: RoutedShop, ducklake: str, data_path: str, reached: bool
) -> None:
    listed(shop, "value text, ducklake text, data_path text")
    with psycopg.connect(shop.url, autocommit=True) as source:
        source.execute("INSERT INTO tenants VALUES ('x', %s, %s)", (ducklake, data_path))
    cluster = shop.config.model_copy(update={"spark": Spark(master="spark://master:7077")})
    said = "destination 'x' of route 'by_company' is on a disk of this machine"
    assert any(said in str(each) for each in check(cluster, {})) != reached


def test_a_table_of_destinations_must_be_there_and_have_its_columns(shop: RoutedShop) -> None:
    listed(shop, "value text, place text")
    (problem,) = check(shop.config, {})
    assert isinstance(problem, ConfigError)
    assert problem.message == "route 'by_company': the table 'public.tenants' lacks columns: it has value, place"
    assert problem.hint.startswith("its columns are value, and either lake, or ducklake and data_path")

    listed(shop, 'value text, lake text, "as" text')
    for row, message in (
        ("(NULL, 'acme', NULL)", "the table of route 'by_company' has a row without a `value`"),
        (
            "('x', 'nowhere', NULL)",
            "destination 'x' of route 'by_company' is in lake 'nowhere', which",
        ),
        ("('x', 'acme', 'a.b.c')", "destination 'x' of route 'by_company': not a table name: 'a.b.c'"),
    ):
        with psycopg.connect(shop.url, autocommit=True) as source:
            source.execute("TRUNCATE tenants")
            source.execute(f"INSERT INTO tenants VALUES {row}".encode())
        assert any(message in each for each in problems(shop))
    with psycopg.connect(shop.url, autocommit=True) as source:
        source.execute("DROP TABLE tenants")
    (missing,) = problems(shop)
    assert missing == (
        "route 'by_company': the table of destinations cannot be read: relation \"public.tenants\" does not exist"
    )
    shop.rewrite(("from_table: public.tenants", "from_table: {lake: shop, table: main.tenants}"))
    (missing,) = problems(shop)
    assert "the table of destinations cannot be read: Catalog Error: Table with name tenants does not exist" in missing
    shop.sql("CREATE TABLE shop.main.tenants (value VARCHAR, lake VARCHAR)")
    assert problems(shop) == []
