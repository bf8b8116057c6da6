"""Which columns each table has at the end of a batch, and where a batch must end because a key changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from headwater.change import Lsn, Relation
from headwater.errors import CannotFollow
from headwater.log import Part

__all__ = ["TableChanges", "key_names", "next_key_change", "table_changes"]


@dataclass(frozen=True, slots=True)
class TableChanges:
    """A table's part of a batch: the versions that its changes are under, its newest one, and how much it is."""

    newest: Relation
    versions: tuple[Relation, ...] = ()
    rows: int = 0
    bytes: int = 0
    ops: frozenset[str] = frozenset()


def table_changes(parts: Iterable[tuple[Relation, Part]], versions: Iterable[Relation]) -> dict[int, TableChanges]:
    """By table. `versions` are all that count, in the order of the timeline, so that a table's last is its newest."""
    found = {relation.oid: TableChanges(relation) for relation in versions}
    for relation, part in parts:
        here = found[relation.oid]
        versions = here.versions if relation in here.versions else (*here.versions, relation)
        rows, size, ops = here.rows + part.rows, here.bytes + part.bytes, here.ops | frozenset(part.ops)
        found[relation.oid] = TableChanges(here.newest, versions, rows, size, ops)
    return found


def next_key_change(parts: Iterable[tuple[Relation, Part]], positions: Mapping[int, Lsn]) -> Lsn | None:
    """Where the first table changes its key, if changes under the old key come before: the batch must end there.

    Rows are known by one key in a batch: an old tuple has the columns of the key that was in force.
    """
    cuts = []
    spans: dict[int, dict[frozenset[int], tuple[Lsn, Lsn]]] = {}
    for relation, part in parts:
        key = relation.key_attnums
        first, end = spans.setdefault(relation.oid, {}).get(key, (part.first_lsn, part.last_lsn))
        spans[relation.oid][key] = min(first, part.first_lsn), max(end, part.last_lsn)
    for oid, keys in spans.items():
        (_, end), *later = sorted(keys.values())
        for first, _ in later[:1]:
            if first > end and first > positions[oid]:
                cuts.append(first)
    return min(cuts, default=None)


def key_names(changes: TableChanges) -> tuple[str, ...]:
    """The key of the batch's changes, by the names that its columns have at the end; empty: all columns."""
    keys = {relation.key_attnums for relation in changes.versions}
    if len(keys) > 1:  # of one transaction: a batch cannot end between them
        raise CannotFollow(f"table {changes.newest.table} changed its key in the middle of a transaction")
    (key,) = keys
    names = tuple(column.name for column in changes.newest.columns if column.attnum in key)
    if len(names) != len(key):
        raise CannotFollow(f"table {changes.newest.table} lost a column of its key")
    return names
