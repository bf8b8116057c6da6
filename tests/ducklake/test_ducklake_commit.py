"""Commits written by SQL, judged by DuckDB's own extension on both kinds of catalog."""

from __future__ import annotations

import threading
from dataclasses import replace

import numpy as np
import pytest
from lakebench import COLUMNS, Bench, T, at

from headwater.change import Lsn, TableName
from headwater.ducklake.model import PlannedCommit, TableChange
from headwater.ducklake.opening import open_lake
from headwater.errors import AlreadyDelivered, CommitConflict, OperatorMustAct, TableError


def test_a_new_table_is_first_seen_with_all_its_rows(bench: Bench) -> None:
    assert bench.sql("SELECT count(*) FROM {l}.snapshots()") == [(1,)]
    snapshot = bench.create([(1, "a"), (2, None)])
    assert bench.rows() == [(1, "a"), (2, None)]
    assert bench.sql("SELECT snapshot_id, changes::VARCHAR FROM {l}.snapshots() ORDER BY 1")[1:] == [
        (
            snapshot,
            "{schemas_created=[public], tables_created=[public.t], tables_inserted_into=[1]}".replace(
                "[1]", f"[{bench.table().id}]"
            ),
        )
    ]


def test_every_snapshot_is_seen_by_a_reader_that_was_attached_before(bench: Bench) -> None:
    seen = {bench.create([(1, "a"), (2, "b"), (3, "c")]): [(1, "a"), (2, "b"), (3, "c")]}
    seen[bench.apply(insert=[(4, "d")])] = [(1, "a"), (2, "b"), (3, "c"), (4, "d")]
    seen[bench.apply(update={1: "A"}, delete=[2])] = [(1, "A"), (3, "c"), (4, "d")]
    seen[bench.apply(update={1: "AA"}, delete=[4], inline_limit=0)] = [(1, "AA"), (3, "c")]
    seen[bench.apply(delete=[3], inline_limit=0)] = [(1, "AA")]
    assert bench.rows() == [(1, "AA")]
    for snapshot, rows in seen.items():
        assert bench.rows(at=snapshot) == rows


@pytest.mark.parametrize("inline_limit", [1000, 0], ids=["inlined", "delete files"])
def test_the_change_feed_shows_inserts_updates_and_deletes(bench: Bench, inline_limit: int) -> None:
    first = bench.create([(i, f"v{i}") for i in range(10)])
    second = bench.apply(insert=[(10, "v10")], update={1: "u1"}, delete=[2], inline_limit=inline_limit)
    third = bench.apply(update={1: "uu1", 3: "u3"}, delete=[10], inline_limit=inline_limit)
    fourth = bench.apply(delete=[4, 5], inline_limit=inline_limit)
    expected = {
        first: [("insert", i, f"v{i}") for i in range(10)],
        second: [
            ("delete", 2, "v2"),
            ("insert", 10, "v10"),
            ("update_postimage", 1, "u1"),
            ("update_preimage", 1, "v1"),
        ],
        third: [
            ("delete", 10, "v10"),
            ("update_postimage", 1, "uu1"),
            ("update_postimage", 3, "u3"),
            ("update_preimage", 1, "u1"),
            ("update_preimage", 3, "v3"),
        ],
        fourth: [("delete", 4, "v4"), ("delete", 5, "v5")],
    }
    for start in expected:
        for end in expected:
            wanted = [(s, *change) for s, changes in expected.items() if start <= s <= end for change in changes]
            if start <= end:
                assert bench.changes(start, end) == sorted(wanted), (start, end)


@pytest.mark.parametrize("earlier", ["none", "inlined", "file", "both"])
def test_a_file_that_loses_its_last_row_ends_and_its_history_stays(bench: Bench, earlier: str) -> None:
    first = bench.create([(1, "a"), (2, "b"), (3, "c"), (4, "d")])
    wanted = {first: [("insert", i, s) for i, s in [(1, "a"), (2, "b"), (3, "c"), (4, "d")]]}
    if earlier in ("file", "both"):
        wanted[bench.apply(delete=[1], inline_limit=0)] = [("delete", 1, "a")]
    if earlier in ("inlined", "both"):
        wanted[bench.apply(delete=[2])] = [("delete", 2, "b")]
    left = [(i, s) for i, s in bench.rows()]
    before = bench.lake.snapshot().id
    last = bench.apply(delete=[i for i, _ in left])
    wanted[last] = [("delete", i, s) for i, s in left]
    assert bench.rows() == []
    assert bench.live() == []
    assert bench.rows(at=before) == left
    for start in range(first, last + 1):
        for end in range(start, last + 1):
            expected = [(s, *c) for s, changes in wanted.items() if start <= s <= end for c in changes]
            assert bench.changes(start, end) == sorted(expected), (start, end)


def test_truncate_ends_all_files_and_new_rows_may_follow_in_the_same_snapshot(bench: Bench) -> None:
    bench.create([(i, "x") for i in range(5)])
    bench.apply(insert=[(10, "y")])
    before = bench.apply(delete=[3])
    snapshot = bench.commit(bench.truncation(insert=[(1, "new")]))
    assert bench.rows() == [(1, "new")]
    assert [row[0] for row in bench.rows(at=before)] == [0, 1, 2, 4, 10]
    assert [(c, i) for _, c, i, _ in bench.changes(snapshot)] == [
        *[("delete", i) for i in (0, 1, 2, 4, 10)],
        ("insert", 1),
    ]


def test_truncate_of_a_table_that_grew_meanwhile_is_a_conflict(bench: Bench) -> None:
    bench.create([(1, "x")])
    planned = bench.truncation()
    bench.sql("INSERT INTO {l}.public.t VALUES (2, 'y')")
    with pytest.raises(CommitConflict):
        bench.commit(planned)
    assert bench.rows() == [(1, "x"), (2, "y")]


def test_one_snapshot_holds_the_changes_of_many_tables(bench: Bench) -> None:
    other = TableName("public", "o")
    bench.create([(1, "a")])
    bench.create([(1, "b")], name=other)
    one, two = bench.plan(update={1: "A"}), bench.plan(insert=[(2, "B")], name=other)
    both = replace(one, changes=one.changes + two.changes, author="headwater", message="two", extra_info='{"lsn": 1}')
    snapshot = bench.commit(both)
    assert (bench.rows(), bench.rows(other)) == ([(1, "A")], [(1, "b"), (2, "B")])
    assert bench.sql(
        f"SELECT author, commit_message, commit_extra_info FROM {{l}}.snapshots() WHERE snapshot_id = {snapshot}"
    ) == [("headwater", "two", '{"lsn": 1}')]


def test_names_that_need_quoting_work_and_stay_readable_for_conflict_checks(bench: Bench) -> None:
    odd = TableName('we"ird, sch.ema', 'ta,b"le/ü')
    bench.create([(1, "a")], name=odd)
    bench.create([(2, "b")], name=odd._replace(name="plain"))
    assert bench.sql('SELECT id FROM {l}."we""ird, sch.ema"."ta,b""le/ü"') == [(1,)]
    # An extension transaction that has to read our change log to commit.
    bench.sql("BEGIN")
    bench.sql('INSERT INTO {l}."we""ird, sch.ema"."ta,b""le/ü" VALUES (3, NULL)')
    bench.create([(1, "x")], name=TableName("we'b", "t"))
    bench.sql("COMMIT")
    assert bench.sql('SELECT id FROM {l}."we""ird, sch.ema"."ta,b""le/ü" ORDER BY 1') == [(1,), (3,)]


def test_names_that_differ_in_case_only_are_refused(bench: Bench) -> None:
    bench.create([(1, "a")])
    with pytest.raises(TableError, match="differ in case only"):
        bench.create([(1, "a")], name=TableName("public", "T"))
    with pytest.raises(TableError, match="differ in case only"):
        bench.create([(1, "a")], name=TableName("Public", "other"))
    with pytest.raises(TableError, match="differ in case only"):
        bench.lake.new_table(TableName("public", "o"), [*COLUMNS, replace(COLUMNS[1], name="S")])
    assert bench.sql("SELECT count(*) FROM duckdb_tables() WHERE database_name = '{l}'") == [(1,)]


def test_positions_come_true_with_the_commit_and_only_once(bench: Bench) -> None:
    new = bench.lake.new_table(T, COLUMNS)
    create = PlannedCommit(bench.lake.snapshot(), "pg", new_tables=(new,), changes=(TableChange(T),))
    create = at(create, 16384, None, 100, T)
    bench.commit(create)
    (position,) = bench.lake.positions("pg", Lsn).values()
    assert (position.position, position.table_id) == (Lsn(100), bench.table().id)

    step = at(bench.plan(insert=[(1, "a")]), 16384, 100, 200, bench.table().id)
    bench.commit(step)
    with pytest.raises(AlreadyDelivered):
        bench.commit(step)
    assert bench.rows() == [(1, "a")]
    assert bench.lake.positions("pg", Lsn)[16384].position == Lsn(200)
    assert bench.lake.positions("another source", Lsn) == {}


def test_positions_alone_make_no_snapshot(bench: Bench) -> None:
    newest = bench.create([(1, "a")])
    nothing = PlannedCommit(bench.lake.snapshot(), "pg")
    assert bench.commit(at(nothing, 1, None, 10, bench.table().id)) == newest
    assert bench.commit(at(nothing, 1, 10, 20, bench.table().id)) == newest
    with pytest.raises(AlreadyDelivered):
        bench.commit(at(nothing, 1, 10, 30, bench.table().id))
    with pytest.raises(AlreadyDelivered):
        bench.commit(at(nothing, 1, None, 30, bench.table().id))
    with pytest.raises(OperatorMustAct, match="would go back"):  # what came after it would come twice
        bench.commit(at(nothing, 1, 20, 10, bench.table().id))
    assert bench.lake.positions("pg", Lsn)[1].position == Lsn(20)


def test_a_failure_inside_the_transaction_leaves_nothing(bench: Bench) -> None:
    bench.create([(1, "a")])
    before = bench.lake.snapshot()
    broken = replace(bench.plan(insert=[(2, "b")]), positions={1: at(bench.plan(), 1, 7, 8, 1).positions[1]})
    with pytest.raises(AlreadyDelivered):  # found after the snapshot row was inserted
        bench.commit(broken)
    assert bench.lake.snapshot() == before
    assert bench.rows() == [(1, "a")]


def test_two_committers_take_turns(bench: Bench, lake_url: str) -> None:
    bench.create()
    names = [TableName("public", name) for name in ("one", "two")]
    failures: list[BaseException] = []

    def work(name: TableName) -> None:
        try:
            lake = open_lake(lake_url, bench.lake.data_path)
            own = Bench(lake, bench.duck, bench.alias)
            own.create(name=name)
            for i in range(15):
                own.apply(insert=[(i, "x")], update={i - 1: "u"} if i else None, name=name)
            lake.close()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    wanted = [(i, "u") for i in range(14)] + [(14, "x")]
    assert [bench.rows(name) for name in names] == [wanted, wanted]
    assert bench.lake.snapshot().id == 1 + 2 * 16


def test_more_deletes_than_fit_the_catalog_become_a_delete_file(bench: Bench) -> None:
    bench.create([(i, "x") for i in range(3000)])
    bench.apply(delete=range(0, 600))
    assert bench.live()[0].delete_file is None
    bench.apply(delete=range(600, 1200))
    (live,) = bench.live()
    assert live.delete_file is not None
    assert (live.delete_file.count, len(live.inlined_positions)) == (1200, 0)
    bench.apply(delete=[2000])
    (live,) = bench.live()
    assert live.deleted_count == 1201
    assert [row[0] for row in bench.rows()] == [i for i in range(1200, 3000) if i != 2000]


def test_files_are_listed_with_everything_delivery_needs(bench: Bench) -> None:
    bench.create([(i, chr(97 + i)) for i in range(5)])
    bench.apply(insert=[(100, "z"), (200, "y")], delete=[1, 3])
    bench.apply(delete=[200], inline_limit=0)
    table = bench.table()
    first, second = bench.lake.files([table.id], bench.lake.snapshot(), {table.id: [table.columns[0].id]})
    assert (first.record_count, first.row_id_start, first.bounds) == (5, 0, {1: ("0", "4")})
    assert first.inlined_positions.tolist() == [1, 3]
    assert set(first.inlined_snapshots.tolist()) == {2}
    assert (second.row_id_start, second.bounds) == (5, {1: ("100", "200")})
    assert second.delete_file is not None
    assert (second.delete_file.count, second.delete_file.begin_snapshot) == (1, 3)
    assert np.array_equal(first.inlined_positions, [1, 3])
