"""Ask the lakes in SQL: DuckDB with every lake of the config under its name, for reading only."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

import duckdb

from headwater.config import Config
from headwater.errors import ConfigError, Unreachable
from headwater.lake.reading import QueriedLake, connect
from headwater.lake.sqltext import identifier, literal
from headwater.logs import redact
from headwater.query.answer import Answer, answer, explained
from headwater.query.lock import HINT, functions, lock, one_query, refuse_functions
from headwater.sink.addresses import lake_addresses

__all__ = ["Answer", "query"]

_RESERVED = {"main", "memory", "system", "temp"}  # DuckDB has these names already and refuses to attach under them
_WORD = re.compile(r'"(?:[^"]|"")*"|[^\W\d][\w$]*|.', re.DOTALL)


def query(config: Config, sql: str, env: Mapping[str, str], *, as_text: bool = False) -> Answer:
    """Run one reading statement; a name without its lake (`public.orders`) is looked up in the first group's lake."""
    known = lake_addresses(config, env)
    if not known:
        raise ConfigError("the config has no lake to query", hint="add one under `lakes:`")
    secrets = config.secrets()
    with connect() as con:
        try:
            statement, select = one_query(con, sql)
            default = _default_lake(config, known)
            named = {word.lower() for word in _words(sql)}
            # Each costs a connection to its catalog.
            lakes = {name: known[name].queried() for name in known if name == default or name.lower() in named}
            for lake in lakes.values():
                lake.prepare(con)
            allowed = functions(con)
            for name, lake in lakes.items():
                _attach(con, name, lake, secrets)
            _use(con, default)
            refuse_functions(con, select, functions(con) - allowed)
            lock(con, {_alias(name): lake for name, lake in lakes.items()})
            renamed = _rename_reserved(con, statement, _RESERVED & set(lakes))
            return answer(con, renamed, as_text=as_text) if statement == select else explained(con, renamed)
        except (duckdb.IOException, duckdb.HTTPException) as error:
            raise Unreachable(redact(str(error), secrets)) from None  # not chained: it may quote the password
        except duckdb.PermissionException as error:
            raise ConfigError(f"a query only reads the lakes: {redact(str(error), secrets)}", hint=HINT) from None
        except duckdb.Error as error:
            raise ConfigError(redact(str(error), secrets)) from None


def _default_lake(config: Config, known: Collection[str]) -> str:
    used = [group.lake for group in config.groups.values() if group.lake in known]
    return next(iter((*used, *known)))


def _attach(con: duckdb.DuckDBPyConnection, name: str, lake: QueriedLake, secrets: Collection[str]) -> None:
    try:
        lake.attach(con, _alias(name))
    except duckdb.Error as error:
        message = f"cannot open lake {name!r}: {redact(str(error), secrets)}"
        raise Unreachable(message, hint="`headwater run` creates a lake when it first delivers") from None


def _use(con: duckdb.DuckDBPyConnection, lake: str) -> None:
    """Names without a lake are looked up in this one, names without a schema in its `public`."""
    public = "public" in _schemas(con, lake)
    con.execute(f"USE {identifier(_alias(lake))}{'.public' if public else ''}")


def _schemas(con: duckdb.DuckDBPyConnection, lake: str) -> set[str]:
    rows = con.execute(
        f"SELECT schema_name FROM duckdb_schemas() WHERE database_name = {literal(_alias(lake))}"
    ).fetchall()
    return {str(name).lower() for (name,) in rows}


def _alias(lake: str) -> str:
    return f"lake_{lake}" if lake.lower() in _RESERVED else lake


def _rename_reserved(con: duckdb.DuckDBPyConnection, sql: str, lakes: Collection[str]) -> str:
    """Let people write `main.public.orders` although DuckDB knows that lake by another name.

    `main` is meant as a lake before one of its schemas (`main.public.`) and before a function (`main.snapshots(`).
    """
    schemas = {lake: _schemas(con, lake) for lake in lakes}
    text, out, end = sql.encode(), [], 0
    starts = [start for start, _ in duckdb.tokenize(sql)]  # in bytes
    words = [*_words(sql), "", "", ""]
    for index, start in enumerate(starts):
        lake, dot, inner, after = (word.lower() for word in words[index : index + 4])
        qualified = index > 0 and words[index - 1] == "."
        if (
            lake in schemas
            and not qualified
            and dot == "."
            and (after == "(" or (after == "." and inner in schemas[lake]))
        ):
            out.append(text[end:start] + identifier(_alias(lake)).encode())
            end = starts[index + 1]
    return b"".join((*out, text[end:])).decode()


def _words(sql: str) -> list[str]:
    """The statement's tokens; a name comes without its quotes, a comment not at all."""
    text = sql.encode()
    starts = [start for start, _ in duckdb.tokenize(sql)]
    matches = [_WORD.match(text[start:].decode()) for start in starts]
    words = [match[0] if match else "" for match in matches]
    return [word[1:-1].replace('""', '"') if len(word) > 1 and word[0] == '"' else word for word in words]
