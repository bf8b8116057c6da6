"""Reading the first copy, compared with what the WAL says of the same rows."""

from __future__ import annotations

import pickle
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import psycopg
import pyarrow as pa
import pytest
from psycopg import sql
from tests.typed_columns import relation_of

from headwater.change import Relation, TableName
from headwater.copy.reading import Range, balanced, one_connection, read_expressions, read_range
from headwater.errors import TableError, Unreachable
from headwater.merge.tuples import split
from headwater.postgres.settings import TEXT_SETTINGS
from headwater.source.check import problems
from headwater.source.checktable import TableWish
from headwater.testing.postgres import EmbeddedPostgres
from headwater.values.decode import Bad, decode
from headwater.values.types import LakeType, lake_type, lake_types

# One column of every sort of type, with the values at its edges: those that fit the lake's type, and those that do not.
EDGES: dict[str, list[str]] = {
    "smallint": ["-32768", "32767"],
    "integer": ["-2147483648", "2147483647"],
    "bigint": ["-9223372036854775808", "9223372036854775807"],
    "oid": ["0", "4294967295"],
    "xid": ["0", "4294967295"],
    "xid8": ["18446744073709551615"],
    "boolean": ["t", "f"],
    "real": ["3.4028235e38", "1e-45", "-0", "NaN", "-Infinity", "0.1"],
    "double precision": ["1.7976931348623157e308", "5e-324", "-0", "NaN", "Infinity"],
    "numeric(12,2)": ["9999999999.99", "-0.01", "0", "NaN"],
    "numeric(38,0)": ["9" * 38, "-" + "9" * 38, "10000", "1000000000000"],
    "numeric(38,38)": ["0." + "9" * 38, "-0." + "0" * 37 + "1"],
    "numeric": ["NaN", "-Infinity", "1.50", "1e-18", "-99999999999999999999.999999999999999999", "1e-19", "1e20"],
    "numeric(5,-2)": ["1234567"],
    "numeric(2,4)": ["-0.0099"],
    "numeric(50,5)": ["9" * 45 + ".00001", "NaN"],
    "money": ["-1234.5"],
    "text": ["", "naïve 𝄞", "tab\tback\\slash\nline", "x" * 1_000_000],
    "varchar(5)": ["ab", "ab   "],
    "char(5)": ["ab", "", "ééééé"],
    '"char"': ["a", ""],
    "name": ["a name", ""],
    "xml": [],  # the server in the wheel cannot make one; tests/flow/test_types_end_to_end.py tries one that can
    "date": ["4714-11-24 BC", "0001-12-31 BC", "1970-01-01", "5874897-12-31", "infinity", "-infinity"],
    "time": ["00:00", "23:59:59.999999", "24:00"],
    "timetz": ["12:00:00+05:30", "24:00:00-15:59:59"],
    "timestamp": [
        *("4714-11-24 BC", "1969-12-31 23:59:59.999999", "10000-01-01", "294247-01-10 04:00:54.775806"),
        *("infinity", "-infinity", "294276-12-31 23:59:59.999999", "294247-01-10 04:00:54.775807", "294276-01-01"),
        "294247-01-10 04:00:54.775809",
    ],
    "timestamptz": [
        *("4714-11-24 00:00+00 BC", "2024-01-01 00:00+05:30", "1890-01-01", "294247-01-10 04:00:54.775806+00"),
        *("infinity", "-infinity", "294276-12-31 23:59:59.5+00", "294276-01-01 00:00:00+00"),
    ],
    "interval": ["1 year -3 days 04:05:06.7", "-178000000 years"],
    "uuid": ["00000000-0000-0000-0000-000000000000", "f1cae8f4-d86f-4965-94dc-5feb35ade4aa"],
    "bytea": ["", r"\x00ff", "\\\\x"],
    "json": ['{"b":  1, "b": [null]}', '"é"', "1e999"],
    "jsonb": ['{"b":  1, "a": [null]}', "1.50", "123456789012345678901234567890.5"],
    "bit(3)": ["101"],
    "varbit": ["", "1"],
    "inet": ["10.0.0.1", "10.0.0.0/8", "::1"],
    "cidr": ["10.0.0.0/8"],
    "macaddr": ["08:00:2b:01:02:03"],
    "point": ["(1.5,-2)"],
    "polygon": ["((0,0),(1,1),(1,0))"],
    "tsvector": ["'fat':2 'rat':3"],
    "pg_lsn": ["FF/1"],
    "tid": ["(1,2)"],
    "int4range": ["[1,5)", "empty", "(,)"],
    "tstzrange": ["[2024-01-01 00:00+05,)"],
    "int4multirange": ["{[1,3),[7,9)}", "{}"],
    "regclass": ["pg_class"],
    "int2vector": ["1 2 3"],
    "pair": ["(,)", "(1,)", '(1,"a ""b"", c")'],
    "mood": ["fair", "foul"],
    "padded": ["ab"],
    "small": ["1"],
    "smaller": ["2147483647"],
    "price": ["1.005"],
    "points": ["{1,2}", "{}", "{{1}}"],
    "integer[]": ["{1,NULL,3}", "{}", "{{1,2},{3,4}}", "[0:1]={7,8}"],
    "integer[][]": ["{{1,NULL},{3,4}}", "{}", "{1}"],
    "numeric[]": ["{1.5,NULL}", "{1.5,NaN}"],
    "text[]": ['{"a,b",NULL,"NULL","",ü,"\\"\\\\"}'],
    "char(3)[]": ["{a,NULL}"],
    "timestamptz[]": ["{2024-01-01 00:00+05:30,infinity}"],
    "bytea[]": [r"{\\x00ff}"],
    "uuid[]": ["{f1cae8f4-d86f-4965-94dc-5feb35ade4aa}"],
    "jsonb[]": [r'{"{\"a\": 1}"}'],
    "boolean[]": ["{t,f}"],
    "box[]": ["{(1,1),(0,0);(2,2),(0,0)}"],
    "pair[]": ['{"(1,\\"a b\\")"}'],
    "mood[]": ["{fair,foul}"],
    "price[]": ["{1.005}"],
}
MAKE_TYPES = (
    "CREATE TYPE pair AS (a int, b text)",
    "CREATE TYPE mood AS ENUM ('fair', 'foul')",
    "CREATE DOMAIN padded AS char(5)",
    "CREATE DOMAIN small AS int CHECK (VALUE > 0)",
    "CREATE DOMAIN smaller AS small NOT NULL DEFAULT 1",
    "CREATE DOMAIN price AS numeric(9,3)",
    "CREATE DOMAIN points AS int[]",
)
CHANGES = (
    "SELECT data FROM pg_logical_slot_get_binary_changes"
    "(%s, NULL, NULL, 'proto_version', '1', 'publication_names', 'p')"
)
ORDERED = [(f"c{index}", declared, values) for index, (declared, values) in enumerate(EDGES.items())]


@contextmanager
def snapshot(url: str) -> Iterator[str]:
    with psycopg.connect(url) as conn:
        conn.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        row = conn.execute("SELECT pg_export_snapshot()").fetchone()
        assert row is not None
        yield row[0]


def natural(relation: Relation) -> list[LakeType]:
    return [lake_type(column) for column in relation.columns]


def read_all(
    url: str, relation: Relation, kinds: Sequence[LakeType], where: str | None = None
) -> tuple[pa.Table, dict[int, tuple[Bad, ...]]]:
    """The whole table, of which one batch at most holds values that are bad."""
    bads: dict[int, tuple[Bad, ...]] = {}
    batches = []
    with snapshot(url) as name, psycopg.connect(url) as conn:
        for part in balanced(conn, relation.oid, 1):
            for batch, bad in read_range(url, name, relation, part, kinds, where):
                batches.append(batch)
                bads |= bad
    return pa.Table.from_batches(batches), bads


def copied(url: str, relation: Relation) -> pa.Table:
    with snapshot(url) as name, psycopg.connect(url) as conn:
        parts = balanced(conn, relation.oid, 1)
        batches = [pair for part in parts for pair in read_range(url, name, relation, part, natural(relation))]
    assert [bad for _, bad in batches if bad] == []
    return pa.Table.from_batches([batch for batch, _ in batches])


@pytest.fixture
def conn(database: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(database, autocommit=True) as conn:
        yield conn


def messages_of_a_row_each(conn: psycopg.Connection, table: list[tuple[str, str, list[str]]]) -> list[bytes]:
    """Make table t with these columns (name, type, values) and insert the values; what pgoutput says of it."""
    conn.execute("CREATE TABLE t ({})".format(", ".join(f"{name} {declared}" for name, declared, _ in table)))
    conn.execute("CREATE PUBLICATION p FOR TABLE t")
    slot = "s_" + conn.info.dbname
    conn.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (slot,))
    for index in range(max(len(values) for *_, values in table) + 1):  # the last row is all null
        row = {name: values[index] for name, _, values in table if index < len(values)}
        columns, places = ", ".join(row) or "c0", ", ".join(["%s"] * len(row)) or "NULL"
        conn.execute(f"INSERT INTO t ({columns}) VALUES ({places})", list(row.values()))
    for setting, value in TEXT_SETTINGS.items():
        conn.execute("SELECT set_config(%s, %s, false)", (setting, value))
    return [data for (data,) in conn.execute(CHANGES, (slot,)).fetchall() if data[:1] == b"I"]


def bitwise(array: pa.Array) -> pa.Array:
    """Comparable: -0.0 is not 0.0, and NaN is NaN."""
    return array.view({pa.float32(): pa.int32(), pa.float64(): pa.int64()}.get(array.type, array.type))


def test_a_copied_value_equals_the_same_value_from_the_wal(database: str, conn: psycopg.Connection) -> None:
    for statement in MAKE_TYPES:
        conn.execute(statement)
    messages = messages_of_a_row_each(conn, ORDERED)
    cells = split(pa.array(messages), len(ORDERED)).new.cells
    relation = relation_of(conn, "public", "t")
    table, bads = read_all(database, relation, natural(relation))
    assert len(table) == len(messages) == 11
    reported = {}
    for index, (column, (_, declared, values)) in enumerate(zip(relation.columns, ORDERED, strict=True)):
        logged = decode(cells[index].text, lake_type(column))
        read = table[column.name].combine_chunks()
        assert read.type == lake_type(column).arrow, declared
        assert bads.get(index, ()) == logged.bad, declared
        assert bitwise(read).equals(bitwise(logged.array)), declared
        if declared != "smaller":  # which has a default
            assert read.null_count == 11 - len(values) + len(logged.bad), declared
        if logged.bad:
            reported[declared] = [bad.text for bad in logged.bad]
    assert reported == {
        "numeric(12,2)": ["NaN"],
        "numeric": ["NaN", "-Infinity", "0.0000000000000000001", "100000000000000000000"],
        "timestamp": [
            *("294276-12-31 23:59:59.999999", "294247-01-10 04:00:54.775807", "294276-01-01 00:00:00"),
            "294247-01-10 04:00:54.775809",
        ],
        "timestamptz": ["294276-12-31 23:59:59.5+00", "294276-01-01 00:00:00+00"],
        "points": ["{{1}}"],
        "integer[]": ["{{1,2},{3,4}}", "[0:1]={7,8}"],
        "integer[][]": ["{1}"],
        "numeric[]": ["{1.5,NaN}"],
    }


WISHES = {
    "numeric": ("varchar", ["NaN", "1.500"]),
    "numeric(50,2)": ("decimal(20,4)", ["1.50", "9" * 30]),
    "bigint": ("decimal(20,0)", ["7"]),
    "integer": ("double", ["7", "-1"]),
    "text": ("json", ["{}", "no json"]),
    "bytea": ("varchar", [r"\x00ff"]),
    "boolean": ("varchar", ["t"]),
    "integer[]": ("varchar", ["[0:1]={7,8}", "{}"]),
    "date[]": ("varchar[]", ["{infinity}"]),
}


def test_a_type_that_was_asked_for_is_read_alike_from_a_copy_and_from_the_wal(
    database: str, conn: psycopg.Connection
) -> None:
    wished = [(f"c{index}", declared, values) for index, (declared, (_, values)) in enumerate(WISHES.items())]
    messages = messages_of_a_row_each(conn, wished)
    cells = split(pa.array(messages), len(wished)).new.cells
    relation = relation_of(conn, "public", "t")
    wishes = [wish for wish, _ in WISHES.values()]
    kinds = [lake_type(column, wish) for column, wish in zip(relation.columns, wishes, strict=True)]
    table, bads = read_all(database, relation, kinds)
    for index, kind in enumerate(kinds):
        logged = decode(cells[index].text, kind)
        assert table.column(index).combine_chunks().equals(logged.array)
        assert bads.get(index, ()) == logged.bad
    assert {index: [bad.text for bad in found] for index, found in bads.items()} == {
        1: ["9" * 30 + ".00"],
        4: ["no json"],
    }


CALENDAR = {  # values, the first of which fit where dates and times are those of calendar and clock alone
    "date": (["5874897-12-31", "4714-11-24 BC"], ["infinity", "-infinity"]),
    "time": (["23:59:59.999999", "00:00:00"], ["24:00:00"]),
    "timestamp": (["294247-01-10 04:00:54.775806"], ["infinity", "-infinity", "294276-12-31 23:59:59.999999"]),
    "timestamptz": (["2026-01-01 00:00:00+00"], ["-infinity", "infinity"]),
    "date[]": (["{2026-01-01,NULL}"], ["{2026-01-01,infinity}"]),
    "time[][]": (["{{23:00:00},{NULL}}"], ["{{00:00:00},{24:00:00}}"]),
    "timestamptz[]": (["{}"], ["{-infinity}"]),
}


def test_infinity_and_24_00_do_not_fit_a_calendar_read_alike_from_a_copy_and_from_the_wal(
    database: str, conn: psycopg.Connection
) -> None:
    columns = [(f"c{index}", declared, good + bad) for index, (declared, (good, bad)) in enumerate(CALENDAR.items())]
    messages = messages_of_a_row_each(conn, columns)
    cells = split(pa.array(messages), len(columns)).new.cells
    relation = relation_of(conn, "public", "t")
    kinds = list(lake_types(relation.columns, {}, calendar_only=True).values())
    table, bads = read_all(database, relation, kinds)
    for index, (declared, (good, bad)) in enumerate(CALENDAR.items()):
        logged, read = decode(cells[index].text, kinds[index]), table.column(index).combine_chunks()
        assert read.equals(logged.array), declared
        assert bads[index] == logged.bad, declared
        assert [each.text for each in logged.bad] == bad, declared
        assert read.drop_null().equals(decode(pa.array(good), kinds[index]).array), declared


def test_types_of_extensions_are_copied_as_text(database: str, conn: psycopg.Connection) -> None:
    known = [name for (name,) in conn.execute("SELECT name FROM pg_available_extensions").fetchall()]
    values = {"citext": "Mixed", "hstore": '"a"=>NULL', "ltree": "top.down", "vector": "[1,2,3]"}
    there = {name: value for name, value in values.items() if name in known}
    assert there, "this server has none of the extensions: neither PostgreSQL's own nor that of the wheel"
    for name in there:
        conn.execute(f"CREATE EXTENSION {name}")
    conn.execute("CREATE TABLE t ({})".format(", ".join(f"{name} {name}, {name}s {name}[]" for name in there)))
    for name, value in there.items():
        conn.execute(f"INSERT INTO t ({name}, {name}s) VALUES (%s, ARRAY[%s, NULL]::{name}[])", (value, value))
    table = copied(database, relation_of(conn, "public", "t"))
    for name, value in there.items():
        assert table[name].drop_null().to_pylist() == [value]
        assert table[name + "s"].drop_null().to_pylist() == [[value, None]]


def test_an_unknown_type_is_copied_as_text(database: str, conn: psycopg.Connection) -> None:
    conn.execute("CREATE TYPE odd")
    conn.execute("CREATE FUNCTION odd_in(cstring) RETURNS odd AS 'textin' LANGUAGE internal IMMUTABLE STRICT")
    conn.execute("CREATE FUNCTION odd_out(odd) RETURNS cstring AS 'textout' LANGUAGE internal IMMUTABLE STRICT")
    conn.execute("CREATE TYPE odd (INPUT = odd_in, OUTPUT = odd_out, LIKE = text)")
    conn.execute("CREATE TABLE t (x odd, xs odd[])")
    conn.execute("INSERT INTO t VALUES ('a', '{b,NULL}'), (NULL, NULL)")
    assert copied(database, relation_of(conn, "public", "t")).to_pylist() == [
        {"x": "a", "xs": ["b", None]},
        {"x": None, "xs": None},
    ]


def test_a_label_added_to_an_enum_later_is_copied(database: str, conn: psycopg.Connection) -> None:
    conn.execute("CREATE TYPE mood AS ENUM ('fair')")
    conn.execute("CREATE TABLE t (x mood)")
    relation = relation_of(conn, "public", "t")
    conn.execute("ALTER TYPE mood ADD VALUE 'foul'")
    conn.execute("INSERT INTO t VALUES ('foul')")
    assert copied(database, relation)["x"].to_pylist() == ["foul"]


def test_only_rows_that_meet_the_condition_are_read_and_expressions_come_after_the_columns(
    database: str, conn: psycopg.Connection
) -> None:
    conn.execute("CREATE TABLE t AS SELECT g AS id, 'a{}%s' || g AS x FROM generate_series(1, 9) g")
    relation = relation_of(conn, "public", "t")
    table, _ = read_all(database, relation, natural(relation), "(id > 7) OR (x = 'a{}%s1'::text)")
    assert table["id"].to_pylist() == [1, 8, 9]
    with snapshot(database) as name:
        (part,) = balanced(conn, relation.oid, 1)
        extra = [sql.SQL("tableoid::bigint"), sql.SQL("id * 2")]
        ((batch, _),) = read_range(database, name, relation, part, natural(relation), "id = 3", extra)
        (plain,) = read_expressions(database, name, part, [sql.SQL("id")], "id < 3")
    assert batch.to_pylist() == [{"id": 3, "x": "a{}%s3", "extra0": relation.oid, "extra1": 6}]
    assert plain.column(0).to_pylist() == [1, 2]


def test_ranges_share_a_connection_and_hold_no_table_longer_than_they_read_it(
    database: str, conn: psycopg.Connection
) -> None:
    conn.execute("CREATE TABLE t AS SELECT g AS id FROM generate_series(1, 3) g")
    conn.execute("CREATE TABLE rewritten AS TABLE t")
    parts = {table: balanced(conn, relation_of(conn, "public", table).oid, 1)[0] for table in ("t", "rewritten")}
    asked = [sql.SQL("pg_backend_pid()"), sql.SQL("id")]
    with snapshot(database) as name, one_connection():
        (first,) = read_expressions(database, name, parts["t"], asked)
        conn.execute("SET lock_timeout = '5s'")
        conn.execute("ALTER TABLE t ADD later int")
        (second,) = read_expressions(database, name, parts["t"], asked)
        conn.execute("VACUUM FULL rewritten")
        with pytest.raises(TableError, match="was rewritten"):
            list(read_expressions(database, name, parts["rewritten"], asked))
        (third,) = read_expressions(database, name, parts["t"], asked)
    assert [each.column(1).to_pylist() for each in (first, second, third)] == [[1, 2, 3]] * 3
    assert first.column(0)[0] == second.column(0)[0]
    deadline = time.monotonic() + 30
    while conn.execute("SELECT FROM pg_stat_activity WHERE application_name = 'headwater copy'").fetchall():
        assert time.monotonic() < deadline, "a connection was left open"


def test_every_row_is_in_exactly_one_range(database: str, conn: psycopg.Connection) -> None:
    conn.execute("CREATE TABLE t AS SELECT g AS id, repeat('x', 500) AS x FROM generate_series(1, 12000) g")
    conn.execute("DELETE FROM t WHERE id % 3 = 0")
    conn.execute("ANALYZE t")
    relation = relation_of(conn, "public", "t")
    parts = balanced(conn, relation.oid, 2)
    assert len(parts) > 5
    assert parts[0].first_page == 0
    assert [part.end_page for part in parts] == [*(part.first_page for part in parts[1:]), None]
    assert sum(part.rows or 0 for part in parts) == pytest.approx(8000, rel=0.02)
    assert sorted(copied(database, relation)["id"].to_pylist()) == [n for n in range(1, 12001) if n % 3]
    assert pickle.loads(pickle.dumps(parts)) == parts


def test_an_empty_table_is_one_open_range_of_no_rows(database: str, conn: psycopg.Connection) -> None:
    conn.execute("CREATE TABLE t (id int)")
    relation = relation_of(conn, "public", "t")
    assert balanced(conn, relation.oid, 1) == [Range(relation.oid, TableName("public", "t"), 0, None, None)]
    with snapshot(database) as name:
        assert list(read_range(database, name, relation, balanced(conn, relation.oid, 1)[0], natural(relation))) == []


def test_a_copy_sees_the_snapshot_and_nothing_later(database: str, conn: psycopg.Connection) -> None:
    conn.execute("CREATE TABLE t AS SELECT g AS id FROM generate_series(1, 3) g")
    relation = relation_of(conn, "public", "t")
    with snapshot(database) as name:
        (part,) = balanced(conn, relation.oid, 1)
        conn.execute("INSERT INTO t SELECT generate_series(4, 5000)")
        conn.execute("DELETE FROM t WHERE id = 1")
        batches = [batch for batch, _ in read_range(database, name, relation, part, natural(relation))]
    assert pa.Table.from_batches(batches)["id"].to_pylist() == [1, 2, 3]


def test_names_that_need_quotes_are_quoted(database: str, conn: psycopg.Connection) -> None:
    conn.execute('CREATE SCHEMA "Odd ""schema"')
    conn.execute('CREATE TABLE "Odd ""schema"."a.b\'c" ("select" int, "a ""b%%" inet)')
    conn.execute("""INSERT INTO "Odd ""schema"."a.b'c" VALUES (1, '10.0.0.1')""")
    table = copied(database, relation_of(conn, 'Odd "schema', "a.b'c"))
    assert table.to_pylist() == [{"select": 1, 'a "b%%': "10.0.0.1"}]


def test_only_the_columns_of_the_relation_are_read_and_no_inherited_rows(
    database: str, conn: psycopg.Connection
) -> None:
    conn.execute("CREATE TABLE t (gone int, a int, b text, total int GENERATED ALWAYS AS (a * 2) STORED)")
    conn.execute("ALTER TABLE t DROP COLUMN gone")
    conn.execute("CREATE TABLE child () INHERITS (t)")
    conn.execute("INSERT INTO t VALUES (1, 'x')")
    conn.execute("INSERT INTO child VALUES (2, 'y')")
    whole = relation_of(conn, "public", "t")
    assert copied(database, whole).to_pylist() == [{"a": 1, "b": "x", "total": 2}]
    relation = Relation(1, whole.oid, whole.table, "d", whole.columns[1:])
    assert copied(database, relation).to_pylist() == [{"b": "x", "total": 2}]


def test_a_partitioned_table_is_read_leaf_by_leaf(database: str, conn: psycopg.Connection) -> None:
    conn.execute("CREATE TABLE t (id int, x text) PARTITION BY RANGE (id)")
    conn.execute("CREATE TABLE low PARTITION OF t FOR VALUES FROM (0) TO (10)")
    conn.execute("CREATE TABLE high (x text, gone int, id int)")  # other order: columns go by name
    conn.execute("ALTER TABLE high DROP COLUMN gone")
    conn.execute("ALTER TABLE t ATTACH PARTITION high FOR VALUES FROM (10) TO (20)")
    conn.execute("INSERT INTO t SELECT g, g::text FROM generate_series(0, 19) g")
    relation = relation_of(conn, "public", "t")
    assert {part.table.name for part in balanced(conn, relation.oid, 1)} == {"low", "high"}
    assert copied(database, relation).sort_by("id").to_pylist() == [{"id": n, "x": str(n)} for n in range(20)]


def test_the_leaves_of_a_partitioned_table_are_shared_out_by_their_sizes(conn: psycopg.Connection) -> None:
    conn.execute("CREATE TABLE t (id int, x text) PARTITION BY RANGE (id)")
    conn.execute("CREATE TABLE low PARTITION OF t FOR VALUES FROM (0) TO (100) PARTITION BY RANGE (id)")
    conn.execute("CREATE TABLE lowest PARTITION OF low FOR VALUES FROM (0) TO (100)")
    conn.execute("CREATE TABLE high PARTITION OF t FOR VALUES FROM (100) TO (40000)")
    conn.execute("INSERT INTO t SELECT g, repeat('x', 500) FROM generate_series(0, 39999) g")
    conn.execute("ANALYZE t")
    oid = relation_of(conn, "public", "t").oid
    parts = balanced(conn, oid, cores=2)
    assert {part.table.name for part in parts} == {"lowest", "high"}
    assert 8 <= sum(part.table.name == "high" for part in parts) <= 10
    assert sum(part.rows or 0 for part in parts) == pytest.approx(40_000, rel=0.02)
    assert len(balanced(conn, oid, cores=1)) < len(parts)


def test_what_is_not_a_table_is_refused(conn: psycopg.Connection) -> None:
    conn.execute("CREATE VIEW v AS SELECT 1 AS id")
    with pytest.raises(TableError, match="not an ordinary table"):
        balanced(conn, relation_of(conn, "public", "v").oid, 1)
    with pytest.raises(TableError, match="no table has the OID 1"):
        balanced(conn, 1, 1)


@pytest.mark.parametrize(
    "rewrite",
    [
        "TRUNCATE t",
        "ALTER TABLE t ALTER id TYPE bigint",
        "VACUUM FULL t",
        "ALTER TABLE t RENAME TO u; CREATE TABLE t (id int)",
    ],
)
def test_a_table_rewritten_since_the_snapshot_is_never_read_as_empty(
    database: str, conn: psycopg.Connection, rewrite: str
) -> None:
    conn.execute("CREATE TABLE t AS SELECT g AS id FROM generate_series(1, 3) g")
    relation = relation_of(conn, "public", "t")
    with snapshot(database) as name:
        (part,) = balanced(conn, relation.oid, 1)
        for statement in rewrite.split(";"):
            conn.execute(statement)
        with pytest.raises(TableError, match=r"public\.t was rewritten or renamed"):
            list(read_range(database, name, relation, part, natural(relation)))


@pytest.mark.parametrize(
    ("alteration", "refused"),
    [
        ("ALTER TABLE t RENAME a TO c; ALTER TABLE t RENAME b TO a; ALTER TABLE t RENAME c TO b", True),
        ("ALTER TABLE t DROP b; ALTER TABLE t ADD b int DEFAULT 5", True),
        ("ALTER TABLE t ADD c int", False),
        ("ALTER TABLE t ALTER a SET NOT NULL", False),
    ],
)
@pytest.mark.parametrize("kind", ["plain", "partitioned"])
def test_a_column_is_never_read_under_a_name_that_it_got_since_the_snapshot(
    database: str, conn: psycopg.Connection, kind: str, alteration: str, refused: bool
) -> None:
    conn.execute("CREATE TABLE t (a int, b int)" + (" PARTITION BY RANGE (a)" if kind == "partitioned" else ""))
    if kind == "partitioned":
        conn.execute("CREATE TABLE leaf (b int, a int)")
        conn.execute("ALTER TABLE t ATTACH PARTITION leaf FOR VALUES FROM (0) TO (9)")
    conn.execute("INSERT INTO t VALUES (1, 2)")
    relation = relation_of(conn, "public", "t")
    with snapshot(database) as name:
        (part,) = balanced(conn, relation.oid, 1)
        for statement in alteration.split(";"):
            conn.execute(statement)
        rows = read_range(database, name, relation, part, natural(relation))
        if refused:
            with pytest.raises(TableError, match="renamed or dropped"):
                list(rows)
        else:
            assert [batch.to_pylist() for batch, _ in rows] == [[{"a": 1, "b": 2}]]


def test_rows_that_row_level_security_hides_are_never_left_out(database: str, conn: psycopg.Connection) -> None:
    conn.execute("CREATE TABLE t AS SELECT g AS id FROM generate_series(1, 3) g")
    relation = relation_of(conn, "public", "t")
    for statement in (
        "CREATE ROLE owner LOGIN",
        "GRANT USAGE ON SCHEMA public TO owner",
        "ALTER TABLE t OWNER TO owner",
        "ALTER TABLE t ENABLE ROW LEVEL SECURITY",
        "CREATE POLICY p ON t USING (id = 1)",
    ):
        conn.execute(statement)
    owner = database.replace("postgres@", "owner@")
    (part,) = balanced(conn, relation.oid, 1)
    try:
        assert copied(owner, relation)["id"].to_pylist() == [1, 2, 3]
        conn.execute("ALTER TABLE t FORCE ROW LEVEL SECURITY")
        assert copied(database, relation)["id"].to_pylist() == [1, 2, 3]
        with snapshot(owner) as name, pytest.raises(TableError, match="row-level security"):
            list(read_range(owner, name, relation, part, natural(relation)))
        reported = problems(owner, {"g": [TableWish(relation.table, append_only=True)]})
        hints = {each.message: each.hint for each in reported}
        assert hints["table 'public.t' hides rows from role 'owner' by row level security"] == (
            'ALTER TABLE public.t NO FORCE ROW LEVEL SECURITY, or ALTER ROLE "owner" BYPASSRLS'
        )
    finally:
        for statement in ("DROP OWNED BY owner", "DROP ROLE owner"):
            conn.execute(statement)


def test_another_encoding_is_read_as_utf8(postgres: EmbeddedPostgres, database: str) -> None:
    latin = f"latin_{psycopg.conninfo.conninfo_to_dict(database)['dbname']}"
    with psycopg.connect(postgres.url(), autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {latin} ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
        try:
            with psycopg.connect(postgres.url(latin), autocommit=True) as conn:
                conn.execute("CREATE TABLE t (x text)")
                conn.execute("INSERT INTO t VALUES ('é')")
                relation = relation_of(conn, "public", "t")
            assert copied(postgres.url(latin), relation)["x"].to_pylist() == ["é"]
        finally:
            admin.execute(f"DROP DATABASE {latin} WITH (FORCE)")


def test_a_copy_may_be_left_in_the_middle(database: str, conn: psycopg.Connection) -> None:
    conn.execute("CREATE TABLE t AS SELECT g AS id, repeat('x', 100) AS x FROM generate_series(1, 300000) g")
    relation = relation_of(conn, "public", "t")
    with snapshot(database) as name:
        whole = Range(relation.oid, relation.table, 0, None, None)
        reading = read_range(database, name, relation, whole, natural(relation))
        assert next(reading)[0].num_rows < 300_000
        reading.close()  # type: ignore[attr-defined]


def test_neither_a_lost_snapshot_nor_a_lost_server_is_the_tables_fault(database: str, conn: psycopg.Connection) -> None:
    conn.execute("CREATE TABLE t AS SELECT g AS id, repeat('x', 100) AS x FROM generate_series(1, 300000) g")
    relation = relation_of(conn, "public", "t")
    part = Range(relation.oid, relation.table, 0, None, None)
    with pytest.raises(Unreachable, match=r'the snapshot in which .* is gone: .*"00000003-0000001B-1"'):
        list(read_range(database, "00000003-0000001B-1", relation, part, natural(relation)))
    with pytest.raises(Unreachable, match="went away"):
        list(
            read_range("postgresql://me:secret@127.0.0.1:1/x", "00000003-0000001B-1", relation, part, natural(relation))
        )
    with snapshot(database) as name:
        reading = read_range(database, name, relation, part, natural(relation))
        next(reading)
        conn.execute(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
            " WHERE datname = current_database() AND query ILIKE 'COPY (SELECT%' AND pid <> pg_backend_pid()"
        )
        with pytest.raises(Unreachable, match="went away"):
            list(reading)
