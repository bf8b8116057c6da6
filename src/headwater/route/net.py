"""The fold on Arrow: what `fold.py` says in plain Python, done for all destinations of a bucket at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from headwater.values.keys import known_by
from headwater.values.types import LakeType

__all__ = ["DESTINATION", "POSITION", "SEQ", "UPSERT", "Share", "event_schema", "rows_of_events", "shares"]

# What an event has besides the columns of its row; SEQ only if its source orders the events of one position.
POSITION, UPSERT, SEQ, DESTINATION = "_position", "_upsert", "_seq", "_destination"


def event_schema(rows: pa.Schema) -> pa.Schema:
    """Events of such rows, each with its destination."""
    head = [pa.field(POSITION, pa.int64()), pa.field(UPSERT, pa.bool_())]
    return pa.schema([*head, *rows, pa.field(DESTINATION, pa.int32())])


class Share(NamedTuple):
    """What the events of one destination amount to: the rows that come, and the keys whose rows go first."""

    destination: int
    upserts: pa.Table  # without the events' own columns
    keys: pa.Array  # of the rows that come
    gone: pa.Array  # keys


def shares(events: pa.Table, key: Mapping[str, LakeType], after: Mapping[int, int]) -> Iterator[Share]:
    """The share of each destination in the events that come after its position.

    Without a key there are no rows to replace, and every row comes.
    """
    events = _counting(events, after).combine_chunks()
    upsert = events[UPSERT].to_numpy()
    numbers = events[DESTINATION].to_numpy()
    columns = [events[name].combine_chunks() for name in key]
    keys = known_by(columns, list(key.values())) if key else _serial(len(numbers))
    codes = keys.dictionary_encode().indices.to_numpy()
    within = events[SEQ].to_numpy() if SEQ in events.column_names else np.zeros(len(numbers), np.int64)
    order = np.lexsort((upsert, within, events[POSITION].to_numpy(), codes, numbers))
    rows = rows_of_events(events)
    edges = np.flatnonzero(np.diff(numbers[order], prepend=-1, append=-1))
    for first, end in pairwise(edges.tolist()):
        mine = order[first:end]
        last = mine[np.flatnonzero(np.diff(codes[mine], append=-1))]
        kept = pa.array(last[upsert[last]])
        gone = keys.take(pa.array(mine[~upsert[mine]])).unique()
        yield Share(int(numbers[mine[0]]), rows.take(kept), keys.take(kept), gone)


def rows_of_events(events: pa.Table) -> pa.Table:
    """The columns of the rows alone."""
    return events.drop_columns([name for name in (POSITION, UPSERT, SEQ, DESTINATION) if name in events.column_names])


def _counting(events: pa.Table, after: Mapping[int, int]) -> pa.Table:
    known = np.array(sorted(after), np.int64)
    since = np.array([after[each] for each in known.tolist()], np.int64)
    new = events[POSITION].to_numpy() > since[np.searchsorted(known, events[DESTINATION].to_numpy())]
    return events if new.all() else events.filter(pa.array(new))


def _serial(rows: int) -> pa.Array:
    """As good as keys for rows that have none: each is another one."""
    return pa.array(np.arange(rows)).cast(pa.string()).cast(pa.binary())
