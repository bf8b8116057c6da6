"""A table's definition, read from the catalog, is what the stream will send."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.captured_group import Group, execute

from headwater.change import TableName
from headwater.errors import ConfigError
from headwater.postgres.connect import connect
from headwater.source.relations import described
from headwater.source.server import named_oid

TABLES = {
    "plain": ("CREATE TABLE plain (id int PRIMARY KEY, t text, v varchar(7), n numeric(10, 2))",),
    "composite": ("CREATE TABLE composite (a int, b text, c int, PRIMARY KEY (c, a))",),
    "dropped": (
        "CREATE TABLE dropped (gone int, id uuid PRIMARY KEY DEFAULT gen_random_uuid(), x int)",
        "ALTER TABLE dropped DROP COLUMN gone",
    ),
    "generated": ("CREATE TABLE generated (id int PRIMARY KEY, twice int GENERATED ALWAYS AS (id * 2) STORED, z int)",),
    "by_index": (
        "CREATE TABLE by_index (id int PRIMARY KEY, code text NOT NULL)",
        "CREATE UNIQUE INDEX by_code ON by_index (code)",
        "ALTER TABLE by_index REPLICA IDENTITY USING INDEX by_code",
    ),
    "entire": ("CREATE TABLE entire (id int PRIMARY KEY, t text)", "ALTER TABLE entire REPLICA IDENTITY FULL"),
    "keyless": ("CREATE TABLE keyless (id int, t text)",),
    "late": ("CREATE TABLE late (id int PRIMARY KEY DEFERRABLE, t text)",),
    "Odd name": ('CREATE TABLE "Odd name" ("Id" int PRIMARY KEY, "sum é" text[])',),
    "parted": (
        "CREATE TABLE parted (id int, day date, PRIMARY KEY (id, day)) PARTITION BY RANGE (day)",
        "CREATE TABLE parted_1 (extra int, day date NOT NULL, id int NOT NULL)",
        "ALTER TABLE parted_1 DROP COLUMN extra",
        "ALTER TABLE parted ATTACH PARTITION parted_1 DEFAULT",
    ),
}


def test_a_table_is_described_as_the_stream_will_describe_it(group: Group) -> None:
    execute(group.url, "CREATE TYPE mood AS ENUM ('good', 'bad')", *(each for made in TABLES.values() for each in made))
    execute(group.url, "ALTER TABLE plain ADD COLUMN m mood")
    names = [TableName("public", name) for name in TABLES]
    group.prepare(*(str(name) for name in names))
    with group.capturing():
        execute(group.url, 'INSERT INTO "Odd name" VALUES (1)', "INSERT INTO parted VALUES (1, '2024-01-01')")
        for name in ("plain", "composite", "generated", "entire", "keyless", "late"):
            column = "a, b, c" if name == "composite" else "id"
            values = "1, 'b', 2" if name == "composite" else "1"
            execute(group.url, f"INSERT INTO {name} ({column}) VALUES ({values})")
        execute(group.url, "INSERT INTO dropped (x) VALUES (1)", "INSERT INTO by_index VALUES (1, 'c')")
        group.settle()
    ids = [row[0] for row in group.state.query("SELECT id FROM headwater.relations")]
    streamed = {relation.table: relation for relation in group.log.relations(ids).values()}
    with connect(group.url) as connection:
        for table in names:
            oid = named_oid(connection, table)
            present = described(connection, oid, "headwater_shop")
            assert replace(present, id=streamed[table].id) == streamed[table]


def test_a_table_that_is_not_there_is_an_error_of_the_config(group: Group) -> None:
    with connect(group.url) as connection, pytest.raises(ConfigError, match=r"no table 'public\.nothing'"):
        named_oid(connection, TableName("public", "nothing"))
