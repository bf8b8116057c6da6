"""Reading the first copy, compared with what the WAL says of the same rows."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pyarrow as pa
import pytest

from headwater.capture.copy import Range, ranges, read_range
from headwater.change import Column, Relation, TableName
from headwater.decode import TEXT_SETTINGS, decode
from headwater.errors import TableError, Unreachable
from headwater.merge.tuples import split
from headwater.testing.postgres import EmbeddedPostgres
from headwater.types import lake_type

# One column of every supported type and of several that are carried as text, with the values at their edges.
EDGES = {
    "smallint": ["-32768", "32767"],
    "integer": ["-2147483648", "2147483647"],
    "bigint": ["-9223372036854775808", "9223372036854775807"],
    "boolean": ["t", "f"],
    "real": ["3.4028235e38", "1e-45", "-0", "NaN", "-Infinity", "0.1"],
    "double precision": ["1.7976931348623157e308", "5e-324", "-0", "NaN", "Infinity"],
    "numeric(12,2)": ["9999999999.99", "-0.01", "0"],
    "numeric(38,0)": ["9" * 38, "-" + "9" * 38, "10000", "1000000000000"],
    "numeric(38,38)": ["0." + "9" * 38, "-0." + "0" * 37 + "1"],
    "numeric": ["NaN", "-Infinity", "1.50", "1e-20", "1e30", "-123456789012345678901234567890.123456789"],
    "numeric(5,-2)": ["1234567"],
    "text": ["", "naïve 𝄞", "tab\tback\\slash\nline", "x" * 10_000],
    "varchar(5)": ["ab", "ab   "],
    "char(5)": ["ab", "", "ééééé"],
    "date": ["4714-11-24 BC", "0001-12-31 BC", "0001-01-01", "1970-01-01", "10000-01-01", "5874897-12-31"],
    "time": ["00:00", "23:59:59.999999"],
    "timestamp": ["4714-11-24 BC", "1969-12-31 23:59:59.999999", "10000-01-01", "294247-01-10 04:00:54.775806"],
    "timestamptz": [
        "4714-11-24 00:00+00 BC",
        "2024-01-01 00:00+05:30",
        "1890-01-01",
        "294247-01-10 04:00:54.775806+00",
    ],
    "uuid": ["00000000-0000-0000-0000-000000000000", "f1cae8f4-d86f-4965-94dc-5feb35ade4aa"],
    "bytea": ["", r"\x00ff", "\\\\x"],
    "json": ['{"b":  1, "b": [null]}', '"é"'],
    "jsonb": ['{"b":  1, "a": [null]}', "1.50"],
    "inet": ["10.0.0.1", "10.0.0.0/8"],
    "interval": ["1 year -3 days 04:05:06.7", "-infinity"],
    "integer[]": ["{1,NULL,3}", "{}"],
    "tstzrange": ["[2024-01-01 00:00+05,)"],
    "pair": ["(,)", "(1,)"],
    "padded": ["ab"],
    "mood": ["fair", "foul"],
    "timetz": ["12:00:00+05:30"],
    '"char"': ["a"],
    "name": ["a name"],
}
CHANGES = (
    "SELECT data FROM pg_logical_slot_get_binary_changes"
    "(%s, NULL, NULL, 'proto_version', '1', 'publication_names', 'p')"
)
ORDERED = [(f"c{index}", declared, values) for index, (declared, values) in enumerate(EDGES.items())]


SHAPE = """
SELECT a.attname, a.atttypid::int, a.atttypmod, c.oid::int
FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
WHERE c.oid = format('%%I.%%I', %s::text, %s::text)::regclass AND attnum > 0 AND NOT attisdropped
ORDER BY attnum
"""


def relation_of(conn: psycopg.Connection, schema: str, name: str) -> Relation:
    rows = conn.execute(SHAPE, (schema, name)).fetchall()
    columns = tuple(Column(name, oid, typmod, key=False) for name, oid, typmod, _ in rows)
    return Relation(1, rows[0][3], TableName(schema, name), "d", columns)


@contextmanager
def snapshot(url: str) -> Iterator[str]:
    with psycopg.connect(url) as conn:
        conn.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        row = conn.execute("SELECT pg_export_snapshot()").fetchone()
        assert row is not None
        yield row[0]


def copied(url: str, relation: Relation, pages: int = 1000) -> pa.Table:
    with snapshot(url) as name, psycopg.connect(url) as conn:
        parts = ranges(conn, relation.oid, pages)
        return pa.Table.from_batches([batch for part in parts for batch in read_range(url, name, relation, part)])


@pytest.fixture
def conn(database: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(database, autocommit=True) as conn:
        yield conn


def test_a_copied_value_equals_the_same_value_from_the_wal(database: str, conn: psycopg.Connection) -> None:
    conn.execute("CREATE TYPE pair AS (a int, b text)")
    conn.execute("CREATE DOMAIN padded AS char(5)")
    conn.execute("CREATE TYPE mood AS ENUM ('fair', 'foul')")
    conn.execute("CREATE TABLE t ({})".format(", ".join(f"{name} {declared}" for name, declared, _ in ORDERED)))
    conn.execute("CREATE PUBLICATION p FOR TABLE t")
    slot = "s_" + conn.info.dbname
    conn.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (slot,))
    for index in range(max(map(len, EDGES.values())) + 1):  # the last row is all null
        row = [values[index] if index < len(values) else None for _, _, values in ORDERED]
        conn.execute("INSERT INTO t VALUES ({})".format(", ".join(["%s"] * len(row))), row)

    relation = relation_of(conn, "public", "t")
    for name, value in TEXT_SETTINGS.items():
        conn.execute("SELECT set_config(%s, %s, false)", (name, value))
    messages = [data for (data,) in conn.execute(CHANGES, (slot,)).fetchall() if data[:1] == b"I"]
    cells = split(pa.array(messages), len(ORDERED)).new.cells

    table = copied(database, relation)
    assert len(table) == len(messages) == 7
    for index, (column, (_, declared, values)) in enumerate(zip(relation.columns, ORDERED, strict=True)):
        logged = decode(cells[index].text, lake_type(column.type_oid, column.typmod)).intact(declared)
        read = table[column.name].combine_chunks()
        assert read.type == lake_type(column.type_oid, column.typmod).arrow, declared
        assert read.null_count == 7 - len(values), declared
        read.validate(full=True)
        bits = {pa.float32(): pa.int32(), pa.float64(): pa.int64()}.get(read.type, read.type)
        assert read.view(bits).equals(logged.view(bits)), declared


@pytest.mark.parametrize(
    ("declared", "value", "printed"),
    [
        ("date", "infinity", "infinity"),
        ("date", "-infinity", "-infinity"),
        ("timestamp", "infinity", "infinity"),
        ("timestamp", "-infinity", "-infinity"),
        ("timestamp", "294276-12-31 23:59:59.999999", "294276-12-31 23:59:59.999999"),
        ("timestamp", "294247-01-10 04:00:54.775807", "294247-01-10 04:00:54.775807"),
        ("timestamptz", "infinity", "infinity"),
        ("time", "24:00", "24:00:00"),
        ("numeric(5,2)", "NaN", "NaN"),
    ],
)
def test_a_value_the_lake_cannot_hold_stops_the_copy_and_is_named(
    database: str, conn: psycopg.Connection, declared: str, value: str, printed: str
) -> None:
    conn.execute(f"CREATE TABLE t (id int, x {declared})")
    conn.execute("INSERT INTO t VALUES (1, NULL), (2, %s)", (value,))
    with pytest.raises(TableError, match=f"column 'x' holds '{printed}'"):
        copied(database, relation_of(conn, "public", "t"))


def test_every_row_is_in_exactly_one_range(database: str, conn: psycopg.Connection) -> None:
    conn.execute("CREATE TABLE t AS SELECT g AS id, repeat('x', 500) AS x FROM generate_series(1, 1000) g")
    conn.execute("DELETE FROM t WHERE id % 3 = 0")
    conn.execute("ANALYZE t")
    relation = relation_of(conn, "public", "t")
    parts = ranges(conn, relation.oid, 10)
    assert len(parts) > 5
    assert parts[0].first_page == 0
    assert [part.end_page for part in parts] == [*(part.first_page for part in parts[1:]), None]
    assert sum(part.rows or 0 for part in parts) == pytest.approx(667, rel=0.02)
    assert sorted(copied(database, relation, 10)["id"].to_pylist()) == [n for n in range(1, 1001) if n % 3]
    assert pickle.loads(pickle.dumps(parts)) == parts


def test_an_empty_table_is_one_open_range_of_no_rows(database: str, conn: psycopg.Connection) -> None:
    conn.execute("CREATE TABLE t (id int)")
    relation = relation_of(conn, "public", "t")
    assert ranges(conn, relation.oid, 10) == [Range(relation.oid, TableName("public", "t"), 0, None, None)]
    with snapshot(database) as name:
        assert list(read_range(database, name, relation, ranges(conn, relation.oid, 10)[0])) == []


def test_a_copy_sees_the_snapshot_and_nothing_later(database: str, conn: psycopg.Connection) -> None:
    conn.execute("CREATE TABLE t AS SELECT g AS id FROM generate_series(1, 3) g")
    relation = relation_of(conn, "public", "t")
    with snapshot(database) as name:
        (part,) = ranges(conn, relation.oid, 10)
        conn.execute("INSERT INTO t SELECT generate_series(4, 5000)")
        conn.execute("DELETE FROM t WHERE id = 1")
        batches = list(read_range(database, name, relation, part))
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
    relation = Relation(1, whole.oid, whole.table, "d", whole.columns[:2])
    assert copied(database, relation).to_pylist() == [{"a": 1, "b": "x"}]


def test_a_partitioned_table_is_read_leaf_by_leaf(database: str, conn: psycopg.Connection) -> None:
    conn.execute("CREATE TABLE t (id int, x text) PARTITION BY RANGE (id)")
    conn.execute("CREATE TABLE low PARTITION OF t FOR VALUES FROM (0) TO (10)")
    conn.execute("CREATE TABLE high (x text, gone int, id int)")  # other order: columns go by name
    conn.execute("ALTER TABLE high DROP COLUMN gone")
    conn.execute("ALTER TABLE t ATTACH PARTITION high FOR VALUES FROM (10) TO (20)")
    conn.execute("INSERT INTO t SELECT g, g::text FROM generate_series(0, 19) g")
    relation = relation_of(conn, "public", "t")
    assert {part.table.name for part in ranges(conn, relation.oid, 10)} == {"low", "high"}
    assert copied(database, relation).sort_by("id").to_pylist() == [{"id": n, "x": str(n)} for n in range(20)]


def test_what_is_not_a_table_is_refused(conn: psycopg.Connection) -> None:
    conn.execute("CREATE VIEW v AS SELECT 1 AS id")
    with pytest.raises(TableError, match="not an ordinary table"):
        ranges(conn, relation_of(conn, "public", "v").oid, 10)
    with pytest.raises(TableError, match="no table has the OID 1"):
        ranges(conn, 1, 10)


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
        (part,) = ranges(conn, relation.oid, 10)
        for statement in rewrite.split(";"):
            conn.execute(statement)
        with pytest.raises(TableError, match=r"public\.t was rewritten or renamed"):
            list(read_range(database, name, relation, part))


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
        reading = read_range(database, name, relation, ranges(conn, relation.oid, 1_000_000)[0])
        assert next(reading).num_rows < 300_000
        reading.close()  # type: ignore[attr-defined]


def test_a_lost_snapshot_and_a_lost_server_are_different_errors(database: str, conn: psycopg.Connection) -> None:
    conn.execute("CREATE TABLE t AS SELECT g AS id, repeat('x', 100) AS x FROM generate_series(1, 300000) g")
    relation = relation_of(conn, "public", "t")
    (part,) = ranges(conn, relation.oid, 1_000_000)
    with pytest.raises(TableError, match='snapshot "00000003-0000001B-1" does not exist'):
        list(read_range(database, "00000003-0000001B-1", relation, part))
    with pytest.raises(Unreachable):
        list(read_range("postgresql://me:secret@127.0.0.1:1/x", "00000003-0000001B-1", relation, part))
    with snapshot(database) as name:
        reading = read_range(database, name, relation, part)
        next(reading)
        conn.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND query ILIKE 'COPY (SELECT%' AND pid <> pg_backend_pid()"
        )
        with pytest.raises(Unreachable, match="went away"):
            list(reading)
