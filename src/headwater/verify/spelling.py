"""One value, two spellings: how verify asks PostgreSQL and DuckDB for a column so that equal values compare equal.

Neither side goes through Headwater's own decoding: PostgreSQL prints, and DuckDB reads what PostgreSQL printed.
"""

from __future__ import annotations

from dataclasses import dataclass

from headwater.values.types import LakeType

__all__ = ["INVALID", "PRINTED", "Spelling", "spelling", "unproven"]


@dataclass(frozen=True, slots=True)
class Spelling:
    """SQL templates over `{}`, a column: PostgreSQL's text, DuckDB's reading of that text, DuckDB's lake column.

    Where the lake's type cannot hold a value, `read` gives NULL, and `misfit` is PostgreSQL's print of what must then
    be in quarantine; None: it holds them all.
    """

    postgres: str
    read: str
    lake: str
    misfit: str | None = None


# As the type's output function prints it: `::text` takes the padding off a char(n) and adds a netmask to an inet.
PRINTED = "CASE WHEN {} IS DISTINCT FROM NULL THEN format('%s', {}) END"
_TEXT = Spelling(PRINTED, "{}", "CAST({} AS VARCHAR)")
# Numbers of 128 bits, also under a decimal or a uuid, are compared as text: DuckDB's hash takes 0 for -1, and halves
# that have changed places for the same.
_WHOLE = Spelling("{}::text", "CAST({} AS BIGINT)", "CAST({} AS BIGINT)")
_INFINITIES = "('Infinity', '-Infinity')"
# Text of a double, because a hash does not tell -0.0 from 0.0.
_DOUBLE = (
    f"CASE WHEN NOT isinf(CAST({{}} AS DOUBLE)) OR {{}} IN {_INFINITIES} THEN CAST(CAST({{}} AS DOUBLE) AS VARCHAR) END"
)
_FLOAT = "CAST(CAST(CAST({} AS FLOAT) AS DOUBLE) AS VARCHAR)"
# Dates and times as numbers, because the two print years before Christ and past 9999 differently.
_MICROSECONDS = "trim_scale(extract(epoch FROM {}) * 1000000)::text"
_LAST_MOMENT = "294247-01-10 04:00:54.775806"  # DuckDB's infinity comes next
_INFINITE = "CASE WHEN isinf({}) THEN if({} > 'epoch', 'Infinity', '-Infinity') ELSE "
_DAYS = _INFINITE.replace("'epoch'", "DATE '1970-01-01'") + "CAST({} - DATE '1970-01-01' AS VARCHAR) END"
_MOMENT = _INFINITE + "CAST(epoch_us({}) AS VARCHAR) END"
_NUMBERS = {  # PostgreSQL's, and the lake's
    "date": ("trim_scale(extract(epoch FROM {}) / 86400)::text", _DAYS),
    "time": (_MICROSECONDS, "CAST(epoch_us({}) AS VARCHAR)"),
    "timestamp": (_MICROSECONDS, _MOMENT),
    "timestamptz": (_MICROSECONDS, _MOMENT),
}
_BY_TYPE = {
    "int16": _WHOLE,
    "int32": _WHOLE,
    "int64": _WHOLE,
    "uint32": _WHOLE,
    "uint64": Spelling("{}::text", "CAST({} AS UBIGINT)", "CAST({} AS UBIGINT)"),
    "boolean": Spelling("{}::text", "CAST({} AS BOOLEAN)", "{}"),
    "float32": Spelling("{}::text", _FLOAT, _FLOAT),
    "float64": Spelling("{}::text", _DOUBLE, "CAST(CAST({} AS DOUBLE) AS VARCHAR)", "{}::text"),
    "uuid": Spelling("{}::text", "{}", "CAST({} AS VARCHAR)"),
    "binary": Spelling("encode({}, 'hex')", "{}", "lower(hex({}))"),
}


def spelling(kind: LakeType) -> Spelling:
    """How to compare a column of this type."""
    if kind.element is not None:
        return _list(kind, spelling(kind.leaf))
    if kind.logical == "decimal":
        return _decimal(kind)
    if kind.logical in _NUMBERS:
        return _moment(kind)
    if kind.logical == "json" and kind.pg not in ("json", "jsonb"):
        return Spelling(PRINTED, "CASE WHEN is_json({}) THEN {} END", "CAST({} AS VARCHAR)", PRINTED)
    return _BY_TYPE.get(kind.logical, _TEXT)


INVALID = "\0"  # before text that is not UTF-8, and so cannot be in the lake; PostgreSQL's own text has no NUL


def unproven(how: Spelling) -> Spelling:
    """The same for a database that does not vouch for its text: what is INVALID does not fit."""
    return Spelling(
        how.postgres,
        f"CASE WHEN NOT starts_with({{}}, chr(0)) THEN {how.read} END",
        how.lake,
        how.misfit or how.postgres,
    )


def _decimal(kind: LakeType) -> Spelling:
    # The cast alone would round. Zeros at the end are no digits.
    exact = rf"regexp_full_match({{}}, '-?\d*(\.\d{{0,{kind.arrow.scale}}}0*)?')"
    value = f"CAST(TRY_CAST({{}} AS {kind}) AS VARCHAR)"
    return Spelling("{}::text", f"CASE WHEN {exact} THEN {value} END", value, "{}::text")


def _moment(kind: LakeType) -> Spelling:
    number, lake = _NUMBERS[kind.logical]
    unfit = _unfit(kind)
    if not unfit:
        return Spelling(number, "{}", lake)
    return Spelling(
        f"CASE WHEN {unfit} THEN 'unfit' ELSE {number} END",  # not NULL, which an element of a list may be
        "CASE WHEN {} <> 'unfit' THEN {} END",
        lake,
        f"CASE WHEN {unfit} THEN format('%s', {{}}) END",
    )


def _unfit(kind: LakeType) -> str:
    """PostgreSQL's condition for dates and times that do not fit; empty: they all do."""
    if kind.logical == "time":
        return "{} = '24:00'" if kind.calendar_only else ""
    if kind.logical == "date":
        return "NOT isfinite({})" if kind.calendar_only else ""
    beyond = f"{{}} > '{_LAST_MOMENT}+00'::{kind.logical}"
    return f"({beyond} OR NOT isfinite({{}}))" if kind.calendar_only else f"{beyond} AND isfinite({{}})"


def _list(kind: LakeType, leaf: Spelling) -> Spelling:
    """The sizes of the inner lists, then all elements one after the other."""
    depth = kind.depth
    fits = [f"array_ndims({{}}) = {depth}", *(f"array_lower({{}}, {level}) = 1" for level in range(1, depth + 1))]
    elements = f"ARRAY(SELECT {leaf.postgres.replace('{}', 'u.e')} FROM (SELECT unnest({{}}) AS e) AS u)"
    postgres = (
        f"CASE WHEN cardinality({{}}) = 0 OR ({' AND '.join(fits)})"
        f" THEN to_json(ARRAY[{_sizes(depth)}] || {elements})::text END"
    )
    raw = """from_json({}, '["VARCHAR"]')"""
    bad = f"list_filter({raw}[2:], lambda e: e IS NOT NULL AND ({leaf.read.replace('{}', 'e')}) IS NULL)"
    read = f"list_transform({raw}[2:], lambda e: CAST({leaf.read.replace('{}', 'e')} AS VARCHAR))"
    inner, sizes = "{}", []
    for _ in range(depth - 1):
        sizes.append(f"CAST(list_transform({inner}, lambda x: len(x)) AS VARCHAR)")
        inner = f"flatten({inner})"
    lake = f"list_transform({inner}, lambda e: CAST({leaf.lake.replace('{}', 'e')} AS VARCHAR))"
    return Spelling(
        postgres,
        f"CASE WHEN len({bad}) = 0 THEN list_prepend({raw}[1], {read}) END",
        f"CASE WHEN {{}} IS NOT NULL THEN list_prepend({' || '.join(sizes) or repr('')}, {lake}) END",
        PRINTED,
    )


def _sizes(depth: int) -> str:
    """The sizes of an array's inner lists, as DuckDB prints a list."""
    found, count = [], "1"
    for level in range(1, depth):
        count = f"{count} * array_length({{}}, {level})"
        same = f"array_fill(array_length({{}}, {level + 1}), ARRAY[{count}])"
        found.append(f"CASE WHEN cardinality({{}}) = 0 THEN '[]' ELSE '[' || array_to_string({same}, ', ') || ']' END")
    return " || ".join(found) or "''"
