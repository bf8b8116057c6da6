"""Which table each entry of the config means, whatever was renamed, dropped or created since it was mirrored."""

from __future__ import annotations

import pytest
from tests.captured_group import Group, execute

from headwater.capture.watch import first_look
from headwater.change import Lsn, TableName
from headwater.postgres.connect import connect
from headwater.source.checktable import TableWish
from headwater.source.dropping import drop_from_source
from headwater.source.replaced import look_at_names, meant
from headwater.source.server import named_oid
from headwater.state import Configured, TableOptions, TableRow
from headwater.state.transitions import CaughtUp, Copied, CopyBegun

EVERYTHING = frozenset(range(9))


def wish(name: str, oid: int | None, like: frozenset[int] = EVERYTHING) -> TableWish:
    return TableWish(TableName("public", name), oid, like=like)


# What the config names, and the mirrored table of each; what the source has; what becomes of each entry.
CASES: dict[str, tuple[dict[str, int | None], dict[int, str], list[str]]] = {
    "nothing happened": ({"a": 1}, {1: "a"}, ["found 1"]),
    "new": ({"a": None}, {1: "a"}, ["found 1"]),
    "never there": ({"a": None}, {}, ["missing"]),
    "renamed": ({"a": 1}, {1: "z"}, ["found 1"]),
    "dropped": ({"a": 1, "b": 2}, {2: "b"}, ["dropped", "found 2"]),
    "replaced, the old one renamed away": ({"a": 1}, {1: "a_old", 2: "a"}, ["replaced 2"]),
    "dropped and created again": ({"a": 1}, {2: "a"}, ["replaced 2"]),
    "replaced, the old one mirrored on": ({"a_old": None, "a": 1}, {1: "a_old", 2: "a"}, ["found 1", "found 2"]),
    "swapped": ({"a": 1, "b": 2}, {2: "a", 1: "b"}, ["found 2", "found 1"]),
    "in a circle": ({"a": 1, "b": 2, "c": 3}, {3: "a", 1: "b", 2: "c"}, ["found 3", "found 1", "found 2"]),
    "moved along": ({"a": 1, "b": 2}, {1: "a_old", 2: "a"}, ["found 2", "found 1"]),
    "moved along, and replaced at the end": ({"a": 1, "b": 2}, {1: "z", 2: "a", 3: "b"}, ["found 2", "replaced 3"]),
    "swapped, then replaced": ({"a": 1, "b": 2}, {1: "b", 2: "z", 3: "a"}, ["replaced 3", "found 1"]),
    "dropped, and another mirrored one took its name": ({"a": 1, "b": 2}, {2: "a"}, ["replaced 2", "taken 2"]),
    "the same, and one more is where that one was": ({"a": 1, "b": 2}, {2: "a", 3: "b"}, ["found 2", "replaced 3"]),
    "the same, in a longer line": (
        {"a": 1, "b": 2, "c": 3},
        {2: "a", 3: "b", 4: "c"},
        ["found 2", "found 3", "replaced 4"],
    ),
    "dropped, and those behind moved up": (
        {"a": 1, "b": 2, "c": 3},
        {2: "a", 3: "b"},
        ["replaced 2", "found 3", "taken 2"],
    ),
    "renamed, and the config has both names": ({"a": 1, "z": None}, {1: "z"}, ["taken 1", "found 1"]),
}


@pytest.mark.parametrize("case", CASES)
def test_an_entry_means(case: str) -> None:
    wanted, tables, expected = CASES[case]
    found = meant([wish(*each) for each in wanted.items()], {oid: TableName("public", n) for oid, n in tables.items()})
    assert [f"{each.fate} {each.oid}" if each.oid else each.fate for each in found] == expected


def test_the_mirror_that_is_replaced_is_that_of_the_table_which_lost_its_name() -> None:
    wishes = [wish("a", 1), wish("b", 2)]
    swapped = meant(wishes, {1: TableName("public", "b"), 2: TableName("public", "z"), 3: TableName("public", "a")})
    assert [each.before for each in swapped] == [2, 1]


@pytest.mark.parametrize(("like", "expected"), [(({2}, {1}), [2, 1]), (({1}, {2}), [1, 2])])
def test_tables_that_swapped_names_keep_their_entries_unless_the_config_has_swapped_them_too(
    like: tuple[set[int], set[int]], expected: list[int]
) -> None:
    wishes = [
        wish(name, oid, frozenset(each)) for (name, oid), each in zip({"a": 1, "b": 2}.items(), like, strict=True)
    ]
    found = meant(wishes, {2: TableName("public", "a"), 1: TableName("public", "b")})
    assert [each.oid for each in found] == expected


def test_a_replaced_table_that_our_role_may_not_publish_stops_until_another_role_has_done_so(group: Group) -> None:
    create = "CREATE TABLE t (id int PRIMARY KEY)"
    execute(group.url, create, "CREATE ROLE reader LOGIN REPLICATION", "GRANT SELECT ON t TO reader")
    reader, t = group.url.replace("postgres@", "reader@"), TableName("public", "t")
    try:
        group.prepare("t")
        with connect(reader) as connection:

            def looked() -> list[TableRow]:
                look_at_names(
                    connection, group.state, "shop", lambda: first_look(reader, group.state, group.log, "shop")
                )
                return group.state.tables("shop")

            old = named_oid(connection, t)
            group.state.ensure_table("shop", old, t, t, Configured(t, TableOptions()))
            for event in (CopyBegun(Lsn(50)), Copied(group.log.end()), CaughtUp()):
                group.state.record("shop", old, event)
            execute(group.url, "ALTER TABLE t RENAME TO t_old", create, "GRANT SELECT ON t TO reader")
            (row,) = looked()
            assert row.stopped
            assert "table 'public.t' is another table now: the one that is mirrored is called" in (row.error or "")
            statement = 'ALTER PUBLICATION "headwater_shop" ADD TABLE "public"."t";'
            assert (row.error or "").endswith(f"let its owner, or a superuser, run: {statement}")
            execute(group.url, statement)
            assert named_oid(connection, t) in {row.oid for row in looked() if row.state == "PENDING"}
        row_of_group = group.state.group("shop")
        assert row_of_group is not None
        assert list(drop_from_source(reader, row_of_group, last=False)) == [
            "slot 'headwater_shop'",
            "no publication, because its owner is 'postgres', who may DROP PUBLICATION \"headwater_shop\"",
        ]
    finally:
        execute(group.url, "DROP OWNED BY reader", "DROP ROLE reader")
