"""How schema changes reach the log: reported by event triggers, which a superuser may install, or read afterwards."""

from __future__ import annotations

from contextlib import closing

from headwater.config import Config
from headwater.postgres.connect import connect, translated
from headwater.source import triggers as ddl

__all__ = ["schema_changes"]


def schema_changes(config: Config) -> str:
    """A sentence for `check`; nothing is installed."""
    with closing(connect(config.source, application_name="headwater check")) as connection, translated(config.source):
        role = connection.info.user
        if ddl.marks(connection) is not None:
            return "schema changes: reported by event triggers"
        with connection.transaction(force_rollback=True):
            if ddl.install(connection) is not None:
                return "schema changes: `run` installs event triggers that report them"
    return (
        f"schema changes: read from the catalog, because role {role!r} may not create event triggers;"
        " what the catalog does not prove is copied again. `headwater check --sql` prints the script for a superuser"
    )
