"""PostgreSQL's value and the lake's compare equal exactly when they are the same, for every type, misfits included."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import psycopg
import pyarrow as pa
import pytest
from tests.typed_columns import relation_of

from headwater.change import TableName
from headwater.ducklake.extension import connect
from headwater.postgres.settings import TEXT_SETTINGS
from headwater.values.decode import decode
from headwater.values.types import LakeType, lake_type
from headwater.verify.misfits import is_json
from headwater.verify.pair import Pair

# Declared type, lake type asked for → values, all of them different from each other.
VALUES: dict[tuple[str, str | None], list[str]] = {
    ("smallint", None): ["-32768", "0", "-1", "32767"],
    ("bigint", None): ["-9223372036854775808", "9223372036854775807"],
    ("oid", None): ["0", "4294967295"],
    ("xid8", None): ["0", "18446744073709551615", "1"],
    ("boolean", None): ["t", "f"],
    ("real", None): ["0", "-0", "0.1", "NaN", "Infinity", "-Infinity", "1e-45", "3.4028235e38"],
    ("double precision", None): ["0", "-0", "0.1", "NaN", "Infinity", "-Infinity", "5e-324", "1.7976931348623157e308"],
    ("numeric(12,2)", None): ["1.10", "-1.10", "0", "NaN"],
    ("numeric(5,-2)", None): ["100", "-1200"],
    ("numeric(40,2)", None): ["1.10", "NaN", "99999999999999999999999999999999999999.99"],
    ("numeric", None): [
        *(
            "1.5",
            "99999999999999999999.999999999999999999",
            "100000000000000000000",
            "1e-18",
            "1e-19",
            "NaN",
            "0",
            "-1e-18",
        ),
        *("Infinity", "-Infinity", "123456789012345678901234567890123456789012345678901234567890"),
    ],
    ("numeric", "decimal(10,2)"): ["1.5", "1.505", "12345678.12", "123456789.12"],
    ("numeric", "double"): ["1.5", "0.1", "1e400", "Infinity", "NaN"],
    ("numeric", "varchar"): ["1.5", "1.50", "NaN"],
    ("integer", "decimal(3,0)"): ["999", "-999", "1000"],
    ("text", None): ["", " ", "a", "A", "'", "\\", "\u2603\U0001f600", "NULL"],
    ("text", "json"): ["1", "NaN", "{", '{"a": 1}', '{"a":1}', "[1,]"],
    ("char(5)", None): ["a", "b"],
    ("jsonb", None): ['{"a": 1}', "null", '"a"', "1e400"],
    ("json", None): ['{"a": 1}', '{"a":1}', '{"a":1,"a":2}'],
    ("bytea", None): ["", r"\x00", r"\xff41"],
    ("uuid", None): [
        *("00000000-0000-0000-0000-000000000001", "ffffffff-ffff-ffff-ffff-ffffffffffff"),
        *("00000000-0000-0001-0000-000000000002", "80000000-0000-0002-8000-000000000001"),  # DuckDB hashes halves alike
    ],
    ("date", None): ["2026-01-01", "0044-03-15 BC", "4714-11-24 BC", "5874897-12-31", "infinity", "-infinity"],
    ("time", None): ["00:00", "12:00:00.000001", "24:00:00"],
    ("timestamp", None): [
        *("2026-01-01 00:00:00.000001", "0044-03-15 12:00 BC", "4714-11-24 00:00:00 BC", "infinity", "-infinity"),
        *("294247-01-10 04:00:54.775806", "294247-01-10 04:00:54.775807", "294276-12-31 23:59:59.999999"),
    ],
    ("timestamptz", None): [
        *("2026-01-01 00:00:00+00", "2026-01-01 00:00:00+01", "0044-03-15 12:00:00+00 BC", "infinity", "-infinity"),
        *("294247-01-10 04:00:54.775806+00", "294276-12-31 23:59:59+00"),
    ],
    ("interval", None): ["1 day", "24:00:00"],
    ("inet", None): ["10.0.0.1", "10.0.0.0/8"],
    ("point", None): ["(1.5,-2)"],
    ("integer[]", None): ["{}", "{1}", "{1,NULL}", "{NULL}", "{2,1}", "{1,2}", "{{1,2}}", "[2:3]={1,2}"],
    ("integer[][]", None): ["{}", "{{1,2},{3,4}}", "{{1,2,3,4}}", "{{1},{2},{3},{4}}", "{1,2,3,4}", "{{NULL}}"],
    ("integer[][][]", None): ["{{{1,2}},{{3,4}}}", "{{{1,2},{3,4}}}", "{{{1},{2}},{{3},{4}}}"],
    ("text[]", None): ["{NULL}", '{"NULL"}', '{""}', r'{"a,b","{c}","\"","\\"}', "{a,b}"],
    ("numeric[]", None): ["{1.5,NULL}", "{1.5,NaN}", "{1e-19}", "{1.50,1}"],
    ("numeric(12,2)[]", "varchar[]"): ["{1.50}", "{NaN}"],
    ("numeric(12,2)[]", "varchar"): ["{1.50}", "{{NaN}}"],
    ("timestamptz[]", None): ["{2026-01-01 00:00:00+01,infinity}", '{"294276-12-31 23:59:59+00"}'],
    ("double precision[]", None): ["{0}", "{-0}", "{NaN,Infinity}"],
    ("inet[]", None): ["{10.0.0.1,10.0.0.0/8}"],
    ("char(3)[]", None): ["{a,b}"],
    ("bytea[]", None): [r'{"\\x00",NULL}'],
    ("uuid[]", None): ["{00000000-0000-0000-0000-000000000001}"],
    ("box[]", None): ["{(1,1),(0,0);(2,2),(0,0)}"],
    ("jsonb[]", None): [r'{"{\"a\": 1}",1}'],
    ("time[]", None): ["{24:00:00}"],
    ("date[]", None): ["{infinity,0044-03-15 BC}"],
    ("mood", None): ["sad", "ok"],
    ("mood[]", None): ["{sad,ok}"],
    ("couple", None): ['(1,"a b")', "(,)"],
    ("couple[]", None): [r'{"(1,\"a b\")","(,)"}'],
    ("years", None): ["3"],
    ("numbers", None): ["{1,2}", "{{1}}"],
    ("numbers[]", None): [r'{"{1,2}"}'],
}
TYPES = (
    "CREATE TYPE mood AS ENUM ('sad', 'ok')",
    "CREATE TYPE couple AS (a int, b text)",
    "CREATE DOMAIN years AS int CHECK (value > 0)",
    "CREATE DOMAIN numbers AS int[]",
)


_LINKED = pa.schema([("kh", pa.uint64()), ("key", pa.string()), ("name", pa.string()), ("value", pa.string())])
_ROWS = "SELECT id, CASE WHEN x IS DISTINCT FROM NULL THEN format('%s', x) END FROM t"


class Bench:
    """A table of one column and a key, as PostgreSQL prints it, and a lake that holds what Headwater would write."""

    def __init__(self, source: psycopg.Connection, asked: str | None, *, calendar_only: bool) -> None:
        relation = relation_of(source, "public", "t")
        key, value = relation.columns
        kind = lake_type(value, asked, calendar_only=calendar_only)
        shape = replace(relation, columns=(replace(key, key=True), value))
        self.pair = Pair(shape, TableName("main", "t"), (lake_type(key), kind))
        self.con = connect(threads=1)
        self.con.create_function("is_json", is_json, ["VARCHAR"], "BOOLEAN")
        for name, setting in TEXT_SETTINGS.items():
            source.execute("SELECT set_config(%s, %s, false)", (name, setting))
        rows = source.execute(_ROWS).fetchall()
        decoded = decode(pa.array([None if x is None else x.encode() for _, x in rows], pa.large_binary()), kind)
        self.bad = {each.row: each.text for each in decoded.bad}
        self._fill(kind, pa.table({"id": pa.array([id for id, _ in rows], pa.int32()), "x": decoded.array}))
        self.printed = self._printed(source)

    def _fill(self, kind: LakeType, rows: pa.Table) -> None:
        self.con.register("made", rows)
        self.con.execute("ATTACH ':memory:' AS lake")
        to = {"uuid": "CAST(hex({}) AS UUID)", "json": "CAST({} AS JSON)"}.get(kind.leaf.logical, "{}")
        made = f"list_transform(x, lambda e: {to.format('e')})" if kind.depth == 1 else to.format("x")
        self.con.execute(f"CREATE TABLE lake.main.t AS SELECT id, {made} AS x FROM made")

    def _printed(self, source: psycopg.Connection) -> pa.Table:
        asked = self.pair.postgres(show=True)
        query = b", ".join(each.as_bytes(source) for each in asked.values())
        rows = source.execute(b"SELECT " + query + b" FROM t").fetchall()
        columns = [list(column) for column in zip(*rows, strict=True)]
        return pa.table({name: pa.array(column, pa.string()) for name, column in zip(asked, columns, strict=True)})

    def differ(self, bad: dict[int, str]) -> bool:
        """Whether the sides differ, with these values in quarantine, by row; sums and details must agree."""
        hashed = f"SELECT id, {self.pair.key_hash} FROM (SELECT id, CAST(id AS BIGINT) AS c0 FROM lake.main.t)"
        keys = dict(self.con.execute(hashed).fetchall())
        entries = [{"kh": keys[row], "key": "", "name": "x", "value": text} for row, text in bad.items()]
        self.con.register("linked", pa.Table.from_pylist(entries, schema=_LINKED))
        self.con.register("side", self.printed)
        (one, rows), (other, lake_rows) = (self._asked(lake) for lake in (False, True))
        assert (one != other) == (rows != lake_rows)
        return one != other

    def _asked(self, lake: bool) -> tuple[object, object]:
        sums = self.con.execute(self.pair.sums(lake)).fetchall()
        misfits = [sum(row[place] for row in sums) for place in (4, 5, 6)]
        details = self.con.execute(self.pair.details(lake, range(64))).fetchall()
        return (sorted(row[:4] for row in sums if row[1]), misfits), {(row[0], row[2], row[4]) for row in details}


@pytest.fixture
def source(database: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(database, autocommit=True) as connection:
        for statement in TYPES:
            connection.execute(statement)
        yield connection


@pytest.mark.parametrize("kinds", [list(VALUES)[part::3] for part in range(3)], ids=["one", "two", "three"])
def test_equal_values_are_equal_and_others_are_not(
    source: psycopg.Connection, kinds: list[tuple[str, str | None]]
) -> None:
    assert_distinguished(source, kinds, calendar_only=False)


def test_in_a_lake_of_calendar_and_clock_alone_infinity_and_24_00_are_misfits(source: psycopg.Connection) -> None:
    moments = [each for each in VALUES if each[0].startswith(("date", "time"))]
    misfits = assert_distinguished(source, moments, calendar_only=True)
    assert misfits == {
        "date": ["infinity", "-infinity"],
        "time": ["24:00:00"],
        "timestamp": ["infinity", "-infinity", "294247-01-10 04:00:54.775807", "294276-12-31 23:59:59.999999"],
        "timestamptz": ["infinity", "-infinity", "294276-12-31 23:59:59+00"],
        "timestamptz[]": ['{"2025-12-31 23:00:00+00",infinity}', '{"294276-12-31 23:59:59+00"}'],
        "time[]": ["{24:00:00}"],
        "date[]": ['{infinity,"0044-03-15 BC"}'],
    }


def assert_distinguished(
    source: psycopg.Connection, kinds: list[tuple[str, str | None]], *, calendar_only: bool
) -> dict[str, list[str]]:
    """No value is taken for another; returns those that do not fit."""
    misfits = {}
    for kind, asked in kinds:
        values = VALUES[kind, asked]
        source.execute("DROP TABLE IF EXISTS t")
        source.execute(f"CREATE TABLE t (id int, x {kind})")
        for id, value in enumerate([*values, None]):
            source.execute(f"INSERT INTO t VALUES (%s, %s::{kind})", (id, value))
        bench = Bench(source, asked, calendar_only=calendar_only)
        misfits[kind] = list(bench.bad.values())
        assert not bench.differ(bench.bad), (kind, asked)
        for id, text in bench.bad.items():
            others = {row: other for row, other in bench.bad.items() if row != id}
            assert bench.differ(others), (kind, id)
            assert bench.differ(others | {id: text + "0"}), (kind, id)
        good = [id for id in range(len(values)) if id not in bench.bad]
        bench.con.execute("CREATE TABLE kept AS FROM lake.main.t")
        for id, other in zip(good, [None, *good], strict=False):  # NULL, or the value before
            taken = "NULL" if other is None else f"(SELECT x FROM kept WHERE id = {other})"
            bench.con.execute("DELETE FROM lake.main.t")  # an UPDATE would leave 0.0 where -0.0 is to be
            bench.con.execute(f"INSERT INTO lake.main.t SELECT id, if(id = {id}, {taken}, x) FROM kept")
            assert bench.differ(bench.bad), (kind, values[id], other)
        bench.con.close()
    return misfits
