"""The log's changes: pgoutput messages in segments, each under a version of its relation."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from headwater.change import Committed, Lsn, Relation
from headwater.files import filesystem, inside
from headwater.merge.history import history_rows
from headwater.merge.mirror import Mirror, MirrorColumn
from headwater.merge.reader import Keyed, Read, Reads, Typed
from headwater.merge.rows import first_value, keyed, typed_rows
from headwater.merge.tuples import UNCHANGED
from headwater.spark import deal

__all__ = ["Segment", "StagedChanges"]

READ_BYTES = 4 << 20  # of row groups that are read at once; a larger one is read alone
_PLAIN = ("commit_lsn", "seq", "op", "message")
_FULL = (*_PLAIN, "xid", "commit_ts")


class Segment(NamedTuple):
    """A file of the log. With `commit`, its rows do not know it: a transaction that was streamed while in progress."""

    path: str
    bytes: int
    commit: Committed | None = None
    aborted: frozenset[int] = frozenset()  # subtransactions whose rows do not count


@dataclass(frozen=True, slots=True)
class StagedChanges:
    """Implements `headwater.merge.reader.ChangeReader`."""

    segments: tuple[Segment, ...]
    relations: Mapping[int, Relation]  # by version id
    upto: Lsn

    def units(self, tasks: int) -> list[tuple[Segment, ...]]:
        return deal([(each, each.bytes) for each in self.segments], tasks)

    def only(self, tables: Collection[int]) -> StagedChanges:
        mine = {version: relation for version, relation in self.relations.items() if relation.oid in tables}
        return replace(self, relations=mine)

    def tables(self) -> dict[int, int]:
        return {version: relation.oid for version, relation in self.relations.items()}

    def read(self, unit: Iterable[Segment], mirrors: Mapping[int, Mirror]) -> Iterator[Reads]:
        for segment in unit:
            with pq.ParquetFile(inside(segment.path), filesystem=filesystem(segment.path), memory_map=True) as file:
                yield from self._read(segment, file, mirrors)

    def _read(self, segment: Segment, file: pq.ParquetFile, mirrors: Mapping[int, Mirror]) -> Iterator[Reads]:
        for groups in self._wanted(file, mirrors):
            history = any(mirror.history for mirror, _, _ in groups.values())
            columns = _FULL if history or segment.aborted else _PLAIN
            rows = file.read_row_groups(list(groups), columns=list(columns)).combine_chunks()
            of = np.repeat(np.arange(len(groups)), [count for _, _, count in groups.values()])
            tables = tuple((mirror, version) for mirror, version, _ in groups.values())
            found = self._counting(segment, Reads(tables, of, rows))
            if len(found.of):  # in all segments with the same columns, so that reads can be joined
                yield found if history else replace(found, rows=found.rows.select(_PLAIN))

    def _wanted(
        self, file: pq.ParquetFile, mirrors: Mapping[int, Mirror]
    ) -> Iterator[dict[int, tuple[Mirror, int, int]]]:
        """The row groups to read, a few small ones at once: whose they are, of which version, and how many rows."""
        at = file.schema_arrow.get_field_index("relation")
        groups: dict[int, tuple[Mirror, int, int]] = {}
        size = 0
        for number in range(file.num_row_groups):
            group = file.metadata.row_group(number)
            version = group.column(at).statistics.min
            mirror = mirrors.get(self.relations[version].oid) if version in self.relations else None
            if mirror is None:
                continue
            if groups and size + group.total_byte_size > READ_BYTES:
                yield groups
                groups, size = {}, 0
            groups[number] = mirror, version, group.num_rows
            size += group.total_byte_size
        if groups:
            yield groups

    def _counting(self, segment: Segment, reads: Reads) -> Reads:
        """Those that are between a mirror's position and the batch's end, under the commit they belong to."""
        rows = reads.rows if segment.commit is None else _committed(segment.commit, reads.rows)
        lsn = rows["commit_lsn"].to_numpy()
        starts = np.array([mirror.start.value for mirror, _ in reads.tables])
        wanted = (lsn >= starts[reads.of]) & (lsn < self.upto.value)
        if segment.aborted:
            wanted &= ~np.isin(reads.rows["xid"].to_numpy(), list(segment.aborted))
        if wanted.all():
            return replace(reads, rows=rows)
        return Reads(reads.tables, reads.of[wanted], rows.filter(pa.array(wanted)))

    def layout(self, mirror: Mirror, version: int) -> Hashable:
        columns = tuple((each.attnum, each.key) for each in self.relations[version].columns)
        return mirror.columns, mirror.key, mirror.overlaps, columns

    def keyed(self, read: Read) -> Keyed:
        return keyed(read.mirror, self.relations[read.version], read.rows["message"].combine_chunks())

    def typed(self, mirror: Mirror, upserts: pa.Table, lake: pa.Table | None = None) -> Typed:
        return typed_rows(mirror, self.relations, upserts, lake)

    def history(self, read: Read) -> Typed:
        return history_rows(read.mirror, self.relations[read.version], read.rows)

    def omits(self, mirror: Mirror, column: MirrorColumn, upsert: Mapping[str, Any]) -> bool:
        versions = [upsert["relation"], *(upsert["older_relations"] or ())]
        messages = [upsert["message"], *(upsert["older"] or ())]
        chain = [(self.relations[version], each) for version, each in zip(versions, messages, strict=True)]
        return first_value(mirror, column, chain) == UNCHANGED


def _committed(commit: Committed, rows: pa.Table) -> pa.Table:
    """Rows of a streamed transaction with its commit."""
    lsn, ts, xid = commit
    known = {"commit_lsn": lsn.value, "commit_ts": ts, "xid": xid}
    for at, field in enumerate(rows.schema):
        if field.name in known:
            rows = rows.set_column(at, field, pa.repeat(pa.scalar(known[field.name], field.type), rows.num_rows))
    return rows
