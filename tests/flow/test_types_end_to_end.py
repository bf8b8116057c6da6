"""Every type, through the first copy, an insert and an update: what PostgreSQL has is what others read in the lake."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import NamedTuple

import duckdb
import psycopg
import pyarrow as pa
from pyiceberg.catalog import load_catalog
from tests.mirror import IcebergMirror, Mirror

from headwater.config import Iceberg
from headwater.lake import reading
from headwater.lake.sqltext import literal
from headwater.postgres.settings import TEXT_SETTINGS


class Kind(NamedTuple):
    """A column type of PostgreSQL, the type DuckDB must see, and values: PostgreSQL's literal, DuckDB's expression.

    Where the lake has the text that PostgreSQL prints there is no expression: PostgreSQL itself is asked.
    """

    postgres: str
    duckdb: str
    values: tuple[tuple[str, str], ...]

    @property
    def as_text(self) -> bool:
        return self.duckdb in ("VARCHAR", "JSON")

    @property
    def on_iceberg(self) -> Kind:
        """What Iceberg makes of it: some types are others there, and it has neither infinity nor 24:00:00."""
        values = tuple(
            (postgres, "NULL" if re.search("infinity|24:00:00", duckdb) else duckdb) for postgres, duckdb in self.values
        )
        return self._replace(duckdb=ON_ICEBERG.get(self.duckdb, self.duckdb), values=values)

    @property
    def unfit(self) -> list[int]:
        """The values that the lake cannot hold."""
        return [place for place, (_, duckdb) in enumerate(self.values) if duckdb == "NULL"]


def same(*texts: str) -> tuple[tuple[str, str], ...]:
    """Values that both spell alike."""
    return tuple((f"'{text}'", f"'{text}'") for text in texts)


def text(postgres: str, *values: str) -> Kind:
    """A type that is carried as the text that PostgreSQL prints."""
    return Kind(postgres, "VARCHAR", tuple((literal(value), "") for value in values))


ON_ICEBERG = {"SMALLINT": "INTEGER", "UINTEGER": "BIGINT", "UBIGINT": "DECIMAL(20,0)", "JSON": "VARCHAR"}
LARGE = ("repeat('ünï🦆', 120000)", "")  # a megabyte
KINDS = {
    "small": Kind("smallint", "SMALLINT", same("0", "-32768", "32767")),
    "int4": Kind("integer", "INTEGER", same("0", "-2147483648", "2147483647")),
    "int8": Kind("bigint", "BIGINT", same("0", "-9223372036854775808", "9223372036854775807")),
    "flag": Kind("boolean", "BOOLEAN", same("true", "false")),
    "float4": Kind("real", "FLOAT", same("0", "-0", "1.5e-45", "3.4028235e38", "0.1", "NaN", "Infinity", "-Infinity")),
    "float8": Kind(
        "double precision",
        "DOUBLE",
        same("0", "-0", "5e-324", "1.7976931348623157e308", "0.1", "NaN", "Infinity", "-Infinity"),
    ),
    "money": Kind("numeric(10,2)", "DECIMAL(10,2)", same("0", "-0.01", "99999999.99", "-99999999.99", "1.1")),
    "widest": Kind("numeric(38,10)", "DECIMAL(38,10)", same("9" * 28 + "." + "9" * 10, "-0.0000000001", "0")),
    "whole": Kind("numeric(38)", "DECIMAL(38,0)", same("9" * 38, "-" + "9" * 38)),
    "words": Kind(
        "text", "VARCHAR", (*same("", " ", "ünïcödé 🦆", "line\nline", "NULL", "\\x41", "''", "trailing  "), LARGE)
    ),
    "vary": text("varchar(20)", "", "trailing  ", "twenty characters at"),
    "varies": Kind("varchar", "VARCHAR", (LARGE,)),
    "padded": text("char(5)", "ab", "", "abcde", "ééééé"),
    "called": text("name", "", "a name", "ü" * 31),
    "letter": text('"char"', "", "a"),
    "day": Kind(
        "date",
        "DATE",
        (
            *same("1970-01-01", "2000-02-29", "1582-10-10", "0001-01-01", "9999-12-31"),
            ("'4714-11-24 BC'", "'4714-11-24 (BC)'"),
            ("'0044-03-15 BC'", "'0044-03-15 (BC)'"),
            ("'99999-01-01'", "'99999-01-01'"),
        ),
    ),
    "clock": Kind("time", "TIME", same("00:00:00", "23:59:59.999999", "12:34:56.7")),
    "moment": Kind(
        "timestamp",
        "TIMESTAMP",
        (
            *same("1970-01-01 00:00:00", "2026-02-03 04:05:06.789012", "0001-01-01 00:00:00", "12345-06-07 08:09:10"),
            ("'0044-03-15 12:00:00 BC'", "'0044-03-15 (BC) 12:00:00'"),
            ("'4714-11-24 00:00:00 BC'", "'4714-11-24 (BC) 00:00:00'"),
        ),
    ),
    "instant": Kind(
        "timestamptz",
        "TIMESTAMP WITH TIME ZONE",
        (
            *same("1970-01-01 00:00:00+00", "2026-02-03 04:05:06.789012+05:30", "1900-01-01 00:00:00-08"),
            ("'0044-03-15 12:00:00+00 BC'", "'0044-03-15 (BC) 12:00:00+00'"),
            ("'20000-01-01 00:00:00+00'", "'20000-01-01 00:00:00+00'"),
        ),
    ),
    "ident": Kind("uuid", "UUID", same("00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff")),
    "raw": Kind(
        "bytea",
        "BLOB",
        ((r"'\x'", "''::BLOB"), (r"'\x00ff41'", r"'\x00\xFFA'::BLOB"), (r"'\\x'", r"'\x5Cx'::BLOB")),
    ),
    "doc": Kind("json", "JSON", same('{"b": 1,  "a": [1, null]}', '"text"', "null", '{"a":1,"a":2}', "1e400")),
    "docb": Kind("jsonb", "JSON", same('{"a": [1, null], "b": "ü"}', '"text"', "null", "12345678901234567890.5")),
    "free": Kind("numeric", "DECIMAL(38,18)", same("0", "1.10", "-12345678901234567890.123456789012345678", "1e-18")),
    "number": Kind("oid", "UINTEGER", same("0", "4294967295")),
    "xact": Kind("xid8", "UBIGINT", same("0", "18446744073709551615")),
    "positive": Kind("positive", "INTEGER", same("1", "2147483647")),
    "noon": Kind("time", "TIME", same("24:00:00")),
    "ever": Kind("date", "DATE", same("infinity", "-infinity")),
    "once": Kind("timestamp", "TIMESTAMP", same("infinity", "-infinity", "294247-01-10 04:00:54.775806")),
    "never": Kind("timestamptz", "TIMESTAMP WITH TIME ZONE", same("infinity", "-infinity")),
    "list": Kind("int[]", "INTEGER[]", (("'{}'", "[]"), ("'{1,NULL,3}'", "[1, NULL, 3]"))),
    "listed": Kind("text[]", "VARCHAR[]", ((r"""'{"a,b",NULL,"NULL","",ü}'""", "['a,b', NULL, 'NULL', '', 'ü']"),)),
    "grid": Kind("int[][]", "INTEGER[][]", (("'{{1,2},{3,NULL}}'", "[[1, 2], [3, NULL]]"), ("'{}'", "[]"))),
    "days": Kind("date[]", "DATE[]", (("'{2026-01-02,infinity}'", "['2026-01-02', 'infinity']"),)),
    "clocks": Kind("time[]", "TIME[]", (("'{24:00:00,NULL}'", "['24:00:00', NULL]"), ("'{23:00}'", "['23:00:00']"))),
    "nevers": Kind("timestamptz[][]", "TIMESTAMP WITH TIME ZONE[][]", (("'{{-infinity}}'", "[['-infinity']]"),)),
    "positives": Kind("positives", "INTEGER[]", (("'{1,2}'", "[1, 2]"),)),
    # Carried as the text that PostgreSQL prints
    "address": text("inet", "10.0.0.1", "10.0.0.0/8", "::1", "::ffff:1.2.3.4/128"),
    "net": text("cidr", "10.0.0.0/8", "::/0"),
    "mac": text("macaddr", "08:00:2b:01:02:03", "ff:ff:ff:ff:ff:ff"),
    "mac8": text("macaddr8", "08:00:2b:01:02:03:04:05", "08:00:2b:01:02:03"),
    "span": text(
        *("interval", "1 year 2 mons 3 days 04:05:06.789", "-00:00:01", "00:00:00", "-178000000 years"),
        *("1 mon -1 day", "00:00:00.000001"),
    ),
    "zoned": text("timetz", "12:34:56+05:30", "24:00:00-15:59:59", "00:00:00.000001+00"),
    "cash": text("money", "-1234.5", "92233720368547758.07", "-92233720368547758.08", "0"),
    "mood": text("mood", "happy", "not so"),
    "odd": text("numeric(50,5)", "9" * 45 + ".00001", "NaN"),
    "bits": text("bit(3)", "101"),
    "vbits": text("varbit", "", "1", "0" * 70),
    "place": text("point", "(1.5,-2)", "(NaN,Infinity)", "(1e300,-0)"),
    "line": text("line", "{1,-2.5,3}"),
    "lseg": text("lseg", "[(1,2),(3,4.5)]"),
    "box": text("box", "(3,4),(1,2)", "(0,0),(0,0)"),
    "path": text("path", "[(1,2),(3,4)]", "((1,2),(3,4))"),
    "polygon": text("polygon", "((0,0),(1,1),(1,0))", "((1,1))"),
    "circle": text("circle", "<(1,2),3.5>", "<(0,0),0>"),
    "range4": text("int4range", "[1,5)", "[1,5]", "empty", "(,)"),
    "range8": text("int8range", "[-9223372036854775808,9223372036854775807)", "(,5)", "empty"),
    "rangen": text("numrange", "(0.1,1e40]", "[NaN,NaN]", "[-Infinity,Infinity)", "empty"),
    "ranged": text("daterange", "[2026-01-01,infinity]", "[4714-11-24 BC,2000-01-01)", "empty", "(,)"),
    "ranget": text("tsrange", '["2026-01-01 00:00:00.000001",infinity)', '[-infinity,"0044-03-15 12:00 BC")', "empty"),
    "rangez": text("tstzrange", '["2026-01-01 00:00+05:30",)', '(,"294276-12-31 23:59:59.999999+00"]', "empty"),
    "ranges4": text("int4multirange", "{[1,3),[7,9)}", "{}", "{(,)}"),
    "ranges8": text("int8multirange", "{[1,3),[7,9223372036854775807)}", "{}"),
    "rangesn": text("nummultirange", "{[0.1,0.2],(7,Infinity)}", "{}"),
    "rangesd": text("datemultirange", "{[2026-01-01,2026-02-01),[2027-01-01,infinity]}", "{}"),
    "rangest": text("tsmultirange", '{["2026-01-01 12:00","2026-01-02 12:00:00.5"),[infinity,]}', "{}"),
    "rangesz": text("tstzmultirange", '{["2026-01-01 12:00+14","2026-01-02 12:00-12")}', "{}"),
    "search": text("tsvector", "'fat':2 'rat':3A,5", "", "'it''s'"),
    "sought": text("tsquery", "'fat' & !'rat' | 'it''s':*AB", "'a' <2> 'b'", ""),
    "jpath": text("jsonpath", '$."a b"[*]?(@ > 1.5)', "strict $"),
    "lsn": text("pg_lsn", "0/0", "FF/1", "FFFFFFFF/FFFFFFFF"),
    "tid": text("tid", "(0,0)", "(4294967295,65535)"),
    "seen": text("pg_snapshot", "10:20:10,14,15"),
    "class": text("regclass", "pg_class", '"Odd one"'),
    "pair": text("pair", '(1,"a b")', "(,)", '(,"")'),
    "pairs": Kind("pair[]", "VARCHAR[]", ((r"""'{"(1,\"a b\")",NULL}'""", """['(1,"a b")', NULL]"""),)),
    "boxes": Kind("box[]", "VARCHAR[]", (("'{(1,1),(0,0);(2,2),(0,0)}'", "['(1,1),(0,0)', '(2,2),(0,0)']"),)),
    "own": text("own", "[a,b)", "empty"),
    # What not every server has
    "markup": text("xml", '<a b="c">ü &amp; <![CDATA[<]]></a>', "no element", ""),
    "vector": text("vector", "[1,2,3]", "[-0.5,1e-30]"),
    "citext": text("citext", "Mixed", "trailing  ", ""),
    "hstore": text("hstore", '"a"=>NULL, "b c"=>"\\"ü"', ""),
    "ltree": text("ltree", "top.down", ""),
}
EXTENSIONS = {"vector", "citext", "hstore", "ltree"}
MAKE_TYPES = (
    "CREATE TYPE mood AS ENUM ('happy', 'not so')",
    "CREATE DOMAIN positive AS int CHECK (VALUE > 0)",
    "CREATE DOMAIN very AS positive CHECK (VALUE < 100)",
    "CREATE DOMAIN positives AS very[]",
    "CREATE TYPE pair AS (a int, b text)",
    "CREATE TYPE own AS RANGE (subtype = text)",
    'CREATE TABLE "Odd one" (id int)',
)
ROWS = max(len(kind.values) for kind in KINDS.values()) + 1  # the last one is all NULL
COPIED, INSERTED, UPDATED = 0, 100, 200  # the same values under three ranges of ids


def known_to(source: psycopg.Connection) -> dict[str, Kind]:
    """The types that this server has, those of its extensions created."""
    there = {name for (name,) in source.execute("SELECT name FROM pg_available_extensions").fetchall()}
    for name in sorted(EXTENSIONS & there):
        source.execute(f"CREATE EXTENSION {name}")
    lacking = EXTENSIONS - there
    try:
        source.execute("SELECT '<a/>'::xml")
    except psycopg.errors.FeatureNotSupported:  # it was built without libxml
        lacking |= {"markup"}
    return {name: kind for name, kind in KINDS.items() if name not in lacking}


def literals(kinds: dict[str, Kind], row: int) -> Iterator[str]:
    for kind in kinds.values():
        yield f"{kind.values[row][0]}::{kind.postgres}" if row < len(kind.values) else "NULL"


def wanted(kinds: dict[str, Kind], row: int, printed: tuple[str, ...]) -> Iterator[str]:
    """What DuckDB must read in a row, as DuckDB's expressions."""
    for kind, text in zip(kinds.values(), printed, strict=True):
        known = row < len(kind.values)
        value = kind.values[row][1] if known and not kind.as_text else literal(text) if known else "NULL"
        yield f"CAST({value} AS {kind.duckdb})::VARCHAR"


def test_every_type_arrives_by_copy_by_insert_and_by_update(mirror: Mirror) -> None:
    assert_every_type_arrives(mirror)


def test_every_type_arrives_in_an_iceberg_lake(iceberg_mirror: IcebergMirror) -> None:
    assert_every_type_arrives(iceberg_mirror)


def assert_every_type_arrives(mirror: Mirror) -> None:
    mirror.execute(*MAKE_TYPES)
    for setting, value in TEXT_SETTINGS.items():
        mirror.execute(f"SET {setting} = '{value}'")
    kinds = known_to(mirror.source)
    columns = ", ".join(f"{name} {kind.postgres}" for name, kind in kinds.items())
    mirror.execute(f"CREATE TABLE every (id int PRIMARY KEY, {columns})")

    def insert(base: int) -> None:
        for row in range(ROWS):
            mirror.execute(f"INSERT INTO every VALUES ({base + row}, {', '.join(literals(kinds, row))})")

    insert(COPIED)
    mirror.execute(f"INSERT INTO every SELECT i FROM generate_series({UPDATED}, {UPDATED + ROWS - 1}) i")
    mirror.start("public.every")
    insert(INSERTED)
    mirror.sync()
    for row in range(ROWS):
        values = zip(kinds, literals(kinds, row), strict=True)
        mirror.execute(f"UPDATE every SET {', '.join(f'{n} = {v}' for n, v in values)} WHERE id = {UPDATED + row}")
    mirror.sync()

    unfit: set[tuple[int, str]] = set()
    if isinstance(mirror, IcebergMirror):
        kinds = {name: kind.on_iceberg for name, kind in kinds.items()}
        bases = (COPIED, INSERTED, UPDATED)
        unfit = {(base + row, name) for base in bases for name, kind in kinds.items() for row in kind.unfit}
        with reading.connect() as con:
            con.register("every", read_by_pyiceberg(mirror, "public.every"))
            check_every(mirror, kinds, con, "every")
    assert quarantined(mirror) == unfit
    check_every(mirror, kinds, mirror.lake, "lake.public.every")
    mirror.stop_capture()
    (verdict,) = mirror.verify()
    assert verdict.ok, verdict.differences


def read_by_pyiceberg(mirror: IcebergMirror, table: str) -> pa.Table:
    lake = mirror.config.lakes["main"]
    assert isinstance(lake, Iceberg)
    with load_catalog(**lake.properties) as catalog:
        return catalog.load_table(table).scan().to_arrow()


def quarantined(mirror: Mirror) -> set[tuple[int, str]]:
    """The ids and columns of the values in quarantine."""
    found = mirror.ask("SELECT key, column_name FROM lake.main.headwater_quarantine WHERE resolved_lsn IS NULL")
    return {(json.loads(key)["id"], column) for key, column in found}


def check_every(mirror: Mirror, kinds: dict[str, Kind], con: duckdb.DuckDBPyConnection, table: str) -> None:
    """What this DuckDB has in the table is what PostgreSQL has, in the types that are wanted."""
    described = {name: kind for name, kind, *_ in con.execute(f"DESCRIBE {table}").fetchall()}
    assert {name: described[name] for name in kinds} == {name: kind.duckdb for name, kind in kinds.items()}
    wrong = []
    for row in range(ROWS):
        prints = ", ".join(f"format('%s', {name})" for name in kinds)
        mirror.execute("SET search_path = pg_catalog")  # so that names are printed with their schemas
        (printed,) = mirror.rows_of(f"SELECT {prints} FROM public.every WHERE id = {row}")
        mirror.execute("RESET search_path")
        # as text, because -0 equals 0 and one JSON another
        (due,) = con.execute(f"SELECT {', '.join(wanted(kinds, row, printed))}").fetchall()
        texts = ", ".join(f"{name}::VARCHAR" for name in kinds)
        ids = [COPIED + row, INSERTED + row, UPDATED + row]
        found = con.execute(f"SELECT {texts} FROM {table} WHERE id IN {tuple(ids)} ORDER BY id").fetchall()
        assert len(found) == 3
        for id, row_of_lake in zip(ids, found, strict=True):
            wrong += [(id, *each) for each in zip(kinds, row_of_lake, due, strict=True) if each[1] != each[2]]
    assert wrong == []


# For each type of key: keys to be copied, the last three of them to be updated, deleted and moved, and one to insert;
# where the moved one goes.
KEYS = {
    "smallint": (["-32768", "0", "1", "32767"], "2", "3"),
    "integer": (["-2147483648", "0", "1", "2147483647"], "2", "3"),
    "bigint": (["-9223372036854775808", "0", "1", "9223372036854775807"], "2", "3"),
    "boolean": (["true"], "false", None),
    "real": (["0.1", "1.5e-45", "NaN", "-Infinity"], "2", "Infinity"),
    "double precision": (["0.1", "5e-324", "NaN", "-Infinity"], "2", "Infinity"),
    "numeric(20,5)": (["0", "0.00001", "123456789012345.12345", "-1"], "1.50000", "1.50001"),
    "numeric": (["0", "1.0", "10000000000000000000", "-0.000000000000000001"], "1.00001", "1.0000200"),
    "oid": (["0", "1", "2147483648", "4294967295"], "2", "3"),
    "text": (["", " ", "a", "ä"], "A", "z" * 300),
    "varchar(9)": (["", " ", "a", "ä"], "A", "zz"),
    "char(4)": (["", "a", "ab", "abcd"], "A", "zz"),
    "date": (["1970-01-01", "0044-03-15 BC", "9999-12-31", "2000-02-29"], "2026-01-01", "2026-01-02"),
    "time": (["00:00:00", "23:59:59.999999", "12:00:00", "12:00:00.000001"], "01:00:00", "02:00:00"),
    "timestamp": (
        ["1970-01-01", "1969-12-31 23:59:59.999999", "2026-01-01", "0044-03-15 BC"],
        "2000-01-01",
        "2001-1-1",
    ),
    "timestamptz": (
        ["1970-01-01+00", "2026-01-01 00:00+05", "2026-01-01+00", "0044-03-15+00 BC"],
        "2000-01-01+00",
        "2001-01-01+00",
    ),
    "uuid": (
        [f"{n}0000000-0000-0000-0000-000000000000" for n in "0f12"],
        "30000000-0000-0000-0000-000000000001",
        "40000000-0000-0000-0000-000000000000",
    ),
    "bytea": ([r"\x", r"\x00", r"\x0000", r"\xff"], r"\x01", r"\x02"),
    "inet": (["10.0.0.1", "10.0.0.0/8", "::1", "127.0.0.1"], "1.2.3.4", "1.2.3.4/24"),
    "mood": (["happy"], "not so", None),
    "jsonb": (["1", '"a"', "[1, 2]", "{}"], '{"a": 1}', "null"),
}


def test_a_key_of_any_type_is_updated_deleted_and_changed(mirror: Mirror) -> None:
    mirror.execute(*MAKE_TYPES[:1])
    names = {f"k{index}": kind for index, kind in enumerate(KEYS)}
    for name, kind in names.items():
        mirror.execute(f"CREATE TABLE {name} (v int, k {kind} PRIMARY KEY)")
        for number, key in enumerate(KEYS[kind][0]):
            mirror.execute(f"INSERT INTO {name} VALUES ({number}, '{key}')")
    mirror.start()
    for name, kind in names.items():
        copied, new, moved = KEYS[kind]
        mirror.execute(
            f"INSERT INTO {name} VALUES (100, '{new}')", f"UPDATE {name} SET v = v + 10 WHERE k = '{copied[-1]}'"
        )
        if moved is not None:
            mirror.execute(
                f"DELETE FROM {name} WHERE k = '{copied[-2]}'",
                f"UPDATE {name} SET k = '{moved}' WHERE k = '{copied[-3]}'",
            )
    mirror.sync()
    check(mirror, names)
    for name, kind in names.items():  # those that were inserted and moved are found again, and a free key is taken
        copied, new, moved = KEYS[kind]
        mirror.execute(f"UPDATE {name} SET v = v + 1000 WHERE k = '{new}'")
        if moved is None:
            mirror.execute(f"DELETE FROM {name} WHERE k = '{copied[0]}'")
        else:
            mirror.execute(
                f"UPDATE {name} SET k = '{copied[-2]}' WHERE k = '{moved}'",
                f"DELETE FROM {name} WHERE k = '{copied[0]}'",
            )
    mirror.sync()
    check(mirror, names)


def for_duckdb(text: str) -> str:
    """A literal; DuckDB puts the mark of years before Christ in parentheses, after the date."""
    return literal(re.sub(r"^(\S+)(.*) BC$", r"\1 (BC)\2", text))


def check(mirror: Mirror, names: dict[str, str]) -> None:
    """PostgreSQL prints its keys, DuckDB reads the print: that is what the lake must hold."""
    wrong = {}
    for name, kind in names.items():
        lakes = mirror.ask(f"SELECT v, CAST(k AS VARCHAR) FROM lake.public.{name} ORDER BY v")
        ((lake_type,),) = mirror.ask(f"SELECT DISTINCT typeof(k) FROM lake.public.{name}")
        read = "unhex(substr(k, 3))" if lake_type == "BLOB" else f"CAST(k AS {lake_type})"
        rows = ", ".join(
            f"({v}, {for_duckdb(k)})" for v, k in mirror.rows_of(f"SELECT v, format('%s', k) FROM {name} ORDER BY v")
        )
        theirs = mirror.ask(f"SELECT v, CAST({read} AS VARCHAR) FROM (VALUES {rows}) AS printed(v, k)")
        if lakes != theirs:
            wrong[kind] = (lakes, theirs)
    assert wrong == {}
    assert {row.state for row in mirror.m.state.tables("g")} <= {"CATCHUP", "STREAMING"}


def test_a_key_that_changes_in_its_spelling_alone_is_the_same_row(mirror: Mirror) -> None:
    mirror.execute(
        "CREATE TABLE f (k double precision PRIMARY KEY, v int)",
        "CREATE TABLE n (k numeric PRIMARY KEY, v int)",
        "CREATE TABLE c (k char(5) PRIMARY KEY, v int)",
        "INSERT INTO f VALUES (0, 1)",
        "INSERT INTO n VALUES (1.0, 1)",
        "INSERT INTO c VALUES ('a', 1)",
    )
    mirror.start()
    mirror.execute(
        "UPDATE f SET k = '-0'", "UPDATE n SET k = 1.000, v = 2", "UPDATE c SET k = 'a  '", "UPDATE c SET v = 2"
    )
    mirror.sync()
    assert mirror.ask("SELECT k::VARCHAR, v FROM lake.public.f") == [("-0.0", 1)]
    assert mirror.ask("SELECT k::INTEGER, v FROM lake.public.n") == [(1, 2)]
    assert mirror.ask("SELECT k, v FROM lake.public.c") == [("a    ", 2)]
    mirror.transaction("DELETE FROM f WHERE k = 0", "INSERT INTO f VALUES (0, 5)", "DELETE FROM n WHERE k = 1")
    mirror.sync()
    assert mirror.ask("SELECT k::VARCHAR, v FROM lake.public.f") == [("0.0", 5)]
    assert mirror.ask("SELECT count(*) FROM lake.public.n") == [(0,)]


def test_a_key_that_iceberg_cannot_hold_stops_its_table_alone_unless_it_is_text(iceberg_mirror: IcebergMirror) -> None:
    mirror = iceberg_mirror
    mirror.execute(
        *(f"CREATE TABLE {name} (k date PRIMARY KEY, v time)" for name in ("one", "other", "spelled")),
        "INSERT INTO one VALUES ('2026-01-01', '24:00')",
        "INSERT INTO spelled VALUES ('infinity', '24:00')",
    )
    mirror.start("public.one", "public.other", {"table": "public.spelled", "types": {"k": "varchar"}})
    mirror.execute("UPDATE spelled SET v = '02:00' WHERE k = 'infinity'")
    mirror.sync()
    mirror.execute("INSERT INTO one VALUES ('infinity', '01:00')", "INSERT INTO other VALUES ('2026-01-02', '01:00')")
    mirror.sync()
    errors = {row.lake.name: row.error for row in mirror.m.state.tables("g") if row.error}
    assert errors.keys() == {"one"}
    assert "holds 'infinity' in column 'k', which the lake's date cannot hold" in str(errors["one"])
    mirror.assert_equal("other")
    assert mirror.ask("SELECT k, v::VARCHAR FROM lake.public.spelled") == [("infinity", "02:00:00")]
    quarantine = "SELECT table_name, value FROM lake.main.headwater_quarantine WHERE resolved_lsn IS NULL"
    assert mirror.ask(quarantine) == [("public.one", "24:00:00")]
