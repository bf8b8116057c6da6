"""One way to open a PostgreSQL connection: bounded in time, LSNs as `Lsn`, errors as ours, no password shown."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg.abc import Buffer
from psycopg.adapt import Dumper, Loader
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from headwater.change import Lsn
from headwater.errors import AccessDenied, ConfigError, HeadwaterError, OperatorMustAct, Unreachable
from headwater.postgres.settings import prepare

__all__ = ["Connection", "connect", "conninfo", "refused", "server_name", "translated", "worked_before"]

Connection = psycopg.Connection[Any]

_PG_LSN = 3220
# libpq gives no SQLSTATE for a refused connection, only words; in another language they count as unreachable.
_CONFIG_FAULT = re.compile(
    r"password authentication failed|no password supplied|(role|database|user) \".*\" does not exist"
    r"|no pg_hba.conf entry|is not permitted to log in|permission denied for database|authentication failed for user"
)
_NO_CONVERSION = re.compile(r"conversion between \S+ and \S+ is not supported|conversion function .* does not exist")


_DEFAULTS = {"connect_timeout": "10", "keepalives_idle": "30", "keepalives_interval": "10", "keepalives_count": "3"}
# A session that holds a lock ends, on both sides, ten seconds after the host of one of them was lost: the server then
# frees the lock, and its holder knows it. The servers' own settings leave that to the kernel: two hours and more.
_IDLE, _INTERVAL, _COUNT, _UNANSWERED = "4", "2", "3", "10000"
_ATTENTIVE = {
    "keepalives_idle": _IDLE,
    "keepalives_interval": _INTERVAL,
    "keepalives_count": _COUNT,
    "tcp_user_timeout": _UNANSWERED,
}
_ATTENTIVE_SERVER = (  # without effect on a connection through a socket file
    f"SET tcp_keepalives_idle = {_IDLE}",
    f"SET tcp_keepalives_interval = {_INTERVAL}",
    f"SET tcp_keepalives_count = {_COUNT}",
    f"SET tcp_user_timeout = {_UNANSWERED}",
)


class _LsnDumper(Dumper):
    oid = _PG_LSN

    def dump(self, obj: Lsn) -> bytes:
        return str(obj).encode()


class _LsnLoader(Loader):
    def load(self, data: Buffer) -> Lsn:
        return Lsn.parse(bytes(data).decode())


def server_name(url: str) -> str:
    """Where a URL leads, for messages: never the password."""
    parts = _parsed(url)
    host, port = parts.get("host") or "the local socket", parts.get("port")
    return f"database {parts.get('dbname') or parts.get('user') or ''!r} on {host}{f':{port}' if port else ''}"


def conninfo(url: str, *, options: str = "", attentive: bool = False, **extra: str) -> str:
    """The libpq conninfo of a URL with our defaults; `options` are added after the URL's own and so win."""
    parts = _parsed(url)
    merged = _DEFAULTS | (_ATTENTIVE if attentive else {}) | parts | extra | {"client_encoding": "UTF8"}
    if options:
        merged["options"] = f"{parts.get('options') or ''} {options}".strip()
    return make_conninfo("", **merged)


def connect(
    url: str,
    *,
    application_name: str = "headwater",
    options: str = "",
    autocommit: bool = True,
    attentive: bool = False,
) -> Connection:
    """Open a connection, or raise Unreachable (try later) or AccessDenied (edit the URL).

    If it is to be `attentive`, each end notices within ten seconds that the other one's host is gone.
    """
    info = conninfo(url, options=options, attentive=attentive, application_name=application_name)
    try:
        connection = psycopg.connect(info, autocommit=True)
    except psycopg.OperationalError as exc:
        raise refused(url, str(exc)) from exc
    try:
        with translated(url):
            prepare(lambda text: connection.execute(text.encode()))
            if attentive:
                connection.execute("; ".join(_ATTENTIVE_SERVER).encode())
            connection.autocommit = autocommit
    except BaseException:
        connection.close()
        raise
    connection.adapters.register_dumper(Lsn, _LsnDumper)
    connection.adapters.register_loader(_PG_LSN, _LsnLoader)
    return connection


def refused(url: str, text: str) -> HeadwaterError:
    """The error for a connection that could not be opened, chosen by libpq's message."""
    reason = " ".join(text.split())
    if _CONFIG_FAULT.search(reason):
        return AccessDenied(
            f"{server_name(url)} refuses the connection: {reason}",
            hint="correct user, password or database in the URL, or the password in its `passfile`",
        )
    if _NO_CONVERSION.search(reason):
        return OperatorMustAct(
            f"{server_name(url)} has an encoding that PostgreSQL cannot convert to UTF-8: {reason}",
            hint="dump the database, and restore it into one with the encoding UTF8",
        )
    return Unreachable(
        f"cannot reach {server_name(url)}: {reason}",
        hint="start the server, or correct host and port in the URL",
    )


@contextmanager
def translated(url: str) -> Iterator[None]:
    """Turn what psycopg raises inside the block into our errors."""
    try:
        yield
    except psycopg.errors.InsufficientPrivilege as exc:
        raise OperatorMustAct(
            f"{server_name(url)}: {_first_line(exc)}", hint="grant the privilege to the user of the URL"
        ) from exc
    except (psycopg.errors.CharacterNotInRepertoire, psycopg.errors.UntranslatableCharacter) as exc:
        raise OperatorMustAct(
            f"{server_name(url)} has a name or a default that cannot be converted to UTF-8: {_first_line(exc)}",
            hint="rename it, or take its table out of the config",
        ) from exc
    except psycopg.errors.ReadOnlySqlTransaction as exc:
        raise Unreachable(
            f"{server_name(url)} cannot be written: {_first_line(exc)}",
            hint="it is a standby: wait for its promotion, or point the URL at the primary",
        ) from exc
    except (psycopg.OperationalError, psycopg.InterfaceError) as exc:
        raise Unreachable(
            f"lost {server_name(url)}: {_first_line(exc)}", hint="try again later; `headwater run` does so by itself"
        ) from exc


@contextmanager
def worked_before() -> Iterator[None]:
    """A login that is refused in the block has worked before: a password is being changed, so it is tried again."""
    try:
        yield
    except AccessDenied as error:
        raise Unreachable(error.message, hint=error.hint) from error


def _first_line(exc: BaseException) -> str:
    return str(exc).strip().split("\n")[0]


def _parsed(url: str) -> dict[str, Any]:
    try:
        return conninfo_to_dict(url)
    except psycopg.ProgrammingError:
        # Not chained: libpq repeats the text, and the text may hold the password.
        raise ConfigError(
            "the source or state URL is not a libpq URL", hint="write postgresql://user@host:5432/database"
        ) from None
