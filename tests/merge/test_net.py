"""The fold on Arrow does what the fold in plain Python says, for any history, in whatever order Spark hands it over."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.merge.fold import UNCHANGED, Event, Folded, Key, Row, apply, fold
from headwater.merge.net import (
    CHANGE,
    DELETE,
    INSERT,
    TRUNCATE,
    UPDATE,
    UPSERT,
    NetChanges,
    fold_bag,
    fold_table,
    fold_tables,
    in_order,
    of_plain_tables,
    split_tables,
)  # fmt: skip
from headwater.merge.rows import typed_rows
from headwater.values.keys import key_bucket
from tests.merge.messages import INT4, TEXT, TOAST, column, mirror, number, relation, update

TABLES = (11, 22, 33)
BEFORE: dict[Key, Row] = {number(n): (str(n), "lake", f"big {n}", f"large {n}") for n in (1, 2)}
SHAPE = relation(column("id", INT4, 1), *(column(name, TEXT, at) for at, name in enumerate(("s", "b", "l"), 2)), id=5)
IDS = range(1, 7)
steps = st.tuples(
    st.sampled_from([*["insert", "update", "move", "delete"] * 4, "truncate"]),
    st.sampled_from(TABLES),
    st.integers(0, 5),  # which of the rows there are, and which of the ids that are free
    st.integers(0, 5),
    st.tuples(st.booleans(), st.booleans()),  # does an update leave the two large values alone?
    st.booleans(),  # does a new transaction begin here?
)
histories = st.lists(steps, max_size=60)


class Change(NamedTuple):
    """A row of the shape that Spark moves."""

    bucket: int
    oid: int
    key: bytes
    lsn: int
    seq: int
    op: int
    relation: int
    message: bytes | None
    holes: bool = False
    origin: bytes | None = None


class Source:
    """Tables that are played on, the events PostgreSQL would send, and the changes that the parsing makes of them."""

    def __init__(self, history: list[tuple[Any, ...]] = ()) -> None:  # type: ignore[assignment]
        self.tables: dict[int, dict[Key, Row]] = {oid: dict(BEFORE) for oid in TABLES}
        self.events: defaultdict[int, list[Event]] = defaultdict(list)
        self.changes: list[Change] = []
        self.lsn, self.seq = 100, 0
        for step in history:
            self.play(*step)

    def play(self, op: str, oid: int, which: int, to: int, alone: tuple[bool, bool], new_transaction: bool) -> None:
        self.lsn, self.seq = (self.lsn + 10, 0) if new_transaction else (self.lsn, self.seq + 1)
        rows, name = self.tables[oid], f"{self.lsn}/{self.seq}"
        used, free = ([id for id in IDS if (number(id) in rows) is there] for there in (True, False))
        match op:
            case "insert" if free:
                self._put(oid, INSERT, None, (str(free[to % len(free)]), name, name, name), (False, False))
            case "update" if used:
                id = used[which % len(used)]
                self._put(oid, UPDATE, number(id), (str(id), name, name, name), alone)
            case "move" if used and free:
                key = number(used[which % len(used)])
                self._tell(oid, DELETE, key, None, any(alone))
                self._put(oid, INSERT, key, (str(free[to % len(free)]), name, name, name), alone)
            case "delete" if used:
                key = number(used[which % len(used)])
                del rows[key]
                self.events[oid].append(Event("delete", key))
                self._tell(oid, DELETE, key, None)
            case "truncate":
                rows.clear()
                self.events[oid].append(Event("truncate"))
                self._tell(oid, TRUNCATE, b"", None)

    def _put(self, oid: int, op: int, old: bytes | None, values: Row, alone: tuple[bool, bool]) -> None:
        left = (False, False, *alone)
        key = number(int(values[0]))
        sent = tuple(UNCHANGED if each else value for each, value in zip(left, values, strict=True))
        before = self.tables[oid].pop(old) if old else values
        self.tables[oid][key] = tuple(was if each else now for each, was, now in zip(left, before, values, strict=True))
        moved = old is not None and old != key
        event = Event("update", key, sent, old if moved else None) if old else Event("insert", key, sent)
        self.events[oid].append(event)
        reported = update(*(TOAST if each is UNCHANGED else each for each in sent))
        self._tell(oid, op, key, reported, any(alone), old if moved and any(alone) else None)

    def _tell(
        self, oid: int, op: int, key: bytes, message: bytes | None, holes: bool = False, origin: bytes | None = None
    ) -> None:
        late = message is not None  # of two changes made of one message, the delete comes first
        self.changes.append(Change(0, oid, key, self.lsn, self.seq * 2 + late, op, 5, message, holes, origin))


def as_table(changes: list[Change]) -> pa.Table:
    columns = list(zip(*changes, strict=True)) or [()] * len(CHANGE)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, CHANGE, strict=True)]
    return pa.Table.from_arrays(arrays, schema=CHANGE)


def arrived(changes: list[Change], chance: Any, chunk: int) -> pa.Table:
    """As Spark sends it: in any order, and in pieces."""
    chance.shuffle(changes)
    return pa.Table.from_batches(as_table(changes).to_batches(max_chunksize=chunk), CHANGE)


def written(nets: list[NetChanges]) -> dict[Key, Row]:
    """The rows that these buckets of one table write, looking into the lake as it was before."""
    lake = pa.table(
        {"key": pa.array(list(BEFORE), pa.binary())}
        | {name: [row[at] for row in BEFORE.values()] for at, name in enumerate(("id", "s", "b", "l"))}
    )
    found: dict[Key, Row] = {}
    for net in nets:
        assert net.upserts.schema == UPSERT
        if net.upserts.num_rows:
            typed = typed_rows(mirror(SHAPE), {SHAPE.id: SHAPE}, net.upserts, lake)
            assert not typed.bad
            for key, row in zip(net.upserts["key"].to_pylist(), typed.rows.to_pylist(), strict=True):
                assert key not in found
                found[key] = (str(row["id"]), row["s"], row["b"], row["l"])
    return found


def check(nets: list[NetChanges], said: Folded, after: dict[Key, Row]) -> None:
    """What the buckets of one table found is what the specification says, and what the source has."""
    assert apply(said, BEFORE) == after
    assert {net.truncated for net in nets} == {said.truncated}
    upserts = {key for key, each in said.net.items() if each.op == "upsert"}
    assert written(nets) == {key: after[key] for key in upserts}
    touched = [key for net in nets for key in net.touched.to_pylist()]
    assert len(set(touched)) == len(touched)
    assert set(touched) == {key for key, each in said.net.items() if each.existed}
    bases = {base for net in nets for base in net.upserts["base"].to_pylist()} - {None}
    assert bases <= set(touched)  # a row that others take values from is looked for
    assert {each.base for each in said.net.values()} - {None} <= bases


@settings(max_examples=150, deadline=None)
@given(histories, st.randoms(use_true_random=False), st.integers(1, 20))
def test_any_history_folds_to_what_the_specification_says(
    history: list[tuple[Any, ...]], chance: Any, chunk: int
) -> None:
    source = Source(history)
    nets = {oid: fold_table(changes) for oid, changes in split_tables(in_order(arrived(source.changes, chance, chunk)))}
    assert nets.keys() == source.events.keys()
    for oid, net in nets.items():
        check([net], fold(source.events[oid]), source.tables[oid])


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.one_of(steps, steps.map(lambda step: ("update", *step[1:4], (False, False), step[5]))), max_size=60),
    st.randoms(use_true_random=False),
    st.sets(st.sampled_from(TABLES)),
)
def test_tables_folded_at_once_are_what_each_is_alone(
    history: list[tuple[Any, ...]], chance: Any, bags: set[int]
) -> None:
    """Those with a truncate, a row with holes or no key are not among them."""
    source = Source(history)
    changes = in_order(arrived(source.changes, chance, 7))
    plain = of_plain_tables(changes, sorted(bags))
    nets = dict(fold_tables(changes.filter(pa.array(plain))).each())
    special = {each.oid for each in source.changes if each.op == TRUNCATE or each.holes}
    assert nets.keys() == source.events.keys() - special - bags
    for oid, net in nets.items():
        check([net], fold(source.events[oid]), source.tables[oid])


@settings(max_examples=150, deadline=None)
@given(st.lists(steps.map(lambda step: (step[0], 11, *step[2:])), max_size=25), st.integers(2, 4))
def test_folded_in_several_buckets_it_is_the_same_unless_it_is_reported_that_it_is_not(
    history: list[tuple[Any, ...]], buckets: int
) -> None:
    source = Source(history)
    dealt: list[list[Change]] = [[] for _ in range(buckets)]
    for change in source.changes:
        chosen = key_bucket(pa.array([change.key], pa.binary()), buckets).tolist()
        for bucket in range(buckets) if change.op == TRUNCATE else chosen:
            dealt[bucket].append(change)
    nets = [fold_table(table) for each in dealt for _, table in split_tables(in_order(as_table(each)))]
    if nets and not any(net.scattered for net in nets):
        check(nets, fold(source.events[11]), source.tables[11])


@pytest.mark.parametrize(
    ("history", "reported"),
    [
        ([("update", True)], False),
        ([("move", False)], False),
        ([("move", True)], False),  # all that is left to look for is in the lake
        ([("move", True), ("update", True)], False),
        ([("move", True), ("move", True)], True),
        ([("update", False), ("move", True)], True),
        ([("update", True), ("move", True)], True),
        ([("update", True), ("move", False)], False),
        ([("update", True), ("move", True), ("truncate", False)], False),
    ],
)
def test_the_table_is_needed_in_one_bucket_only_if_a_row_with_holes_left_a_past_in_another(
    history: list[Any], reported: bool
) -> None:
    """All of it happens to the row that has the highest id; every key has a bucket of its own."""
    source = Source([(op, 11, -1, -1, (alone, False), False) for op, alone in history])
    keys = {change.key for change in source.changes if change.op != TRUNCATE}
    nets = [
        fold_table(as_table([each for each in source.changes if each.key == key or each.op == TRUNCATE]))
        for key in keys
    ]
    assert any(net.scattered for net in nets) is reported
    whole = fold_table(as_table(source.changes))
    assert not whole.scattered
    for found in [[whole]] if reported else [[whole], nets]:
        check(found, fold(source.events[11]), source.tables[11])


def test_a_long_chain_of_updates_is_followed_to_its_end() -> None:
    history = [("insert", 11, 0, -1, (False, False), False)]
    history += [("update", 11, -1, 0, (True, True), False)] * 5000
    source = Source(history)
    check([fold_table(as_table(source.changes))], fold(source.events[11]), source.tables[11])


@given(st.lists(st.tuples(st.sampled_from(TABLES), st.integers(0, 50), st.integers(0, 50)), unique=True))
def test_tables_are_reported_apart_and_each_is_in_commit_order(rows: list[tuple[int, int, int]]) -> None:
    changes = [Change(0, oid, b"k", lsn, seq, INSERT, 1, b"%d %d" % (lsn, seq)) for oid, lsn, seq in rows]
    found = {
        oid: list(zip(table["lsn"].to_pylist(), table["seq"].to_pylist(), strict=True))
        for oid, table in split_tables(in_order(as_table(changes)))
    }
    assert found == {
        oid: sorted((lsn, seq) for table, lsn, seq in rows if table == oid) for oid in {table for table, _, _ in rows}
    }


def test_no_changes_are_no_tables() -> None:
    assert list(split_tables(in_order(as_table([])))) == []


@pytest.mark.parametrize("folded", [fold_table, fold_bag])
def test_a_truncate_alone_leaves_nothing_to_write_and_nothing_to_search_for(folded: Any) -> None:
    net = folded(as_table([Change(0, 11, b"", 1, 0, TRUNCATE, 5, b"")]))
    assert (net.truncated, net.upserts.num_rows, len(net.touched), net.scattered) == (True, 0, 0, False)
    assert net.upserts.schema == UPSERT


bag_steps = st.tuples(st.sampled_from("IIIUDDT"), st.sampled_from("abc"), st.sampled_from("abc"))


@settings(max_examples=150, deadline=None)
@given(st.lists(bag_steps, max_size=40), st.lists(st.sampled_from("abc"), max_size=6), st.integers(1, 3))
def test_without_a_key_rows_are_counted(history: list[tuple[str, str, str]], before: list[str], buckets: int) -> None:
    """As the lake does it: everything goes if it was truncated, else as many as were touched; then the new ones."""
    rows = Counter(before)
    dealt: list[list[Change]] = [[] for _ in range(buckets)]

    def tell(seq: int, op: int, row: str, late: bool = True) -> None:
        bucket = ord(row) % buckets
        dealt[bucket].append(Change(0, 11, row.encode(), 100, seq * 2 + late, op, 5, f"{row} {seq}".encode()))

    for seq, (op, row, to) in enumerate(history):
        if op == "T":
            rows.clear()
            for each in dealt:
                each.append(Change(0, 11, b"", 100, seq * 2, TRUNCATE, 5, b""))
        elif op == "I":
            rows[row] += 1
            tell(seq, INSERT, row)
        elif rows[row] and (op == "D" or row == to):
            rows[row] -= op == "D"
            tell(seq, DELETE if op == "D" else UPDATE, row)
        elif rows[row] and op == "U":
            rows -= Counter([row])
            rows[to] += 1
            tell(seq, DELETE, row, late=False)
            tell(seq, INSERT, to)
    nets = [fold_bag(as_table(each)) for each in dealt]
    lake = Counter[str]() if nets[0].truncated else Counter(before)
    going = Counter(key.decode() for net in nets for key in net.touched.to_pylist())
    coming = [(row["key"], row["message"]) for net in nets for row in net.upserts.to_pylist()]
    assert going <= lake
    lake -= going
    lake.update(key.decode() for key, _ in coming)
    assert lake == +rows
    assert len(set(coming)) == len(coming)  # each by its own message
    assert all(message.startswith(key) for key, message in coming)


def test_rows_that_come_without_a_key_are_the_last_that_came() -> None:
    """Their values are equal but for those that did not fit, whose text the quarantine is to have."""
    ops = [(INSERT, b"a"), (INSERT, b"b"), (DELETE, b"a"), (INSERT, b"a"), (INSERT, b"a"), (DELETE, b"b")]
    changes = [Change(0, 11, key, 100, at, op, 5, b"%d" % at) for at, (op, key) in enumerate(ops)]
    net = fold_bag(as_table(changes))
    assert sorted(net.upserts["message"].to_pylist()) == [b"3", b"4"]
    assert net.touched.to_pylist() == []
