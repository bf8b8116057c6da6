"""DuckDB as the reader of lakes: what `query` and `verify` ask of a lake before they read it."""

from __future__ import annotations

import importlib.util
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

import duckdb

from headwater.errors import OperatorMustAct
from headwater.files import S3
from headwater.lake.sqltext import identifier, literal

__all__ = ["QueriedLake", "connect", "load", "reach_s3"]


def connect(*, threads: int | None = None) -> duckdb.DuckDBPyConnection:
    """A new in-memory DuckDB, which loads no extension by itself. Times are shown in UTC."""
    con = duckdb.connect(config={"autoinstall_known_extensions": "false", "autoload_known_extensions": "false"})
    if threads is not None:
        con.execute(f"SET threads = {threads:d}")
    con.execute("SET TimeZone = 'UTC'")
    return con


def load(con: duckdb.DuckDBPyConnection, name: str) -> None:
    """Load an extension, from its wheel."""
    # LOAD of the file, not INSTALL: that would copy it into the home folder, where processes race.
    con.execute(f"LOAD {literal(str(_extension_file(name)))}")


def _extension_file(name: str) -> Path:
    package = importlib.util.find_spec(f"duckdb_extension_{name}")
    places = package.submodule_search_locations if package else None
    for place in places or ():
        for path in Path(place).glob(f"extensions/v{duckdb.__version__}/{name}.duckdb_extension"):
            return path
    wheel = f"duckdb-extension-{name.replace('_', '-')}=={duckdb.__version__}"
    raise OperatorMustAct(
        f"the DuckDB extension {name!r} for DuckDB {duckdb.__version__} is not installed", hint=f"pip install {wheel}"
    )


def reach_s3(con: duckdb.DuckDBPyConnection, secret: str, s3: S3, folder: str = "") -> None:
    """Let it read what is in S3, or in one folder there; the keys are kept under this name."""
    load(con, "httpfs")
    con.execute(_secret(secret, s3, folder))


def _secret(name: str, s3: S3, folder: str) -> str:
    values = {
        "SCOPE": folder and f"{folder}/",
        "KEY_ID": s3.key,
        "SECRET": s3.secret,
        "SESSION_TOKEN": s3.token,
        "REGION": s3.region,
    }
    if s3.host:
        values |= {"ENDPOINT": s3.host, "URL_STYLE": "path"}
    parts = [f"{key} {literal(value)}" for key, value in values.items() if value]
    parts.append(f"USE_SSL {'false' if s3.scheme == 'http' else 'true'}")
    return f"CREATE OR REPLACE SECRET {identifier(name)} (TYPE s3, {', '.join(parts)})"


class QueriedLake(Protocol):
    """A lake as it is now, for people to query."""

    def prepare(self, con: duckdb.DuckDBPyConnection) -> None:
        """Load what reads such a lake; a query may call the functions that come with it."""
        ...

    def attach(self, con: duckdb.DuckDBPyConnection, alias: str) -> None:
        """Attach the lake, to be read only; a query may not call functions that come with this."""
        ...

    def undisturbed(self) -> AbstractContextManager[None]:
        """In a process that also writes the lake, it is attached only inside this."""
        ...

    def files(self, con: duckdb.DuckDBPyConnection, alias: str) -> list[str]:
        """Settle which snapshot this transaction reads; return the path of every file that it may open."""
        ...
