"""What a table holds, asked of PostgreSQL and of DuckDB, in words that are the same for equal values.

Headwater's own decoding has no part in it. A value that the lake's type cannot hold is `Misfit` on PostgreSQL's side:
it must be NULL in the lake, and in its quarantine.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from headwater.state import TableRow
from tests.mirror import Mirror

__all__ = ["assert_carried", "assert_no_change_twice"]

_LAST_MOMENT = "294247-01-10 04:00:54.775806"  # of DuckDB
_INFINITE = "CASE WHEN isinf({0}) THEN CAST({0} AS VARCHAR) ELSE"
_MOMENT = (
    f"CASE WHEN isfinite({{0}}) AND {{0}} > '{_LAST_MOMENT}+00' THEN 'beyond' WHEN isfinite({{0}})"
    " THEN trim_scale(extract(epoch FROM {0}) * 1000000)::text ELSE {0}::text END",
    f"{_INFINITE} CAST(epoch_us({{0}}) AS VARCHAR) END",
)
_DAY = (
    "CASE WHEN isfinite({0}) THEN ({0} - date '1970-01-01')::text ELSE {0}::text END",
    f"{_INFINITE} CAST({{0}} - DATE '1970-01-01' AS VARCHAR) END",
)
_ASKED = {  # of PostgreSQL, of DuckDB
    "timestamp without time zone": _MOMENT,
    "timestamp with time zone": _MOMENT,
    "date": _DAY,
    "bytea": ("encode({0}, 'hex')", "lower(hex({0}))"),
    "real": ("{0}::double precision::text", "CAST(CAST({0} AS DOUBLE) AS VARCHAR)"),
}
_MOMENTS = ("timestamp without time zone", "timestamp with time zone", "date")
_LIST = (
    "CASE WHEN cardinality({0}) > 0 AND (array_ndims({0}) <> 1 OR array_lower({0}, 1) <> 1) THEN NULL"
    " ELSE {0}::text[] END",
    "CAST({0} AS VARCHAR[])",
)
_SENT = "(attgenerated = '' OR current_setting('server_version_num')::int >= 180000)"  # before, no generated column
_OTHER = ("{0}::text", "CAST({0} AS VARCHAR)")
_OPEN = "SELECT key, value FROM lake.headwater_quarantine WHERE table_oid = {} AND resolved_lsn IS NULL"


@dataclass(frozen=True, slots=True)
class Misfit:
    text: str


def assert_carried(mirror: Mirror) -> None:
    """Every table is in the lake as it is in the source, with its quarantine; no change is in a history twice."""
    for row in mirror.m.state.tables("g"):
        assert row.state in ("CATCHUP", "STREAMING"), f"{row.source} is {row.state}: {row.error}"
        if row.options.mode == "mirror":
            _assert_table(mirror, row)
        else:
            assert_no_change_twice(mirror, row.lake.name)


def assert_no_change_twice(mirror: Mirror, history: str) -> None:
    changes = f"lake.public.{history} WHERE _op <> 'copy'"
    ((all_of_them, different),) = mirror.ask(f"SELECT count(*), count(DISTINCT (_commit_lsn, _seq)) FROM {changes}")
    assert all_of_them == different


def _assert_table(mirror: Mirror, row: TableRow) -> None:
    kinds = dict(
        mirror.rows_of(
            "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute"
            f" WHERE attrelid = {row.oid} AND attnum > 0 AND NOT attisdropped AND {_SENT} ORDER BY attnum"
        )
    )
    ((name,),) = mirror.rows_of(f"SELECT relname FROM pg_class WHERE oid = {row.oid}")
    assert row.lake.name == name
    place = f"lake.{row.lake.schema}.{row.lake.name}"
    columns = [column for column, *_ in mirror.ask(f"DESCRIBE {place}")]
    assert columns == list(kinds), f"{row.source}: {columns} in the lake, {list(kinds)} in the source"
    asked = {column: _ASKED.get(kind, _LIST if kind.endswith("[]") else _OTHER) for column, kind in kinds.items()}
    ours = _query(place, {column: each[1] for column, each in asked.items()})
    theirs = _query(name, {column: each[0] for column, each in asked.items()}, also="{0}::text")
    lake = [tuple(_plain(value, kinds[c]) for c, value in zip(kinds, each, strict=True)) for each in mirror.ask(ours)]
    source = [
        tuple(_spelled(mirror, value, text, kinds[c]) for c, (value, text) in zip(kinds, _pairs(each), strict=True))
        for each in mirror.rows_of(theirs)
    ]
    held = Counter(tuple(None if isinstance(value, Misfit) else value for value in each) for each in source)
    assert Counter(lake) == held, _difference(row, lake, held)
    _assert_quarantine(mirror, row, list(kinds), source)


def _query(place: str, columns: dict[str, str], also: str = "") -> str:
    asked = [how.format(f'"{column}"') for column, each in columns.items() for how in (each, also) if how]
    return f"SELECT {', '.join(asked)} FROM {place}"


def _pairs(row: tuple[Any, ...]) -> list[tuple[Any, Any]]:
    return list(zip(row[::2], row[1::2], strict=True))


def _spelled(mirror: Mirror, value: Any, text: str | None, kind: str) -> Any:
    """What PostgreSQL has; `text` is its own print."""
    if text is None:
        return None
    if mirror.kind == "iceberg" and kind in _MOMENTS and text.endswith("infinity"):
        return Misfit(text)
    numeric = kind.removesuffix("[]")
    unlimited, limited = numeric == "numeric", numeric.startswith("numeric(")
    each = value if isinstance(value, list) else [value]
    fits = value not in (None, "beyond") and all(
        number is None or not (unlimited or limited) or _fits(number, unlimited) for number in each
    )
    return _plain(value, kind) if fits else Misfit(text)


def _fits(number: str, unlimited: bool) -> bool:
    """Into decimal(38,18); a limited one is as wide in the lake as here."""
    digits = re.fullmatch(r"-?(\d+)(?:\.(\d*?)0*)?", number)
    return digits is not None and (not unlimited or (len(digits[1]) <= 20 and len(digits[2] or "") <= 18))


def _plain(value: Any, kind: str) -> Any:
    if isinstance(value, list):
        return tuple(_plain(each, kind.removesuffix("[]")) for each in value)
    if value is None:
        return None
    if kind.startswith("numeric"):
        return str(Decimal(value).normalize() if Decimal(value) else Decimal(0)) if value != "beyond" else value
    return repr(float(value)) if kind in ("real", "double precision") else value


def _assert_quarantine(mirror: Mirror, row: TableRow, columns: list[str], source: list[tuple[Any, ...]]) -> None:
    keys = mirror.rows_of(
        "SELECT attname FROM pg_index JOIN pg_attribute ON attrelid = indrelid AND attnum = ANY(indkey)"
        f" WHERE indrelid = {row.oid} AND (indisprimary OR indisreplident) ORDER BY attnum"
    )
    at = [columns.index(name) for (name,) in keys]
    expected = Counter(
        (tuple(each[index] for index in at), value.text)
        for each in source
        for value in each
        if isinstance(value, Misfit)
    )
    found = Counter(
        (tuple(map(str, json.loads(key).values())) if key else (), value)
        for key, value in mirror.ask(_OPEN.format(row.oid))
    )
    assert found == expected, (
        f"quarantine of {row.source}: only in the lake {list((found - expected).elements())[:5]},"
        f" missing there {list((expected - found).elements())[:5]}"
    )


def _difference(row: TableRow, lake: list[tuple[Any, ...]], held: Counter[tuple[Any, ...]]) -> str:
    ours = Counter(lake)
    return f"{row.source}: only in the lake {list(ours - held)[:5]}, only in the source {list(held - ours)[:5]}"
