"""The log's changes: pgoutput messages in segments, each under a version of its relation."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headwater.change import Committed, Lsn, Relation
from headwater.files import filesystem, inside
from headwater.merge.history import history_rows
from headwater.merge.mirror import Mirror, MirrorColumn
from headwater.merge.reader import Keyed, Read, Typed
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

    def tables(self) -> dict[int, int]:
        return {version: relation.oid for version, relation in self.relations.items()}

    def read(self, unit: Iterable[Segment], mirrors: Mapping[int, Mirror]) -> Iterator[Read]:
        for segment in unit:
            with pq.ParquetFile(inside(segment.path), filesystem=filesystem(segment.path), memory_map=True) as file:
                yield from self._read(segment, file, mirrors)

    def _read(self, segment: Segment, file: pq.ParquetFile, mirrors: Mapping[int, Mirror]) -> Iterator[Read]:
        for groups in self._wanted(file, mirrors):
            full = segment.aborted or any(mirror.history for mirror, _, _ in groups.values())
            found = file.read_row_groups(list(groups), columns=list(_FULL if full else _PLAIN))
            first = 0
            for mirror, version, count in groups.values():
                rows = self._counting(mirror, segment, found.slice(first, count))
                first += count
                if rows.num_rows:
                    yield Read(mirror, version, rows.combine_chunks())

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

    def _counting(self, mirror: Mirror, segment: Segment, rows: pa.Table) -> pa.Table:
        """Those that are between the mirror's position and the batch's end, under the commit they belong to."""
        if segment.commit is not None:
            rows = _committed(segment, rows)
        lsn = rows["commit_lsn"].to_numpy()
        wanted = (lsn >= mirror.start.value) & (lsn < self.upto.value)
        return rows if wanted.all() else rows.filter(pa.array(wanted))

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


def _committed(segment: Segment, rows: pa.Table) -> pa.Table:
    """Rows of a streamed transaction with its commit, without those of its aborted subtransactions."""
    assert segment.commit is not None
    if segment.aborted:
        rows = rows.filter(pc.invert(pc.is_in(rows["xid"], pa.array(sorted(segment.aborted), pa.int64()))))
    lsn, ts, xid = segment.commit
    known = {"commit_lsn": lsn.value, "commit_ts": ts, "xid": xid}
    for at, field in enumerate(rows.schema):
        if field.name in known:
            rows = rows.set_column(at, field, pa.repeat(pa.scalar(known[field.name], field.type), rows.num_rows))
    return rows
