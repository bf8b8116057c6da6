"""`headwater check` refuses a route from a mirrored table whose changes would not say what it needs to know."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from headwater.checks import check
from headwater.config import Config
from headwater.errors import HeadwaterError

CONFIG = """
source: {source}
log: ./log
lakes:
  main: {{ducklake: "sqlite:///main.sqlite", data_path: ./main}}
  acme: {{ducklake: "sqlite:///acme.sqlite", data_path: ./acme}}
groups:
  shop: {{lake: main, tables: [{table}]}}
routes:
  by_company: {{from: {{group: shop, table: public.orders}}, by: company, {more}to: [{{value: acme, lake: acme}}]}}
"""
ORDERS = "CREATE TABLE orders (id int PRIMARY KEY, company text NOT NULL, total int)"
INDEX = "CREATE UNIQUE INDEX by_company ON orders (company, id)"
FULL = "ALTER TABLE orders REPLICA IDENTITY FULL"
BY_INDEX = "ALTER TABLE orders REPLICA IDENTITY USING INDEX by_company"
KEYLESS = "CREATE TABLE orders (id int, company text)"


class Shop:
    def __init__(self, url: str, folder: Path) -> None:
        self.url, self.folder = url, folder

    def run(self, *statements: str) -> None:
        with psycopg.connect(self.url, autocommit=True) as source:
            for each in statements:
                source.execute(each.encode())

    def problems(self, more: str = "", table: str = "public.orders") -> list[HeadwaterError]:
        file = self.folder / "headwater.yaml"
        file.write_text(CONFIG.format(source=self.url, table=table, more=more))
        return check(Config.load(file, {}), {})


@pytest.fixture
def shop(database: str, tmp_path: Path) -> Shop:
    return Shop(database, tmp_path)


@pytest.mark.parametrize(
    ("statements", "more"),
    [
        pytest.param([ORDERS, FULL], "", id="FULL"),
        pytest.param([ORDERS, FULL], "where: total > 1, ", id="FULL, with a condition"),
        pytest.param([ORDERS, INDEX, BY_INDEX], "keys: [id], ", id="an index with the column and the key"),
        pytest.param([ORDERS.replace("PRIMARY KEY,", ",").replace("total int", "PRIMARY KEY (id, company)")], "",
                     id="a primary key with the column"),
        pytest.param([KEYLESS, FULL], "keys: [id], ", id="FULL, with keys of the route's own"),
    ],
)  # fmt: skip
def test_a_replica_identity_that_tells_where_rows_were_is_well(shop: Shop, statements: list[str], more: str) -> None:
    shop.run(*statements)
    assert shop.problems(more) == []


@pytest.mark.parametrize(
    ("statements", "more", "lost"),
    [
        pytest.param([ORDERS], "", "'company', by which it routes", id="only the primary key"),
        pytest.param([ORDERS, INDEX, BY_INDEX], "where: total > 1, ", "'total', which it needs of rows that change",
                     id="a condition on other columns"),
        pytest.param([ORDERS, INDEX, BY_INDEX], "keys: [total], ", "'total', which it needs of rows that change",
                     id="another key than the identity has"),
    ],
)  # fmt: skip
def test_one_that_does_not_is_refused_with_the_statement_to_run(
    shop: Shop, statements: list[str], more: str, lost: str
) -> None:
    shop.run(*statements)
    (problem,) = shop.problems(more)
    assert problem.message == (
        f"route 'by_company': the replica identity of table 'public.orders' does not cover {lost}"
    )
    assert problem.hint.startswith("ALTER TABLE public.orders REPLICA IDENTITY FULL;")
    assert problem.exit_code == 4
    shop.run(FULL)
    assert shop.problems(more) == []


def test_a_table_without_a_key_is_refused_unless_rows_are_only_added(shop: Shop) -> None:
    shop.run(KEYLESS, FULL)
    assert [each.message for each in shop.problems()] == [
        "route 'by_company': nothing tells what identifies a row of public.orders"
    ]
    assert shop.problems("mode: append, ") == []
    shop.run("ALTER TABLE orders REPLICA IDENTITY DEFAULT")
    assert shop.problems("mode: append, ", "{table: public.orders, append_only: true}") == []


def test_a_history_is_refused(shop: Shop) -> None:
    shop.run(ORDERS, FULL)
    (problem,) = shop.problems(table="{table: public.orders, mode: history}")
    assert "is mirrored with mode 'history'" in problem.message


def test_each_partition_must_tell_it_too(shop: Shop) -> None:
    shop.run(
        "CREATE TABLE orders (id int PRIMARY KEY, company text) PARTITION BY RANGE (id)",
        "CREATE TABLE orders_1 PARTITION OF orders FOR VALUES FROM (0) TO (10)",
        FULL,
    )
    (problem,) = shop.problems()
    assert "partition 'public.orders_1' of 'public.orders' does not send whole old rows" in problem.message
    shop.run(problem.hint)
    assert shop.problems() == []


def test_processes_cannot_share_a_route_of_a_group(shop: Shop) -> None:
    shop.run(ORDERS, FULL)
    with pytest.raises(ExceptionGroup) as refused:
        shop.problems("mode: mirror, ", "public.orders]}\ninstance: {partition: hash, total: 2, ordinal: 0}\n#")
    assert "a group is delivered by one" in str(refused.value.exceptions[0])
