"""The table of types in docs/types.md, made from the mapping: `python -m tools.typetable` rewrites it."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import NamedTuple

from headwater.change import BaseType, Column
from headwater.ducklake.types import ducklake_type
from headwater.iceberg.types import iceberg_type
from headwater.values.types import lake_type

__all__ = ["BEGIN", "END", "type_table", "with_type_table"]

BEGIN, END = "<!-- made by tools.typetable -->", "<!-- end -->"


class _Row(NamedTuple):
    """Types that are mirrored in the same way: their names, the OID of one of them, and notes."""

    spelled: str
    oid: int
    notes: str
    typmod: int = -1
    dims: int = 0


def _typmod(precision: int, scale: int) -> int:
    return (precision << 16 | scale & 0x7FF) + 4


_TEXT = "PostgreSQL's text"
_INFINITY = "±infinity as in DuckDB, on Iceberg to quarantine"
_NUMBER_EDGES = "NaN, ±Infinity and -0.0 as they are"
_ROWS = (
    _Row("boolean", 16, ""),
    _Row("smallint", 21, "all values"),
    _Row("integer", 23, "all values"),
    _Row("bigint", 20, "all values"),
    _Row("oid, xid, cid", 26, "all values; Iceberg has no unsigned integers"),
    _Row("xid8", 5069, "all values"),
    _Row("real", 700, _NUMBER_EDGES),
    _Row("double precision", 701, _NUMBER_EDGES),
    _Row("numeric(12,2)", 1700, "any precision up to 38; NaN to quarantine", _typmod(12, 2)),
    _Row("numeric(5,-2)", 1700, "a negative scale: whole numbers with that many more digits", _typmod(5, -2)),
    _Row("numeric(2,4)", 1700, "a scale above the precision: as many digits as the scale says", _typmod(2, 4)),
    _Row(
        "numeric",
        1700,
        "without limits: 20 digits before the point, 18 after it; a value with more of either, NaN and ±Infinity to"
        " quarantine, never rounded; trailing zeros are not kept (1.50 equals 1.5)",
    ),
    _Row("numeric(40,2)", 1700, f"a precision above 38: {_TEXT}, also NaN", _typmod(40, 2)),
    _Row('text, varchar, name, "char"', 25, "any Unicode, the empty string, trailing blanks"),
    _Row(
        "xml", 142, f"{_TEXT}; tried only on servers built with libxml, which the one that comes with Headwater is not"
    ),
    _Row("character(n)", 1042, "the padding blanks are kept"),
    _Row("json, jsonb", 114, "PostgreSQL's text: json with its blanks, repeated keys and numbers of any size"),
    _Row("bytea", 17, "any bytes"),
    _Row("uuid", 2950, "all values"),
    _Row("date", 1082, f"all from 4714 BC to 5874897; {_INFINITY}"),
    _Row("time", 1083, "all values; on Iceberg 24:00:00 to quarantine"),
    _Row(
        "timestamp",
        1114,
        f"from 4714 BC; {_INFINITY}; moments after 294247-01-10 04:00:54.775806 to quarantine",
    ),
    _Row("timestamptz", 1184, "the moment, in UTC, whatever zone it was written in; edges as for timestamp"),
    _Row("timetz", 1266, f"{_TEXT}, `12:00:00+05:30`: Parquet's time loses the zone"),
    _Row("interval", 1186, f"{_TEXT}, `1 year 2 mons 3 days 04:05:06.7`: Parquet's interval has no microseconds"),
    _Row("money", 790, f"{_TEXT}, `$1,000.00`: its meaning depends on the database's lc_monetary"),
    _Row("bit, varbit", 1560, f"{_TEXT}, `101`"),
    _Row("inet, cidr, macaddr, macaddr8", 869, f"{_TEXT}; a netmask only where PostgreSQL prints one"),
    _Row("point, line, lseg, box, path, polygon, circle", 600, f"{_TEXT}, `(1.5,-2)`"),
    _Row(
        "int4range, int8range, numrange, daterange, tsrange, tstzrange,"
        " int4multirange, int8multirange, nummultirange, datemultirange, tsmultirange, tstzmultirange",
        3904,
        f"{_TEXT}, `[1,5)`, `empty`: a pair of bounds does not show whether they are open or closed, or that the range"
        " is empty; moments in UTC",
    ),
    _Row("tsvector, tsquery, jsonpath", 3614, _TEXT),
    _Row("pg_lsn, tid, pg_snapshot, txid_snapshot, refcursor, aclitem", 3220, _TEXT),
    _Row(
        "regclass, regtype, regproc, regprocedure, regoper, regoperator, regrole, regnamespace, regconfig,"
        " regdictionary, regcollation, regdatabase",
        2205,
        "the name, as PostgreSQL prints it when it sends the row",
    ),
    _Row(
        "int2vector, oidvector, gtsvector, pg_node_tree, pg_ndistinct, pg_dependencies, pg_mcv_list,"
        " pg_brin_bloom_summary, pg_brin_minmax_multi_summary",
        22,
        f"{_TEXT}; types of the system catalogs",
    ),
    _Row("an enum", 16384, "the label; a label that is added later changes nothing in the lake"),
    _Row("a composite type", 16384, f'{_TEXT}, `(1,"a b")`'),
    _Row("a user-defined range type", 16384, _TEXT),
    _Row("a type of an extension", 16384, f"{_TEXT}: citext, hstore, ltree, vector or any other"),
    _Row("a domain", 23, "as the type under it, also through several domains; here: over integer"),
    _Row(
        "an array, integer[]",
        23,
        "a list of what the element's type becomes, also with NULL elements, or empty; an array with other dimensions"
        " than its column declares, with bounds that do not begin at 1, or with an element that does not fit goes to"
        " quarantine as a whole",
        dims=1,
    ),
    _Row("more dimensions, numeric(12,2)[][]", 1700, "lists in lists", _typmod(12, 2), 2),
)


def type_table() -> str:
    """Every type as Markdown: what it becomes, and what happens at its edges."""
    lines = ["| PostgreSQL | DuckLake | Iceberg | edges |", "|---|---|---|---|"]
    for row in _ROWS:
        kind = lake_type(Column("", row.oid, row.typmod, key=False, base=BaseType(row.oid, row.typmod, row.dims, "")))
        lake = ducklake_type(kind.leaf) + "[]" * kind.depth
        lines.append(f"| {_spelled(row.spelled)} | `{lake}` | `{iceberg_type(kind)}` | {row.notes} |")
    return "\n".join(lines)


def _spelled(names: str) -> str:
    """The names of types in backquotes, words about them without."""
    if re.match(r"an? |more ", names):
        words, _, example = names.partition(", ")
        return f"{words}, `{example}`" if example else words
    return ", ".join(f"`{name}`" for name in re.split(r", (?![^(]*\))", names))


def with_type_table(page: str) -> str:
    """The page with the table in it as it should be."""
    before, rest = page.split(BEGIN)
    return f"{before}{BEGIN}\n{type_table()}\n{END}{rest.split(END)[1]}"


if __name__ == "__main__":
    for path in map(Path, sys.argv[1:] or ["docs/types.md"]):
        path.write_text(with_type_table(path.read_text()))
