"""The fold on Arrow does what the fold in plain Python says, for any history, in whatever order Spark hands it over."""

from __future__ import annotations

from collections import defaultdict
from typing import Any, NamedTuple

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.merge.fold import Event, fold
from headwater.merge.net import CHANGE, DELETE, INSERT, TRUNCATE, UPDATE, fold_table, split_tables

TABLES = (11, 22, 33)
steps = st.tuples(
    st.sampled_from(["insert", "insert", "update", "update", "move", "delete", "delete", "truncate"]),
    st.sampled_from(TABLES),
    st.integers(1, 6),
    st.integers(1, 6),
    st.booleans(),  # does a new transaction begin here?
)


class Change(NamedTuple):
    """A row of the shape that Spark moves."""

    slot: int
    oid: int
    key: bytes
    lsn: int
    seq: int
    op: int
    relation: int
    message: bytes | None


def key_of(number: int) -> bytes:
    return b"key %d" % number


class Source:
    """Tables that are played on, the events PostgreSQL would send, and the changes that the parsing makes of them."""

    def __init__(self) -> None:
        self.tables: dict[int, set[int]] = {oid: {1, 2} for oid in TABLES}
        self.events: defaultdict[int, list[Event]] = defaultdict(list)
        self.changes: list[Change] = []
        self.lsn, self.seq = 100, 0

    def play(self, op: str, oid: int, key: int, to: int, new_transaction: bool) -> None:
        self.lsn, self.seq = (self.lsn + 10, 0) if new_transaction else (self.lsn, self.seq + 1)
        rows, name = self.tables[oid], b"%d/%d" % (self.lsn, self.seq)
        match op:
            case "insert" if key not in rows:
                rows.add(key)
                self._tell(oid, Event("insert", key_of(key), (name,)), (INSERT, key, name))
            case "update" if key in rows:
                self._tell(oid, Event("update", key_of(key), (name,)), (UPDATE, key, name))
            case "move" if key in rows and to not in rows:
                rows ^= {key, to}
                moved = Event("update", key_of(to), (name,), old_key=key_of(key))
                self._tell(oid, moved, (INSERT, to, name), (DELETE, key, None))
            case "delete" if key in rows:
                rows.remove(key)
                self._tell(oid, Event("delete", key_of(key)), (DELETE, key, None))
            case "truncate":
                rows.clear()
                self._tell(oid, Event("truncate"))
                self.changes.append(Change(0, oid, b"", self.lsn, self.seq * 2, TRUNCATE, 5, b""))

    def _tell(self, oid: int, event: Event, *changes: tuple[int, int, bytes | None]) -> None:
        self.events[oid].append(event)
        for op, key, message in changes:
            late = message is not None  # of two changes made of one message, the delete comes first
            self.changes.append(Change(0, oid, key_of(key), self.lsn, self.seq * 2 + late, op, 5, message))


def as_table(changes: list[Change]) -> pa.Table:
    columns = list(zip(*changes, strict=True)) or [()] * len(CHANGE)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, CHANGE, strict=True)]
    return pa.Table.from_arrays(arrays, schema=CHANGE)


@settings(max_examples=500, deadline=None)
@given(st.lists(steps, max_size=60), st.randoms(use_true_random=False), st.integers(1, 20))
def test_any_history_folds_to_what_the_specification_says(
    history: list[tuple[Any, ...]], chance: Any, chunk: int
) -> None:
    source = Source()
    for step in history:
        source.play(*step)
    chance.shuffle(source.changes)
    shuffled = as_table(source.changes)
    arrived = pa.Table.from_batches(shuffled.to_batches(max_chunksize=chunk), CHANGE)  # as Spark sends it: in pieces

    nets = {oid: fold_table(changes) for oid, changes in split_tables(arrived)}

    assert nets.keys() == source.events.keys()
    for oid, net in nets.items():
        said = fold(source.events[oid])
        assert net.truncated == said.truncated
        assert {row["key"]: (row["message"], row["replaces"]) for row in net.upserts.to_pylist()} == {
            key: (each.row[0], each.existed) for key, each in said.net.items() if each.op == "upsert"
        }
        touched = net.touched.to_pylist()
        assert len(set(touched)) == len(touched)
        assert set(touched) == {key for key, each in said.net.items() if each.existed}
        assert net.removed == sum(each.op == "delete" and each.existed for each in said.net.values())


@given(st.lists(st.tuples(st.sampled_from(TABLES), st.integers(0, 50), st.integers(0, 50)), unique=True))
def test_tables_are_told_apart_and_each_is_in_commit_order(rows: list[tuple[int, int, int]]) -> None:
    changes = [Change(0, oid, b"k", lsn, seq, INSERT, 1, b"%d %d" % (lsn, seq)) for oid, lsn, seq in rows]
    found = {
        oid: list(zip(table["lsn"].to_pylist(), table["seq"].to_pylist(), strict=True))
        for oid, table in split_tables(as_table(changes))
    }
    assert found == {
        oid: sorted((lsn, seq) for table, lsn, seq in rows if table == oid) for oid in {table for table, _, _ in rows}
    }


def test_no_changes_are_no_tables() -> None:
    assert list(split_tables(as_table([]))) == []


def test_a_truncate_alone_leaves_nothing_to_write_and_nothing_to_search_for() -> None:
    net = fold_table(as_table([Change(0, 11, b"", 1, 0, TRUNCATE, 5, b"")]))
    assert (net.truncated, net.upserts.num_rows, len(net.touched), net.removed) == (True, 0, 0, 0)
    assert net.upserts.column_names == ["key", "relation", "message", "replaces"]
