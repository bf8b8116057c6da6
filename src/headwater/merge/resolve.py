"""Values in the quarantine whose rows this batch touches: overwritten or gone with their row, or moved with it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from headwater.merge.batch import Batch
from headwater.merge.rows import first_told, typed_rows
from headwater.merge.scratch import Kept, Scratch
from headwater.merge.tuples import UNCHANGED
from headwater.quarantine import Changes, key_texts, rewritten, settled_by, unresolved
from headwater.target import Place, Target

__all__ = ["Resolve"]


@dataclass(frozen=True, slots=True)
class Resolve:
    """One task for all of the quarantine: it yields the lake's reports."""

    batch: Batch
    target: Target[Any]
    room: Scratch
    kept: tuple[Kept, ...]
    truncated: frozenset[int]
    places: tuple[Place, ...]

    def __call__(self) -> Iterator[bytes]:
        tables = {oid: self._table(oid) for oid in {each.oid for each in self.kept}}
        for place in self.places:
            yield from rewritten(self.target, place, dict(self._changes(place, tables)))

    def _changes(self, place: Place, tables: Mapping[int, _Table]) -> Iterator[tuple[int, Changes]]:
        """By position, what becomes of the entries that change."""
        for position, (oid, key, column) in unresolved(self.target, place):
            if oid in tables and (change := tables[oid].change(key, column)):
                yield position, change

    def _table(self, oid: int) -> _Table:
        mine = [each for each in self.kept if each.oid == oid]
        touched = Counter(key for each in mine for key in self.room.touched(each).to_pylist())
        upserts = pa.concat_tables([pa.table(self.room.upserts(each)) for each in mine])
        return _Table(self.batch, oid, oid in self.truncated, touched, upserts.filter(upserts["base"].is_valid()))


class _Table:
    """What the batch does to one table, as far as its values in the quarantine are concerned."""

    def __init__(self, batch: Batch, oid: int, truncated: bool, touched: Counter[bytes], based: pa.Table) -> None:
        self._batch, self._mirror = batch, batch.mirrors[oid]
        self._truncated = truncated
        self._touched = touched
        self._based = based  # rows that take values from those they replace
        self._at = {base: row for row, base in enumerate(based["base"].to_pylist())}
        self._settled: Counter[tuple[bytes, str]] = Counter()

    def change(self, key: bytes | None, column: str) -> Changes:
        """What becomes of an entry under this key; nothing, if its value is still what the row has there."""
        settled = settled_by(self._batch.upto)
        if self._truncated:
            return settled
        if key is None or key not in self._touched:
            return {}
        row = self._at.get(key)
        if row is not None and self._left_alone(row, column):
            return self._moved(row)
        self._settled[key, column] += 1
        # Equal rows of a table without a key have the same 'key': as many values are settled as rows go.
        return settled if self._mirror.key or self._settled[key, column] <= self._touched[key] else {}

    def _left_alone(self, row: int, column: str) -> bool:
        """Whether the row was updated without this value: PostgreSQL did not send it again, so it is what it was."""
        wanted = next((each for each in self._mirror.columns if each.name == column), None)
        if wanted is None:
            return False
        (upsert,) = self._based.slice(row, 1).to_pylist()
        versions = [upsert["relation"], *(upsert["older_relations"] or ())]
        messages = [upsert["message"], *(upsert["older"] or ())]
        chain = [(self._batch.relations[v], m) for v, m in zip(versions, messages, strict=True)]
        return first_told(self._mirror, wanted, chain) == UNCHANGED

    def _moved(self, row: int) -> Changes:
        upsert = self._based.slice(row, 1)
        if upsert["key"].equals(upsert["base"]):
            return {}
        only_key = replace(self._mirror, columns=self._mirror.key_columns)
        (text,) = key_texts(typed_rows(only_key, self._batch.relations, upsert).rows, self._mirror.key)
        return {"key": text, "row_key": upsert["key"][0].as_py()}
