"""Generated columns that PostgreSQL does not send: stored ones before version 18, and virtual ones in any."""

from __future__ import annotations

from collections.abc import Iterable

from headwater.postgres.connect import Connection
from headwater.source.relations import GENERATED_SINCE

__all__ = ["not_sent"]


def not_sent(connection: Connection, oids: Iterable[int]) -> dict[int, list[str]]:
    """By the tables' OIDs, those of their generated columns that no publication can send, in order."""
    sent = "s" if connection.info.server_version >= GENERATED_SINCE else ""
    rows = connection.execute(
        "SELECT attrelid::bigint, array_agg(attname::text ORDER BY attnum) FROM pg_attribute"
        " WHERE attrelid = ANY(%s::oid[]) AND attgenerated NOT IN ('', %s) AND NOT attisdropped GROUP BY 1",
        (list(oids), sent),
    )
    return dict(rows.fetchall())
