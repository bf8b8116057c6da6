"""Values of every type, those at its edges too, as literals."""

from __future__ import annotations

import random

__all__ = ["ENUM", "NESTED", "REWRITTEN", "TYPES", "WIDER", "literal"]

_WORDS = ("", " ", "a", "A", "ünï", "a'b", "NULL", "{}", "\\N", "two\nlines", "x" * 300)
_DECIMALS = ("0", "1.50", "-7", "99.125", "123456.789")
_DOUBLES = ("0", "-0", "NaN", "Infinity", "-Infinity", "0.1", "-2.5e10")
_MOMENTS = (
    "2026-01-02 03:04:05.678901",
    "0044-03-15 12:00:00 BC",
    "infinity",
    "-infinity",
    "9999-12-31",
    "294276-01-01",
)
TYPES = {
    "smallint": ("0", "-1", "32767", "-32768", "7"),
    "integer": ("0", "-1", "2147483647", "-2147483648", "42"),
    "bigint": ("0", "-1", "9223372036854775807", "-9223372036854775808", "42"),
    "numeric": (
        *_DECIMALS,
        "12345678901234567890.123456789012345678",
        "NaN",
        "Infinity",
        "1e30",
        "0.1234567890123456789",
    ),
    "numeric(12,3)": (*_DECIMALS, "NaN"),
    "real": (*_DOUBLES, "1e-45"),
    "double precision": (*_DOUBLES, "1e300", "5e-324"),
    "text": (*_WORDS, "BIG"),
    "character varying(20)": _WORDS[:-1],
    "boolean": ("true", "false"),
    "date": ("2026-02-28", "infinity", "-infinity", "4714-11-24 BC", "5874897-12-31"),
    "timestamp without time zone": _MOMENTS,
    "timestamp with time zone": (*_MOMENTS, "2026-07-01 12:00:00+05:30"),
    "uuid": ("00000000-0000-0000-0000-000000000000", "6f1b2a3c-4d5e-6f70-8192-a3b4c5d6e7f8"),
    "bytea": ("\\x", "\\x00ff", "\\x6162"),
    "jsonb": ('{"a": 1, "b": [null, "x"]}', "null", "123456789012345678901234567890", '"words"'),
    "integer[]": ("{}", "{1,NULL,3}", "{2147483647}", "{{1,2},{3,4}}", "[2:3]={7,8}"),
    "text[]": ("{}", '{"a b","NULL",NULL,"q\\"u"}', "{ünï}"),
    "numeric[]": ("{}", "{1.5,NULL,-7}", "{NaN}", "{1e30}"),
    "mood": ("fine", "so so", "new 0", "new 1", "new 2"),
}
NESTED = (
    "CREATE TYPE feel AS ENUM ('calm', 'glad')",  # whose labels are renamed
    "CREATE TYPE nest AS (n int, f feel)",  # which gets more attributes
    "CREATE TYPE feels AS RANGE (SUBTYPE = feel)",
)
EXPRESSIONS = {  # of types whose parts change
    "feel": ("enum_first(NULL::feel)", "enum_last(NULL::feel)"),
    "nest": ("jsonb_populate_record(NULL::nest, jsonb_build_object('n', 7, 'f', enum_first(NULL::feel)))", "NULL"),
    "nest[]": (
        "ARRAY[jsonb_populate_record(NULL::nest, jsonb_build_object('n', 8, 'f', enum_last(NULL::feel))), NULL]",
        "'{}'",
    ),
    "feels": ("feels(enum_first(NULL::feel), NULL)", "'empty'"),
}
REWRITTEN = {
    "text": "upper({0})",
    "integer": "{0} % 1000 + 1",
    "bigint": "{0} % 1000 - 1",
    "boolean": "NOT {0}",
    "character varying(20)": "lower({0})",
}
ENUM = "CREATE TYPE mood AS ENUM ('fine', 'so so')"  # its other labels are added as time goes by
WIDER = {
    "smallint": "integer",
    "integer": "bigint",
    "real": "double precision",
    "numeric(12,3)": "numeric(20,5)",
    "character varying(20)": "text",
}


def literal(chance: random.Random, kind: str) -> str:
    """A value of this type."""
    if kind in EXPRESSIONS:
        return chance.choice(EXPRESSIONS[kind])
    values = TYPES.get(kind) or TYPES["numeric(12,3)" if kind.startswith("numeric") else "text"]
    value = chance.choice(values)
    if value == "BIG":  # stored apart, where it is not compressed away
        return f"repeat(md5('{chance.randrange(100)}'), {chance.choice((100, 300))})"
    return "'" + value.replace("'", "''") + "'"
