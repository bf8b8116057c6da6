"""Reading a batch's segments: which rows of which tables count, under which commit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headwater.files import filesystem, inside
from headwater.merge.batch import Batch, Mirror, Segment

__all__ = ["staged"]

_PLAIN = ("commit_lsn", "seq", "op", "message")
_FULL = (*_PLAIN, "xid", "commit_ts")


def staged(batch: Batch, segments: Iterable[Segment]) -> Iterator[tuple[Mirror, int, pa.Table]]:
    """The batch's changes in these segments: a mirror, a relation version, its rows, in commit order."""
    for segment in segments:
        with pq.ParquetFile(inside(segment.path), filesystem=filesystem(segment.path), memory_map=True) as file:
            at = file.schema_arrow.get_field_index("relation")
            for group in range(file.num_row_groups):
                relation = file.metadata.row_group(group).column(at).statistics.min
                mirror = batch.mirrors.get(batch.relations[relation].oid) if relation in batch.relations else None
                if mirror is None:
                    continue
                columns = _FULL if mirror.history or segment.aborted else _PLAIN
                rows = _counting(batch, mirror, segment, file.read_row_group(group, columns=list(columns)))
                if rows.num_rows:
                    yield mirror, relation, rows.combine_chunks()


def _counting(batch: Batch, mirror: Mirror, segment: Segment, rows: pa.Table) -> pa.Table:
    """Those that are between the mirror's position and the batch's end, under the commit they belong to."""
    if segment.commit is not None:
        rows = _committed(segment, rows)
    lsn = rows["commit_lsn"].to_numpy()
    wanted = (lsn >= mirror.start.value) & (lsn < batch.upto.value)
    return rows if wanted.all() else rows.filter(pa.array(wanted))


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
