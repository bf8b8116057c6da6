"""DuckDB with the DuckLake extension, loaded from installed wheels; nothing is downloaded or written."""

from __future__ import annotations

from contextlib import suppress

import duckdb
import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from headwater.ducklake.url import LakeUrl, PostgresUrl
from headwater.files import S3
from headwater.lake import reading
from headwater.lake.reading import load, reach_s3
from headwater.lake.sqltext import identifier, literal
from headwater.logs import redact
from headwater.postgres.settings import OVERRIDDEN, prepare
from headwater.postgres.settings import options as settings_options

__all__ = ["attach", "connect", "load_for"]


def connect(*, threads: int | None = None) -> duckdb.DuckDBPyConnection:
    """A new in-memory DuckDB that can `attach` lakes."""
    con = reading.connect(threads=threads)
    load(con, "ducklake")
    return con


def load_for(con: duckdb.DuckDBPyConnection, url: LakeUrl) -> None:
    """Load what `attach` needs for the catalog."""
    load(con, "postgres_scanner" if isinstance(url, PostgresUrl) else "sqlite_scanner")


def attach(
    con: duckdb.DuckDBPyConnection,
    url: LakeUrl,
    alias: str,
    *,
    data_path: str | None = None,
    s3: S3 | None = None,
    read_only: bool = False,
    snapshot: int | None = None,
) -> None:
    """Make a lake visible as `alias`, at one snapshot if asked. It is created when missing only with `data_path`."""
    options = [f"DATA_PATH {literal(data_path)}" if data_path else "CREATE_IF_NOT_EXISTS false"]
    if read_only:
        options.append("READ_ONLY")
    if snapshot is not None:
        options.append(f"SNAPSHOT_VERSION {snapshot:d}")
    path = f"ducklake:postgres:{_conninfo(url)}" if isinstance(url, PostgresUrl) else f"ducklake:sqlite:{url.path}"
    try:
        options += _catalog_options(con, url, alias)
        if isinstance(url, PostgresUrl) and not data_path:
            # Else DuckDB reads the definitions of every schema in the database: with a thousand lakes, for seconds.
            options.append(f"META_SCHEMA {literal(url.schema)}")
        if s3 is not None:
            reach_s3(con, f"headwater_{alias}", s3)
        con.execute(f"ATTACH {literal(path)} AS {identifier(alias)} ({', '.join(options)})")
    except duckdb.Error as error:
        # `from None`: DuckDB quotes the connection string, password and all.
        raise type(error)(_scrubbed(str(error), path, url)) from None


def _catalog_options(con: duckdb.DuckDBPyConnection, url: LakeUrl, alias: str) -> list[str]:
    """Load what DuckDB needs for the catalog; return the options of ATTACH for it."""
    load_for(con, url)
    if not isinstance(url, PostgresUrl):
        return []
    options = [f"METADATA_SCHEMA {literal(url.schema)}"]
    if url.password is not None:
        secret = f"headwater_{alias}_catalog"
        con.execute(f"CREATE OR REPLACE SECRET {identifier(secret)} (TYPE postgres, PASSWORD {literal(url.password)})")
        options.append(f"META_SECRET {literal(secret)}")
    return options


def _conninfo(url: PostgresUrl) -> str:
    """How DuckDB opens its own connection: settings that differ from PostgreSQL's defaults are set to ours.

    Without the password, which DuckDB gets as a secret: it shows its paths to any query (`duckdb_databases()`).
    """
    given = conninfo_to_dict(url.conninfo)
    ours = {"connect_timeout": "10", "application_name": "headwater"} | given
    with suppress(psycopg.Error):  # then DuckDB cannot connect either, and says why
        with psycopg.connect(make_conninfo("", **ours), autocommit=True) as asking:
            prepare(lambda text: asking.execute(text.encode()))
            overridden = [name for (name,) in asking.execute(OVERRIDDEN.encode())]
        if overridden:
            ours["options"] = f"{given.get('options') or ''} {settings_options(overridden)}".strip()
    return make_conninfo("", **{name: value for name, value in ours.items() if name != "password"})


def _scrubbed(text: str, path: str, url: LakeUrl) -> str:
    for quoted in (path, path.removeprefix("ducklake:"), path.removeprefix("ducklake:postgres:")):
        text = text.replace(quoted, str(url)).replace(literal(quoted), str(url))
    return redact(text, [url.password or ""] if isinstance(url, PostgresUrl) else [])
