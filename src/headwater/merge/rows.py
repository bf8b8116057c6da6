"""The two ends where types are met: a change's key for the fold, and the typed rows that are left to write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.change import Relation
from headwater.errors import CannotFollow, TableError
from headwater.merge.mirror import Mirror, MirrorColumn
from headwater.merge.net import DELETE, INSERT, UPDATE
from headwater.merge.reader import Keyed, Typed
from headwater.merge.tuples import UNCHANGED, Cells, Split, new_row, split
from headwater.values.decode import Bad, decode
from headwater.values.keys import key_bytes, row_bytes
from headwater.values.types import LakeType

__all__ = ["columns_in", "first_value", "keyed", "missing", "typed_rows", "unfit_key"]

_Rows = npt.NDArray[np.int64]


def columns_in(mirror: Mirror, relation: Relation) -> dict[str, int]:
    """Where the mirror's columns stand in this version of the relation; those it did not have yet are left out."""
    at = {column.attnum: index for index, column in enumerate(relation.columns)}
    if 0 in at:
        raise CannotFollow(
            f"table {mirror.name} was altered several times between two looks at the catalog: which column is which is"
            " not known"
        )
    return {column.name: at[column.attnum] for column in mirror.columns if column.attnum in at}


def keyed(mirror: Mirror, relation: Relation, messages: pa.Array) -> Keyed:
    """What each message does to which key. An update that moves a row is a delete there and an insert here.

    Without a key, every update does: the 'key' is the row.
    """
    places = columns_in(mirror, relation)
    parts = split(messages, len(relation.columns), [places[c.name] for c in mirror.key_columns if c.name in places],
                  find_holes=bool(mirror.key))  # fmt: skip
    updates = np.count_nonzero(parts.op == UPDATE)
    updated = np.flatnonzero(parts.op[parts.old.rows] == UPDATE)
    if not mirror.key and not (parts.whole.all() and len(updated) == updates):
        raise CannotFollow(f"table {mirror.name} has no key, and a change comes without the whole old row")
    new = _keys(mirror, places, parts, new=True)
    old = _keys(mirror, places, parts, new=False)
    counterpart = np.searchsorted(parts.new.rows, parts.old.rows[updated])
    differs = pc.not_equal(old.take(pa.array(updated)), new.take(pa.array(counterpart)))
    moved = differs.to_numpy(zero_copy_only=False).astype(bool)
    new_op = parts.op[parts.new.rows].copy()
    new_op[counterpart[moved]] = INSERT
    if mirror.overlaps:  # then every key is looked for
        new_op[new_op == INSERT] = UPDATE
    gone = np.sort(np.concatenate([np.flatnonzero(parts.op[parts.old.rows] == DELETE), updated[moved]]))
    gone_on = np.isin(gone, updated[moved][parts.holes[counterpart[moved]]], assume_unique=True)
    return Keyed(
        rows=np.concatenate([parts.new.rows, parts.old.rows[gone]]),
        late=np.concatenate([np.ones(len(new), bool), np.zeros(len(gone), bool)]),
        op=np.concatenate([new_op, np.full(len(gone), DELETE, np.uint8)]),
        key=pa.concat_arrays([new, old.take(pa.array(gone))]),
        holes=np.concatenate([parts.holes, gone_on]),
        origin=_origins(parts.holes, old, counterpart[moved], updated[moved], len(gone)),
    )


def _origins(holes: npt.NDArray[np.bool_], old: pa.Array, at: _Rows, moved: _Rows, gone: int) -> pa.Array:
    """The old keys of those new tuples (`at`) that moved and have holes; null for the others, and for deletes."""
    if not holes.any():
        return pa.nulls(len(holes) + gone, old.type)
    found = np.full(len(holes) + gone, -1)
    found[at] = np.where(holes[at], moved, -1)
    return old.take(pa.array(found, mask=found < 0))


def typed_rows(
    mirror: Mirror, relations: Mapping[int, Relation], upserts: pa.Table, lake: pa.Table | None = None
) -> Typed:
    """New rows, all of one relation version, decoded by column onto the table's newest columns.

    `upserts` has at least `relation` and `message`; with holes also what fills them (`net.UPSERT`): older messages, or
    the row of key `base` among `lake`, the lake's own rows with a column `key`.
    """
    relation = relations[upserts["relation"][0].as_py()]
    places = columns_in(mirror, relation)
    parts = split(upserts["message"].combine_chunks(), len(relation.columns), places.values())
    arrays, bad = [], {}
    for column in mirror.columns:
        index = places.get(column.name)
        if index is None:
            arrays.append(missing(column, upserts.num_rows))
            continue
        cells = parts.values(index, in_key=column.name in mirror.key)
        if (cells.kind == UNCHANGED).any():
            cells = _from_older(mirror, relations, column, upserts, cells)
        decoded = decode(cells.text, column.kind)
        if decoded.bad:
            bad[column.name] = decoded.bad
        holes = cells.kind == UNCHANGED
        arrays.append(_from_lake(mirror, column, decoded.array, holes, upserts, lake) if holes.any() else decoded.array)
    return Typed(pa.Table.from_arrays(arrays, schema=mirror.schema), bad)


def missing(column: MirrorColumn, count: int) -> pa.Array:
    """What rows from before the column show."""
    text = pa.array([column.shown_before], pa.large_binary())
    return decode(text, column.kind).array.take(pa.array(np.zeros(count, np.int64)))


def _from_older(
    mirror: Mirror, relations: Mapping[int, Relation], column: MirrorColumn, upserts: pa.Table, cells: Cells
) -> Cells:
    """Fill holes of one column from messages before it in the batch, newest first."""
    kind, rows, found = cells.kind.copy(), [], []
    for row in np.flatnonzero(cells.kind == UNCHANGED).tolist():
        older, versions = upserts["older"][row].as_py() or (), upserts["older_relations"][row].as_py() or ()
        value = first_value(mirror, column, [(relations[v], m) for v, m in zip(versions, older, strict=True)])
        if value != UNCHANGED:
            kind[row] = 0
            rows.append(row)
            found.append(value)
    if not rows:
        return cells
    mask = np.zeros(len(kind), bool)
    mask[rows] = True
    return Cells(pc.replace_with_mask(cells.text, pa.array(mask), pa.array(found, cells.text.type)), kind)


def first_value(mirror: Mirror, column: MirrorColumn, versions: Sequence[tuple[Relation, bytes]]) -> bytes | int | None:
    """A column's value in the first of these messages, newest first, that has it; UNCHANGED if none does."""
    for relation, message in versions:
        index = columns_in(mirror, relation).get(column.name)
        if index is None:
            return column.shown_before
        value = new_row(message)[index]
        if value != UNCHANGED:
            return value
    return UNCHANGED


def _from_lake(
    mirror: Mirror, column: MirrorColumn, array: pa.Array, holes: npt.NDArray[np.bool_], upserts: pa.Table,
    lake: pa.Table | None,
) -> pa.Array:  # fmt: skip
    """Fill the holes that are left from the rows the lake has under their base keys."""
    mask = pa.array(holes)
    places = (
        None
        if lake is None
        else pc.index_in(upserts["base"].filter(mask).combine_chunks(), lake["key"].combine_chunks())
    )
    if lake is None or places is None or places.null_count:
        raise CannotFollow(
            f"an update of table {mirror.name} left a large value of column {column.name!r} alone, and the lake has no"
            " row to take it from"
        )
    values = lake[column.name].take(places).combine_chunks().cast(array.type)
    at = np.arange(len(array))
    at[holes] = len(array) + np.arange(len(values))
    return pa.concat_arrays([array, values]).take(pa.array(at))  # replace_with_mask knows no lists


def unfit_key(table: str, column: str, kind: LakeType, bad: Bad) -> TableError:
    return TableError(
        f"the key of {table} holds {bad.text!r} in column {column!r}, which the lake's {kind} cannot hold",
        hint=f"mirror the column as text: `types: {{{column}: varchar}}`, under another name with `as:`",
    )


def _keys(mirror: Mirror, places: Mapping[str, int], parts: Split, *, new: bool) -> pa.Array:
    tuples = parts.new if new else parts.old
    columns = []
    for column in mirror.key_columns:
        index = places.get(column.name)
        if index is None:
            if mirror.key:
                raise CannotFollow(f"table {mirror.name} has another key than before: {column.name!r} is new in it")
            columns.append(missing(column, len(tuples.rows)))
            continue
        cells = parts.values(index, in_key=True) if new else tuples.cells[index]
        decoded = decode(cells.text, column.kind)
        if decoded.bad and mirror.key:
            raise unfit_key(mirror.name, column.name, column.kind, decoded.bad[0])
        columns.append(decoded.array)
    return key_bytes(columns, mirror.key_types) if mirror.key else row_bytes(columns)
