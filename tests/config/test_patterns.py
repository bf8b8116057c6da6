"""Tables by pattern: what the file may say, which tables match, and how each is treated."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
import yaml

from headwater.change import TableName
from headwater.config import Config, Group, MatchedTable, expanded
from headwater.config.contradictions import Parts, crowded_out
from headwater.config.globs import TablePattern

FILE = """
source: postgresql://app@db/shop
log: ./log
lakes:
  main: {ducklake: "sqlite:///lake.sqlite", data_path: ./lake}
  other: {ducklake: "sqlite:///other.sqlite", data_path: ./other}
groups:
  shop: {lake: main, tables: [%s]}
"""
ROUTES = """
routes:
  r: {from: {group: shop, table: %s}, by: v, to: [{value: a, lake: other}]}
"""


def load(folder: Path, text: str) -> Config:
    (folder / "headwater.yaml").write_text(text)
    return Config.load(folder / "headwater.yaml", {})


def group(folder: Path, *entries: str) -> Group:
    return load(folder, FILE % ", ".join(entries)).groups["shop"]


def problem(folder: Path, text: str) -> str:
    with pytest.raises(ExceptionGroup) as caught:
        load(folder, text)
    (found,) = caught.value.exceptions
    return str(found).partition("headwater.yaml: ")[2]


def names(*texts: str) -> list[TableName]:
    return [TableName.parse(text) for text in texts]


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("public.*", ["public.orders", 'public."Odd.one"'], ["app.orders", "public2.orders"]),
        ("app.tmp_*", ["app.tmp_", "app.tmp_1"], ["app.tmp", "app.xtmp_1"]),
        ("app.t?", ["app.t1", 'app."t?"'], ["app.t", "app.t12"]),
        ("tenant_?.*", ["tenant_a.t"], ["tenant_ab.t"]),
        ("*.*", ["a.b", "public.c"], []),
        ("orders_*", ["public.orders_1"], ["app.orders_1"]),
        ('"Odd Schema".*', ['"Odd Schema".t'], ["odd.t"]),
        ('"a*".t?', ['"a*".t1'], ["ab.t1"]),  # in quotes it is no wildcard
        ("app.a[bc]*", ['app."a[bc]1"'], ["app.ab"]),  # nothing else is one
        ("app.a.b", [], []),
    ],
)
def test_a_pattern_matches_whole_names_of_schema_and_table(
    pattern: str, matching: list[str], others: list[str]
) -> None:
    if pattern == "app.a.b":
        with pytest.raises(ValueError, match="not a table name"):
            TablePattern.parse(pattern)
        return
    found = TablePattern.parse(pattern)
    assert [each for each in names(*matching, *others) if found.matches(each)] == names(*matching)
    assert str(found) == pattern


def test_a_listed_table_wins_over_patterns_and_of_two_patterns_the_first(tmp_path: Path) -> None:
    shop = group(
        tmp_path,
        "{table: public.*, exclude: [public.tmp_*, public.old], mode: history}",
        "{table: public.orders, types: {amount: double}}",
        "{table: '*.t*', schema_changes: stop, append_only: true, replaced: stop, copy: false}",
    )
    there = names("public.orders", "public.t1", "public.tmp_1", "app.t2", "app.x", "public.old", "public.t1")
    found = {str(each.table): each for each in expanded(shop, there).tables}
    assert list(found) == ["public.orders", "public.t1", "public.tmp_1", "app.t2"]
    assert (found["public.orders"].types, isinstance(found["public.orders"], MatchedTable)) == (
        {"amount": "double"},
        False,
    )
    assert (found["public.t1"].mode, found["public.t1"].when_replaced) == ("history", "stop")
    second = found["public.tmp_1"]  # an `exclude` counts for its own pattern
    assert (second.mode, second.schema_changes, second.append_only, second.replaced) == ("mirror", "stop", True, "stop")
    assert isinstance(second, MatchedTable)
    assert not second.copied
    assert second.pattern == "*.t*"


def test_a_group_that_was_expanded_is_expanded_again_as_the_file_says(tmp_path: Path) -> None:
    shop = group(tmp_path, "public.a", "public.*")
    once = expanded(shop, names("public.a", "public.b"))
    assert [str(each.table) for each in expanded(once, names("public.a", "public.c")).tables] == [
        "public.a",
        "public.c",
    ]
    assert once.patterns == shop.patterns


def test_the_tables_of_a_pattern_land_in_another_schema_under_their_own_names(tmp_path: Path) -> None:
    shop = group(tmp_path, "{table: app.*, as: raw.*}", '{table: "odd.*", as: \'"Odd Raw".*\'}')
    found = expanded(shop, names("app.a", "odd.b"))
    assert [each.target for each in found.tables] == [TableName("raw", "a"), TableName("Odd Raw", "b")]
    assert [each.brings(TableName("raw", "x")) for each in shop.patterns] == [True, False]


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("{table: app.*, columns: [id]}", "groups.shop.tables[0]: `columns` names columns of one table"),
        ("{table: app.*, types: {id: json}}", "groups.shop.tables[0]: `types` names columns of one table"),
        ("{table: app.*, partition_by: [id]}", "groups.shop.tables[0]: `partition_by` names columns of one table"),
        ("{table: app.*, exclude: [tmp_*]}", "groups.shop.tables[0].exclude: name the schema too: 'tmp_*'"),
        ("{table: app.*, exclude: []}", "groups.shop.tables[0].exclude: expected a list of patterns"),
        ("{table: app.*, exclude: app.x}", "groups.shop.tables[0].exclude: expected a list of patterns"),
        ("{table: app.*, exclude: [7]}", "groups.shop.tables[0].exclude: not a pattern of tables: 7"),
        ("{table: app.*, as: raw.orders}", "groups.shop.tables[0].as: not a schema for the tables of a pattern"),
        ("{table: app.*, as: r*.*}", "groups.shop.tables[0].as: not a schema for the tables of a pattern"),
        ("{table: app.*, as: 7}", "groups.shop.tables[0].as: not a schema for the tables of a pattern: 7"),
        ("{table: app.*, moed: history}", "groups.shop.tables[0].moed: unknown key 'moed'\nhint: did you mean 'mode'?"),
        ("{table: app.a.*}", "groups.shop.tables[0].table: not a table name"),
        ("{table: app.a, as: raw.*}", "groups.shop.tables[0].as: names one table, and cannot be a pattern: 'raw.*'"),
        ("app.*, public.*, app.*", "groups.shop.tables[2]: 'app.*' is already listed at groups.shop.tables[0]"),
    ],
)
def test_what_a_pattern_cannot_have_is_refused(tmp_path: Path, entry: str, message: str) -> None:
    assert problem(tmp_path, FILE % entry).startswith(message)


def test_a_route_may_read_a_table_that_only_a_pattern_brings(tmp_path: Path) -> None:
    text = FILE % "{table: app.*, exclude: [app.tmp_*]}"
    assert load(tmp_path, text + ROUTES % "app.orders").routes["r"].source.table == TableName("app", "orders")
    said = problem(tmp_path, text + ROUTES % "app.tmp_1")
    assert said == "routes.r.from.table: group 'shop' has no table 'app.tmp_1'\nhint: its tables: app.*"
    assert "cannot be a pattern" in problem(tmp_path, text + ROUTES % "app.*")


def test_a_table_of_a_pattern_gives_way_where_something_else_lands(tmp_path: Path) -> None:
    more = """
  more: {lake: main, tables: ["*.taken", {table: "c.*", as: raw.*}]}
routes:
  r: {from: {group: more, table: x.taken}, by: v, to: [{value: v, lake: main, as: a.routed}]}
"""
    config = load(tmp_path, FILE % "public.taken, {table: public.z, as: raw.own}, a.*, b.*" + more)
    there = names("public.taken", "a.one", 'a."ONE"', "a.routed", "b.two", "c.own", "c.two", "x.taken")
    groups = {name: expanded(each, there) for name, each in config.groups.items()}
    found = {str(table.table): first for _, table, first in crowded_out(Parts(config.lakes, groups, config.routes))}
    assert found == {
        'a."ONE"': "a.one of group 'shop'",
        "a.routed": "routes.r.to[0]",
        "public.taken": "groups.shop.tables[0]",
        "c.own": "groups.shop.tables[1]",
    }


def test_the_json_schema_takes_an_entry_for_a_table_or_for_a_pattern() -> None:
    schema = json.loads(json.dumps(Config.model_json_schema()))
    good = ["app.*", "{table: app.*, exclude: [app.tmp_*], as: raw.*}", "app.t", "{table: app.t, exclude: [id]}"]
    for entry in (*good, "'\"odd*\".t'"):
        jsonschema.validate(yaml.safe_load(FILE % entry), schema)
    for entry in ("{table: app.*, columns: [id]}", "{table: app.t, as: raw.*}"):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(yaml.safe_load(FILE % entry), schema)
