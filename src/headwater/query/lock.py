"""What a query may do: read the attached lakes, and nothing else.

DuckDB's own locks do most of it: the lakes are attached read-only, the only files that can be opened are those that
the lakes' catalogs list, no extension can be loaded, and no setting can be changed. The extensions for the catalogs
reach databases past these locks (`postgres_execute`, `sqlite_scan`), so a query may not call their functions.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import duckdb

from headwater.errors import ConfigError
from headwater.lake.reading import QueriedLake

__all__ = ["HINT", "functions", "lock", "one_query", "refuse_functions"]

HINT = "write to the source; it is mirrored into the lake"
# They run SQL that is in a string, where we do not see what it calls, or have DuckDB write a log file.
_NOT_SEEN = {"query", "json_execute_serialized_sql", "enable_logging"}
_EXPLAIN = re.compile(r"\AEXPLAIN\s+(?:ANALYZE\s+)?(?:\(\s*(?:ANALYZE|FORMAT)\b[^()]*\)\s*)?", re.IGNORECASE)


def one_query(con: duckdb.DuckDBPyConnection, sql: str) -> tuple[str, str]:
    """The statement, which must be one that reads, and the SELECT in it: itself, or the one that it explains."""
    statements = con.extract_statements(sql)
    if len(statements) != 1:
        raise ConfigError(f"expected one statement, found {len(statements)}: {sql!r}")
    statement = _without_semicolon(statements[0].query)
    kind = statements[0].type
    if kind == duckdb.StatementType.SELECT:
        return statement, statement
    if kind == duckdb.StatementType.EXPLAIN:
        # ANALYZE runs what it explains, and that may be a COPY.
        explained = _EXPLAIN.sub("", statement, count=1)
        kind = con.extract_statements(explained)[0].type if explained != statement else kind
        if kind == duckdb.StatementType.SELECT:
            return statement, explained
    raise ConfigError(f"a query only reads, and this is {kind.name}: {sql!r}", hint=HINT)


def _without_semicolon(sql: str) -> str:
    """The statement from its first token on, to be put into parentheses."""
    text = bytearray(sql.encode())
    starts = [start for start, _ in duckdb.tokenize(sql)]
    for start in starts:
        if text[start : start + 1] == b";":
            text[start : start + 1] = b" "
    return text[starts[0] :].decode()


def functions(con: duckdb.DuckDBPyConnection) -> set[str]:
    return {str(name) for (name,) in con.execute("SELECT DISTINCT function_name FROM duckdb_functions()").fetchall()}


def refuse_functions(con: duckdb.DuckDBPyConnection, select: str, refused: set[str]) -> None:
    """Refuse a SELECT that calls one of these functions, wherever in it."""
    ((called,),) = con.execute(
        "SELECT CASE WHEN tree ->> 'error' = 'true' THEN error(tree ->> 'error_message')"
        " ELSE json_extract_string(tree, '$..function_name') END FROM (SELECT json_serialize_sql(?::VARCHAR) AS tree)",
        [select],
    ).fetchall()
    for name in called:
        if name.lower() in refused | _NOT_SEEN:
            raise ConfigError(f"a query only reads the lakes, and may not call {name}()", hint=HINT)


def lock(con: duckdb.DuckDBPyConnection, lakes: Mapping[str, QueriedLake]) -> None:
    """From here on only what these lakes (attached under their aliases) consist of now can be read, and nothing set."""
    con.execute("BEGIN")
    # One lake after the other: in one query DuckDB would take two catalogs in SQLite for the same (common_subplan).
    files = [path for alias, lake in lakes.items() for path in lake.files(con, alias)]
    # The files one by one, not their folders: a lake's maintenance functions would write into these, and delete.
    con.execute("SET VARIABLE headwater_files = CAST(? AS VARCHAR[])", [files])
    con.execute("SET allowed_paths = getvariable('headwater_files')")
    con.execute("SET enable_external_access = false")
    con.execute("SET lock_configuration = true")
