"""The two ends where types are met: a change's key for the fold, and the typed rows that are left to write."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.change import Relation
from headwater.decode import decode
from headwater.errors import TableError
from headwater.merge.batch import Mirror
from headwater.merge.keys import key_bytes
from headwater.merge.net import DELETE, INSERT, UPDATE
from headwater.merge.tuples import UNCHANGED, Tuples, split
from headwater.types import LakeType, lake_type

__all__ = ["Keyed", "keyed", "typed_rows"]

_Rows = npt.NDArray[np.int64]


class Keyed(NamedTuple):
    """Changes with their keys: `rows` are indexes of the messages, `late` orders two changes made of one message."""

    rows: _Rows
    late: npt.NDArray[np.bool_]
    op: npt.NDArray[np.uint8]
    key: pa.Array


def keyed(mirror: Mirror, relation: Relation, messages: pa.Array) -> Keyed:
    """What each message does to which key. An update that moves a row is a delete there and an insert here."""
    kinds = dict(mirror.columns)
    at = {name: _index(mirror, relation, name, kinds[name]) for name in mirror.key}
    parts = split(messages, len(relation.columns), at.values())
    new = _keys(mirror, at, parts.new)
    old = _keys(mirror, at, parts.old)
    updated = np.flatnonzero(parts.op[parts.old.rows] == UPDATE)
    counterpart = np.searchsorted(parts.new.rows, parts.old.rows[updated])
    differs = pc.not_equal(old.take(pa.array(updated)), new.take(pa.array(counterpart)))
    moved = differs.to_numpy(zero_copy_only=False).astype(bool)
    new_op = parts.op[parts.new.rows].copy()
    new_op[counterpart[moved]] = INSERT
    gone = np.sort(np.concatenate([np.flatnonzero(parts.op[parts.old.rows] == DELETE), updated[moved]]))
    return Keyed(
        rows=np.concatenate([parts.new.rows, parts.old.rows[gone]]),
        late=np.concatenate([np.ones(len(new), bool), np.zeros(len(gone), bool)]),
        op=np.concatenate([new_op, np.full(len(gone), DELETE, np.uint8)]),
        key=pa.concat_arrays([new, old.take(pa.array(gone))]),
    )


def typed_rows(mirror: Mirror, relation: Relation, messages: pa.Array) -> pa.Table:
    """The new rows of these messages, decoded by column onto the table's newest shape."""
    kinds = {name: _index(mirror, relation, name, kind) for name, kind in mirror.columns}
    unknown = [column.name for column in relation.columns if column.name not in kinds]
    if unknown:
        raise TableError(
            f"table {mirror.name} has a column {unknown[0]!r} that its copy in the lake does not have",
            hint="schema changes are not followed in this version: copy the table anew under another name (`as:`)",
        )
    cells = split(messages, len(relation.columns)).new.cells
    arrays = []
    for name, kind in mirror.columns:
        cell = cells[kinds[name]]
        if (cell.kind == UNCHANGED).any():
            raise TableError(
                f"an update of table {mirror.name} does not tell the unchanged large value of column {name!r}",
                hint="this version cannot fetch it from the lake: leave the table out of the group for now",
            )
        arrays.append(decode(cell.text, kind).intact(name))
    return pa.Table.from_arrays(arrays, schema=mirror.schema)


def _keys(mirror: Mirror, at: dict[str, int], tuples: Tuples) -> pa.Array:
    kinds = dict(mirror.columns)
    columns = [decode(tuples.cells[index].text, kinds[name]).intact(name) for name, index in at.items()]
    return key_bytes(columns, [kinds[name] for name in at])


def _index(mirror: Mirror, relation: Relation, name: str, kind: LakeType) -> int:
    """Where a column of the mirror stands in this version of the relation."""
    for index, column in enumerate(relation.columns):
        if column.name == name:
            if lake_type(column.type_oid, column.typmod) == kind:
                return index
            raise TableError(
                f"table {mirror.name} column {name!r} changed its type",
                hint="schema changes are not followed in this version: copy the table anew under another name (`as:`)",
            )
    raise TableError(
        f"table {mirror.name} no longer has column {name!r}",
        hint="schema changes are not followed in this version: copy the table anew under another name (`as:`)",
    )
