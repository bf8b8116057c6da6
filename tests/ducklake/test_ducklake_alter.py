"""Columns change while rows go on: DuckDB, attached all along, sees each snapshot in its own shape."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import duckdb
import pytest
from lakebench import Bench, T, at

from headwater.change import Lsn, TableName
from headwater.ducklake.evolution import promotable
from headwater.ducklake.model import Alteration, Field, PlannedCommit, TableChange, numbered
from headwater.errors import CommitConflict, TableError

SQLITE = pytest.mark.parametrize("lake_url", ["sqlite"], indirect=True)
OLD = [(1, "a"), (2, "b"), (3, None)]
REWRITE = "CALL ducklake_rewrite_data_files('{l}', delete_threshold => 0)"
MERGE = "CALL ducklake_merge_adjacent_files('{l}')"


def described(bench: Bench, name: TableName = T) -> list[tuple[str, str]]:
    return [(row[0], row[1]) for row in bench.sql(f'DESCRIBE {{l}}."{name.schema}"."{name.name}"')]


def feed(bench: Bench, start: int, end: int, name: TableName = T) -> list[tuple[Any, ...]]:
    """table_changes with all columns, without the row ids."""
    bench.sql(f'USE {{l}}."{name.schema}"')
    try:
        return sorted(
            (row[0], *row[2:]) for row in bench.sql(f"FROM {{l}}.table_changes('{name.name}', {start}, {end})")
        )
    finally:
        bench.sql("USE memory.main")


@SQLITE
def test_each_change_of_a_column_lands_with_the_rows_around_it(bench: Bench) -> None:
    cases: dict[str, Callable[[Field, Field], tuple[Field, ...]]] = {
        "added": lambda id_, s: (id_, s, Field(3, "more", "int32")),
        "with default": lambda id_, s: (id_, s, Field(3, "more", "int32", initial_default="7")),
        "not null": lambda id_, s: (id_, s, Field(3, "more", "int32", False, initial_default="7")),
        "list": lambda id_, s: (id_, s, Field(3, "more", "list", children=(Field(4, "element", "int32"),))),
        "dropped": lambda id_, _: (id_,),
        "renamed": lambda id_, s: (id_, replace(s, name="text, renamed")),
        "nullable": lambda id_, s: (replace(id_, nullable=True), s),
        "reordered": lambda id_, s: (id_, Field(3, "more", "int32"), s),
    }
    wanted: dict[str, list[tuple[Any, ...]]] = {
        "added": [(1, "a", None), (2, "b", None), (3, None, None), (4, "d", 5)],
        "with default": [(1, "a", 7), (2, "b", 7), (3, None, 7), (4, "d", 5)],
        "not null": [(1, "a", 7), (2, "b", 7), (3, None, 7), (4, "d", 5)],
        "list": [(1, "a", None), (2, "b", None), (3, None, None), (4, "d", [5, None])],
        "dropped": [(1,), (2,), (3,), (4,)],
        "renamed": [*OLD, (4, "d")],
        "nullable": [(1, "a"), (2, "b"), (3, None), (4, "d")],
        "reordered": [(1, None, "a"), (2, None, "b"), (3, None, None), (4, 5, "d")],
    }
    for case, columns_of in cases.items():
        name = TableName("public", case)
        first = bench.create(OLD, name)
        before = described(bench, name)
        columns = columns_of(bench.columns(name)["id"], bench.columns(name)["s"])
        altered = bench.alter(columns, name=name)
        assert (bench.table(name).columns, bench.rows(name)) == (columns, [row for row in wanted[case] if row[0] < 4])
        bench.apply(insert=[row for row in wanted[case] if row[0] == 4], name=name)
        assert bench.rows(name) == wanted[case], case
        assert bench.rows(name, at=first) == OLD, case
        assert described(bench, name)[0] == before[0]
        assert (
            bench.lake.snapshot().schema_version == bench.sql("SELECT max(schema_version) FROM {l}.snapshots()")[0][0]
        )
        ((changes,),) = bench.sql(f"SELECT changes::VARCHAR FROM {{l}}.snapshots() WHERE snapshot_id = {altered}")
        assert changes == f"{{tables_altered=[{bench.table(name).id}]}}", case
    assert described(bench, TableName("public", "list"))[2] == ("more", "INTEGER[]")


def all_at_once(bench: Bench) -> tuple[int, int, tuple[Field, ...]]:
    """id widened, s renamed, gone dropped, two added, in one commit with inserts, updates and deletes."""
    columns = (
        Field(0, "id", "int32", nullable=False),
        Field(0, "s", "varchar"),
        Field(0, "gone", "float64"),
        Field(0, "l", "list", children=(Field(0, "element", "int32"),)),
    )
    first = bench.create(
        [(1, "a", 1.0, [1]), (2, "b", 2.0, None), (3, "c", 3.0, []), (4, "d", 4.0, [None])], columns=columns
    )
    had, next_id = bench.columns(), bench.next_id()
    wide = replace(had["l"], children=(replace(had["l"].children[0], type="int64"),))
    after = (
        replace(had["id"], type="int64"),
        replace(had["s"], name="text"),
        wide,
        Field(next_id, "extra", "varchar", initial_default="dflt"),
        Field(next_id + 1, "plain", "int64"),
    )
    second = bench.alter(
        after, insert=[(2**40, "new", [2**40], "set", 9)], update={2: ("B", [5], "upd", None)}, delete=[3]
    )
    return first, second, after


ALL_AT_ONCE = [(1, "a", [1], "dflt", None), (2, "B", [5], "upd", None), (4, "d", [None], "dflt", None)]
NEW = (2**40, "new", [2**40], "set", 9)


def test_many_changes_and_rows_are_one_snapshot(bench: Bench) -> None:
    first, second, after = all_at_once(bench)
    assert second == first + 1
    assert bench.table().columns == after
    assert bench.rows() == [*ALL_AT_ONCE, NEW]
    assert [row[:3] for row in bench.rows(at=first)] == [(1, "a", 1.0), (2, "b", 2.0), (3, "c", 3.0), (4, "d", 4.0)]
    assert bench.sql("SELECT id FROM {l}.public.t WHERE extra = 'dflt' ORDER BY 1") == [(1,), (4,)]
    assert bench.sql("SELECT id FROM {l}.public.t WHERE id > 100") == [(2**40,)]
    assert bench.sql("SELECT min(id), max(id), min(extra), max(extra) FROM {l}.public.t") == [(1, 2**40, "dflt", "upd")]
    assert bench.sql("SELECT id FROM {l}.public.t ORDER BY id DESC") == [(2**40,), (4,), (2,), (1,)]


def test_the_change_feed_over_an_alteration_has_the_newest_shape(bench: Bench) -> None:
    _, second, _ = all_at_once(bench)
    assert feed(bench, second, second) == sorted(
        [
            (second, "delete", 3, "c", [], "dflt", None),
            (second, "insert", *NEW),
            (second, "update_preimage", 2, "b", None, "dflt", None),
            (second, "update_postimage", *ALL_AT_ONCE[1]),
        ],
        key=str,
    )
    assert [row[:4] for row in feed(bench, second - 1, second) if row[1] == "insert"] == [
        *[(second - 1, "insert", id_, s) for id_, s in [(1, "a"), (2, "b"), (3, "c"), (4, "d")]],
        (second, "insert", 2**40, "new"),
    ]


def test_rows_from_before_can_be_updated_deleted_and_compacted_after(bench: Bench) -> None:
    first, second, _ = all_at_once(bench)
    bench.apply(update={4: ("dd", [7], "now", 1)})
    bench.apply(delete=[2], inline_limit=0)
    held = [ALL_AT_ONCE[0], (4, "dd", [7], "now", 1), NEW]
    assert bench.rows() == held
    for step in ("CALL ducklake_flush_inlined_data('{l}')", MERGE, REWRITE, MERGE):
        bench.sql(step)
        assert bench.rows() == held, step
    assert bench.rows(at=second) == [*ALL_AT_ONCE, NEW]
    assert len(bench.rows(at=first)) == 4
    bench.sql("CALL ducklake_expire_snapshots('{l}', older_than => now())")
    bench.sql("CALL ducklake_cleanup_old_files('{l}', cleanup_all => true)")
    bench.apply(update={1: ("z", None, None, None)}, insert=[(5, "e", None, None, None)])
    assert bench.rows() == [(1, "z", None, None, None), held[1], (5, "e", None, None, None), NEW]


def test_alterations_in_a_row_keep_every_shape_for_time_travel(bench: Bench) -> None:
    seen: dict[int, list[tuple[Any, ...]]] = {bench.create([(1, "a")]): [(1, "a")]}
    id_, s = bench.table().columns
    x, y = Field(3, "x", "int16", initial_default="1"), Field(4, "y", "varchar", initial_default="yy")
    seen[bench.alter((id_, s, x), insert=[(2, "b", 5)])] = [(1, "a", 1), (2, "b", 5)]
    wide = replace(x, type="int32", name="xx")
    seen[bench.alter((id_, wide, y), insert=[(3, 2**30, "3")])] = [(1, 1, "yy"), (2, 5, "yy"), (3, 2**30, "3")]
    wider = replace(wide, type="int64")
    seen[bench.alter((id_, wider), update={1: 2**60})] = [(1, 2**60), (2, 5), (3, 2**30)]
    for snapshot, rows in seen.items():
        assert bench.rows(at=snapshot) == rows
    assert bench.sql("SELECT id FROM {l}.public.t WHERE xx = 5") == [(2,)]
    assert bench.columns()["xx"].initial_default == "1"


def test_two_columns_may_swap_their_names(bench: Bench) -> None:
    columns = (Field(0, "id", "int64"), Field(0, "a", "varchar"), Field(0, "b", "varchar"))
    first = bench.create([(1, "was a", "was b")], columns=columns)
    id_, a, b = bench.table().columns
    bench.alter((id_, replace(a, name="b"), replace(b, name="a")), insert=[(2, "in b", "in a")])
    assert described(bench)[1:] == [("b", "VARCHAR"), ("a", "VARCHAR")]
    assert bench.sql("SELECT a, b FROM {l}.public.t ORDER BY id") == [("was b", "was a"), ("in a", "in b")]
    assert bench.sql(f"SELECT a, b FROM {{l}}.public.t AT (VERSION => {first})") == [("was a", "was b")]


def test_a_column_dropped_and_added_again_by_its_name_is_another(bench: Bench) -> None:
    bench.create([(1, "old")])
    id_, s = bench.table().columns
    bench.alter((id_,))
    assert bench.next_id() == 3
    bench.sql("CALL ducklake_expire_snapshots('{l}', older_than => now())")
    assert bench.next_id() == 3  # also when no snapshot can show it any more
    with pytest.raises(TableError, match="used it before"):
        bench.alter((id_, s))
    bench.alter((id_, replace(s, id=3)), insert=[(2, "new")])
    assert bench.rows() == [(1, None), (2, "new")]
    bench.alter((id_, Field(4, "s", "int64", initial_default="0")))
    assert bench.rows() == [(1, 0), (2, 0)]


def test_dropping_and_adding_a_name_in_one_commit_makes_another_column_too(bench: Bench) -> None:
    bench.create([(1, "old")])
    bench.alter((bench.table().columns[0], Field(3, "s", "int64")), insert=[(2, 5)])
    assert bench.rows() == [(1, None), (2, 5)]


def test_an_alteration_to_what_there_is_already_changes_nothing(bench: Bench) -> None:
    bench.create(OLD)
    before = bench.lake.snapshot()
    bench.alter(bench.table().columns, T)
    assert bench.lake.snapshot().schema_version == before.schema_version
    assert bench.rows() == OLD


@SQLITE
@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ((Field(1, "id", "int32"), Field(2, "s", "varchar")), "cannot become 'int32' from 'int64'"),
        ((Field(1, "id", "varchar"), Field(2, "s", "varchar")), "cannot become 'varchar' from 'int64'"),
        ((Field(1, "id", "int64"), Field(2, "s", "list", children=(Field(3, "element", "varchar"),))), "cannot become"),
        ((Field(1, "id", "int64"), Field(2, "ID", "varchar")), "differ in case only"),
        (
            (Field(1, "id", "int64"), Field(3, "l", "list", True, (Field(4, "element", "int8"),), "[1]")),
            "default for older rows",
        ),
    ],
)
def test_what_the_lake_cannot_follow_is_refused_and_leaves_nothing(
    bench: Bench, columns: tuple[Field, ...], message: str
) -> None:
    bench.create(OLD)
    before = bench.lake.snapshot()
    with pytest.raises(TableError, match=message):
        bench.commit(PlannedCommit(before, "pg", alterations=(Alteration(bench.table().id, columns),)))
    assert (bench.lake.snapshot(), bench.rows()) == (before, OLD)


@pytest.mark.parametrize("theirs", ["ADD COLUMN more INTEGER", "RENAME COLUMN s TO s2", "RENAME TO t2", "drop"])
def test_an_alteration_that_another_client_overtook_is_a_conflict(bench: Bench, theirs: str) -> None:
    bench.create(OLD)
    planned = bench.alteration((*bench.table().columns, Field(3, "ours", "int32")), insert=[(4, "d", 1)])
    bench.sql("DROP TABLE {l}.public.t" if theirs == "drop" else f"ALTER TABLE {{l}}.public.t {theirs}")
    with pytest.raises(CommitConflict, match="another client"):
        bench.commit(planned)


@pytest.mark.parametrize(
    "theirs", ["INSERT INTO {l}.public.t VALUES (9, 'x')", "ALTER TABLE {l}.public.t ADD COLUMN more INTEGER"]
)
def test_a_transaction_of_others_that_our_alteration_overtakes_must_fail(bench: Bench, theirs: str) -> None:
    bench.create(OLD)
    bench.sql("BEGIN")
    bench.sql(theirs)
    bench.alter((bench.table().columns[0], Field(3, "s", "int64")))
    with pytest.raises(duckdb.TransactionException, match="conflict"):
        bench.sql("COMMIT")
    assert bench.rows() == [(1, None), (2, None), (3, None)]


def test_others_can_insert_and_alter_after_us(bench: Bench) -> None:
    bench.create([(1, "a")])
    id_, s = bench.table().columns
    bench.alter((id_, Field(3, "x", "int16", initial_default="1"), s))  # in another order than their ids
    bench.sql("INSERT INTO {l}.public.t VALUES (2, 2, 'b')")
    bench.sql("ALTER TABLE {l}.public.t ADD COLUMN theirs VARCHAR DEFAULT 'q'")
    assert bench.next_id() == 5
    bench.apply(insert=[(3, 3, "c", "own")])
    assert bench.rows() == [(1, 1, "a", "q"), (2, 2, "b", "q"), (3, 3, "c", "own")]


def test_small_inserts_of_others_find_a_place_of_the_new_shape(bench: Bench) -> None:
    bench.create([(1, "a")])
    bench.sql("CALL {l}.set_option('data_inlining_row_limit', 10, schema => 'public', table_name => 't')")
    bench.sql("INSERT INTO {l}.public.t VALUES (2, 'inlined')")
    table = bench.table()
    columns = (*table.columns, Field(3, "more", "int32", initial_default="7"))
    bench.alter(columns)
    bench.sql("INSERT INTO {l}.public.t VALUES (3, 'small', 8)")
    assert bench.rows() == [(1, "a", 7), (2, "inlined", 7), (3, "small", 8)]


# -- tables


def test_a_dropped_table_and_a_new_one_of_its_name_are_one_snapshot(bench: Bench) -> None:
    bench.create([(1, "a"), (2, "b")])
    before = bench.apply(delete=[1], inline_limit=0)
    old = bench.table()
    bench.commit(at(PlannedCommit(bench.lake.snapshot(), "pg"), 1, None, 10, old.id))
    new = bench.lake.new_table(T, (Field(0, "id", "int64"), Field(0, "s", "float64")))
    files = bench._written(new.path, new.columns, [(1, 1.5)])
    planned = PlannedCommit(
        bench.lake.snapshot(), "pg", new_tables=(new,), changes=(TableChange(T, files),), dropped=(old.id,)
    )
    snapshot = bench.commit(at(planned, 1, 10, 20, T))
    assert snapshot == before + 1
    assert (bench.rows(), bench.rows(at=before)) == ([(1, 1.5)], [(2, "b")])
    table = bench.table()
    assert table.id != old.id
    position = bench.lake.positions("pg", Lsn)[1]
    assert (position.table_id, position.position) == (table.id, Lsn(20))
    assert bench.changes(snapshot) == [(snapshot, "insert", 1, 1.5)]
    assert bench.lake.files([old.id], bench.lake.snapshot()) == []
    bench.apply(update={1: 2.5}, insert=[(2, 3.5)])
    for step in (MERGE, REWRITE, "CALL ducklake_expire_snapshots('{l}', older_than => now())"):
        bench.sql(step)
    bench.sql("CALL ducklake_cleanup_old_files('{l}', cleanup_all => true)")
    assert bench.rows() == [(1, 2.5), (2, 3.5)]


def test_a_table_dropped_by_others_cannot_be_dropped_again(bench: Bench) -> None:
    bench.create(OLD)
    planned = PlannedCommit(bench.lake.snapshot(), "pg", dropped=(bench.table().id,))
    bench.sql("DROP TABLE {l}.public.t")
    with pytest.raises(CommitConflict, match="dropped table"):
        bench.commit(planned)


def test_what_others_insert_or_alter_does_not_keep_a_table_from_being_replaced(bench: Bench) -> None:
    bench.create(OLD)
    planned = PlannedCommit(bench.lake.snapshot(), "pg", dropped=(bench.table().id,))
    bench.sql("INSERT INTO {l}.public.t VALUES (9, 'theirs')")
    bench.sql("ALTER TABLE {l}.public.t ADD COLUMN theirs INTEGER")
    bench.commit(planned)
    assert bench.sql("SELECT count(*) FROM duckdb_tables() WHERE database_name = '{l}'") == [(0,)]
    assert bench.lake.tables() == {}


@pytest.mark.parametrize("there", [TableName("public", "u"), TableName("brand new", "t"), TableName("main", "T ü")])
def test_a_renamed_table_keeps_its_rows_history_and_files(bench: Bench, there: TableName) -> None:
    bench.create(OLD)
    before = bench.apply(delete=[2])
    old = bench.table()
    columns = (*old.columns, Field(3, "more", "int32", initial_default="7"))
    bench.alter(columns, there, insert=[(4, "d", 1)], delete=[3], inline_limit=0)
    assert (bench.lake.table(T), bench.table(there).id, bench.table(there).path) == (None, old.id, old.path)
    held = [(1, "a", 7), (4, "d", 1)]
    assert bench.rows(there) == held
    assert bench.rows(at=before) == [(1, "a"), (3, None)]
    with pytest.raises(duckdb.CatalogException):
        bench.rows()
    bench.apply(insert=[(5, "e", 2)], update={1: ("A", 0)}, name=there)
    bench.sql(f'INSERT INTO {{l}}."{there.schema}"."{there.name}" VALUES (6, \'theirs\', 3)')
    held = [(1, "A", 0), (4, "d", 1), (5, "e", 2), (6, "theirs", 3)]
    assert [c[1:3] for c in feed(bench, before + 2, before + 2, there)] == [
        ("insert", 5), ("update_postimage", 1), ("update_preimage", 1),
    ]  # fmt: skip
    for step in ("CALL ducklake_flush_inlined_data('{l}')", MERGE, REWRITE):
        bench.sql(step)
        assert bench.rows(there) == held, step
    bench.sql("CALL ducklake_expire_snapshots('{l}', older_than => now())")
    bench.sql("CALL ducklake_cleanup_old_files('{l}', cleanup_all => true)")
    bench.sql("CALL ducklake_delete_orphaned_files('{l}', cleanup_all => true)")
    bench.apply(delete=[6], name=there)
    assert bench.rows(there) == held[:-1]
    bench.alter(bench.table(there).columns, T, name=there)
    assert bench.rows() == held[:-1]


def test_two_tables_may_swap_names_and_a_new_one_may_take_a_name_given_up(bench: Bench) -> None:
    u, v = TableName("public", "u"), TableName("other", "v")
    bench.create([(1, "t")])
    bench.create([(1, "u")], name=u)
    t_table, u_table = bench.table(), bench.table(u)
    swap = (Alteration(t_table.id, t_table.columns, u), Alteration(u_table.id, u_table.columns, T))
    bench.commit(PlannedCommit(bench.lake.snapshot(), "pg", alterations=swap))
    assert (bench.rows(), bench.rows(u)) == ([(1, "u")], [(1, "t")])
    new = bench.lake.new_table(u, t_table.columns)
    files = bench._written(new.path, new.columns, [(1, "new")])
    moved = Alteration(t_table.id, t_table.columns, v)
    bench.commit(
        PlannedCommit(
            bench.lake.snapshot(), "pg", new_tables=(new,), changes=(TableChange(u, files),), alterations=(moved,)
        )
    )
    assert [bench.rows(name) for name in (T, u, v)] == [[(1, "u")], [(1, "new")], [(1, "t")]]


def test_a_name_that_is_taken_is_refused(bench: Bench) -> None:
    u = TableName("public", "u")
    bench.create(OLD)
    bench.create(OLD, name=u)
    with pytest.raises(TableError, match="another table or view"):
        bench.alter(bench.table().columns, u)
    with pytest.raises(TableError, match="differ in case only"):
        bench.alter(bench.table().columns, TableName("public", "U"))
    with pytest.raises(TableError, match="differ in case only"):
        bench.alter(bench.table().columns, TableName("PUBLIC", "x"))
    planned = bench.alteration(bench.table().columns, TableName("public", "x"))
    bench.sql("CREATE VIEW {l}.public.x AS SELECT 1")
    with pytest.raises(CommitConflict, match="by now"):
        bench.commit(planned)


def test_the_sinks_note_on_a_tables_columns_is_kept_beside_its_position(bench: Bench) -> None:
    bench.create(OLD)
    table = bench.table().id

    def moved(expected: int | None, new: int, mirrored: str | None) -> str | None:
        planned = at(PlannedCommit(bench.lake.snapshot(), "pg"), 1, expected, new, table)
        bench.commit(replace(planned, positions={1: replace(planned.positions[1], mirrored=mirrored)}))
        return bench.lake.positions("pg", Lsn)[1].mirrored

    assert moved(None, 1, None) is None
    assert moved(1, 2, '{"a": 1}') == '{"a": 1}'
    assert moved(2, 3, None) == '{"a": 1}'
    assert moved(3, 4, '{"b": "ü"}') == '{"b": "ü"}'


# -- promotions and ids


def test_added_columns_are_numbered_on_from_the_last() -> None:
    columns = (Field(0, "a", "list", children=(Field(0, "element", "int8"),)), Field(0, "b", "date", False, (), "x"))
    assert numbered(columns, 5) == (
        Field(5, "a", "list", children=(Field(6, "element", "int8"),)),
        Field(7, "b", "date", False, (), "x"),
    )


SQL = {
    **{"int8": "TINYINT", "int16": "SMALLINT", "int32": "INTEGER", "int64": "BIGINT"},
    **{"uint8": "UTINYINT", "uint16": "USMALLINT", "uint32": "UINTEGER", "uint64": "UBIGINT"},
    **{"float32": "FLOAT", "float64": "DOUBLE"},
}
OTHERS = ["decimal(4,2)", "decimal(12,2)", "decimal(12,4)", "decimal(20,0)", "decimal(38,2)", "decimal(5,0)",
          "boolean", "varchar", "json", "blob", "uuid", "date", "time", "timestamp", "timestamptz"]  # fmt: skip
TYPES = [*SQL, *OTHERS]


@SQLITE
def test_whatever_we_call_promotable_duckdb_would_promote_too(bench: Bench) -> None:
    pairs = [(old, new) for old in TYPES for new in TYPES if promotable(old, new)]
    assert len(pairs) > 30
    names = {pair: f"c{index}" for index, pair in enumerate(pairs)}
    bench.sql(
        f"CREATE TABLE {{l}}.main.p({', '.join(f'{name} {SQL.get(old, old)}' for (old, _), name in names.items())})"
    )
    bench.sql("BEGIN")
    for (_, new), name in names.items():
        bench.sql(f"ALTER TABLE {{l}}.main.p ALTER {name} TYPE {SQL.get(new, new)}")
    bench.sql("ROLLBACK")


def test_a_column_is_never_promotable_to_its_own_type_or_back() -> None:
    for old in TYPES:
        assert not promotable(old, old)
        for new in TYPES:
            assert not (promotable(old, new) and promotable(new, old))
