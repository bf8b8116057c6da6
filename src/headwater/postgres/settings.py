"""What every PostgreSQL connection of ours sets by itself, whatever the role, the database and the URL have set.

It is set by SQL after connecting, not by `options` of the connection: connection poolers refuse those. Two libraries
ask the server before we can: DuckDB, which connects by itself, gets `options` for what is set otherwise on its server,
and ADBC, which only ever connects to the source, always.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

__all__ = ["OVERRIDDEN", "SETTINGS", "TEXT_SETTINGS", "options", "prepare"]

# How a session must print its values so that `decode` can read them, and so that they are the same from the WAL and
# from a copy.
TEXT_SETTINGS = {
    "client_encoding": "UTF8",
    "DateStyle": "ISO, MDY",
    "IntervalStyle": "postgres",
    "TimeZone": "UTC",
    "bytea_output": "hex",
    "extra_float_digits": "1",  # the shortest text that is read back as the same number
}

SETTINGS = TEXT_SETTINGS | {
    # Names in our SQL mean PostgreSQL's own tables, functions and operators; the server prints all others in full.
    "search_path": "pg_catalog",
    "quote_all_identifiers": "off",  # names of types and tables are compared as text
    "standard_conforming_strings": "on",  # a backslash in our literals is a backslash
    "array_nulls": "on",  # NULL in our array arguments is NULL
    # An exported snapshot lives as long as its transaction, a lock as long as its session, a copy as long as it takes.
    "statement_timeout": "0",
    "lock_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
    "idle_session_timeout": "0",
    "transaction_timeout": "0",
    "default_transaction_read_only": "off",  # we write our state, publications and lakes
    "default_transaction_isolation": "read committed",  # what needs another level asks for it
    "synchronous_commit": "on",  # the slot is confirmed, and the log trimmed, on the strength of what was committed
    "row_security": "off",  # an error rather than only the rows that a policy lets us see: the WAL has them all
}

# None of these needs the catalog, so they are quick enough for any statement_timeout, and work on a standby.
_FIRST = ("statement_timeout", "default_transaction_isolation", "search_path")
_REST = (
    "SELECT set_config(name, value, false) FROM (VALUES {}) wanted(name, value)"
    " WHERE current_setting(name, true) IS NOT NULL"  # of a setting that is unknown to this server there is no value
)
# A SQL_ASCII database does not know the encoding of its text. Asked for UTF8 it fails at the first byte that is not.
_AS_STORED = (
    "SELECT set_config('client_encoding', 'SQL_ASCII', false) WHERE current_setting('server_encoding') = 'SQL_ASCII'"
)
# A server refuses a connection with options that it does not know: this one is new in PostgreSQL 17.
_KNOWN_TO_ALL = tuple(name for name in SETTINGS if name != "transaction_timeout")
# Values are not among them: DuckDB reads those in binary.
_FOR_DUCKDB = tuple(name for name in SETTINGS if name not in TEXT_SETTINGS)

# Which of them a role, a database or a URL has set, asked in a session that is prepared itself.
OVERRIDDEN = (
    f"SELECT name FROM pg_settings WHERE name IN ({', '.join(map(repr, _FOR_DUCKDB))})"
    " AND reset_val IS DISTINCT FROM boot_val"
)


def prepare(
    execute: Callable[[str], object], settings: Mapping[str, str] = SETTINGS, *, as_stored: bool = False
) -> None:
    """Set up a session that was just opened. `as_stored`: text of a SQL_ASCII database comes as it is, valid or not."""
    for name in _FIRST:
        execute(f"SET {name} = {_literal(SETTINGS[name])}")
    execute(_REST.format(", ".join(f"({_literal(name)}, {_literal(value)})" for name, value in settings.items())))
    if as_stored:
        execute(_AS_STORED)


def options(names: Iterable[str] = _KNOWN_TO_ALL) -> str:
    """These settings as libpq's `options`; by default all that every server knows."""
    escaped = ((name, SETTINGS[name].replace(" ", r"\ ")) for name in names)
    return " ".join(f"-c {name}={value}" for name, value in escaped)


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
