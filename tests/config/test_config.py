"""The config file: what it means, and what it says about every mistake in it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

import jsonschema
import pytest
import yaml

from headwater.change import TableName
from headwater.config import Config, DuckLake, Iceberg
from headwater.errors import ConfigError

SMALL = """
source: postgresql://app@db/shop
log: ./log
lakes:
  main: {ducklake: "sqlite:///lake.sqlite", data_path: ./lake}
groups:
  shop:
    tables: [public.orders]
"""

# The example of the public interface, word for word.
WHOLE = """
source: postgresql://app@db/shop          # libpq URL
state: ${STATE_URL}                       # optional: another PostgreSQL for the schema `headwater`
log: ./data/log                           # a folder, or s3://bucket/prefix
lakes:
  main:   {ducklake: "sqlite:///data/lake.sqlite", data_path: ./data/lake}
  shared: {ducklake: "postgresql://lake@db/lakes?schema=shared", data_path: s3://bucket/shared}
  ice:    {iceberg: {type: sql, uri: "sqlite:///data/ice.sqlite", warehouse: ./data/ice}}
  acme:   {ducklake: "sqlite:////srv/acme.sqlite", data_path: /srv/acme}
groups:
  shop:
    lake: main
    flush: {interval: 2s, rows: 500000}
    tables:
      - public.orders                                        # lands as public.orders in the lake
      - {table: public.events, as: raw.events, partition_by: ["day(created)"]}
      - {table: public.audit, mode: history}                 # mirror (default) | history
      - {table: "app.*", exclude: ["app.tmp_*"]}              # patterns: tables created later join too
routes:
  by_company:
    from: {lake: main, table: public.orders}                 # or {group: shop, table: public.orders}
    by: company
    keys: [id]                                               # default: the source's key
    seed: scan                                               # scan | latest | earliest
    to:
      - {value: acme, lake: acme}                            # also: as:
spark: {master: "local[*]", conf: {}}
server: {host: 127.0.0.1, port: 8080, token: ${HEADWATER_TOKEN:-}}   # port 0: any free one
"""


def load(folder: Path, text: str, env: Mapping[str, str] | None = None) -> Config:
    (folder / "headwater.yaml").write_text(text)
    return Config.load(folder / "headwater.yaml", env or {})


def problems(folder: Path, text: str, env: Mapping[str, str] | None = None) -> list[str]:
    with pytest.raises(ExceptionGroup) as caught:
        load(folder, text, env)
    assert all(isinstance(each, ConfigError) and each.exit_code == 2 for each in caught.value.exceptions)
    return [str(each) for each in caught.value.exceptions]


def test_the_example_of_the_public_interface_is_understood(tmp_path: Path) -> None:
    config = load(tmp_path, WHOLE, {"STATE_URL": "postgresql://state@db/state"})
    assert config.state_url == "postgresql://state@db/state"
    assert config.log.path == str(tmp_path / "data/log")
    assert config.ducklakes == {
        "main": DuckLake(ducklake=f"sqlite:///{tmp_path}/data/lake.sqlite", data_path=f"{tmp_path}/data/lake"),
        "shared": DuckLake(ducklake="postgresql://lake@db/lakes?schema=shared", data_path="s3://bucket/shared"),
        "acme": DuckLake(ducklake="sqlite:////srv/acme.sqlite", data_path="/srv/acme"),
    }
    ice = config.lakes["ice"]
    assert isinstance(ice, Iceberg)
    assert ice.properties["uri"] == f"sqlite:///{tmp_path}/data/ice.sqlite"
    assert ice.properties["warehouse"] == f"{tmp_path}/data/ice"
    group = config.groups["shop"]
    assert (group.lake, group.flush.interval, group.flush.rows) == ("main", timedelta(seconds=2), 500_000)
    assert [table.target for table in group.tables] == [
        TableName("public", "orders"),
        TableName("raw", "events"),
        TableName("public", "audit"),
    ]
    assert config.server is not None
    assert config.server.token.get_secret_value() == ""


def test_what_is_left_out_has_sensible_defaults(tmp_path: Path) -> None:
    config = load(tmp_path, SMALL)
    assert config.state_url == config.source
    assert config.groups["shop"].lake == "main"  # the only one
    assert config.groups["shop"].flush.interval == timedelta(seconds=2)
    assert config.spark.master == "local[*]"
    assert config.server is None


def test_a_log_is_a_place_or_says_how_large_it_may_be_and_how_long_it_keeps_what_was_delivered(tmp_path: Path) -> None:
    plain = load(tmp_path, SMALL).log
    assert (plain.path, plain.max_bytes, plain.retention) == (str(tmp_path / "log"), None, timedelta(hours=1))
    full = load(
        tmp_path, SMALL.replace("log: ./log", "log: {path: s3://bucket/log, max_bytes: 50GB, retention: 1d}")
    ).log
    assert (full.path, full.max_bytes, full.retention) == ("s3://bucket/log", 50_000_000_000, timedelta(days=1))


def test_the_config_cannot_be_changed(tmp_path: Path) -> None:
    config = load(tmp_path, SMALL)
    with pytest.raises(ValueError, match="frozen"):
        config.source = "elsewhere"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("written", "meant"),
    [("2s", 2.0), ("500ms", 0.5), ("1m", 60.0), ("1.5s", 1.5), ("2 s", 2.0), ("1h", 3600.0)],
)
def test_durations_are_written_with_their_unit(tmp_path: Path, written: str, meant: float) -> None:
    config = load(tmp_path, SMALL + f"    flush: {{interval: {written}}}\n")
    assert config.groups["shop"].flush.interval.total_seconds() == meant


@pytest.mark.parametrize("written", ["2", "2 parsecs", "0s", "-1s", "", "[1]"])
def test_anything_else_is_not_a_duration(tmp_path: Path, written: str) -> None:
    (problem,) = problems(tmp_path, SMALL + f"    flush: {{interval: {written}}}\n")
    assert "groups.shop.flush.interval: " in problem
    assert "duration" in problem


@pytest.mark.parametrize(
    ("typo", "instead_of", "place", "suggestion"),
    [
        ("tabels:", "tables:", "groups.shop.tabels", "did you mean 'tables'?"),
        ("duckalke:", "ducklake:", "lakes.main.duckalke", "did you mean 'ducklake'?"),
        ("datapath:", "data_path:", "lakes.main.datapath", "did you mean 'data_path'?"),
        ("logg:", "log:", "logg", "did you mean 'log'?"),
        ("log: {path: log, max_byte: 1GB}", "log: ./log", "log.max_byte", "did you mean 'max_bytes'?"),
        ("tables: [{tabel: public.orders}]", "tables: [public.orders]", "groups.shop.tables[0].tabel", "'table'?"),
        ("flsh: {}\n    tables:", "tables:", "groups.shop.flsh", "did you mean 'flush'?"),
        ("flush: {intervall: 2s}\n    tables:", "tables:", "groups.shop.flush.intervall", "'interval'?"),
        ("server: {prt: 1}\nlog:", "log:", "server.prt", "did you mean 'port'?"),
        ("zzz: 1\nlog:", "log:", "zzz", "known keys: source, state, log"),
    ],
)
def test_an_unknown_key_is_named_with_a_suggestion(
    tmp_path: Path, typo: str, instead_of: str, place: str, suggestion: str
) -> None:
    found = [each for each in problems(tmp_path, SMALL.replace(instead_of, typo)) if "unknown key" in each]
    assert len(found) == 1
    assert f"headwater.yaml: {place}: unknown key" in found[0]
    assert suggestion in found[0]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("source: postgresql://app@db/shop", "", "source: missing\nhint: add `source:`; "),
        ("source: postgresql", "source: mysql", "source: not a PostgreSQL URL (write"),
        ("app@db/shop", "app@db/shop?nonsense=1", "source: not a libpq URL"),
        ("log: ./log", "log: gs://bucket", "log: neither a folder nor an s3:// place: 'gs://bucket'"),
        ("log: ./log", "log: s3://", "log: neither a folder nor an s3:// place: 's3://'"),
        ("log: ./log", "log: 7", "log: expected a folder, an s3:// place, or a mapping with `path`, found 7"),
        ("log: ./log", "log: {max_bytes: 1GB}", "log.path: missing"),
        ("log: ./log", "log: {path: gs://bucket}", "log.path: neither a folder nor an s3:// place: 'gs://bucket'"),
        ("log: ./log", "log: {path: log, max_bytes: much}", "log.max_bytes: not a size: 'much'"),
        ("log: ./log", "log: {path: log, retention: 0s}", "log.retention: a duration must be longer than 0"),
        (
            "sqlite:///lake.sqlite",
            "sqlite://lake.sqlite",
            "lakes.main.ducklake: not a DuckLake catalog (write",
        ),
        ("sqlite:///lake.sqlite", "sqlite:///", "lakes.main.ducklake: names no file or folder"),
        ("tables: [public.orders]", "tables: [a.b.c]", "groups.shop.tables[0].table: not a table name: 'a.b.c'"),
        ("tables: [public.orders]", "tables: [7]", "groups.shop.tables[0]: expected a mapping, found 7"),
        ("tables: [public.orders]", "tables: {}", "groups.shop.tables: should be a list"),
        ("tables: [public.orders]", "tables: [a, a]", "groups.shop.tables[1]: 'public.a' is already listed"),
        ("tables:", "lake: mian\n    tables:", "groups.shop.lake: no lake 'mian'\nhint: known lakes: main"),
        ("tables:", "flush: {rows: 0}\n    tables:", "groups.shop.flush.rows: should be greater than or equal to 1"),
        ("tables:", "flush: {rows: true}\n    tables:", "groups.shop.flush.rows: expected a number, found true"),
        ("shop:", "Shop!:", "groups.Shop!: string should match pattern"),
        ("  shop:\n    tables: [public.orders]", "  shop:", "groups.shop: expected a mapping, found nothing"),
        ("log:", "server: {port: 70000}\nlog:", "server.port: should be less than or equal to 65535, found 70000"),
        ("log:", "spark: {conf: {a: [1]}}\nlog:", "spark.conf.a: expected a single value, found a list"),
    ],
)
def test_a_bad_value_is_named_with_its_place(tmp_path: Path, old: str, new: str, expected: str) -> None:
    assert old in SMALL
    (problem,) = problems(tmp_path, SMALL.replace(old, new, 1))
    assert f"headwater.yaml: {expected}" in problem


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "'::'", "'[::]'", "192.168.1.7", "'2001:db8::1'", "mirror", "localhost.example"]
)
def test_a_host_that_others_reach_needs_a_token(tmp_path: Path, host: str) -> None:
    (problem,) = problems(tmp_path, f"{SMALL}server: {{host: {host}}}\n")
    assert "headwater.yaml: server: host " in problem
    assert "can be reached from other machines, and there is no token" in problem
    (problem,) = problems(tmp_path, f'{SMALL}server: {{host: {host}, token: "${{TOKEN:-}}"}}\n')
    assert "and there is no token" in problem  # an empty one is none
    server = load(tmp_path, f"{SMALL}server: {{host: {host}, token: secret}}\n").server
    assert server is not None


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "localhost", "'::1'", "'[::1]'", "''"])
def test_a_host_that_only_this_machine_reaches_needs_none(tmp_path: Path, host: str) -> None:
    assert load(tmp_path, f"{SMALL}server: {{host: {host}}}\n").server is not None


def test_all_problems_are_reported_at_once(tmp_path: Path) -> None:
    text = """
source: mysql://db
sate: x
log: ${NOWHERE}
lakes: {main: {ducklake: "sqlite:///a", data_path: b}, other: {ducklake: "sqlite:///c"}}
groups:
  one: {lake: mian, tabels: [a]}
  two: {lake: main, tables: [a, {table: b, as: A}]}
  three: {tables: [c]}
"""
    reported = problems(tmp_path, text)
    places = sorted(each.split(": ")[1] for each in reported)
    assert places == [
        "groups.one.lake",
        "groups.one.tabels",
        "groups.one.tables",
        "groups.three.lake",
        "groups.two.tables[1]",
        "lakes.other.data_path",
        "log",
        "sate",
        "source",
    ]


@pytest.mark.parametrize(
    "groups",
    [
        "{a: {tables: [x]}, b: {tables: [x]}}",
        "{a: {tables: [x]}, b: {tables: [{table: y, as: public.x}]}}",
        "{a: {tables: [x]}, b: {tables: ['\"X\"']}}",  # to a lake, names that differ in case only are the same
    ],
)
def test_two_tables_cannot_land_in_one(tmp_path: Path, groups: str) -> None:
    text = SMALL.replace("groups:\n  shop:\n    tables: [public.orders]", f"groups: {groups}")
    (problem,) = problems(tmp_path, text)
    assert "groups.b.tables[0]: " in problem
    assert "of lake 'main', as groups.a.tables[0] does" in problem


def test_the_same_table_may_go_into_two_lakes(tmp_path: Path) -> None:
    lakes = '{one: {ducklake: "sqlite:///1", data_path: a}, two: {ducklake: "sqlite:///2", data_path: b}}'
    groups = "{a: {lake: one, tables: [x]}, b: {lake: two, tables: [x]}}"
    config = load(tmp_path, f"source: postgresql://db\nlog: log\nlakes: {lakes}\ngroups: {groups}")
    assert set(config.groups) == {"a", "b"}


def test_one_lake_has_one_name(tmp_path: Path) -> None:
    twice = '\n  other: {ducklake: "sqlite:///lake.sqlite", data_path: ./lake}\ngroups:'
    reported = problems(tmp_path, SMALL.replace("\ngroups:", twice))
    assert any("lakes.other.ducklake: the same lake as lakes.main.ducklake" in each for each in reported)


def test_with_several_lakes_a_group_must_name_its_own(tmp_path: Path) -> None:
    second = '\n  other: {ducklake: "sqlite:///o.sqlite", data_path: ./o}\ngroups:'
    (problem,) = problems(tmp_path, SMALL.replace("\ngroups:", second))
    assert "groups.shop.lake: missing" in problem


@pytest.mark.parametrize("value", ["plain", "with # hash", "a: b", "{x}", 'it\'s "quoted"', "üñí", "${OTHER}", "", "7"])
def test_a_value_from_the_environment_may_be_anything(tmp_path: Path, value: str) -> None:
    text = SMALL + "spark: {conf: {a: ${VALUE}, b: 'x${VALUE}y'}}\n"
    config = load(tmp_path, text, {"VALUE": value})
    assert config.spark.conf == {"a": value, "b": f"x{value}y"}


def test_a_default_stands_in_for_what_is_not_set_or_empty(tmp_path: Path) -> None:
    text = SMALL + "server: {port: ${PORT:-9000}, host: ${HOST:-}}\n"
    for env, port in (({}, 9000), ({"PORT": ""}, 9000), ({"PORT": "1234"}, 1234)):
        server = load(tmp_path, text, env).server
        assert server is not None
        assert (server.port, server.host) == (port, "127.0.0.1")


def test_a_variable_that_is_not_set_is_reported_once_with_its_place(tmp_path: Path) -> None:
    text = SMALL.replace("[public.orders]", "[public.orders, '${TABLE}']") + "server: {port: ${PORT}}  # ${COMMENT}\n"
    table, port = problems(tmp_path, text)
    assert "groups.shop.tables[1]: the environment variable 'TABLE' is not set" in table
    assert "server.port: the environment variable 'PORT' is not set" in port


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("source: [\nlog: x", "line 2: not valid YAML"),
        ("source: a\n\tlog: b", "line 2: not valid YAML"),
        ("source: a\nlog: b\nlog: c", "line 3: not valid YAML: key 'log' is given twice"),
        ("source: !!python/object:os.system x", "line 1: not valid YAML"),
        ("", "expected a mapping with `source`, `log`, `lakes`, `groups`; found nothing"),
        ("- a", "found a list"),
        ("hello", "found 'hello'"),
    ],
)
def test_a_file_that_is_not_a_mapping_in_yaml_is_refused_with_its_line(
    tmp_path: Path, text: str, expected: str
) -> None:
    (problem,) = problems(tmp_path, text)
    assert "headwater.yaml" in problem
    assert expected in problem


def test_a_missing_file_comes_with_the_next_move(tmp_path: Path) -> None:
    with pytest.raises(ExceptionGroup) as caught:
        Config.load(tmp_path / "headwater.yaml", {})
    (problem,) = caught.value.exceptions
    assert "no config file" in str(problem)
    assert "`headwater demo`" in str(problem)


def test_a_folder_or_bytes_in_place_of_the_file_are_refused(tmp_path: Path) -> None:
    (tmp_path / "bytes.yaml").write_bytes(b"\xff\xfe\x00")
    for path in (tmp_path, tmp_path / "bytes.yaml"):
        with pytest.raises(ExceptionGroup) as caught:
            Config.load(path, {})
        assert "cannot read" in str(caught.value.exceptions[0])


def test_no_password_is_ever_shown(tmp_path: Path) -> None:
    text = """
source: postgresql://app:hunter2@db/shop
state: postgresql://app@db/state?password=hunter3
log: log
lakes:
  main: {ducklake: "postgresql://l:hunter%2F4@db/lakes?schema=a", data_path: lake}
  ice: {iceberg: {type: rest, token: hunter5, s3.secret-access-key: hunter6, key: hunter9}}
spark: {conf: {spark.hadoop.fs.s3a.secret.key: hunter7}}
server: {token: hunter8}
"""
    config = load(tmp_path, text)
    assert "hunter" not in f"{config!r} {config} {config.lakes!r} {config.spark!r} {config.server!r}"
    assert config.secrets() >= {f"hunter{n}" for n in (2, 3, 5, 6, 7, 8, 9)} | {"hunter/4", "hunter%2F4"}


@pytest.mark.parametrize(
    "broken",
    [
        "source: mysql://app:hunter2@db/shop",
        "source: mysql://app:hun ter2/x:hunter2@db",
        "source: postgresql://app:hunter2@db/shop?nonsense=1",
        "source: postgresql://app:hunter2@db:notaport:x/%zz",
        "source: host=db password=hunter2",
        "source: [postgresql://app:hunter2@db/shop]",
        "state: mysql://app:hunter2@db/shop",
        "lakes: {a: {ducklake: 'mysql://a:hunter2@b', data_path: x}}",
        "server: {token: [hunter2]}",
        "server: hunter2: x",
    ],
)
def test_no_password_gets_into_an_error(tmp_path: Path, broken: str) -> None:
    assert "hunter2" not in "\n".join(problems(tmp_path, broken))


def test_a_group_may_wait_for_its_tables(tmp_path: Path) -> None:
    assert load(tmp_path, SMALL.replace("[public.orders]", "[]")).groups["shop"].tables == ()


@pytest.mark.parametrize(
    ("properties", "warehouse"),
    [
        ("type: sql, warehouse: ./data/ice", "{folder}/data/ice"),
        ("type: hive, warehouse: s3://bucket/ice", "s3://bucket/ice"),
        ("type: rest, uri: https://catalog, warehouse: shop", "shop"),  # the catalog's own name for it
        ("uri: http://catalog, warehouse: shop", "shop"),
    ],
)
def test_the_warehouse_of_an_iceberg_lake_is_a_place_or_a_rest_catalogs_name(
    tmp_path: Path, properties: str, warehouse: str
) -> None:
    ice = f"\n  ice: {{iceberg: {{{properties}}}}}\ngroups:"
    config = load(tmp_path, SMALL.replace("\ngroups:", ice).replace("tables:", "lake: ice\n    tables:"))
    lake = config.lakes["ice"]
    assert isinstance(lake, Iceberg)
    assert lake.properties["warehouse"] == warehouse.format(folder=tmp_path)


def test_the_schema_agrees_with_the_example(tmp_path: Path) -> None:
    schema = json.loads(json.dumps(Config.model_json_schema()))
    limited = SMALL.replace("log: ./log", "log: {path: ./log, max_bytes: 50GB, retention: 1d}")
    for text in (SMALL, limited, WHOLE.replace("${HEADWATER_TOKEN:-}", "x").replace("${STATE_URL}", "x")):
        jsonschema.validate(yaml.safe_load(text), schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(yaml.safe_load(SMALL.replace("tables:", "tabels:")), schema)
    assert load(tmp_path, SMALL)


def test_a_table_can_be_carried_in_part_and_in_other_types(tmp_path: Path) -> None:
    text = SMALL.replace(
        "[public.orders]",
        "[{table: public.orders, exclude: [note], types: {amount: 'Decimal(20, 4)', tags: 'varchar'},"
        " append_only: true},"
        " {table: public.lines, columns: [id, 7], schema_changes: stop, mode: history}, public.plain]",
    )
    orders, lines, plain = load(tmp_path, text).groups["shop"].tables
    assert (orders.columns, orders.exclude) == (None, ("note",))
    assert (orders.append_only, lines.append_only) == (True, False)
    assert orders.types == {"amount": "decimal(20,4)", "tags": "varchar"}
    assert (lines.columns, lines.schema_changes, lines.mode) == (("id", "7"), "stop", "history")
    assert (plain.columns, plain.exclude, plain.types, plain.schema_changes) == (None, (), {}, "follow")


@pytest.mark.parametrize(
    ("entry", "reported"),
    [
        ("columns: [id], exclude: [x]", "name either the `columns` to mirror or those to `exclude`, not both"),
        ("columns: []", "names no column"),
        ("exclude: [x, x]", "names column 'x' twice"),
        ("types: {x: int128}", "not a type for the lake: 'int128'"),
        ("exclude: [x], types: {x: varchar}", "`types` names 'x', a column that is not mirrored"),
        ("columns: [id], types: {x: varchar}", "`types` names 'x', a column that is not mirrored"),
        ("partition_by: ['day(created']", "is no way to partition a table (write a column's name, year(c), month(c)"),
        (
            "partition_by: ['minute(created)']",
            "there is no partition transform 'minute' (write a column's name, ",
        ),
        ("partition_by: [id, ' id ']", "'id' is listed twice"),
        ("schema_changes: ignore", "'follow' or 'stop'"),
        ("excluded: [x]", "did you mean 'exclude'?"),
    ],
)
def test_what_contradicts_itself_about_a_table_is_reported(tmp_path: Path, entry: str, reported: str) -> None:
    (problem,) = problems(tmp_path, SMALL.replace("[public.orders]", f"[{{table: public.orders, {entry}}}]"))
    assert reported in problem


def test_the_schema_describes_the_properties_of_an_iceberg_catalog() -> None:
    found = Config.model_json_schema()["$defs"]["Iceberg"]["properties"]["iceberg"]
    assert found["properties"]["type"]["enum"] == ["sql", "rest", "glue", "hive", "dynamodb", "bigquery"]
    assert {"uri", "warehouse", "name", "token", "credential", "s3.endpoint"} <= found["properties"].keys()
    assert found["additionalProperties"] == {"type": ["string", "number", "boolean"]}


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("./data/ice", "{folder}/data/ice"),
        ("file:///srv/ice", "/srv/ice"),
        ("s3://bucket/ice", "s3://bucket/ice"),
        ("/srv/with space", "/srv/with space"),
    ],
)
def test_a_warehouse_is_a_folder_or_in_s3(tmp_path: Path, given: str, kept: str) -> None:
    lake = f'{{iceberg: {{type: sql, uri: "sqlite:///i.sqlite", warehouse: "{given}"}}}}'
    config = load(tmp_path, SMALL.replace('{ducklake: "sqlite:///lake.sqlite", data_path: ./lake}', lake))
    found = config.lakes["main"]
    assert isinstance(found, Iceberg)
    assert found.properties["warehouse"] == kept.format(folder=tmp_path)


CLUSTER = """
source: postgresql://app@db/shop
log: {log}
lakes:
  main: {{ducklake: "{catalog}", data_path: {data}}}
  ice: {{iceberg: {{type: sql, uri: "{catalog}", warehouse: {data}}}}}
groups:
  shop: {{lake: main, tables: [public.orders]}}
routes:
  each:
    from: {{group: shop, table: public.orders}}
    by: company
    to: {{lake_template: {{ducklake: "{template}", data_path: "{data}/{{value}}"}}, allow: [a]}}
spark: {{master: "{master}"}}
"""
HERE = {"log": "{path: ./log}", "catalog": "sqlite:///l.sqlite", "template": "sqlite:///{value}", "data": "./lake"}
ON_DISK = [
    *("log.path", "lakes.main.data_path", "lakes.ice.iceberg.warehouse", "routes.each.to.lake_template.data_path"),
    *("lakes.main.ducklake", "lakes.ice.iceberg.uri", "routes.each.to.lake_template.ducklake"),
]


def test_with_a_spark_cluster_nothing_may_be_on_this_machines_disks(tmp_path: Path) -> None:
    found = problems(tmp_path, CLUSTER.format(master="spark://master:7077", **HERE))
    assert len(found) == len(ON_DISK)
    for where, said in zip(ON_DISK, found, strict=True):
        assert f"{where}: " in said
        assert "executors" in said


@pytest.mark.parametrize("master", ["local[*]", "local-cluster[2,1,1024]"])
def test_a_local_spark_may_have_everything_on_this_machines_disks(tmp_path: Path, master: str) -> None:
    assert load(tmp_path, CLUSTER.format(master=master, **HERE)).spark.master == master


def test_a_spark_cluster_has_its_files_in_s3_and_its_catalogs_in_servers(tmp_path: Path) -> None:
    there = {"log": "s3://b/log", "catalog": "postgresql://lake@db/lakes", "data": "s3://b/lake"}
    template = "postgresql://lake@db/lakes?schema={value}"
    text = CLUSTER.format(master="k8s://https://kubernetes", template=template, **there)
    rest = "  rest: {iceberg: {type: rest, uri: 'https://catalog', warehouse: shop}}\ngroups:"
    assert len(load(tmp_path, text.replace("groups:", rest, 1)).lakes) == 3
