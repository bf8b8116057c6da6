"""Values in the quarantine whose rows this batch touches: overwritten or gone with their row, or moved with it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headwater.lake.quarantine import Changes, Entry, key_texts, rewritten, settled_by, unresolved
from headwater.lake.target import Place, Target
from headwater.merge.batch import Batch
from headwater.merge.mirror import MirrorColumn
from headwater.merge.scratch import Kept, Scratch

__all__ = ["Resolve"]


@dataclass(frozen=True, slots=True)
class Resolve:
    """One task for all of the quarantine: it yields the lake's reports. It holds what is open there, not the batch."""

    batch: Batch
    target: Target[Any]
    room: Scratch
    kept: tuple[Kept, ...]
    truncated: frozenset[int]
    places: tuple[Place, ...]

    def __call__(self) -> Iterator[bytes]:
        oids = {each.oid for each in self.kept}
        found = [(place, list(unresolved(self.target, place, oids))) for place in self.places]
        rows: defaultdict[int, set[bytes | None]] = defaultdict(set)
        for entry in (entry for _, entries in found for _, entry in entries):
            rows[entry.oid].add(entry.row_key)
        tables = {oid: self._table(oid, keys) for oid, keys in rows.items()}
        for place, entries in found:
            changes = {position: tables[entry.oid].change(entry) for position, entry in entries}
            yield from rewritten(self.target, place, {position: each for position, each in changes.items() if each})

    def _table(self, oid: int, rows: Collection[bytes | None]) -> _Table:
        """What is done to these rows of a table."""
        keys = pa.array([key for key in rows if key is not None], pa.binary())
        touched: Counter[bytes] = Counter()
        based = []
        for each in (each for each in self.kept if each.oid == oid):
            here, upserts = self.room.touched(each), self.room.upserts(each)
            touched.update(here.filter(pc.is_in(here, keys)).to_pylist())
            based.append(pa.table(upserts.filter(pc.is_in(upserts["base"], keys))))
        return _Table(self.batch, oid, oid in self.truncated, touched, pa.concat_tables(based))


class _Table:
    """What the batch does to one table, as far as its values in the quarantine are concerned."""

    def __init__(self, batch: Batch, oid: int, truncated: bool, touched: Counter[bytes], based: pa.Table) -> None:
        self._batch, self._mirror = batch, batch.mirrors[oid]
        self._columns = {column.attnum: column for column in self._mirror.columns}
        self._truncated = truncated
        self._touched = touched
        self._based = based  # rows that take values from those they replace
        self._at = {base: row for row, base in enumerate(based["base"].to_pylist())}
        self._settled: Counter[Entry] = Counter()

    def change(self, entry: Entry) -> Changes:
        """What becomes of an entry; nothing, if its value is still what the row has there."""
        settled, key, column = settled_by(self._batch.upto), entry.row_key, self._columns.get(entry.column)
        if self._truncated or column is None:  # a column that was dropped
            return settled
        if key is None or key not in self._touched:
            return {}
        row = self._at.get(key)
        if row is not None and self._left_alone(row, column):
            return self._moved(row)
        self._settled[entry] += 1
        # Equal rows of a table without a key have the same 'key': as many values are settled as rows go.
        return settled if self._mirror.key or self._settled[entry] <= self._touched[key] else {}

    def _left_alone(self, row: int, column: MirrorColumn) -> bool:
        """Whether the row was updated without this value: PostgreSQL did not send it again, so it is what it was."""
        (upsert,) = self._based.slice(row, 1).to_pylist()
        return self._batch.reader.omits(self._mirror, column, upsert)

    def _moved(self, row: int) -> Changes:
        upsert = self._based.slice(row, 1)
        if upsert["key"].equals(upsert["base"]):
            return {}
        only_key = replace(self._mirror, columns=self._mirror.key_columns)
        (text,) = key_texts(self._batch.reader.typed(only_key, upsert).rows, self._mirror.key)
        return {"key": text, "row_key": upsert["key"][0].as_py()}
