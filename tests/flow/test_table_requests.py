"""`headwater table`: tables are listed, paused, resumed and copied again, while the others go on."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner, Result
from tests.mirror import Mirror
from tests.serving import handled

from headwater import flow
from headwater.commands.cli import cli
from headwater.state import TableRow
from headwater.state.transitions import Removed, Stopped


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


def done_by_service(mirror: Mirror, *arguments: str) -> list[str]:
    """The command while nothing runs; then what a service that starts says to it."""
    asked = table(mirror, *arguments)
    assert asked.exit_code == 0, asked.output
    assert "is queued: no service runs group 'g' now; `headwater run` will handle it" in asked.output
    return [str(each.outcome) for each in handled(mirror.config, mirror.m.state)]


def row_of(mirror: Mirror, name: str) -> TableRow:
    return next(row for row in mirror.m.state.tables("g") if row.source.name == name)


def test_a_table_that_was_paused_goes_on_from_where_it_was_without_a_copy(shop: Mirror) -> None:
    assert done_by_service(shop, "pause", "public.orders") == ["public.orders is paused: it is PAUSED"]
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
    assert done_by_service(shop, "resume", "public.orders") == ["public.orders is resumed: it is CATCHUP"]
    assert flow.copy(shop.m) == {}
    shop.sync()
    shop.assert_equal("orders", "items")
    assert row_of(shop, "orders").state == "STREAMING"


def test_a_table_is_copied_again_on_request_and_its_old_rows_are_there_until_then(shop: Mirror) -> None:
    shop.ask("DELETE FROM lake.public.orders")
    done = table(shop, "resync", "public.orders")
    assert (done.exit_code, "add --yes" in done.output) == (2, True)
    assert row_of(shop, "orders").resync is None
    assert done_by_service(shop, "resync", "--yes", "public.orders") == [
        "public.orders is to be copied again: it is PENDING"
    ]
    assert (row_of(shop, "orders").state, row_of(shop, "orders").resync) == ("PENDING", "it was asked for")
    assert shop.settle()
    shop.assert_equal("orders", "items")


def test_the_list_says_in_one_line_why_a_table_does_not_go_on_and_what_to_do(shop: Mirror) -> None:
    shop.m.state.record("g", row_of(shop, "orders").oid, Stopped("a column is gone\nhint: put it back"))
    (line,) = [each for each in table(shop, "list").output.splitlines() if "public.orders" in each]
    assert line.endswith("a column is gone; put it back")


def test_the_list_has_every_table_for_people_and_for_programs(shop: Mirror) -> None:
    table(shop, "pause", "public.items")
    assert any(
        "public.items" in line and "pause_table waits" in line for line in table(shop, "list").output.splitlines()
    )
    handled(shop.config, shop.m.state)
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
        (("pause", "a.b.c.d"), "is not the name of a table"),
        (("pause", "public.nothing"), "public.nothing"),
        (("list", "--group", "h"), "no group 'h' has run yet"),
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
    done_by_service(shop, "pause", "public.orders")
    done = table(shop, "resync", "--yes", "public.orders")
    assert (done.exit_code, "is PAUSED, and would not be copied" in done.output) == (2, True)
    shop.m.state.ask("resume_table", source_table="public.orders")
    asked = shop.m.state.ask("resync_table", source_table="public.orders")  # in time for it to be resumed by then
    assert [each.failed for each in handled(shop.config, shop.m.state)] == [False, False], asked
    assert row_of(shop, "orders").resync == "it was asked for"


def test_a_table_is_added_moved_to_another_group_and_removed_while_the_others_go_on(shop: Mirror) -> None:
    shop.execute("CREATE TABLE later (id int PRIMARY KEY, item text)", "INSERT INTO later VALUES (1, 'copied')")
    before = row_of(shop, "orders").copied_rows
    (said,) = done_by_service(shop, "add", "public.later")
    assert said == "public.later is added to group 'g', and will be copied"
    shop.execute("INSERT INTO later VALUES (2, 'meanwhile')", "INSERT INTO orders VALUES (2, 'meanwhile')")
    assert shop.settle()
    shop.assert_equal("later", "orders", "items")
    assert (row_of(shop, "later").state, row_of(shop, "orders").copied_rows) == ("STREAMING", before)
    shop.reopen()  # it stays, although the file does not have it
    assert row_of(shop, "later").state == "STREAMING"
    assert done_by_service(shop, "remove", "--yes", "public.later") == [
        "public.later is removed from group 'g': its mirror stays as it is"
    ]
    shop.execute("INSERT INTO later VALUES (3, 'unseen')", "INSERT INTO orders VALUES (3, 'seen')")
    shop.sync()
    shop.assert_equal("orders", "items")
    assert shop.ask("SELECT count(*) FROM lake.public.later") == [(2,)]
    done_by_service(shop, "add", "public.later")
    assert shop.settle()
    shop.assert_equal("later", "orders", "items")


def test_a_table_that_a_pattern_brings_is_left_out_there(mirror: Mirror) -> None:
    mirror.execute("CREATE TABLE orders (id int PRIMARY KEY)")
    mirror.start("public.*")
    asked = mirror.m.state.ask("remove_table", source_table="public.orders")
    (done,) = handled(mirror.config, mirror.m.state)
    assert (done.id, done.failed) == (asked, True)
    assert "matches the pattern 'public.*'" in str(done.outcome)


def test_a_table_that_is_added_without_a_copy_has_what_changes_from_then_on(shop: Mirror) -> None:
    shop.execute("CREATE TABLE later (id int PRIMARY KEY, item text)", "INSERT INTO later VALUES (1, 'before')")
    done_by_service(shop, "add", "public.later", "--no-copy", "--as", "raw.later")
    assert shop.settle()
    shop.execute("INSERT INTO later VALUES (2, 'after')", "UPDATE later SET item = 'changed' WHERE id = 1")
    shop.sync()
    assert sorted(shop.ask("SELECT * FROM lake.raw.later")) == [(1, "changed"), (2, "after")]
    shop.execute("INSERT INTO later VALUES (3, 'after')", "DELETE FROM later WHERE id = 2")
    shop.sync()
    assert sorted(shop.ask("SELECT * FROM lake.raw.later")) == [(1, "changed"), (3, "after")]
    verdict = next(each for each in shop.verify() if each.table == "public.later")
    assert (verdict.verdict, verdict.ok) == ("not compared", True)
    done_by_service(shop, "resync", "--yes", "public.later")
    assert shop.settle()
    assert next(each for each in shop.verify() if each.table == "public.later").verdict == "equal"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("add", "public.nothing"), "there is no table 'public.nothing' in the source"),
        (("add", "public.keyless"), "has no primary key"),
        (("add", "public.new", "--as", "public.orders"), "lands as 'public.orders' already"),
        (("add", "public.new", "--option", "mode=histry"), "mode"),
        (("remove", "--yes", "public.orders"), "is in the config file, which is ensured"),
        (("move", "public.orders", "--to", "g"), "is already in group 'g'"),
    ],
    ids=str,
)
def test_what_a_service_cannot_do_is_refused_with_the_reason(
    shop: Mirror, arguments: tuple[str, ...], said: str
) -> None:
    shop.execute("CREATE TABLE keyless (id int)", "CREATE TABLE new (id int PRIMARY KEY)")
    done = table(shop, *arguments)
    outcomes = "".join(str(each.outcome) for each in handled(shop.config, shop.m.state) if each.failed)
    assert said in done.output + outcomes
    assert shop.m.state.added_tables() == []
    assert {row.source.name: row.state for row in shop.m.state.tables("g")} == {
        "items": "STREAMING",
        "orders": "STREAMING",
    }
    shop.execute("INSERT INTO orders VALUES (5, 'goes on')")
    shop.sync()
    shop.assert_equal("orders", "items")
