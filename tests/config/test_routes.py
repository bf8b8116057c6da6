"""Routes in the config file: what they mean, and what it says about every mistake in them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

import jsonschema
import pytest
import yaml

from headwater.change import TableName
from headwater.config import (
    Config,
    FromTable,
    FromTemplate,
    HashInstance,
    Iceberg,
    ListInstance,
    Route,
)
from headwater.errors import ConfigError
from headwater.sink.addresses import row_address, template_address

BASE = """
source: postgresql://app@db/shop
log: ./log
lakes:
  main: {ducklake: "postgresql://lake@db/lakes?schema=main", data_path: s3://bucket/main}
  acme: {ducklake: "sqlite:///acme.sqlite", data_path: ./acme}
  globex: {ducklake: "sqlite:///globex.sqlite", data_path: ./globex}
  ice: {iceberg: {type: sql, uri: "sqlite:///ice.sqlite", warehouse: ./ice}}
groups:
  shop: {lake: main, tables: [public.orders, {table: public.events, as: raw.events}]}
"""
DUCK = 'ducklake: "postgresql://lake@db/lakes?schema=t_{value}", data_path: "s3://tenants/{value}/"'


def with_route(body: str, more: str = "") -> str:
    """A file with one route `r`; `body` is a flow mapping without `from` and `by`, which may be given, too."""
    given = body if "from:" in body else f"from: {{lake: main, table: public.orders}}, {body}"
    return f"{BASE}routes:\n  r: {{{given if 'by:' in given else f'by: company, {given}'}}}\n{more}"


def load(folder: Path, text: str, env: Mapping[str, str] | None = None) -> Config:
    (folder / "headwater.yaml").write_text(text)
    return Config.load(folder / "headwater.yaml", env or {})


def route(folder: Path, body: str) -> Route:
    return load(folder, with_route(body)).routes["r"]


def problems(folder: Path, text: str, env: Mapping[str, str] | None = None) -> list[str]:
    with pytest.raises(ExceptionGroup) as caught:
        load(folder, text, env)
    assert all(isinstance(each, ConfigError) for each in caught.value.exceptions)
    return [str(each).split("headwater.yaml: ", 1)[1] for each in caught.value.exceptions]


def test_a_route_by_a_list(tmp_path: Path) -> None:
    found = route(tmp_path, "to: [{value: acme, lake: acme}, {value: globex, lake: globex, as: sales.orders}]")
    assert found.source.lake == "main"
    assert (found.by, found.keys, found.seed, found.mode, found.where) == ("company", (), "scan", "mirror", None)
    assert (found.poll, found.batch.rows, found.batch.bytes) == (timedelta(seconds=2), 500_000, 256_000_000)
    assert isinstance(found.to, tuple)
    assert [(each.value, each.lake, found.target(each.renamed)) for each in found.to] == [
        ("acme", "acme", TableName("public", "orders")),
        ("globex", "globex", TableName("sales", "orders")),
    ]


def test_everything_that_a_route_can_say(tmp_path: Path) -> None:
    found = route(
        tmp_path,
        "from: {group: shop, table: public.events}, by: kind, keys: [id, 7], seed: latest, columns: [id, 7, kind],"
        " where: amount > 0, default: {lake: acme, as: rest.events}, poll: 500ms, batch: {rows: 10, bytes: 1 MiB},"
        " to: [{value: a, lake: ice}]",
    )
    assert (found.source.group, found.keys, found.columns) == ("shop", ("id", "7"), ("id", "7", "kind"))
    assert (found.seed, found.where, found.poll) == ("latest", "amount > 0", timedelta(milliseconds=500))
    assert (found.batch.rows, found.batch.bytes) == (10, 1024 * 1024)
    assert found.default is not None
    assert found.default.renamed == TableName("rest", "events")
    assert [where for where, _ in found.listed()] == ["to[0]", "default"]


@pytest.mark.parametrize(
    ("body", "rows"), [("", 10_000), ("inline: on, ", 10_000), ("inline: {rows: 7}, ", 7), ("inline: off, ", None)]
)
def test_a_route_says_how_many_rows_a_destination_may_have_in_its_catalog(
    tmp_path: Path, body: str, rows: int | None
) -> None:
    found = route(tmp_path, f"{body}from: {{lake: main, table: t}}, by: c, keys: [id], to: [{{value: a, lake: acme}}]")
    assert (found.inline and found.inline.rows) == rows


def test_a_route_that_only_adds_rows_needs_no_key(tmp_path: Path) -> None:
    assert route(tmp_path, "mode: append, exclude: [x], to: [{value: a, lake: acme}]").mode == "append"


@pytest.mark.parametrize(
    ("written", "lake"), [("public.tenants", None), ("{lake: main, table: public.tenants}", "main")]
)
def test_destinations_that_a_table_lists(tmp_path: Path, written: str, lake: str | None) -> None:
    found = route(tmp_path, f"to: {{from_table: {written}}}").to
    assert isinstance(found, FromTable)
    assert (found.table.lake, found.table.table) == (lake, TableName("public", "tenants"))
    assert found.every == timedelta(seconds=30)
    slower = route(tmp_path, f"to: {{from_table: {written}, every: 5m}}").to
    assert isinstance(slower, FromTable)
    assert slower.every == timedelta(minutes=5)


def test_destinations_by_a_template(tmp_path: Path) -> None:
    found = route(tmp_path, f"to: {{lake_template: {{{DUCK}}}, as: shop.orders, allow: [acme, t_*, 01]}}").to
    assert isinstance(found, FromTemplate)
    assert (found.allow, found.limit, found.renamed) == (("acme", "t_*", "01"), 1000, TableName("shop", "orders"))
    address = template_address(found.lake, "Ä/..", {}, frozenset())
    assert str(address) == "postgresql://lake@db/lakes?schema=t__xc3_x84_x2f_x2e_x2e"
    assert address.folders() == {"lake": "s3://tenants/_xc3_x84_x2f_x2e_x2e"}


def test_a_template_may_be_of_files_relative_to_the_config(tmp_path: Path) -> None:
    found = route(
        tmp_path,
        'to: {lake_template: {ducklake: "sqlite:///t/{value}.sqlite", data_path: "./t/{value}"}, allow: ["*"]}',
    ).to
    assert isinstance(found, FromTemplate)
    address = template_address(found.lake, "a", {}, frozenset())
    assert str(address) == f"sqlite:///{tmp_path}/t/a.sqlite"
    assert address.folders() == {"lake": f"{tmp_path}/t/a", "catalog of": f"{tmp_path}/t"}


@pytest.mark.parametrize(
    ("properties", "shown"),
    [
        ('type: sql, uri: "sqlite:///{value}.sqlite", warehouse: "./{value}"', "{folder}/_x41.sqlite"),
        ('type: rest, uri: "https://catalog", warehouse: "t_{value}", token: "{value}"', "https://catalog"),
    ],
)
def test_a_template_of_iceberg_lakes_fills_every_property_but_secrets(
    tmp_path: Path, properties: str, shown: str
) -> None:
    found = route(tmp_path, f'to: {{lake_template: {{iceberg: {{{properties}}}}}, allow: ["*"]}}').to
    assert isinstance(found, FromTemplate)
    assert isinstance(found.lake, Iceberg)
    address = template_address(found.lake, "A", {}, frozenset())
    assert shown.format(folder=tmp_path) in str(address)
    assert found.lake.properties["warehouse"].endswith("{value}")  # the template stays one
    assert "token" not in found.lake.properties or address.properties["token"] == "{value}"  # type: ignore[attr-defined]


def test_one_lake_for_all_values_with_a_table_for_each(tmp_path: Path) -> None:
    one = 'ducklake: "sqlite:///all.sqlite", data_path: ./all'
    found = route(tmp_path, f'to: {{lake_template: {{{one}}}, as: "t_{{value}}.orders", allow: ["*"]}}').to
    assert isinstance(found, FromTemplate)
    assert found.renamed == TableName("t_{value}", "orders")


@pytest.mark.parametrize(
    "written", ["01", "yes", "NO", "1.0", "1e3", "0x10", "2024-01-01", "12:30:00", "1_000", "true", ".inf", "=", "a b"]
)
def test_a_value_is_the_text_that_the_file_has(tmp_path: Path, written: str) -> None:
    text = f"""{BASE}routes:
  r:
    from: {{lake: main, table: public.orders}}
    by: company
    to:
      - {{value: {written}, lake: acme}}
      - value: '{written} '
        lake: globex
instance: {{partition: list, values: [{written}]}}
"""
    config = load(tmp_path, text)
    found = config.routes["r"].to
    assert isinstance(found, tuple)
    assert [each.value for each in found] == [written, f"{written} "]
    assert config.instance == ListInstance(partition="list", values=(written,))


def test_columns_are_the_text_that_the_file_has(tmp_path: Path) -> None:
    found = route(tmp_path, "by: on, keys: [no], columns: [no, on, 010], where: true, to: [{value: a, lake: acme}]")
    assert (found.by, found.keys, found.columns, found.where) == ("on", ("no",), ("no", "on", "010"), "true")


def test_a_value_that_yaml_has_already_changed_is_refused(tmp_path: Path) -> None:
    text = with_route("to: [{<<: *one, lake: acme}]").replace("log:", "log: &log", 1)
    anchored = text.replace("lakes:", "spark: {conf: &one {value: 01}}\nlakes:", 1)
    (problem,) = problems(tmp_path, anchored)
    assert problem == "routes.r.to[0].value: YAML makes 1 of it, which may not be what you wrote: put it in quotes"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("to: []", "routes.r.to: lists no destination"),
        ("to: acme", "routes.r.to: expected a list of destinations, or either `from_table` or `lake_template`, found"),
        ("to: {form_table: x}", "routes.r.to: expected a list of destinations, or either `from_table`"),
        ("to: {from_table: a, lake_template: {}}", "routes.r.to: expected a list of destinations, or either"),
        (
            "to: [{value: a, lake: acme, sa: x}]",
            "routes.r.to[0].sa: unknown key 'sa'\nhint: known keys: value, lake, as",
        ),
        ("to: [{value: a, lake: amce}]", "routes.r.to[0].lake: no lake 'amce'\nhint: known lakes: main, acme"),
        ("to: [{value: , lake: acme}]", "routes.r.to[0].value: expected a value, found nothing"),
        ("to: [{value: [a], lake: acme}]", "routes.r.to[0].value: expected a single value, found a list"),
        ("to: [{lake: acme}]", "routes.r.to[0].value: missing"),
        ("to: {from_table: a.b.c}", "routes.r.to.from_table.table: not a table name: 'a.b.c'"),
        ("to: {from_table: {lake: mian, table: t}}", "routes.r.to.from_table.lake: no lake 'mian'"),
        ("to: {from_table: t, evry: 3s}", "routes.r.to.evry: unknown key 'evry'\nhint: did you mean 'every'?"),
        ("to: {from_table: t, every: 3}", "routes.r.to.every: not a duration"),
        ("to: [{value: a, lake: acme}], default: {lake: x}", "routes.r.default.lake: no lake 'x'"),
        ("from: {lake: mian, table: t}, to: [{value: a, lake: acme}]", "routes.r.from.lake: no lake 'mian'"),
        ("from: {group: shp, table: t}, to: [{value: a, lake: acme}]", "routes.r.from.group: no group 'shp'"),
        (
            "from: {group: shop, table: public.oders}, to: [{value: a, lake: acme}]",
            "routes.r.from.table: group 'shop' has no table 'public.oders'\nhint: its tables: public.orders, public.ev",
        ),
        ("from: {table: t}, to: [{value: a, lake: acme}]", "routes.r.from: name either a `lake` or a `group`"),
        (
            "from: {lake: ice, table: t}, to: [{value: a, lake: acme}]",
            "routes.r.from.lake: lake 'ice' is an Iceberg lake, and routes read DuckLakes\nhint: if a group mirrors",
        ),
        ("keys: [id, id], to: [{value: a, lake: acme}]", "routes.r.keys: names column 'id' twice"),
        ("keys: [id], columns: [x], to: [{value: a, lake: acme}]", "routes.r: `keys` names 'id', a column that is not"),
        ("keys: [id], exclude: [id], to: [{value: a, lake: acme}]", "routes.r: `keys` names 'id', a column that is"),
        ("exclude: [x], columns: [y], to: [{value: a, lake: acme}]", "routes.r: name either the `columns` to carry"),
        ("keys: [id], mode: append, to: [{value: a, lake: acme}]", "routes.r: `mode: append` only adds rows, and has"),
        ("mode: history, to: [{value: a, lake: acme}]", "routes.r.mode: should be 'mirror' or 'append'"),
        ("seed: now, to: [{value: a, lake: acme}]", "routes.r.seed: should be 'scan', 'latest' or 'earliest'"),
        ("where: ' ', to: [{value: a, lake: acme}]", "routes.r.where: expected a condition in SQL, found nothing"),
        ("batch: {rows: 0}, to: [{value: a, lake: acme}]", "routes.r.batch.rows: should be greater than or equal to 1"),
        ("batch: {bytes: 5 potatoes}, to: [{value: a, lake: acme}]", "routes.r.batch.bytes: not a size: '5 potatoes'"),
        ("batch: {bytes: 0MB}, to: [{value: a, lake: acme}]", "routes.r.batch.bytes: a size must be greater than 0"),
        ("batch: {bytes: -1}, to: [{value: a, lake: acme}]", "routes.r.batch.bytes: not a size: -1"),
        (f"to: {{lake_template: {{{DUCK}}}}}", "routes.r.to.allow: missing"),
        (f"to: {{lake_template: {{{DUCK}}}, allow: []}}", "routes.r.to.allow: names no value"),
        (f"to: {{lake_template: {{{DUCK}}}, allow: [a, a]}}", "routes.r.to.allow: names 'a' twice"),
        (f"to: {{lake_template: {{{DUCK}}}, allow: [a], limit: 0}}", "routes.r.to.limit: should be greater than or"),
    ],
)
def test_a_mistake_in_a_route_is_named_with_its_place(tmp_path: Path, body: str, expected: str) -> None:
    (problem,) = problems(tmp_path, with_route(body))
    assert problem.startswith(expected)


@pytest.mark.parametrize(
    ("lake", "renamed", "expected"),
    [
        ('ducklake: "sqlite:///t.sqlite", data_path: ./t', None, "all values would share one table: put {value} into"),
        ('ducklake: "sqlite:///t.sqlite", data_path: "./{value}"', None, "all values would share one table"),
        ('ducklake: "sqlite:///{value}", data_path: ./t', None, "`data_path` must have {value}, as the catalog has"),
        ('ducklake: "sqlite:///t", data_path: "./{value}"', "a_{value}", "`data_path` has {value}, and the catalog"),
        ('ducklake: "sqlite:///{value}-{tenant}", data_path: "./{value}"', None, "there is no other placeholder than"),
        ('ducklake: "sqlite:///{value}", data_path: "./{value}"', "{Value}", "there is no other placeholder than"),
        (
            f'ducklake: "postgresql://db/x?schema={"p" * 16}{{value}}", data_path: "./{{value}}"',
            None,
            "the schema's name has up to 64 bytes with a value in it, of which PostgreSQL keeps 63: shorten what is",
        ),
        (
            'ducklake: "postgresql://db/{value}{value}?schema=x", data_path: "./{value}"',
            None,
            "the database's name has up to 96 bytes",
        ),
        ('iceberg: {type: sql, uri: "sqlite:///i", warehouse: "./{value}"}', None, "all values would share one table"),
        ('iceberg: {type: sql, uri: "sqlite:///{value}", warehouse: ./i}', None, "`warehouse` must have {value}"),
        ("iceberg: {type: rest, uri: 'https://c', token: '{value}'}", None, "all values would share one table"),
    ],
)
def test_a_template_has_a_place_of_its_own_for_each_value(
    tmp_path: Path, lake: str, renamed: str | None, expected: str
) -> None:
    as_ = f', as: "{renamed}"' if renamed else ""
    (problem,) = problems(tmp_path, with_route(f'to: {{lake_template: {{{lake}}}{as_}, allow: ["*"]}}'))
    assert problem.startswith(f"routes.r.to: {expected}")


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (
            "to: [{value: a, lake: acme}, {value: a, lake: globex}]",
            "routes.r.to[1].value: 'a' has a destination already, at routes.r.to[0]",
        ),
        (
            "to: [{value: a, lake: acme}, {value: b, lake: acme}]",
            "routes.r.to[1]: value 'b' lands in 'public.orders' of lake 'acme', as routes.r.to[0] does",
        ),
        (
            "to: [{value: a, lake: acme}, {value: b, lake: acme, as: 'PUBLIC.Orders'}]",
            "routes.r.to[1]: value 'b' lands in '\"PUBLIC\".\"Orders\"' of lake 'acme', as routes.r.to[0] does",
        ),
        (
            "to: [{value: a, lake: acme}], default: {lake: acme}",
            "routes.r.default: the rest lands in 'public.orders' of lake 'acme', as routes.r.to[0] does",
        ),
        (
            "to: [{value: a, lake: main}]",
            "routes.r.to[0]: value 'a' lands in 'public.orders' of lake 'main', which the route reads",
        ),
        (
            "from: {group: shop, table: public.events}, to: [{value: a, lake: main, as: raw.events}]",
            "routes.r.to[0]: value 'a' lands in 'raw.events' of lake 'main', which the route reads",
        ),
        (
            "to: [{value: a, lake: main, as: raw.Events}]",
            "routes.r.to[0]: value 'a' lands in 'raw.\"Events\"' of lake 'main', as groups.shop.tables[1] does",
        ),
        (
            'to: {lake_template: {ducklake: "postgresql://lake@db/lakes?schema={value}", data_path: "s3://t/{value}"},'
            ' allow: ["m*"]}',
            "routes.r.to: a value could land in 'public.orders' of the lake, which the route reads"
            "\nhint: put something before {value}, allow fewer values",
        ),
        (
            'to: {lake_template: {ducklake: "postgresql://lake@db/lakes?schema={value}", data_path: "s3://t/{value}"},'
            ' as: raw.events, allow: ["*"]}',
            "routes.r.to: a value could land in 'raw.events' of the lake, as groups.shop.tables[1] does",
        ),
        (
            'to: {lake_template: {ducklake: "sqlite:///acme.sqlite", data_path: ./acme}, as: "t.{value}",'
            ' allow: ["*"]}, default: {lake: acme, as: T.rest}',
            "routes.r.to: a value could land in 't.{value}' of the lake, as routes.r.default does",
        ),
    ],
)
def test_no_table_is_for_two(tmp_path: Path, body: str, expected: str) -> None:
    (problem,) = problems(tmp_path, with_route(body))
    assert problem.replace('"{value}"', "{value}").startswith(expected)


def test_a_template_that_meets_a_lake_only_with_a_value_that_is_not_allowed_is_fine(tmp_path: Path) -> None:
    lake = 'ducklake: "postgresql://lake@db/lakes?schema={value}", data_path: "s3://t/{value}"'
    assert route(tmp_path, f"to: {{lake_template: {{{lake}}}, allow: [acme, 't_*']}}")


def test_two_routes_cannot_land_in_one_table(tmp_path: Path) -> None:
    other = "  other: {from: {group: shop, table: public.events}, by: x, to: [{value: 1, lake: acme, as: orders}]}\n"
    (problem,) = problems(tmp_path, with_route("to: [{value: a, lake: acme}]", other))
    assert problem.startswith(
        "routes.other.to[0]: value '1' lands in 'public.orders' of lake 'acme', as routes.r.to[0]"
    )
    template = f"{{lake_template: {{{DUCK}}}, as: x, allow: ['*']}}"
    more = f"  other: {{from: {{group: shop, table: public.events}}, by: x, to: {template}}}\n"
    (problem,) = problems(tmp_path, with_route(f"to: {template}", more))
    assert problem.startswith("routes.other.to: a value could land in 'public.x' of the lake, as routes.r.to does")


def test_routes_may_be_chained_but_not_into_a_circle(tmp_path: Path) -> None:
    onward = "  onward: {from: {lake: acme, table: public.orders}, by: x, to: [{value: 1, lake: globex}]}\n"
    assert load(tmp_path, with_route("to: [{value: a, lake: acme}]", onward))
    first = "from: {lake: globex, table: public.orders}, to: [{value: a, lake: acme}]"
    assert problems(tmp_path, with_route(first, onward)) == [
        f"routes.{name}: its rows come back to the table that it reads, by way of other routes"
        "\nhint: let one of these routes land elsewhere"
        for name in ("r", "onward")
    ]


def test_all_problems_of_routes_are_reported_at_once_beside_malformed_ones(tmp_path: Path) -> None:
    more = """  broken: {by: x, to: [{value: 1, lake: nowhere}]}
  twice: {from: {lake: main, table: t}, by: x, to: [{value: 1, lake: acme}, {value: 1, lake: acme}]}
instance: {partition: hash, total: 2, ordinal: 2}
"""
    reported = problems(tmp_path, with_route("to: [{value: a, lake: main}]", more))
    assert sorted(each.split(": ")[0] for each in reported) == [
        "instance",
        "routes.broken.from",
        "routes.broken.to[0].lake",
        "routes.r.to[0]",
        "routes.twice.to[1]",
        "routes.twice.to[1].value",
    ]


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("{partition: hash, total: 4, ordinal: 0}", HashInstance(partition="hash", total=4, ordinal=0)),
        ("{partition: list, values: [acme, 01]}", ListInstance(partition="list", values=("acme", "01"))),
    ],
)
def test_an_instance_has_a_part_of_the_destinations(tmp_path: Path, written: str, expected: object) -> None:
    assert load(tmp_path, f"{BASE}instance: {written}\n").instance == expected
    assert load(tmp_path, BASE).instance is None


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("{partition: hash, total: 4, ordinal: 4}", "instance: `ordinal` is 4 of 4: it counts from 0 to 3"),
        ("{partition: hash, total: 4}", "instance.ordinal: missing"),
        ("{partition: hash, total: 0, ordinal: 0}", "instance.total: should be greater than or equal to 1"),
        ("{partition: hash, total: 2, ordinal: -1}", "instance.ordinal: should be greater than or equal to 0"),
        ("{partition: hash, totl: 2, total: 2, ordinal: 0}", "instance.totl: unknown key 'totl'\nhint: did you mean"),
        ("{partition: list, values: []}", "instance.values: names no value"),
        ("{partition: range}", "instance: expected `partition: hash`, `total` and `ordinal`, or `partition: list`"),
        ("7", "instance: expected `partition: hash`"),
    ],
)
def test_a_mistake_in_an_instance_is_named(tmp_path: Path, written: str, expected: str) -> None:
    (problem,) = problems(tmp_path, f"{BASE}instance: {written}\n")
    assert problem.startswith(expected)


def test_no_password_of_a_template_is_ever_shown(tmp_path: Path) -> None:
    text = with_route(
        'to: {lake_template: {ducklake: "postgresql://l:${SECRET}@db/lakes?schema=t_{value}", data_path: "s3://t/{value}"},'
        ' allow: ["*"]}',
        "  ice: {from: {lake: main, table: t}, by: x, to: {lake_template: {iceberg: {type: rest, token: hunter3,"
        ' uri: "https://u:hunter4@c", warehouse: "{value}"}}, allow: ["*"]}}\n',
    )
    config = load(tmp_path, text, {"SECRET": "hunter{2}"})
    assert config.secrets() >= {"hunter{2}", "hunter%7B2%7D", "hunter3", "hunter4"}
    assert "hunter" not in f"{config!r} {config}"
    to = config.routes["r"].to
    assert isinstance(to, FromTemplate)
    assert "hunter" not in str(template_address(to.lake, "a", {}, config.secrets()))


@pytest.mark.parametrize(
    "template",
    [
        'ducklake: "postgresql://l:hunter2@db:x/lakes?schema={value}", data_path: "s3://t/{value}"',
        'ducklake: "postgresql://l:{hunter2}@db/lakes?schema={value}", data_path: "s3://t/{value}"',
        'ducklake: "postgresql://l:hunter2@db/lakes", data_path: "s3://t/{value}"',
        'iceberg: {type: rest, uri: "https://u:hunter2@c", token: hunter2}',
    ],
)
def test_no_password_of_a_template_gets_into_an_error(tmp_path: Path, template: str) -> None:
    reported = problems(tmp_path, with_route(f'to: {{lake_template: {{{template}}}, allow: ["*"]}}'))
    assert "hunter2" not in "\n".join(reported)


def test_a_lake_that_a_table_names() -> None:
    assert str(row_address("sqlite:////srv/a.sqlite", "/srv/a", {})) == "sqlite:////srv/a.sqlite"
    remote = row_address("postgresql://l:hunter2@db/lakes?schema=a", "s3://bucket/a/", {})
    assert str(remote) == "postgresql://l@db/lakes?schema=a"
    assert remote.folders() == {"lake": "s3://bucket/a"}


@pytest.mark.parametrize(
    ("catalog", "data_path", "expected"),
    [
        ("sqlite:///a.sqlite", "/srv/a", "has a relative path"),
        ("sqlite:////a.sqlite", "srv/a", "has a relative path"),
        ("", "", "has a relative path"),
        ("mysql://l:hunter2@db", "/srv/a", "cannot be used: ducklake: not a DuckLake catalog"),
        ("postgresql://l:hunter2@db:x/y", "gs://a", "ducklake: not a libpq URL"),
        ("sqlite:////a", "gs://a", "data_path: neither a folder nor an s3:// place"),
    ],
)
def test_a_lake_that_a_table_names_badly_is_refused(catalog: str, data_path: str, expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        row_address(catalog, data_path, {})
    assert expected in str(caught.value)
    assert caught.value.hint
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "body",
    [
        "to: [{value: 7, lake: acme}]",
        "to: {from_table: public.tenants}",
        "to: {from_table: {lake: main, table: public.tenants}, every: 30s}",
        f"to: {{lake_template: {{{DUCK}}}, allow: ['*', 7], limit: 5}}",
        "to: [{value: yes, lake: acme}], batch: {bytes: 256MB}, where: x > 1, default: {lake: globex}, mode: append",
    ],
)
def test_the_schema_agrees_with_what_is_read(tmp_path: Path, body: str) -> None:
    text = with_route(body, "instance: {partition: hash, total: 2, ordinal: 1}\n")
    assert load(tmp_path, text).routes
    schema = json.loads(json.dumps(Config.model_json_schema()))
    jsonschema.validate(yaml.safe_load(text), schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(yaml.safe_load(text.replace("to: ", "two: ")), schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(yaml.safe_load(text.replace("ordinal", "ordnial")), schema)
