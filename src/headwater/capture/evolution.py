"""From one version of a table's columns to the next, as far as it is proven. No IO.

With event triggers every command that alters a table is in the stream, and each version follows on the one before it.
Without them a Relation message is completed from a catalog that may have moved on: what that proves is used, and what
it does not prove raises the version's generation, so that the table is copied again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Literal

from headwater.capture.alignment import aligned
from headwater.change import Column, Facts, Relation
from headwater.source.definition import Attribute, Definition, Rewrite

__all__ = ["completed", "following", "raised", "same_message"]

Rewritten = Rewrite | Literal["unknown"]  # only that the files of the rows are new

_WHOLE, _WIDER = (20, 21, 23, 26), (20, 23, 1700)  # bigint, smallint, integer, oid; numeric
_TEXT = (25, 1043)  # text, varchar


def following(before: Relation | None, now: Relation, rewrite: Rewritten | None = None) -> Relation:
    """`now` as the version that follows on `before`; without a `rewrite` only the files show whether there was one.

    What a column showed in older rows when it was added, it shows for ever.
    """
    if before is None:
        return now
    if _same_moment(before, now):
        return replace(now, columns=before.columns, generation=before.generation, reason=before.reason)
    done = rewrite or ("unknown" if rewritten(before.facts, now.facts) else "none")
    known = {column.attnum: column for column in before.columns}
    unsent = frozenset(before.facts.unsent)
    columns = tuple(
        _carried(each, known.get(each.attnum), seen=done == "none" and each.attnum not in unsent)
        for each in now.columns
    )
    found = replace(now, columns=columns, generation=before.generation, reason=before.reason)
    reason = next(iter(_reasons(before, found, done)), None)
    return found if reason is None else raised(found, reason)


def raised(relation: Relation, reason: str) -> Relation:
    """The version as one that only a new copy can show."""
    return replace(relation, generation=relation.generation + 1, reason=reason)


def same_message(message: Relation, known: Relation) -> bool:
    """Whether a Relation message would describe both versions in the same words."""
    return _as_sent(message) == _as_sent(known)


def completed(
    message: Relation, before: Relation | None, now: Definition | None, sent: Collection[Attribute]
) -> Relation:
    """A Relation message of the past, with what the catalog of now proves about it; `sent` are the columns sent now.

    `before` is the newest version known by then. Columns are known by their position among those that there can have
    been: names and types may have gone from one column to another.
    """
    if now is None:
        return raised(_carrying(message, before), "it was dropped before its catalog could be read")
    attnums, present = _attnums(message, before, now, sent), now.relation(sent)
    if before is None and same_message(message, present):
        return replace(present, id=message.id)  # nothing is in a lake yet that could contradict it
    if 0 in attnums:
        return raised(_carrying(message, before), "it was altered several times before its catalog could be read")
    if same_message(message, present) and attnums == [each.attnum for each in present.columns]:
        return following(before, replace(present, id=message.id))
    done: Rewritten = "unknown" if before is not None and rewritten(before.facts, Facts(now.files)) else "none"
    return following(before, _past(message, attnums, before, now), done)


def rewritten(before: Facts, now: Facts) -> bool:
    """Whether rows that were there are in other files now."""
    return any(now.files[oid] != file for oid, file in before.files.items() if oid in now.files)


def _reasons(before: Relation, now: Relation, rewrite: Rewritten) -> Iterable[str]:
    """Why rows that were there may read otherwise, though no message has sent them."""
    if rewrite == "values":
        yield "ALTER TABLE gave its rows new values"
    if _respelled(before.facts.parts, now.facts.parts):
        yield "a label or an attribute of one of its types was changed"
    known = {column.attnum: column for column in before.columns}
    for each in now.columns:
        earlier = known.get(each.attnum)
        if earlier is None:
            continue
        if rewrite == "unknown" and each.stamp != earlier.stamp:
            yield f"its rows were rewritten after column {each.name!r} was altered"
        if not _reads_alike(earlier, each, rewrite):
            yield f"column {each.name!r} became {each.base.name if each.base else 'another type'}"


def _reads_alike(old: Column, new: Column, rewrite: Rewritten) -> bool:
    """Whether what was stored as one type reads the same as the other."""
    if old.base is None or new.base is None:
        return (old.type_oid, old.typmod) == (new.type_oid, new.typmod)
    if (old.base.oid, old.base.dims) == (new.base.oid, new.base.dims):
        return old.base.typmod == new.base.typmod or rewrite == "none"
    if old.base.dims or new.base.dims:
        return False
    if old.base.oid in _WHOLE and new.base.oid in _WIDER:
        return rewrite in ("none", "cast")
    return rewrite == "none" and old.base.oid in _TEXT and new.base.oid in _TEXT


def _respelled(before: Mapping[int, list[str]], now: Mapping[int, list[str]]) -> bool:
    """Whether values that were there are printed otherwise now; more labels change nothing."""
    return any(now[type_][: len(parts)] != parts for type_, parts in before.items() if type_ in now)


def _carried(column: Column, earlier: Column | None, *, seen: bool) -> Column:
    """`seen`: if the column is new, older rows show in it what the catalog says.

    Not after a rewrite, even without a default: it makes what a column shows in older rows a part of them. Nor if the
    column was there before and not sent, as a generated one before DROP EXPRESSION.
    """
    if earlier is not None:
        return replace(column, missing=earlier.missing, volatile=earlier.volatile)
    return replace(column, volatile=column.volatile or not seen)


def _same_moment(before: Relation, now: Relation) -> bool:
    """Whether the catalog has not changed between the two."""

    def known(relation: Relation) -> object:
        columns = [(each.name, each.type_oid, each.typmod, each.attnum, each.stamp) for each in relation.columns]
        return relation.table, relation.identity, relation.key_attnums, columns, relation.facts

    return known(before) == known(now)


def _as_sent(relation: Relation) -> object:
    # Under FULL a message calls every column a key, under NOTHING none: that is not our key.
    keyed = relation.identity in ("d", "i")
    columns = [(each.name, each.type_oid, each.typmod, each.key and keyed) for each in relation.columns]
    return relation.table, relation.identity, columns


def _carrying(message: Relation, before: Relation | None) -> Relation:
    """A message that cannot be completed: its columns are unknown, so that nothing is written by it."""
    if before is None:
        return message
    return replace(message, facts=before.facts, generation=before.generation)


def _attnums(message: Relation, before: Relation | None, now: Definition, sent: Collection[Attribute]) -> list[int]:
    known = {column.attnum for column in before.columns if column.attnum} if before else set()
    alive = {each.attnum for each in sent}
    # With a list of columns none can be dropped without the table leaving the publication.
    dropped = {number for number, each in now.attributes.items() if each.dropped}
    return aligned(len(message.columns), known, alive, dropped)


def _past(message: Relation, attnums: list[int], before: Relation | None, now: Definition) -> Relation:
    """A version between `before` and now, by what cannot be otherwise."""
    known = {column.attnum: column for column in before.columns} if before else {}
    key = _past_key(message, attnums, before, now)
    columns = (
        replace(_past_column(each, known.get(number), now.attributes[number], now), attnum=number, key=number in key)
        for each, number in zip(message.columns, attnums, strict=True)
    )
    return replace(message, columns=tuple(columns), facts=before.facts if before else Facts())


def _past_column(column: Column, earlier: Column | None, now: Attribute, definition: Definition) -> Column:
    dims = 1
    if now.type_oid == column.type_oid:
        dims = now.dims
    elif earlier is not None and earlier.base is not None and earlier.type_oid == column.type_oid:
        dims = earlier.base.dims
    base = definition.base(column.type_oid, column.typmod, dims)
    nullable = now.nullable or now.dropped or earlier is None or earlier.nullable
    same = (now.type_oid, now.typmod) == (column.type_oid, column.typmod) and not now.dropped
    stamp = earlier.stamp if earlier else ""
    # Once a column is gone, it is not known any more what it showed in rows that were there when it was added.
    return replace(
        column, base=base, nullable=nullable, missing=now.missing if same else None, volatile=not same, stamp=stamp
    )


def _past_key(message: Relation, attnums: list[int], before: Relation | None, now: Definition) -> set[int]:
    if message.identity in "di":
        return {number for each, number in zip(message.columns, attnums, strict=True) if each.key}
    # FULL and NOTHING do not show the primary key. Without one, rows are identified by all their columns, which is
    # never wrong; so it counts only if it is the same index before and now.
    if before is not None and before.facts.primary_index != now.primary_index:
        return set()
    return set(now.primary) if now.primary <= set(attnums) else set()
