"""History mode: every change becomes a row of its own, the new row beside what the source sends of the old one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from headwater.change import Relation
from headwater.lake import history
from headwater.merge.mirror import Mirror
from headwater.merge.net import DELETE, TRUNCATE
from headwater.merge.reader import Typed
from headwater.merge.rows import columns_in, missing
from headwater.merge.tuples import UNCHANGED, old_row, split
from headwater.values.decode import Bad, decode

__all__ = ["history_rows"]

_OPS = {ord(op): name for op, name in (("I", "insert"), ("U", "update"), ("D", "delete"), ("T", "truncate"))}


def history_rows(mirror: Mirror, relation: Relation, changes: pa.Table) -> Typed:
    """Changes of one relation version, in commit order, as rows of the history.

    A deleted row's columns hold what the replica identity has of it; `_old` has that too, and for an update what it
    has of the row before. Values that the source did not send are null, and named in `_unchanged`.
    """
    ops = changes["op"].to_numpy()
    alone = ops == TRUNCATE
    with_rows = changes.filter(pa.array(~alone)) if alone.any() else changes
    body, bad, old, unchanged = _body(mirror, relation, with_rows)
    at = np.full(len(ops), -1)
    at[~alone] = np.arange(with_rows.num_rows)
    where = pa.array(at, mask=alone)  # a truncate has no row
    back = np.flatnonzero(~alone)
    head = [
        pa.array([_OPS[int(op)] for op in ops], pa.large_string()),
        changes["commit_lsn"].combine_chunks(),
        changes["commit_ts"].combine_chunks(),
        changes["xid"].combine_chunks(),
        changes["seq"].combine_chunks(),
        old.take(where),
        unchanged.take(where),
    ]
    schema = pa.schema([*history.SCHEMA, *mirror.schema])
    rows = pa.Table.from_arrays([*head, *(array.take(where) for array in body)], schema=schema)
    return Typed(
        rows, {name: tuple(Bad(int(back[each.row]), each.text) for each in bads) for name, bads in bad.items()}
    )


def _body(
    mirror: Mirror, relation: Relation, changes: pa.Table
) -> tuple[list[pa.Array], dict[str, tuple[Bad, ...]], pa.Array, pa.Array]:
    places = columns_in(mirror, relation)
    messages = changes["message"].combine_chunks()
    parts = split(messages, len(relation.columns), places.values())
    shown = np.zeros(len(messages), np.int64)  # which tuple a row shows: the new one, or of a delete the old one
    shown[parts.new.rows] = np.arange(len(parts.new.rows))
    gone = np.flatnonzero(parts.op[parts.old.rows] == DELETE)
    shown[parts.old.rows[gone]] = len(parts.new.rows) + gone
    arrays, bad = [], {}
    holes: dict[int, list[str]] = {}
    for column in mirror.columns:
        index = places.get(column.name)
        if index is None:
            arrays.append(missing(column, len(messages)))
            continue
        new, old = parts.values(index, in_key=column.name in mirror.key), parts.old.cells[index]
        both = pa.concat_arrays([new.text, old.text]).take(pa.array(shown))
        decoded = decode(both, column.kind)
        arrays.append(decoded.array)
        if decoded.bad:
            bad[column.name] = decoded.bad
        for row in parts.new.rows[new.kind == UNCHANGED].tolist():
            holes.setdefault(row, []).append(column.name)
    olds = _olds(relation, messages, parts.old.rows, parts.whole)
    return arrays, bad, _texts(len(messages), olds), _texts(len(messages), holes)


def _olds(
    relation: Relation, messages: pa.Array, rows: np.ndarray, whole: np.ndarray
) -> dict[int, dict[str, str | None]]:
    found = {}
    for row, entire in zip(rows.tolist(), whole.tolist(), strict=True):
        cells = old_row(messages[row].as_py())
        found[row] = {
            column.name: cell.decode() if isinstance(cell, bytes) else None
            for column, cell in zip(relation.columns, cells, strict=True)
            if entire or isinstance(cell, bytes)
        }
    return found


def _texts(count: int, values: Mapping[int, Any]) -> pa.Array:
    return pa.array([json.dumps(values[row]) if row in values else None for row in range(count)], pa.large_string())
