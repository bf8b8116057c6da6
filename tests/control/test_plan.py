"""The plan: what is done about each difference between the config and what there is, and in which order."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from headwater.change import Lsn, TableName
from headwater.config import Group, Table
from headwater.control.facts import GroupFacts, TableFacts
from headwater.control.plan import plan
from headwater.control.steps import Step, worth_saying
from headwater.control.wishes import options_of
from headwater.errors import ConfigError, TableError
from headwater.source.checktable import TableWish
from headwater.source.publications import ALTERED
from headwater.source.replaced import Resolved
from headwater.state import TableRow

ORDERS, ITEMS = TableName("public", "orders"), TableName("public", "items")
AT = datetime(2026, 1, 1, tzinfo=UTC)


def entry(**more: Any) -> Table:
    return Table.model_validate({"table": "public.orders", **more})


def row(table: Table | None = None, **changes: Any) -> TableRow:
    """A table that is mirrored as the config says."""
    table = table or entry()
    life = "STREAMING", Lsn(8), Lsn(8), 1, 1, 0, 0, 0, None, 0, None
    rest = table.table, options_of(table), 0, None, Lsn(0), "mark", (), None, AT
    return replace(TableRow("shop", 7, table.table, table.target, *life, *rest), **changes)  # type: ignore[arg-type]


def found(table: Table | None = None, **changes: Any) -> TableFacts:
    table = table or entry()
    now = Resolved(TableWish(table.table, 7), "found", table.table, 7, 7)
    return replace(TableFacts(table, now, place="mark"), **changes)


def steps(*tables: TableFacts, rows: tuple[TableRow, ...] = (), **more: Any) -> list[Step]:
    facts = GroupFacts(
        "shop", more.get("slot", True), {each.oid: each for each in rows}, tables, more.get("differs", ())
    )
    group = Group(lake="main", tables=tuple(each.entry for each in tables))
    return plan(group, facts)


def said(*tables: TableFacts, rows: tuple[TableRow, ...] = (), **more: Any) -> list[str]:
    return [str(step) for step in steps(*tables, rows=rows, **more) if worth_saying(step)]


def test_what_is_as_it_should_be_needs_no_step_that_is_worth_a_line() -> None:
    assert said(found(), rows=(row(),)) == []


def test_a_new_group_gets_a_publication_and_a_slot_before_its_tables_are_entered() -> None:
    new = found(place=None)
    assert said(new, slot=False, differs=("does not exist",)) == [
        "create the publication headwater_shop",
        "create the replication slot headwater_shop",
        "copy public.orders to public.orders",
    ]


def test_a_table_without_a_copy_says_so() -> None:
    assert said(found(entry(copy=False))) == ["mirror, without a copy, public.orders to public.orders"]


def test_a_table_that_nothing_wants_any_more_is_removed_before_the_publication_stops_to_send_it() -> None:
    kinds = [type(step).__name__ for step in steps(rows=(row(),), differs=("also sends public.orders",))]
    assert kinds == ["Remove", "Publish"]
    assert said(rows=(row(state="REMOVED"),)) == []


@pytest.mark.parametrize(
    ("known", "table", "reason"),
    [
        (row(state="REMOVED"), found(), "it was left out of the config for a while"),
        (row(published="other"), found(), ALTERED),
        (row(), found(entry(types={"y": "varchar"})), "the config asks for other types"),
        (row(), found(entry(partition_by=["day(at)"])), "the config asks for other partitions"),
        (row(), found(lacking=("y",)), "the config asks for more of its columns: y"),
    ],
    ids=["was removed", "altered", "types", "partitions", "columns"],
)
def test_a_table_is_copied_again_before_the_publication_sends_more(
    known: TableRow, table: TableFacts, reason: str
) -> None:
    taken = steps(table, rows=(known,))
    kinds = [type(step).__name__ for step in taken]
    assert kinds.index("CopyAgain") < kinds.index("Publish")
    assert f"table public.orders will be copied again: {reason}" in map(str, taken)


def test_a_table_that_was_never_there_and_another_mode_are_refused() -> None:
    missing = Resolved(TableWish(ORDERS), "missing", ORDERS)
    with pytest.raises(ConfigError, match=r"there is no table 'public\.orders' in the source"):
        steps(found(now=missing))
    with pytest.raises(ConfigError, match="is mirrored with mode 'mirror', the config now says 'history'"):
        steps(found(entry(mode="history")), rows=(row(),))


def test_a_table_that_was_dropped_ends_and_is_not_published() -> None:
    dropped = Resolved(TableWish(ORDERS, 7), "dropped", ORDERS, 0, 7)
    taken = steps(found(now=dropped), rows=(row(),))
    assert [type(step).__name__ for step in taken] == ["NoteDropped", "Publish"]
    assert "tables=()" in repr(taken[1])


def test_a_table_that_has_anothers_name_takes_its_place_or_stops() -> None:
    replaced = Resolved(TableWish(ORDERS, 7), "replaced", ORDERS, 9, 7)
    assert said(found(now=replaced), rows=(row(),)) == [
        "table public.orders is another table now: it is copied in place of the old mirror",
        "copy public.orders to public.orders",
    ]
    refused = found(now=replaced, refusal=TableError("it has no key"))
    assert said(refused, rows=(row(),)) == ["stop public.orders: it has no key"]


def test_a_table_that_was_removed_or_stopped_goes_on() -> None:
    for state in ("REMOVED", "ERRORED"):
        assert "go on with public.orders" in said(found(), rows=(row(state=state),))
    assert "go on with public.orders" not in said(found(), rows=(row(state="ERRORED", retry_at=AT),))


def test_a_table_that_was_to_be_replaced_is_reclaimed() -> None:
    heir = row(oid=9, source=ITEMS, configured=ITEMS, replaces=(7,))
    lines = said(found(), rows=(row(), heir))
    assert "copy public.orders again: another table had its place for a while" in lines


def test_a_renamed_table_is_entered_under_its_new_name_with_a_word_about_the_config() -> None:
    renamed = Resolved(TableWish(ORDERS, 7), "found", ITEMS, 7, 7)
    taken = steps(found(now=renamed), rows=(row(),))
    assert str(taken[0]) == "table public.orders is called public.items in the source now: write that in the config"
    assert type(taken[-1]).__name__ == "Enter"
