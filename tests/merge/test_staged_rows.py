"""Segments are read back: the rows that count, under the commit they belong to."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headwater.change import Committed, Lsn
from headwater.log.segment import SCHEMA, clustered, write
from headwater.merge.mirror import Mirror
from headwater.merge.reader import Read, Reads
from headwater.merge.staged import Segment, StagedChanges
from tests.merge.messages import INT4, OID, column, insert, mirror, relation

SHAPE = relation(column("id", INT4, 1))
WIDER = relation(column("id", INT4, 1), column("more", INT4, 2), id=2)
FOREIGN = 9  # a version of a table that is not in the batch
THEN, COMMIT = datetime(1970, 1, 1, tzinfo=UTC), datetime(2024, 1, 2, tzinfo=UTC)
Row = tuple[int, int, int, int]  # commit_lsn, seq, xid, relation


def segment(folder: Path, *rows: Row) -> Segment:
    """A file as capture writes it; each row's message inserts its seq."""
    lsn, seq, xid, version = zip(*rows, strict=True)
    columns = {
        "commit_lsn": pa.array(lsn, pa.int64()),
        "seq": pa.array(seq, pa.int64()),
        "xid": pa.array(xid, pa.int64()),
        "commit_ts": pa.array([THEN] * len(rows), SCHEMA.field("commit_ts").type),
        "op": pa.array([ord("I")] * len(rows), pa.uint8()),
        "relation": pa.array(version, pa.int64()),
        "message": pa.array([insert(each) for each in seq], pa.binary()),
    }
    path = folder / "segment.parquet"
    with pa.OSFile(str(path), "wb") as sink:
        write(clustered(columns), sink)
    assert pq.ParquetFile(path).num_row_groups >= len(set(version))
    return Segment(str(path), path.stat().st_size)


@dataclass(frozen=True)
class Reading:
    """The log's changes to one table, from a position up to another."""

    start: int = 0
    upto: int = 1000
    history: bool = False

    @property
    def mirror(self) -> Mirror:
        return replace(mirror(WIDER, history=self.history), start=Lsn(self.start))

    def of(self, *segments: Segment) -> list[Read]:
        reader = StagedChanges(segments, {SHAPE.id: SHAPE, WIDER.id: WIDER}, Lsn(self.upto))
        assert reader.tables() == {SHAPE.id: OID, WIDER.id: OID}
        found = (reads for unit in reader.units(2) for reads in reader.read(unit, {OID: self.mirror}))
        return [read for reads in found for read in reads.each()]


def read(reading: Reading, *segments: Segment) -> list[tuple[int, list[tuple[int, int]]]]:
    """By row group: the relation version, and commit and seq of its rows."""
    found = []
    for table, version, rows in reading.of(*segments):
        assert table.oid == OID
        assert rows["message"].to_pylist() == [insert(each) for each in rows["seq"].to_pylist()]
        found.append((version, list(zip(rows["commit_lsn"].to_pylist(), rows["seq"].to_pylist(), strict=True))))
    return found


def test_rows_of_the_tables_asked_for_are_read_version_by_version(tmp_path: Path) -> None:
    mixed = segment(tmp_path, (10, 0, 5, 1), (10, 1, 5, FOREIGN), (10, 2, 5, 2), (20, 0, 6, 1))
    assert read(Reading(), mixed) == [(1, [(10, 0), (20, 0)]), (2, [(10, 2)])]
    assert list(StagedChanges((mixed,), {1: SHAPE}, Lsn(1000)).read([mixed], {})) == []


@pytest.mark.parametrize(
    ("start", "upto", "found"),
    [
        (10, 20, [(1, [(10, 0)])]),  # a position: what is before it is in, what is at it is not
        (11, 21, [(1, [(20, 0)]), (2, [(20, 1)])]),
        (0, 10, []),
        (30, 40, []),
    ],
)
def test_only_what_is_between_the_tables_position_and_the_batchs_end_counts(
    start: int, upto: int, found: list[object], tmp_path: Path
) -> None:
    rows = segment(tmp_path, (10, 0, 5, 1), (20, 0, 6, 1), (20, 1, 6, 2))
    assert read(Reading(start=start, upto=upto), rows) == found


def test_rows_of_a_streamed_transaction_get_its_commit(tmp_path: Path) -> None:
    streamed = segment(tmp_path, (0, 1, 5, 1), (0, 3, 6, 1))._replace(commit=Committed(Lsn(50), COMMIT, 5))
    assert read(Reading(start=50), streamed) == [(1, [(50, 1), (50, 3)])]
    assert read(Reading(start=51), streamed) == []
    assert read(Reading(upto=50), streamed) == []


def test_rows_of_aborted_subtransactions_do_not_count(tmp_path: Path) -> None:
    streamed = segment(tmp_path, (0, 1, 5, 1), (0, 2, 6, 1), (0, 3, 7, 2), (0, 4, 5, 1), (0, 5, 8, 1))
    streamed = streamed._replace(commit=Committed(Lsn(50), COMMIT, 5), aborted=frozenset({6, 7}))
    assert read(Reading(), streamed) == [(1, [(50, 1), (50, 4), (50, 5)])]


def test_rows_beside_those_of_aborted_subtransactions_can_be_joined_with_others(tmp_path: Path) -> None:
    for name in ("streamed", "plain"):
        (tmp_path / name).mkdir()
    streamed = segment(tmp_path / "streamed", (0, 1, 5, 1), (0, 2, 6, 1))
    streamed = streamed._replace(commit=Committed(Lsn(50), COMMIT, 5), aborted=frozenset({6}))
    both = (streamed, segment(tmp_path / "plain", (60, 3, 7, 1)))
    found = StagedChanges(both, {SHAPE.id: SHAPE}, Lsn(1000)).read(both, {OID: mirror(SHAPE)})
    assert Reads.joined(list(found)).rows["seq"].to_pylist() == [1, 3]


@pytest.mark.parametrize("aborted", [frozenset[int](), frozenset({6})])
def test_a_history_also_gets_the_transaction_and_its_time(aborted: frozenset[int], tmp_path: Path) -> None:
    streamed = segment(tmp_path, (0, 1, 5, 1), (0, 2, 6, 1))
    committed = streamed._replace(commit=Committed(Lsn(50), COMMIT, 5), aborted=aborted)
    ((_, _, rows),) = Reading(history=True).of(committed)
    living = 2 - len(aborted)
    assert rows["xid"].to_pylist() == [5] * living  # the transaction's, not its subtransactions'
    assert rows["commit_ts"].to_pylist() == [COMMIT] * living
    ((_, _, plain),) = Reading(history=True).of(streamed)
    assert plain["commit_ts"].to_pylist() == [THEN, THEN]
