"""`headwater table`: tables are listed, paused, resumed and copied again, while the others go on."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner, Result
from tests.mirror import Mirror

from headwater import flow
from headwater.commands.cli import cli
from headwater.state import TableRow
from headwater.state.transitions import Removed


@pytest.fixture
def shop(mirror: Mirror) -> Mirror:
    mirror.execute(
        "CREATE TABLE orders (id int PRIMARY KEY, item text)",
        "CREATE TABLE items (id int PRIMARY KEY, item text)",
        "INSERT INTO orders VALUES (1, 'copied')",
        "INSERT INTO items VALUES (1, 'copied')",
    )
    mirror.start("public.orders", "public.items")
    mirror.sync()
    return mirror


def table(mirror: Mirror, *arguments: str) -> Result:
    return CliRunner().invoke(cli, ["-c", str(mirror.file), "table", *arguments])


def row_of(mirror: Mirror, name: str) -> TableRow:
    return next(row for row in mirror.m.state.tables("g") if row.source.name == name)


def test_a_table_that_was_paused_goes_on_from_where_it_was_without_a_copy(shop: Mirror) -> None:
    with shop.m.state.lock("deliver:g"):
        done = table(shop, "pause", "public.orders")
    assert done.output == "public.orders is paused: it is PAUSED\n"
    before = row_of(shop, "orders").position
    for number in range(2, 5):
        shop.execute(
            f"INSERT INTO orders VALUES ({number}, 'new')",
            f"INSERT INTO items VALUES ({number}, 'new')",
            "UPDATE orders SET item = 'changed' WHERE id = 1",
        )
        shop.sync()
    shop.execute("ALTER TABLE orders ADD COLUMN more int", "DELETE FROM orders WHERE id = 2")
    shop.sync()
    with shop.m.state.transaction() as connection:
        connection.execute("UPDATE headwater.segments SET created_at = created_at - interval '1 day'")
    flow.tidy(shop.m)  # the log is kept for it
    shop.assert_equal("items")
    assert shop.ask("SELECT * FROM lake.public.orders") == [(1, "copied")]
    assert (row_of(shop, "orders").state, row_of(shop, "orders").position) == ("PAUSED", before)
    shop.reopen()  # as a new run begins
    assert row_of(shop, "orders").state == "PAUSED"
    assert {each.table: (each.verdict, each.ok) for each in shop.verify()} == {
        "public.items": ("equal", True),
        "public.orders": ("not compared", True),
    }
    assert table(shop, "resume", "public.orders").output == (
        "public.orders is resumed: it is CATCHUP; nothing delivers group 'g' now: `headwater run` does the rest\n"
    )
    assert flow.copy(shop.m) == {}
    shop.sync()
    shop.assert_equal("orders", "items")
    assert row_of(shop, "orders").state == "STREAMING"


def test_a_table_is_copied_again_on_request_and_its_old_rows_are_there_until_then(shop: Mirror) -> None:
    shop.ask("DELETE FROM lake.public.orders")
    done = table(shop, "resync", "public.orders")
    assert (done.exit_code, "add --yes" in done.output) == (2, True)
    assert row_of(shop, "orders").resync is None
    assert table(shop, "resync", "--yes", "public.orders").exit_code == 0
    assert (row_of(shop, "orders").state, row_of(shop, "orders").resync) == ("PENDING", "it was asked for")
    assert shop.settle()
    shop.assert_equal("orders", "items")


def test_the_list_has_every_table_for_people_and_for_programs(shop: Mirror) -> None:
    table(shop, "pause", "public.items")
    text = table(shop, "list").output
    assert "group 'g' is not running: what was asked of its tables waits for `headwater run`" in text
    assert any("public.items" in line and "PAUSED" in line and "it was asked for" in line for line in text.splitlines())
    found = json.loads(table(shop, "list", "--group", "g", "--json").output)
    assert [(each["table"], each["lake_table"], each["state"], each["error"]) for each in found] == [
        ("public.items", "public.items", "PAUSED", "it was asked for"),
        ("public.orders", "public.orders", "STREAMING", None),
    ]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("pause", "public.order"), "did you mean 'public.orders'?"),
        (("pause", "a.b.c.d"), "is not the name of a table"),
        (("pause", "public.orders", "public.nothing"), "there is no table 'public.nothing'"),
        (("list", "--group", "h"), "no group 'h' has run yet"),
        (("resume", "public.items"), "is REMOVED: there is nothing to resume"),
        (("pause",), "Missing argument 'TABLE...'"),
    ],
    ids=str,
)
def test_what_cannot_be_asked_changes_nothing(shop: Mirror, arguments: tuple[str, ...], said: str) -> None:
    shop.m.state.record("g", row_of(shop, "items").oid, Removed("it was taken out of the config"))
    done = table(shop, *arguments)
    assert done.exit_code == 2
    assert said in done.output
    assert {row.source.name: row.state for row in shop.m.state.tables("g")} == {
        "items": "REMOVED",
        "orders": "STREAMING",
    }


def test_a_table_that_is_paused_is_not_copied_again(shop: Mirror) -> None:
    table(shop, "pause", "public.orders")
    done = table(shop, "resync", "--yes", "public.orders")
    assert (done.exit_code, "first `headwater table resume public.orders`" in done.output) == (2, True)
