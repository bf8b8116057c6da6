"""Which shape each table has at the end of a batch, and where a batch must end because a key changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from headwater.change import Lsn, Relation
from headwater.errors import CannotFollow
from headwater.log import Part

__all__ = ["Seen", "key_names", "newest_shapes", "next_key_change"]


@dataclass(frozen=True, slots=True)
class Seen:
    """A table's shapes in a batch: all that its changes were told under, and the one it has at the end."""

    newest: Relation
    versions: tuple[Relation, ...] = ()
    rows: int = 0
    bytes: int = 0
    ops: frozenset[str] = frozenset()


def newest_shapes(parts: Iterable[tuple[Relation, Part]], versions: Iterable[Relation]) -> dict[int, Seen]:
    """By table. `versions` are all that count, in the order of the timeline, so that a table's last is its newest."""
    found = {relation.oid: Seen(relation) for relation in versions}
    for relation, part in parts:
        seen = found[relation.oid]
        versions = seen.versions if relation in seen.versions else (*seen.versions, relation)
        rows, size, ops = seen.rows + part.rows, seen.bytes + part.bytes, seen.ops | frozenset(part.ops)
        found[relation.oid] = Seen(seen.newest, versions, rows, size, ops)
    return found


def next_key_change(parts: Iterable[tuple[Relation, Part]], positions: Mapping[int, Lsn]) -> Lsn | None:
    """Where the first table changes its key, if changes under the old key come before: the batch must end there.

    Rows are told apart by one key in a batch: an old tuple has the columns of the key that was in force.
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


def key_names(seen: Seen) -> tuple[str, ...]:
    """The columns that the batch's changes are told apart by, as they are called at its end; none: by all of them."""
    keys = {relation.key_attnums for relation in seen.versions}
    if len(keys) > 1:  # of one transaction: a batch cannot end between them
        raise CannotFollow(f"table {seen.newest.table} changed its key in the middle of a transaction")
    (key,) = keys
    names = tuple(column.name for column in seen.newest.columns if column.attnum in key)
    if len(names) != len(key):
        raise CannotFollow(f"table {seen.newest.table} lost a column of its key")
    return names
