from __future__ import annotations

import re
import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from moto.server import ThreadedMotoServer
from pyarrow.fs import S3FileSystem

from headwater.change import BaseType, Column, Committed, Facts, Lsn, Relation, TableName
from headwater.errors import ConfigError, LogGap, OperatorMustAct, Unreachable
from headwater.files import filesystem, inside
from headwater.log import SCHEMA, Log, place
from headwater.state import Location, State

START = Lsn(100)


@pytest.fixture
def state(database: str) -> Iterator[State]:
    state = State.connect(database)
    state.migrate()
    state.ensure_group("shop", "1/db", "s", "p")
    state.begin_capture("shop", START)
    yield state
    state.close()


@pytest.fixture
def log(state: State, tmp_path: Path) -> Log:
    return Log(state, "shop", str(tmp_path / "log"))


def relation(oid: int, *columns: str) -> Relation:
    return Relation(0, oid, TableName("public", f"t{oid}"), "d", tuple(Column(name, 25, -1, False) for name in columns))


def changes(relations: list[int], lsns: list[int], ops: str = "") -> dict[str, pa.Array]:
    count = len(relations)
    kinds = (ops or "I" * count).encode()
    return {
        "commit_lsn": pa.array(lsns, pa.int64()),
        "seq": pa.array(range(count), pa.int64()),
        "xid": pa.array([7] * count, pa.int64()),
        "commit_ts": pa.array([0] * count, pa.timestamp("us", tz="UTC")),
        "op": pa.array(list(kinds), pa.uint8()),
        "relation": pa.array(relations, pa.int64()),
        "message": pa.array([b"%c%d" % (kind, n) for n, kind in enumerate(kinds)], pa.binary()),
    }


def append(log: Log, lsns: list[int], upto: int, relations: list[int] | None = None) -> None:
    version = log.relation(relation(1, "id"), START).id
    log.register([log.stage(changes(relations or [version] * len(lsns), lsns))], log.end(), Lsn(upto))


def test_a_segment_keeps_relations_apart_and_each_in_commit_order(log: Log) -> None:
    one, two = (log.relation(relation(oid, "id"), START).id for oid in (1, 2))
    staged = log.stage(changes([two, one, two, one, one], [100, 100, 110, 120, 120], "IUDTI"))
    log.register([staged], START, Lsn(130))
    (segment,) = log.read(START).segments
    table = pq.read_table(segment.path)
    assert table.schema.equals(SCHEMA)
    assert [bytes(message) for message in table["message"].to_pylist()] == [b"I0", b"D2", b"U1", b"T3", b"I4"]
    file = pq.ParquetFile(segment.path)
    column = table.schema.get_field_index("relation")
    groups = [file.metadata.row_group(n).column(column).statistics for n in range(file.num_row_groups)]
    assert [(group.min, group.max) for group in groups] == [(two, two), (one, one)]
    assert {part.relation_id: (part.rows, part.ops) for part in segment.parts} == {one: (3, "IUT"), two: (2, "DI")}
    assert (segment.first_lsn, segment.last_lsn, segment.end_lsn) == (Lsn(100), Lsn(120), Lsn(130))
    assert segment.bytes >= pq.read_table(segment.path)["message"].nbytes


def test_the_transactions_that_truncated_a_table_are_found(log: Log) -> None:
    one, two = (log.relation(relation(oid, "id"), START).id for oid in (1, 2))
    for xid, (version, lsn) in enumerate([(one, 110), (two, 120), (one, 130)], 50):
        rows = changes([version, version], [lsn, lsn], "IT") | {"xid": pa.array([xid - 1, xid], pa.int64())}
        log.register([log.stage(rows)], log.end(), Lsn(lsn + 5))
    assert log.truncated(1, START) == {50, 52}
    assert log.truncated(1, Lsn(111)) == {52}
    assert log.truncated(2, START) == {51}
    assert log.truncated(3, START) == set()


def test_many_rows_of_one_relation_make_several_row_groups(log: Log) -> None:
    version = log.relation(relation(1, "id"), START).id
    count = 150_000
    columns = changes([version], [100])
    many = {name: column.take(pa.array(np.zeros(count, np.int64))) for name, column in columns.items()}
    log.register([log.stage(many)], START, Lsn(130))
    (segment,) = log.read(START).segments
    metadata = pq.read_metadata(segment.path)
    assert metadata.num_row_groups == 3
    assert max(metadata.row_group(n).num_rows for n in range(3)) <= 65536


def test_a_file_that_is_not_registered_is_not_in_the_log(log: Log) -> None:
    version = log.relation(relation(1, "id"), START).id
    log.stage(changes([version], [100]))
    assert log.read(START) == type(log.read(START))((), START)
    assert log.end() == START


def test_the_changes_that_the_log_has_got_are_counted_even_when_their_segments_are_gone(log: Log, state: State) -> None:
    append(log, [100, 105], 110)
    append(log, [110], 120)
    log.register([], Lsn(120), Lsn(130))
    assert log.trim(Lsn(120)) == 2
    assert state.query("SELECT captured_changes FROM headwater.groups") == [(3,)]


def test_reading_an_empty_stretch_returns_its_end(log: Log) -> None:
    log.register([], START, Lsn(500))
    assert log.read(START).upto == Lsn(500)
    assert log.read(START, upto=Lsn(300)).upto == Lsn(300)
    assert log.read(Lsn(900)).upto == Lsn(900)


def test_a_transaction_at_the_position_asked_for_is_read_again_and_one_before_it_is_not(log: Log) -> None:
    append(log, [100], 110)
    append(log, [110], 120)
    append(log, [120], 130)
    assert [segment.first_lsn for segment in log.read(Lsn(110)).segments] == [Lsn(110), Lsn(120)]
    assert [segment.first_lsn for segment in log.read(Lsn(100), upto=Lsn(120)).segments] == [Lsn(100), Lsn(110)]
    assert log.read(Lsn(100), upto=Lsn(115)).upto == Lsn(115)


def test_a_batch_is_cut_between_segments_and_the_next_goes_on_there(log: Log) -> None:
    for lsn in range(100, 200, 10):
        append(log, [lsn, lsn + 5], lsn + 10)
    seen, position = [], START
    while (batch := log.read(position, max_rows=6)).segments:
        seen.append([segment.first_lsn.value for segment in batch.segments])
        position = batch.upto
    assert seen == [[100, 110, 120], [130, 140, 150], [160, 170, 180], [190]]
    assert position == log.end()


def test_a_transaction_over_several_segments_is_never_split(log: Log) -> None:
    version = log.relation(relation(1, "id"), START).id
    append(log, [100], 110)
    parts = [log.stage(changes([version] * 5, lsns)) for lsns in ([120] * 5, [120] * 5, [120, 130, 130, 130, 130])]
    log.register(parts, Lsn(110), Lsn(140))
    append(log, [150], 160)
    batches, position = [], START
    while (batch := log.read(position, max_rows=2)).segments:
        batches.append(([segment.rows for segment in batch.segments], batch.upto.value))
        position = batch.upto
    assert batches == [([1], 110), ([5, 5, 5], 140), ([1], 160)]


def test_more_segments_than_a_page_are_all_read(log: Log, state: State, tmp_path: Path) -> None:
    append(log, [100], 101)
    with state.transaction() as connection:
        connection.execute(
            "INSERT INTO headwater.segments (group_name, path, first_lsn, last_lsn, end_lsn, rows, bytes, file_bytes,"
            " first_commit_at, last_commit_at) SELECT 'shop', n || '.parquet', l, l, l + 1, 1, 1, 1, now(), now()"
            " FROM generate_series(1, 1200) n, LATERAL (SELECT '0/65'::pg_lsn + n) AS x(l)"
        )
        connection.execute("UPDATE headwater.groups SET captured_lsn = '0/FFFF'")
    folder = next((tmp_path / "log").rglob("*.parquet")).parent
    for number in range(1, 1201):
        (folder / f"{number}.parquet").touch()
    assert len(log.read(START).segments) == 1201
    (folder / "700.parquet").unlink()
    with pytest.raises(LogGap, match=r"has lost 1 segment\n"):
        log.read(START)


def test_a_relation_gets_a_new_version_only_when_it_differs(log: Log, state: State, tmp_path: Path) -> None:
    first = log.relation(relation(1, "id"), START)
    assert log.relation(relation(1, "id"), START, first) == first
    second = log.relation(relation(1, "id", "name"), Lsn(200), first)
    assert second.id > first.id
    again = Log(state, "shop", str(tmp_path / "log"))
    assert again.relation(relation(1, "id", "name"), Lsn(300), second) == second
    assert again.relations([first.id, second.id]) == {first.id: first, second.id: second}


def test_a_version_that_is_newest_only_later_is_not_used_for_an_earlier_commit(log: Log) -> None:
    late = log.relation(relation(1, "id"), Lsn(300))
    early = log.relation(relation(1, "id"), Lsn(200))
    assert early.id > late.id
    assert log.newest(1) == (Lsn(300), late)  # the order is by LSN first
    assert log.newest(1, Lsn(300)) == (Lsn(200), early)


def test_what_is_read_again_has_the_versions_that_it_had(log: Log, state: State, tmp_path: Path) -> None:
    """The first time its versions were noted, and then its segment could not be written."""
    old, new = relation(1, "id"), relation(1, "id", "name")
    versions = [(old, Lsn(200)), (new, Lsn(300)), (old, Lsn(300)), (new, Lsn(300)), (old, Lsn(400))]

    def read(log: Log) -> list[Relation]:
        found: list[Relation] = []
        for each, lsn in versions:
            found.append(log.relation(each, lsn, found[-1] if found else None))
        return found

    first = read(log)
    assert len({each.id for each in first}) == 5  # a version that comes back within a transaction is a new one
    again = Log(state, "shop", str(tmp_path / "log"))
    assert [again.newest(1, lsn) for lsn in (Lsn(200), Lsn(300), Lsn(400))] == [
        None,
        (Lsn(200), first[0]),
        (Lsn(300), first[3]),
    ]
    assert read(again) == first
    early = again.relation(relation(1, "other"), Lsn(250), first[0])
    assert list(again.relations([early.id, first[0].id, first[1].id])) == [first[0].id, early.id, first[1].id]


def test_everything_about_a_column_is_kept(log: Log, state: State, tmp_path: Path) -> None:
    columns = (
        Column("id", 20, -1, True, attnum=1, base=BaseType(20, -1, 0, "bigint"), nullable=False, stamp="7/8"),
        Column(
            "odd é", 1231, 655366, False, 3, BaseType(1700, 655366, 2, "numeric(10,2)[]"), True, "{}", volatile=True
        ),
        Column("gone", 99999, -1, False, 0, None, True, None),
    )
    facts = Facts({16384: 16390}, {99999: ["a", "b"]}, 16387)
    full = Relation(0, 7, TableName("Sales", "t"), "i", columns, facts, 3, "its rows were rewritten")
    kept = log.relation(full, START)
    again = Log(state, "shop", str(tmp_path / "log"))
    (found,) = again.relations([kept.id]).values()
    assert found == kept == replace(full, id=kept.id)
    assert (found.facts, found.reason, found.columns[0].stamp) == (facts, full.reason, "7/8")
    assert isinstance(found.columns[0].base, BaseType)
    moved = replace(full, facts=Facts({16384: 20000}))
    assert again.relation(moved, Lsn(200), kept) == kept  # in another file, with the same columns
    assert Log(state, "shop", str(tmp_path / "log")).relations([kept.id])[kept.id].facts == moved.facts


def test_versions_that_count_without_a_row_are_found_by_their_place(log: Log) -> None:
    streamed = log.relation(relation(1, "id"), Lsn(200))
    log.register([], START, Lsn(300))
    assert log.add_from_catalog(relation(1, "id")) == streamed  # known already
    second, other = log.add_from_catalog(relation(1, "id", "name")), log.add_from_catalog(relation(2, "id"))
    log.register([], Lsn(300), Lsn(400))
    third = log.add_from_catalog(relation(1, "id"))
    assert third.id > second.id > streamed.id
    assert log.defined([1, 2, 3], Lsn(0), Lsn(300)) == {}
    assert log.defined([1, 2, 3], Lsn(300), Lsn(400)) == {1: (Lsn(300), second), 2: (Lsn(300), other)}
    assert log.defined([1], Lsn(0), Lsn(900)) == {1: (Lsn(400), third)}
    assert log.newest(1, Lsn(400)) == (Lsn(400), third)  # what commits where it was found comes after it
    assert log.newest(2) == (Lsn(300), other)
    assert log.newest(3) is None
    reported = log.relation(relation(2, "id", "name"), Lsn(450), other, defined=True)
    assert log.defined([2], Lsn(400), Lsn(900)) == {2: (Lsn(450), reported)}
    assert log.newest(2, Lsn(450)) == (Lsn(300), other)


def test_a_tables_generation_is_the_one_in_force_at_its_position(log: Log) -> None:
    first = log.relation(relation(1, "id"), Lsn(200))
    log.relation(replace(relation(1, "id"), generation=1), Lsn(300), first)
    at = [log.generations({1: Lsn(lsn), 2: Lsn(900)}) for lsn in (200, 201, 300, 301)]
    assert at == [{}, {1: 0}, {1: 0}, {1: 1}]


def test_what_one_thread_forgets_another_may_be_adding(log: Log) -> None:
    done = threading.Event()

    def forget() -> None:
        while not done.is_set():
            log.forget()

    with ThreadPoolExecutor() as pool:
        forgetting = pool.submit(forget)
        try:
            versions = [log.add_from_catalog(relation(1, f"c{n}")) for n in range(100)]
        finally:
            done.set()
        forgetting.result()
    assert log.newest(1) == (START, versions[-1])


def test_a_reserved_version_is_a_new_one_and_shows_when_it_is_used(log: Log, state: State) -> None:
    first = log.relation(relation(1, "id"), START)
    id = log.reserve()
    assert id > first.id
    assert state.query("SELECT count(*) FROM headwater.relations") == [(1,)]
    assert log.relation(relation(1, "id"), Lsn(200), first, id) == replace(first, id=id)
    assert log.newest(1) == (Lsn(200), replace(first, id=id))


TS = datetime(2024, 5, 6, 7, 8, 9, 123456, UTC)


def streamed(relations: list[int], xids: list[int]) -> dict[str, pa.Array]:
    """Changes of a transaction in progress."""
    return changes(relations, [0] * len(relations)) | {"xid": pa.array(xids, pa.int64())}


def test_a_streamed_transaction_has_its_commit_and_its_aborted_parts_beside_its_files(log: Log, tmp_path: Path) -> None:
    one, two = (log.relation(relation(oid, "id"), START).id for oid in (1, 2))
    files = [
        log.stage(streamed([one, two, one], [7, 8, 9])),
        log.stage(streamed([two, two], [8, 8])),
        log.stage(streamed([one, two], [7, 7])),
    ]
    left, versions = log.leave_out(files, np.array([8, 99]))
    assert versions == {one, two}
    log.register(log.settle(left, Committed(Lsn(150), TS, 5), {one: one, two: two}), START, Lsn(160))
    first, second = log.read(START).segments
    assert (first.commit, second.commit) == (Committed(Lsn(150), TS, 5),) * 2
    assert (first.aborted, second.aborted) == (frozenset({8}), frozenset())
    assert (first.first_lsn, first.last_lsn, first.end_lsn) == (Lsn(150), Lsn(150), Lsn(160))
    assert {part.relation_id: part.rows for part in first.parts} == {one: 2}  # of the other one all are aborted
    assert {part.relation_id: part.rows for part in second.parts} == {one: 1, two: 1}
    assert (first.rows, second.rows) == (2, 2)
    assert {part.first_lsn for part in first.parts} == {Lsn(150)}
    assert pq.read_table(first.path).num_rows == 3
    assert len(list((tmp_path / "log").rglob("*.parquet"))) == 2  # that of which nothing was left is deleted


def test_a_relation_version_that_turned_out_another_is_renamed_in_the_files(log: Log, tmp_path: Path) -> None:
    one, two = (log.relation(relation(oid, "id"), START).id for oid in (1, 2))
    files = [log.stage(streamed([one, two, one], [7, 7, 7])), log.stage(streamed([two], [7]))]
    new = log.relation(relation(1, "id", "name"), Lsn(150)).id
    log.register(log.settle(files, Committed(Lsn(150), TS, 5), {one: new, two: two}), START, Lsn(160))
    first, second = log.read(START).segments
    assert {part.relation_id: part.rows for part in first.parts} == {new: 2, two: 1}
    assert pq.read_table(first.path)["relation"].to_pylist() == [new, new, two]
    assert pq.read_table(first.path).schema.equals(SCHEMA)
    assert [part.relation_id for part in second.parts] == [two]
    assert len(list((tmp_path / "log").rglob("*.parquet"))) == 2


def test_a_new_writer_sweeps_away_what_others_have_not_registered(log: Log, state: State, tmp_path: Path) -> None:
    append(log, [100], 110)
    version = log.relation(relation(1, "id"), START).id
    late = log.stage(changes([version], [110]))
    assert Log(state, "shop", str(tmp_path / "log")).sweep() == 1
    with pytest.raises(Unreachable, match="was deleted before it was registered"):
        log.register([late], Lsn(110), Lsn(120))
    assert log.end() == Lsn(110)
    (segment,) = log.read(START).segments
    assert [Path(segment.path)] == list((tmp_path / "log").rglob("*.parquet"))
    assert log.sweep() == 0


def test_groups_of_other_sources_that_share_name_and_folder_are_left_alone(
    log: Log, other_database: str, tmp_path: Path
) -> None:
    append(log, [100], 110)
    with closing(State.connect(other_database)) as elsewhere:
        elsewhere.migrate()
        elsewhere.ensure_group("shop", "2/db", "s", "p")
        elsewhere.begin_capture("shop", START)
        other = Log(elsewhere, "shop", str(tmp_path / "log"))
        assert other.sweep() == other.collect_orphans(timedelta(0)) == 0
        append(other, [100], 110)
        assert log.sweep() == 0
        assert len(other.read(START).segments) == len(log.read(START).segments) == 1
    assert len({place(source, "g") for source in ("1/a", "1/a-b", "1/a.b", "1/a/b", "1/~", "1/..", "12/a")}) == 7
    assert not [
        each for each in ("1/a/b", "1/..", "1/%2F") if re.search(r"[^\w~-]", place(each, "g").removesuffix("/g"))
    ]


def test_a_staged_file_that_is_not_wanted_is_discarded(log: Log, tmp_path: Path) -> None:
    version = log.relation(relation(1, "id"), START).id
    log.discard([log.stage(streamed([version], [7]))])
    assert list((tmp_path / "log").rglob("*.parquet")) == []


def test_a_second_writer_is_found_out(log: Log, state: State, tmp_path: Path) -> None:
    other = Log(state, "shop", str(tmp_path / "log"))
    append(other, [100], 110)
    version = log.relation(relation(1, "id"), START).id
    staged = log.stage(changes([version], [100]))
    with pytest.raises(OperatorMustAct, match="another process"):
        log.register([staged], START, Lsn(110))
    assert len(log.read(START).segments) == 1


def test_only_files_never_registered_are_collected(log: Log, tmp_path: Path) -> None:
    append(log, [100], 110)
    version = log.relation(relation(1, "id"), START).id
    log.stage(changes([version], [110]))
    assert log.orphans() == []  # so young that its writer may still register it
    assert log.collect_orphans(timedelta(0)) == 1
    (segment,) = log.read(START).segments
    assert [Path(segment.path)] == list((tmp_path / "log").rglob("*.parquet"))


def test_trimming_deletes_what_everybody_has_passed_and_refuses_to_read_it(log: Log, tmp_path: Path) -> None:
    for lsn in (100, 110, 120):
        append(log, [lsn], lsn + 10)
    assert log.trim(Lsn(125), retention=timedelta(hours=1)) == 0
    assert log.trim(Lsn(125)) == 2
    assert len(list((tmp_path / "log").rglob("*.parquet"))) == 1
    assert [segment.first_lsn for segment in log.read(Lsn(120)).segments] == [Lsn(120)]
    with pytest.raises(LogGap, match="begins at 0/78"):
        log.read(Lsn(110))


def test_the_oldest_segments_of_a_size_end_where_the_last_of_them_was_registered(log: Log) -> None:
    for lsn in (100, 110, 120):
        append(log, [lsn], lsn + 10)
    one = log.size() // 3
    version = log.relation(relation(1, "id"), START).id
    log.register([log.stage(changes([version], [lsn])) for lsn in (130, 131)], log.end(), Lsn(140))
    assert log.size() == 5 * one
    found = [log.end_of_oldest(size) for size in (1, one, one + 1, 3 * one, 3 * one + 1, 5 * one, 5 * one + 1)]
    assert found == [Lsn(110), Lsn(110), Lsn(120), Lsn(130), Lsn(140), Lsn(140), None]


def test_a_log_goes_on_without_segments_that_are_gone_and_begins_after_them_once_everybody_is_past(
    log: Log, tmp_path: Path
) -> None:
    one, two = (log.relation(relation(oid, "id"), START).id for oid in (1, 2))
    for lsn, version in ((100, one), (110, two), (120, one)):
        append(log, [lsn], lsn + 10, [version])
    assert log.missing() == []
    first, second, third = sorted((tmp_path / "log").rglob("*.parquet"))
    second.unlink()
    assert log.missing() == [second.name]
    assert log.changed([second.name]) == [(2, Lsn(110), Lsn(120))]
    with pytest.raises(LogGap, match=r"has lost 1 segment\n"):
        log.read(START)
    log.lose([second.name])
    assert [segment.path for segment in log.read(START).segments] == [str(first), str(third)]
    assert log.begin() == START
    log.trim(Lsn(119), retention=timedelta(hours=1))
    assert log.begin() == START  # a reader may still be before the gap
    log.trim(Lsn(120), retention=timedelta(hours=1))
    assert log.begin() == Lsn(120)
    assert log.end() == Lsn(130)


def test_a_folder_that_is_deleted_while_it_is_written_to_is_made_again(log: Log, tmp_path: Path) -> None:
    append(log, [100], 110)
    shutil.rmtree(tmp_path / "log")
    append(log, [110], 120)
    assert [segment.first_lsn for segment in log.read(Lsn(110)).segments] == [Lsn(110)]
    assert len(log.missing()) == 1


def test_a_group_keeps_its_log_when_it_is_moved_and_refuses_another_one(log: Log, state: State, tmp_path: Path) -> None:
    log.claim()
    before = recorded(state)
    assert before.place == str(tmp_path / "log")
    log.claim()
    assert recorded(state) == before
    elsewhere = Log(state, "shop", str(tmp_path / "elsewhere"))
    with pytest.raises(
        OperatorMustAct, match=f"has its log in '{tmp_path}/log' .*, and there is no log of it in"
    ) as caught:
        elsewhere.claim()
    assert f"set `log` back to '{tmp_path}/log'" in caught.value.hint
    assert "headwater group drop shop" in caught.value.hint
    assert not (tmp_path / "elsewhere").exists()
    shutil.move(tmp_path / "log", tmp_path / "elsewhere")
    elsewhere.claim()
    assert recorded(state) == before._replace(place=str(tmp_path / "elsewhere"))


def test_a_copy_of_a_log_is_refused_while_the_first_is_there_and_another_path_to_it_is_not(
    log: Log, state: State, tmp_path: Path
) -> None:
    log.claim()
    before = recorded(state)
    shutil.copytree(tmp_path / "log", tmp_path / "copy" / "log")
    copied = Log(state, "shop", str(tmp_path / "copy" / "log"))
    with pytest.raises(OperatorMustAct, match=f"has its log in '{tmp_path}/log' .* '{tmp_path}/copy/log' is a copy of"):
        copied.claim()
    assert copied.strange() is not None
    assert recorded(state) == before
    (tmp_path / "link").symlink_to(tmp_path / "log")
    Log(state, "shop", str(tmp_path / "link")).claim()
    log.claim()
    shutil.rmtree(tmp_path / "log")
    copied.claim()
    assert recorded(state) == before._replace(place=str(tmp_path / "copy" / "log"))


def test_a_log_that_was_deleted_gets_a_new_id_and_one_that_comes_back_is_refused(
    log: Log, state: State, tmp_path: Path
) -> None:
    log.claim()
    before = recorded(state)
    shutil.move(tmp_path / "log", tmp_path / "kept")
    log.claim()
    now = recorded(state)
    assert now.place == before.place
    assert now.id != before.id
    shutil.rmtree(tmp_path / "log")
    shutil.move(tmp_path / "kept", tmp_path / "log")
    with pytest.raises(OperatorMustAct, match=f"is another one \\(id {before.id}\\)") as caught:
        log.claim()
    assert f"put the log with id {now.id} back, or delete this one" in caught.value.hint


def test_processes_that_claim_a_log_at_once_agree_on_its_id(log: Log, state: State, tmp_path: Path) -> None:
    def claim(_: int) -> None:
        with closing(State.connect(state.url)) as own:
            Log(own, "shop", str(tmp_path / "log")).claim()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(claim, range(8)))
    assert log.strange() is None


def recorded(state: State) -> Location:
    row = state.group("shop")
    assert row is not None
    assert row.log is not None
    return row.log


def test_a_log_path_that_cannot_be_a_folder_is_refused(state: State, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    log = Log(state, "shop", str(tmp_path / "file"))
    version = log.relation(relation(1, "id"), START).id
    with pytest.raises(ConfigError, match="cannot be written"):
        log.stage(changes([version], [100]))


def test_a_log_may_live_in_an_object_store(state: State, object_store: str) -> None:
    log = Log(state, "shop", f"{object_store}/log")
    append(log, [100], 110)
    version = log.relation(relation(1, "id"), START).id
    staged = log.stage(changes([version], [110]))
    assert log.leave_out([staged], np.array([99]))[1] == {version}  # it can be read there
    (segment,) = log.read(START).segments
    assert log.size() == filesystem(segment.path).get_file_info(inside(segment.path)).size
    assert segment.path.startswith(f"{object_store}/log/")
    assert pq.read_table(inside(segment.path), filesystem=filesystem(segment.path)).num_rows == 1
    assert Log(state, "shop", f"{object_store}/log").collect_orphans(timedelta(0)) == 1
    assert log.trim(Lsn(110)) == 1
    assert log.orphans(timedelta(0)) == []
    log.claim()
    assert Log(state, "shop", f"{object_store}/log").strange() is None
    append(log, [110], 120)
    store = filesystem(segment.path)
    store.delete_dir_contents(inside(f"{object_store}/log"))
    assert len(log.missing()) == 1
    log.claim()
    assert log.strange() is None
    append(log, [120], 130)
    assert log.remove() == 1
    assert log.orphans(timedelta(0)) == []


@pytest.fixture
def object_store(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    for name, value in {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    admin = {"access_key": "key", "secret_key": "secret", "endpoint_override": f"{host}:{port}", "scheme": "http"}
    S3FileSystem(**admin, allow_bucket_creation=True).create_dir("bucket")
    yield "s3://bucket"
    server.stop()


def test_what_was_registered_together_is_delivered_together(log: Log) -> None:
    """A large transaction's file and a later one's share a registration: a cut between them would lose the second."""
    version = log.relation(relation(1, "id"), START).id
    large, small = log.stage(changes([version] * 5, [150] * 5)), log.stage(changes([version], [200]))
    log.register([large, small], log.end(), Lsn(300))
    batch = log.read(START, max_rows=4)
    assert [segment.last_lsn for segment in batch.segments] == [Lsn(150), Lsn(200)]
    assert batch.upto == Lsn(300)
