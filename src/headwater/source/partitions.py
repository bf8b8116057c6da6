"""What happens to a partitioned table without being sent: the stream has what is done to its root, not to a partition.

DETACH, ATTACH and DROP of a partition move rows out and in, TRUNCATE of one empties it. Whatever looks like one of
these in the catalog is taken for one. Where the partition's bounds tell which rows it has lost, only these go;
otherwise the table is copied again.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from typing import NamedTuple

import psycopg
from psycopg import sql

from headwater.change import TableName
from headwater.postgres.connect import Connection
from headwater.source.bounds import condition
from headwater.state import Conditions, Member, Partitions

__all__ = ["Partition", "Trouble", "members", "troubles"]


class Partition(NamedTuple):
    """A partition, or one that is partitioned itself (filenode 0), as the catalog has it."""

    table: TableName
    filenode: int
    attached: int  # the transaction, and the command in it, that made it a partition
    command: int
    made: bool  # the same transaction has created it
    changed: int = 0  # the transaction that changed its entry last: one that gave it another file, or a later one
    parent: int = 0
    bound: str | None = None  # as the catalog prints it
    column: int | None = None  # the root's column that it is about; None: it is not about one that compares as usual
    conditions: Conditions | None = None  # which rows of the root are its own; None: they cannot be put so

    @property
    def member(self) -> Member:
        return Member(self.filenode, self.attached, self.parent, self.conditions)


class Trouble(NamedTuple):
    """What has happened, in words. With conditions, rows that meet them are gone, and no others came or went."""

    reason: str
    conditions: Conditions | None = None


def members(connection: Connection, roots: Iterable[int]) -> dict[int, dict[int, Partition]]:
    """By OID of those that are partitioned: everything below them, by OID."""
    rows = connection.execute(
        "SELECT root.oid::bigint, c.oid::bigint, n.nspname::text, c.relname::text, c.relfilenode::bigint,"
        " i.xmin::text::bigint, i.cmin::text::bigint, i.xmin = t.xmin, c.xmin::text::bigint,"
        " i.inhparent::bigint, pg_get_expr(c.relpartbound, c.oid),"
        " CASE WHEN key.partnatts = 1 AND class.opcdefault AND coalesce(sorted.collisdeterministic, true)"
        " THEN own.attnum END"
        " FROM pg_class root LEFT JOIN LATERAL pg_partition_tree(root.oid) below ON below.relid <> root.oid"
        " LEFT JOIN pg_class c ON c.oid = below.relid LEFT JOIN pg_namespace n ON n.oid = c.relnamespace"
        " LEFT JOIN pg_inherits i ON i.inhrelid = c.oid LEFT JOIN pg_type t ON t.oid = c.reltype"
        " LEFT JOIN pg_partitioned_table key ON key.partrelid = i.inhparent"
        " LEFT JOIN pg_opclass class ON class.oid = key.partclass[0]"
        " LEFT JOIN pg_collation sorted ON sorted.oid = key.partcollation[0]"
        " LEFT JOIN pg_attribute named ON named.attrelid = i.inhparent AND named.attnum = key.partattrs[0]"
        " LEFT JOIN pg_attribute own ON own.attrelid = root.oid AND own.attname = named.attname AND own.attnum > 0"
        " WHERE root.oid = ANY(%s::oid[]) AND root.relkind = 'p'",
        (list(roots),),
    ).fetchall()
    found: dict[int, dict[int, Partition]] = {row[0]: {} for row in rows}
    for root, oid, schema, name, *rest in rows:
        if oid is not None:
            found[root][oid] = Partition(TableName(schema, name), *rest)
    return {root: _with_conditions(root, below) for root, below in found.items()}


def _with_conditions(root: int, below: Mapping[int, Partition]) -> dict[int, Partition]:
    """A partition's rows meet what its own bounds ask, and those of all that it is below."""

    def conditions(oid: int) -> Conditions | None:
        if oid == root:
            return ()
        if oid not in below:  # it was attached or detached while we looked
            return None
        own, above = condition(below[oid].column, below[oid].bound), conditions(below[oid].parent)
        return None if own is None or above is None else (*above, own)

    return {oid: each._replace(conditions=conditions(oid)) for oid, each in below.items()}


def troubles(
    connection: Connection, before: Partitions, now: Mapping[int, Partition], *, truncated: Container[int]
) -> Iterator[Trouble]:
    """What has happened since `before`. `truncated`: transactions whose TRUNCATE of the root the log has."""
    for member in _gone(before.members, now):
        yield Trouble("a partition was detached or dropped", member.conditions)
    for oid, partition in now.items():
        earlier = before.members.get(oid)
        if earlier is None:
            if _brought_rows(connection, partition):
                yield Trouble(f"partition {partition.table} was attached with rows")
        elif earlier.attached != partition.attached:
            yield Trouble(f"partition {partition.table} was detached and attached again")
        elif (
            earlier.filenode != partition.filenode
            and partition.changed not in truncated
            and not _kept(connection, partition, before.horizon)
        ):
            yield Trouble(f"partition {partition.table} was truncated", partition.conditions)


def _gone(before: Mapping[int, Member], now: Container[int]) -> Iterator[Member]:
    """The partitions with rows that are there no more; of those that went together the one above all."""
    tops = {_top(before, now, oid) for oid, member in before.items() if oid not in now and member.filenode}
    return (before[oid] for oid in sorted(tops))


def _top(before: Mapping[int, Member], now: Container[int], oid: int) -> int:
    parent = before[oid].parent
    return _top(before, now, parent) if parent in before and parent not in now else oid


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
