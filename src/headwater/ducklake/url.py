"""Where a lake's catalog lives: a SQLite file, or a schema of a PostgreSQL database.

A catalog may be given a time: whoever waits for a lock there, or for a first answer, gives up after `wait` seconds and
does not try again. Without one, we try again and again.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit, urlunsplit

from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.errors import Error

from headwater.errors import ConfigError

__all__ = ["LakeUrl", "PostgresUrl", "SqliteUrl", "parse_lake_url"]


@dataclass(frozen=True, slots=True)
class SqliteUrl:
    path: str
    wait: int | None = None

    def __str__(self) -> str:
        return f"sqlite:///{self.path}"


@dataclass(frozen=True, slots=True, repr=False)
class PostgresUrl:
    """`conninfo` is for libpq and may hold a password; `str()` never does."""

    conninfo: str
    schema: str
    wait: int | None = None

    @property
    def password(self) -> str | None:
        secret = conninfo_to_dict(self.conninfo).get("password")
        return None if secret is None else str(secret)

    def __str__(self) -> str:
        parts = conninfo_to_dict(self.conninfo)
        user = f"{parts['user']}@" if parts.get("user") else ""
        port = f":{parts['port']}" if parts.get("port") else ""
        host = quote(str(parts.get("host", "")), safe="/:,")
        return f"postgresql://{user}{host}{port}/{parts.get('dbname', '')}?schema={quote(self.schema)}"

    def __repr__(self) -> str:
        return f"PostgresUrl({str(self)!r})"


LakeUrl = SqliteUrl | PostgresUrl


def parse_lake_url(url: str, wait: int | None = None) -> LakeUrl:
    """Read `sqlite:////absolute/file` or a libpq URL, whose `schema` parameter is ours and not libpq's."""
    scheme, _, rest = url.partition("://")
    if scheme == "sqlite":
        path = unquote(rest[1:]) if rest.startswith("/") else ""
        if not path.startswith("/"):
            raise ConfigError(f"not an absolute path in {url!r}", hint="write sqlite:////folder/file.sqlite")
        return SqliteUrl(path, wait)
    if scheme in ("postgresql", "postgres"):
        return _parse_postgres(url, wait)
    raise ConfigError(
        "a DuckLake catalog is neither in SQLite nor in PostgreSQL",
        hint="use a sqlite:/// or a postgresql:// URL for ducklake:",
    )


def _parse_postgres(url: str, wait: int | None) -> PostgresUrl:
    parts = urlsplit(url)
    query = parse_qsl(parts.query, keep_blank_values=True)
    schema = next((value for name, value in query if name == "schema"), "") or "public"
    rest = urlencode([(name, value) for name, value in query if name != "schema"], quote_via=quote)
    try:
        conninfo = make_conninfo(urlunsplit(parts._replace(query=rest)))
    except Error:
        # libpq's message quotes the URL, and with it the password.
        raise ConfigError("not a PostgreSQL URL for ducklake:", hint="see the libpq manual, connection URIs") from None
    return PostgresUrl(conninfo, schema, wait)
