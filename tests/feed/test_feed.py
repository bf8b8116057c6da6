"""The changes of a lake's table, as DuckDB's own extension wrote it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headwater.change import TableName
from headwater.ducklake.extension import attach
from headwater.ducklake.url import parse_lake_url
from headwater.errors import Outdated, TableError
from headwater.feed.source import Bound
from tests.feed.feedbench import ALL, FeedBench, Rows, duckdb_with_lakes, events_of
from tests.feed.histories import CLEANUP, FLUSH, MERGE, REWRITE

SQLITE = pytest.mark.parametrize("feed_url", ["sqlite"], indirect=True)
CREATE = "CREATE TABLE {l}.t (id INTEGER, v VARCHAR)"


def test_inserts_updates_and_deletes_of_files(bench: FeedBench) -> None:
    bench.inline(0)
    start = bench.do(CREATE)
    insert = bench.do("INSERT INTO {l}.t VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    update = bench.do("UPDATE {l}.t SET v = 'B' WHERE id = 2")
    delete = bench.do("DELETE FROM {l}.t WHERE id = 3")
    assert bench.events(start, delete) == Rows(
        [
            (insert, True, 1, "a"),
            (insert, True, 2, "b"),
            (insert, True, 3, "c"),
            (update, False, 2, "b"),
            (update, True, 2, "B"),
            (delete, False, 3, "c"),
        ]
    )
    for span, events in bench.check_all().items():
        assert events == bench.duckdb_events(*span)


def test_inserts_updates_and_deletes_in_the_catalog(bench: FeedBench) -> None:
    bench.inline(10)
    start = bench.do(CREATE)
    bench.sql("INSERT INTO {l}.t VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    bench.sql("UPDATE {l}.t SET v = 'B' WHERE id = 2", "DELETE FROM {l}.t WHERE id = 3")
    bench.sql("INSERT INTO {l}.t SELECT i, 'many' FROM range(10, 40) r(i)", "DELETE FROM {l}.t WHERE id % 7 = 0")
    for span, events in bench.check_all(since=start).items():
        assert events == bench.duckdb_events(*span)


def test_a_row_that_a_transaction_made_and_deleted_stays_unseen_when_more_is_deleted_from_its_file(
    bench: FeedBench,
) -> None:
    bench.inline(4)
    start = bench.do(CREATE)
    bench.together("INSERT INTO {l}.t SELECT i, 'a' FROM range(6) r(i)", "UPDATE {l}.t SET v = 'b' WHERE id = 5")
    bench.sql("DELETE FROM {l}.t WHERE id = 1", FLUSH, "DELETE FROM {l}.t WHERE id = 2", FLUSH)
    bench.check_all(since=start)


def test_rows_that_went_into_the_catalog_long_after_a_column_was_added_have_its_values(bench: FeedBench) -> None:
    bench.inline(0)
    start = bench.do(CREATE)
    bench.sql("ALTER TABLE {l}.t ADD COLUMN n INTEGER DEFAULT 7", "INSERT INTO {l}.t VALUES (1, 'a', 0)")
    bench.inline(10)
    bench.sql("INSERT INTO {l}.t VALUES (2, 'b', 1)", "UPDATE {l}.t SET v = 'A' WHERE id = 1")
    bench.check_all(since=start)


def test_a_flush_a_merge_and_a_rewrite_are_no_changes(bench: FeedBench) -> None:
    bench.inline(10)
    start = bench.do(CREATE)
    bench.sql("INSERT INTO {l}.t VALUES (1, 'a'), (2, 'b'), (3, 'c')", "INSERT INTO {l}.t VALUES (4, 'd')")
    bench.sql("UPDATE {l}.t SET v = 'B' WHERE id = 2", "DELETE FROM {l}.t WHERE id = 3")
    wanted = bench.check_all(since=start)
    last = bench.newest
    for each in (FLUSH, "INSERT INTO {l}.t SELECT i, 'many' FROM range(10, 40) r(i)", MERGE, REWRITE):
        bench.sql(each)
        assert {span: events for span, events in bench.check_all(since=start).items() if span[1] <= last} == wanted
    assert [event[:2] for event in bench.events(last, bench.newest)] == [(last + 2, True)] * 30


@SQLITE
def test_files_that_were_merged_are_read_by_the_snapshots_of_their_rows(bench: FeedBench) -> None:
    bench.inline(0)
    start = bench.do(CREATE)
    for id_ in range(6):
        bench.sql(f"INSERT INTO {{l}}.t VALUES ({id_}, 'a'), ({id_ + 10}, 'b')")
    wanted = bench.check_all(since=start)
    merged = bench.do(MERGE)
    assert len(bench.changes(start, merged).units) == 1
    assert {span: events for span, events in bench.check_all(since=start).items() if span[1] < merged} == wanted
    deleted = bench.do("DELETE FROM {l}.t WHERE id IN (2, 13)")
    assert bench.events(merged, deleted) == Rows([(deleted, False, 2, "a"), (deleted, False, 13, "b")])
    bench.check_all(since=start)


@SQLITE
def test_rows_that_were_rewritten_and_then_merged_with_others_are_not_delivered_again(bench: FeedBench) -> None:
    bench.inline(0)
    bench.sql(CREATE, "INSERT INTO {l}.t SELECT i, 'a' FROM range(20) r(i)", "INSERT INTO {l}.t VALUES (50, 'x')")
    before = bench.do("DELETE FROM {l}.t WHERE id < 5")
    bench.sql(REWRITE)
    insert = bench.do("INSERT INTO {l}.t VALUES (60, 'y')")
    merged = bench.do(MERGE)
    assert bench.events(before, merged) == Rows([(insert, True, 60, "y")])
    bench.check_all(since=1)


def test_a_row_that_a_transaction_made_and_deleted_is_no_event(bench: FeedBench) -> None:
    for limit in (0, 10):
        bench.sql("DROP TABLE IF EXISTS {l}.t")
        bench.inline(limit)
        start = bench.do(CREATE)
        at = bench.together(
            "INSERT INTO {l}.t VALUES (1, 'a'), (2, 'b')",
            "UPDATE {l}.t SET v = 'B' WHERE id = 2",
            "DELETE FROM {l}.t WHERE id = 1",
        )
        assert bench.events(start, at) == Rows([(at, True, 2, "B")])
        later = bench.together("UPDATE {l}.t SET v = 'C' WHERE id = 2", "DELETE FROM {l}.t WHERE id = 2")
        assert bench.events(at, later) == Rows([(later, False, 2, "B")])
        bench.check_all(since=start)


def test_two_merges_in_one_transaction(bench: FeedBench) -> None:
    """https://github.com/duckdb/ducklake/issues/1387: DuckDB's own feed reports such an update several times."""
    merge = (
        "MERGE INTO {{l}}.t USING (VALUES ({0}, '{1}')) s(id, v) ON t.id = s.id"
        " WHEN MATCHED THEN UPDATE SET v = s.v WHEN NOT MATCHED THEN INSERT VALUES (s.id, s.v)"
    )
    for limit in (0, 10):
        bench.sql("DROP TABLE IF EXISTS {l}.t")
        bench.inline(limit)
        start = bench.do(CREATE)
        insert = bench.do("INSERT INTO {l}.t VALUES (1, 'a'), (2, 'b')")
        at = bench.together(merge.format(1, "A"), merge.format(2, "B"))
        news = [(at, False, 1, "a"), (at, True, 1, "A"), (at, False, 2, "b"), (at, True, 2, "B")]
        assert bench.events(insert, at) == Rows(news)
        bench.check_all(since=start)


@SQLITE
def test_row_ids_that_are_used_again_do_no_harm(bench: FeedBench) -> None:
    for limit in (0, 10):
        bench.sql("DROP TABLE IF EXISTS {l}.t")
        bench.inline(limit)
        start = bench.do(CREATE)
        insert = bench.do("INSERT INTO {l}.t VALUES (1, 'a')")
        delete = bench.do("DELETE FROM {l}.t WHERE id = 1")
        with bench.lake._catalog.transaction(write=True) as tx:  # as it was seen in a lake of many writers
            tx.execute("UPDATE ducklake_table_stats SET next_row_id = 0")
        again = bench.do("INSERT INTO {l}.t VALUES (1, 'b')")
        wanted = [(insert, True, 1, "a"), (delete, False, 1, "a"), (again, True, 1, "b")]
        assert bench.events(start, again) == Rows(wanted)


def test_truncate_ends_files_and_rows_in_the_catalog(bench: FeedBench) -> None:
    bench.inline(5)
    bench.sql(CREATE, "INSERT INTO {l}.t SELECT i, 'a' FROM range(20) r(i)", "INSERT INTO {l}.t VALUES (50, 'x')")
    before = bench.do("DELETE FROM {l}.t WHERE id < 3")
    at = bench.do("TRUNCATE {l}.t")
    assert {event[:2] for event in bench.events(before, at)} == {(at, False)}
    assert bench.events(before, at).total() == 18
    for span, events in bench.check_all(since=1).items():
        assert events == bench.duckdb_events(*span)


def replacing_delete_files(bench: FeedBench, deletes: dict[int, list[int]]) -> None:
    """Each lists all rows deleted so far, by snapshot, and does not say when: as older clients wrote them."""
    path = bench.at(bench.newest).table.path
    ends = [*list(deletes)[1:], None]
    with bench.lake._catalog.transaction(write=True) as tx:
        ((data_file, name),) = tx.rows("SELECT data_file_id, path FROM ducklake_data_file ORDER BY 1 LIMIT 1")
        tx.execute("DELETE FROM ducklake_delete_file")
        for (begin, rows), end in zip(deletes.items(), ends, strict=True):
            table = pa.table({"file_path": pa.repeat(path + name, len(rows)), "pos": rows})
            pq.write_table(table, f"{path}{begin}-delete.parquet")
            tx.insert(
                "ducklake_delete_file",
                "delete_file_id, table_id, begin_snapshot, end_snapshot, data_file_id, path, path_is_relative, format,"
                " delete_count, file_size_bytes, footer_size",
                [
                    (
                        1000 + begin,
                        1,
                        begin,
                        end,
                        data_file,
                        f"{begin}-delete.parquet",
                        True,
                        "parquet",
                        len(rows),
                        1,
                        None,
                    )
                ],
            )


@SQLITE
def test_delete_files_that_replace_each_other(bench: FeedBench) -> None:
    bench.inline(0)
    start = bench.do(CREATE)
    bench.sql("INSERT INTO {l}.t SELECT i, 'a' FROM range(9) r(i)")
    first, second, third = (bench.do(f"DELETE FROM {{l}}.t WHERE id = {id_}") for id_ in (2, 4, 6))
    replacing_delete_files(bench, {first: [2], second: [2, 4], third: [2, 4, 6]})
    wanted = [(first, False, 2, "a"), (second, False, 4, "a"), (third, False, 6, "a")]
    assert bench.events(first - 1, third) == Rows(wanted)
    bench.check_all(since=start)


@SQLITE
def test_an_expired_delete_comes_before_what_was_inserted_afterwards(bench: FeedBench) -> None:
    """Which snapshot deleted the row is no longer known; the row that took its key must stay."""
    bench.inline(0)
    bench.sql(CREATE)
    before = bench.do("INSERT INTO {l}.t SELECT i, 'a' FROM range(9) r(i)")
    gone = bench.do("DELETE FROM {l}.t WHERE id = 2")
    again = bench.do("INSERT INTO {l}.t VALUES (2, 'again')")
    last = bench.do("DELETE FROM {l}.t WHERE id = 4")
    replacing_delete_files(bench, {gone: [2], last: [2, 4]})
    bench.sql(f"CALL ducklake_expire_snapshots('{{l}}', versions => [{gone}, {again}])")
    with bench.lake.reading() as tx:
        assert tx.rows("SELECT begin_snapshot FROM ducklake_delete_file") == [(last,)]
    events = bench.check(before, last)
    assert events == Rows([(before + 1, False, 2, "a"), (again, True, 2, "again"), (before + 1, False, 4, "a")])


@pytest.mark.parametrize("feed_url", ["postgres"], indirect=True)
def test_a_delete_that_duckdb_had_to_commit_again_is_an_event_of_its_real_snapshot(
    bench: FeedBench, feed_url: str
) -> None:
    """Its delete file has the number that was expected: from then on, older snapshots show the row as deleted."""
    bench.inline(0)
    bench.sql(CREATE, "CREATE TABLE {l}.other (id INTEGER)", "INSERT INTO {l}.t SELECT i, 'a' FROM range(9) r(i)")
    first = bench.do("DELETE FROM {l}.t WHERE id = 1")
    without_one = bench.shown(first)
    with duckdb_with_lakes() as other:
        attach(other, parse_lake_url(feed_url), "o")
        bench.sql("BEGIN", "DELETE FROM {l}.t WHERE id = 2")
        other.execute("INSERT INTO o.other VALUES (1)")
        other.execute("INSERT INTO o.other VALUES (2)")
        read = bench.newest
        bench.sql("COMMIT")
    at = bench.newest
    assert bench.shown(read) == bench.shown(at) != without_one, "which no client can have read there"
    assert bench.events(read, at) == bench.events(first, at) == Rows([(at, False, 2, "a")])
    later = bench.do("DELETE FROM {l}.t WHERE id = 3")
    assert bench.events(at, later) == Rows([(later, False, 3, "a")])
    for after in range(first, read + 1):
        assert bench.check(after, later) == Rows([(at, False, 2, "a"), (later, False, 3, "a")])
    bench.check_all(since=first, shown=dict.fromkeys(range(first, read + 1), without_one))


@SQLITE
def test_deletion_vectors_are_read_but_not_followed(bench: FeedBench) -> None:
    bench.inline(0)
    bench.sql("CALL {l}.set_option('write_deletion_vectors', true)", CREATE)
    insert = bench.do("INSERT INTO {l}.t SELECT i, 'a' FROM range(70_000) r(i)")
    delete = bench.do(
        "DELETE FROM {l}.t WHERE id % 1000 = 7 OR id BETWEEN 65_000 AND 66_000"
    )  # runs, and more than 16 bits
    assert [path.suffix for path in Path(bench.lake.data_path).rglob("*delete*")] == [".puffin"]
    assert bench.scanned(delete, bench.at(delete).table.columns) == bench.shown(delete)
    with pytest.raises(TableError, match="deletion vectors") as raised:
        bench.events(insert, delete)
    assert "write_deletion_vectors" in raised.value.hint
    bench.sql("CALL {l}.set_option('write_deletion_vectors', false)")
    rewritten = bench.do(REWRITE)
    assert bench.events(delete, rewritten) == Rows()
    again = bench.do("DELETE FROM {l}.t WHERE id = 1")
    assert bench.check(rewritten, again) == Rows([(again, False, 1, "a")])


def test_snapshots_between_may_be_expired(bench: FeedBench) -> None:
    bench.inline(3)
    first = bench.do("CREATE TABLE {l}.t AS SELECT i::INTEGER AS id, 'a' AS v FROM range(20) r(i)")
    for step in range(4):
        bench.sql(f"INSERT INTO {{l}}.t SELECT i, 'b' FROM range({step * 100}, {step * 100 + 10}) r(i)")
        bench.sql(f"INSERT INTO {{l}}.t VALUES ({step}, 'c')", f"DELETE FROM {{l}}.t WHERE id % 20 = {step}")
        bench.sql("UPDATE {l}.t SET v = v || 'x' WHERE id % 7 = 3")
        bench.sql(REWRITE if step % 2 else MERGE)
    known = bench.snapshots
    shown = {id_: bench.shown(id_) for id_ in known if id_ >= first}
    gone = [id_ for id_ in known if id_ > first and id_ % 3 and id_ != known[-1]]
    bench.sql(f"CALL ducklake_expire_snapshots('{{l}}', versions => {gone})", CLEANUP)
    assert bench.table().at(gone[0]) is None
    with pytest.raises(Outdated, match=f"snapshot {gone[0]} "):
        bench.table().changes(gone[0], bench.table().newest(), ALL)
    spans = bench.check_all(since=first, shown=shown)
    assert (first, known[-1]) in spans
    pieces = bench.in_pieces(first, known[-1], Bound(1, 1))
    assert [each.upto.snapshot for each in pieces] == [id_ for id_ in bench.snapshots if id_ > first]


@SQLITE
def test_a_rewrite_of_which_a_file_has_expired_brings_its_rows(bench: FeedBench) -> None:
    bench.inline(0)
    before = bench.do(CREATE)
    bench.sql("INSERT INTO {l}.t SELECT i, 'a' FROM range(20) r(i)")
    deleted = bench.do("DELETE FROM {l}.t WHERE id < 5")
    rewritten = bench.do(REWRITE)
    bench.sql(f"CALL ducklake_expire_snapshots('{{l}}', versions => [{deleted - 1}, {deleted}])", CLEANUP)
    assert bench.events(before, rewritten) == Rows([(rewritten, True, id_, "a") for id_ in range(5, 20)])
    bench.check_all(since=before)


@SQLITE
def test_a_rewrite_of_which_nothing_but_the_files_is_known_replaces_rows_by_the_same(bench: FeedBench) -> None:
    bench.inline(0)
    bench.sql(CREATE, "INSERT INTO {l}.t SELECT i, 'a' FROM range(20) r(i)")
    before = bench.do("DELETE FROM {l}.t WHERE id < 5")
    rewritten = bench.do(REWRITE)
    last = bench.do("INSERT INTO {l}.t VALUES (50, 'x')")
    bench.sql(f"CALL ducklake_expire_snapshots('{{l}}', versions => [{rewritten}])")
    same = [(rewritten, upsert, id_, "a") for id_ in range(5, 20) for upsert in (False, True)]
    assert bench.check(before, last) == Rows([*same, (last, True, 50, "x")])


def test_the_table_of_an_expired_snapshot_is_not_known(bench: FeedBench) -> None:
    at = bench.do(CREATE)
    bench.sql("INSERT INTO {l}.t VALUES (1, 'a')", "INSERT INTO {l}.t VALUES (2, 'b')")
    assert bench.table().at(at) is not None
    assert bench.table().at(at - 1) is None, "it was not there yet"
    bench.sql("CALL ducklake_expire_snapshots('{l}', older_than => now() + INTERVAL 1 DAY)")
    assert bench.table().at(at) is None
    assert bench.table().at(bench.newest) == bench.table().newest()


def test_a_table_that_is_not_there_is_named(bench: FeedBench) -> None:
    with pytest.raises(TableError, match=r"has no table 'main\.none'") as raised:
        bench.table(TableName("main", "none")).newest()
    assert "schema.table" in raised.value.hint


@SQLITE
def test_a_table_that_was_created_again_is_another_one(bench: FeedBench) -> None:
    bench.sql(CREATE, "INSERT INTO {l}.t VALUES (1, 'a')")
    old = bench.table().newest()
    bench.sql("DROP TABLE {l}.t", CREATE, "INSERT INTO {l}.t VALUES (2, 'b')")
    new = bench.table().newest()
    assert new.table.id != old.table.id
    assert bench.table().at(old.snapshot) == old
    assert bench.scanned(new.snapshot, new.table.columns) == Rows([(2, "b")])
    # Even if one asks for changes since then: they are those of the new table, from its creation on.
    found = bench.table().changes(old.snapshot, new, ALL)
    assert events_of(found.units, new.table.columns) == Rows([(new.snapshot, True, 2, "b")])


@SQLITE
def test_a_renamed_table_keeps_its_files_and_its_id(bench: FeedBench) -> None:
    bench.inline(0)
    bench.sql("CREATE TABLE {l}.a (id INTEGER, v VARCHAR)")
    bench.sql("INSERT INTO {l}.a VALUES (1, 'a')", "ALTER TABLE {l}.a RENAME TO t", "DELETE FROM {l}.t WHERE id = 1")
    newest = bench.table().newest()
    assert bench.at(newest.snapshot - 2, TableName("main", "a")).table.id == newest.table.id
    assert bench.table().at(newest.snapshot - 2) is None
    found = bench.table().changes(newest.snapshot - 2, newest, ALL)
    assert events_of(found.units, newest.table.columns) == Rows([(newest.snapshot, False, 1, "a")])


def test_columns_are_those_of_the_last_snapshot(bench: FeedBench) -> None:
    for limit in (0, 10):
        bench.sql("DROP TABLE IF EXISTS {l}.t")
        bench.inline(limit)
        start = bench.do("CREATE TABLE {l}.t (id SMALLINT, v VARCHAR, gone INTEGER, s STRUCT(a INTEGER, b INTEGER))")
        insert = bench.do("INSERT INTO {l}.t VALUES (1, 'a', 5, {'a': 1, 'b': 2})")
        bench.sql("ALTER TABLE {l}.t DROP COLUMN gone", "ALTER TABLE {l}.t RENAME COLUMN v TO w")
        bench.sql("ALTER TABLE {l}.t ADD COLUMN gone VARCHAR DEFAULT 'new'", "ALTER TABLE {l}.t ADD COLUMN n INTEGER")
        bench.sql("ALTER TABLE {l}.t ALTER id SET DATA TYPE BIGINT", "ALTER TABLE {l}.t DROP COLUMN s.a")
        last = bench.do("ALTER TABLE {l}.t ADD COLUMN s.a VARCHAR")
        columns = bench.at(last).table.columns
        assert [(each.name, each.type) for each in columns] == [
            ("id", "int64"),
            ("w", "varchar"),
            ("s", "struct"),
            ("gone", "varchar"),
            ("n", "int32"),
        ]
        assert bench.events(start, last) == Rows([(insert, True, 1, "a", (("b", 2), ("a", None)), "new", None)])
        bench.check_all(since=start)


VALUES = {
    "BOOLEAN": "true",
    "TINYINT": "-128",
    "SMALLINT": "-32768",
    "INTEGER": "-2147483648",
    "BIGINT": "-9223372036854775808",
    "UTINYINT": "255",
    "USMALLINT": "65535",
    "UINTEGER": "4294967295",
    "UBIGINT": "18446744073709551615",
    "FLOAT": "'nan'",
    "DOUBLE": "'-inf'",
    "DECIMAL(10,2)": "-12.30",
    "DECIMAL(38,5)": "123456789012345678901234567890123.12345",
    "VARCHAR": "'it''s \"ü\" \\ %s %'",
    "JSON": "'{\"a\": [1]}'",
    "BLOB": "'\\x00\\xFF'::BLOB",
    "UUID": "'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'",
    "DATE": "'infinity'",
    "TIME": "'24:00:00'",
    "TIMESTAMP": "'-infinity'",
    "TIMESTAMPTZ": "'2026-01-01 00:00:00.000001+02'",
    "INTEGER[][]": "[[1, 2], NULL, []]",
    "VARCHAR[]": "['a,b', NULL, 'q\"''\\', 'NULL', '']",
    "UUID[]": "['a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11']",
    "STRUCT(a INTEGER, b VARCHAR)": "{'a': 1, 'b': 'it''s'}",
    "STRUCT(k INTEGER)[]": "[{'k': 1}, NULL]",
    "MAP(VARCHAR, STRUCT(x DOUBLE))": "MAP{'k''': {'x': 0.5}}",
}


def test_every_type_in_files_and_in_the_catalog(bench: FeedBench) -> None:
    columns = ", ".join(f'"c{number}%s" {type_}' for number, type_ in enumerate(VALUES))
    for limit in (0, 10):
        bench.sql("DROP TABLE IF EXISTS {l}.t")
        bench.inline(limit)
        bench.sql(f"CREATE TABLE {{l}}.t ({columns})", f"INSERT INTO {{l}}.t VALUES ({', '.join(VALUES.values())})")
        at = bench.do(f"INSERT INTO {{l}}.t VALUES ({', '.join(['NULL'] * len(VALUES))})")
        assert bench.scanned(at, bench.at(at).table.columns) == bench.shown(at)
        assert bool(bench.lake.inlined_counts([bench.at(at).table.id], bench.lake.snapshot())) == bool(limit)


@SQLITE
def test_files_that_were_added_without_field_ids(bench: FeedBench, tmp_path: Path) -> None:
    bench.inline(0)
    start = bench.do(
        "CREATE TABLE {l}.t (id INTEGER, p VARCHAR, q DATE, s STRUCT(a INTEGER, b VARCHAR), m MAP(VARCHAR, INTEGER))"
    )
    bench.duck.execute(
        "COPY (SELECT i::INTEGER AS id, 'x y' AS p, '2026-01-0' || i AS q, {'a': i::INTEGER, 'b': 'z'} AS s,"
        " MAP{'k': i::INTEGER} AS m FROM range(1, 4) r(i))"
        f" TO '{tmp_path}/added' (FORMAT parquet, PARTITION_BY (p, q))"
    )
    bench.sql(f"CALL ducklake_add_data_files('{{l}}', 't', '{tmp_path}/added/**/*.parquet', hive_partitioning => true)")
    bench.sql("ALTER TABLE {l}.t RENAME COLUMN p TO pp", "ALTER TABLE {l}.t RENAME s.b TO bb")
    bench.sql("ALTER TABLE {l}.t ADD COLUMN s.c INTEGER", "DELETE FROM {l}.t WHERE id = 2")
    bench.check_all(since=start)
    assert {event[3] for event in bench.events(start, bench.newest)} == {"x y"}
