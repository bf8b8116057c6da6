"""What happens to a partitioned table without being sent: the stream has what is done to its root, not to a partition.

DETACH, ATTACH and DROP of a partition move rows out and in, TRUNCATE of one empties it. Whatever looks like one of
these in the catalog is taken for one: the table is copied again.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from typing import NamedTuple

import psycopg
from psycopg import sql

from headwater.change import TableName
from headwater.postgres.connect import Connection
from headwater.state import Member, Partitions

__all__ = ["Partition", "members", "troubles"]


class Partition(NamedTuple):
    """A partition, or one that is partitioned itself (filenode 0), as the catalog has it."""

    table: TableName
    filenode: int
    attached: int  # the transaction, and the command in it, that made it a partition
    command: int
    made: bool  # the same transaction has created it
    changed: int = 0  # the transaction that changed its entry last: one that gave it another file, or a later one

    @property
    def member(self) -> Member:
        return Member(self.filenode, self.attached)


def members(connection: Connection, roots: Iterable[int]) -> dict[int, dict[int, Partition]]:
    """By OID of those that are partitioned: everything below them, by OID."""
    rows = connection.execute(
        "SELECT root.oid::bigint, c.oid::bigint, n.nspname::text, c.relname::text, c.relfilenode::bigint,"
        " i.xmin::text::bigint, i.cmin::text::bigint, i.xmin = t.xmin, c.xmin::text::bigint"
        " FROM pg_class root LEFT JOIN LATERAL pg_partition_tree(root.oid) below ON below.relid <> root.oid"
        " LEFT JOIN pg_class c ON c.oid = below.relid LEFT JOIN pg_namespace n ON n.oid = c.relnamespace"
        " LEFT JOIN pg_inherits i ON i.inhrelid = c.oid LEFT JOIN pg_type t ON t.oid = c.reltype"
        " WHERE root.oid = ANY(%s::oid[]) AND root.relkind = 'p'",
        (list(roots),),
    ).fetchall()
    found: dict[int, dict[int, Partition]] = {row[0]: {} for row in rows}
    for root, oid, schema, name, *rest in rows:
        if oid is not None:
            found[root][oid] = Partition(TableName(schema, name), *rest)
    return found


def troubles(
    connection: Connection, before: Partitions, now: Mapping[int, Partition], *, truncated: Container[int]
) -> Iterator[str]:
    """What has happened since `before`, in words. `truncated`: transactions whose TRUNCATE of the root the log has."""
    for oid, member in before.members.items():
        if oid not in now and member.filenode:
            yield "a partition was detached or dropped"
    for oid, partition in now.items():
        earlier = before.members.get(oid)
        if earlier is None:
            if _brought_rows(connection, partition):
                yield f"partition {partition.table} was attached with rows"
        elif earlier.attached != partition.attached:
            yield f"partition {partition.table} was detached and attached again"
        elif (
            earlier.filenode != partition.filenode
            and partition.changed not in truncated
            and not _kept(connection, partition, before.horizon)
        ):
            yield f"partition {partition.table} was truncated"


def _brought_rows(connection: Connection, partition: Partition) -> bool:
    """Were there rows in it before it became a partition? Only if it was created as one, surely not."""
    if not partition.made:
        return _exists(connection, partition.table, "true") is not False
    # Rows of the very transaction, from before it was attached.
    condition = "xmin::text::bigint = {} AND cmin::text::bigint < {}"
    return bool(partition.filenode) and (
        _exists(connection, partition.table, condition, partition.attached, partition.command) is not False
    )


def _kept(connection: Connection, partition: Partition, horizon: int) -> bool:
    """Are rows left from before? Then its new file is one of VACUUM FULL or CLUSTER: a TRUNCATE leaves none."""
    return _exists(connection, partition.table, "age(xmin) > age({}::text::xid)", horizon % 2**32) is True


def _exists(connection: Connection, table: TableName, condition: str, *values: int) -> bool | None:
    """None: we may not look, or a policy would hide rows. The copy that follows reports it."""
    query = sql.SQL("SELECT EXISTS (SELECT FROM {} WHERE {})").format(
        sql.Identifier(*table),
        sql.SQL(condition).format(*map(sql.Literal, values)),
    )
    try:
        row = connection.execute(query).fetchone()
    except psycopg.errors.InsufficientPrivilege:
        return None
    return row is not None and bool(row[0])
