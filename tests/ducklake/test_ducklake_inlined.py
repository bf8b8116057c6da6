"""Rows in the catalog itself, written by us: DuckDB reads them exactly as it reads the same rows in a file."""

from __future__ import annotations

import datetime as dt
import uuid
from dataclasses import replace
from decimal import Context, Decimal
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lakebench import Bench, T

from headwater.change import TableName
from headwater.ducklake.extension import attach, connect
from headwater.ducklake.flushing import due_to_flush
from headwater.ducklake.inlinedvalues import can_be_inlined, encoded
from headwater.ducklake.model import Field, InlinedRows, PlannedCommit, TableChange, numbered
from headwater.ducklake.writing import TableFolder, plain_type, write_data_file
from headwater.errors import CommitConflict
from headwater.lake.maintenance import FlushLimits

ANY_TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=6)
U = TableName("public", "u")
LAST = 2**63 - 1  # infinity, as DuckDB has it
TEXTS = ["", "it's \\ 'quoted'", "a\0b", "é 日本", "NULL", "[1, 2]", " x ]", '{"a": [1, null]}', "\n\t"]
MOMENTS = [0, -1, 1, 1_700_000_000_123_456, -62_135_596_800_000_001, 253_402_300_800_000_000, LAST, -LAST]
VALUES: dict[str, list[Any]] = {
    "boolean": [True, False],
    "int8": [-128, 127],
    "int16": [-(2**15), 2**15 - 1],
    "int32": [-(2**31), 2**31 - 1],
    "int64": [-(2**63), 2**63 - 1],
    "uint8": [0, 255],
    "uint16": [2**16 - 1],
    "uint32": [2**32 - 1],
    "uint64": [2**64 - 1, 0],
    "float32": [0.1, float("nan"), float("inf"), -0.0, 1.1754943508222875e-38],
    "float64": [0.1, float("nan"), float("-inf"), -0.0, 5e-324, 1.7976931348623157e308],
    "decimal(38,18)": [Decimal("0.000000000000000001"), Decimal("-99999999999999999999.999999999999999999")],
    "decimal(9,0)": [Decimal("-999999999"), Decimal(0)],
    "varchar": TEXTS,
    "json": ['{"k": [1, null, "é"]}', "1", "null"],
    "blob": [b"", b"\x00\xff'\\x41"],
    "uuid": [uuid.UUID(int=0).bytes, uuid.UUID(int=2**128 - 1).bytes],
    "date": [0, -1, 20_000, -719_163, 2_932_897, 2**31 - 1, -(2**31 - 1)],
    "time": [0, 86_400_000_000, 86_399_999_999],
    "timestamp": MOMENTS,
    "timestamptz": MOMENTS,
}


def column(name: str, type_: str, *, lists: int = 0) -> Field:
    if lists:
        return Field(0, name, "list", children=(column("element", type_, lists=lists - 1),))
    return Field(0, name, type_)


def array(field: Field, values: list[Any]) -> pa.Array:
    """Moments come as the numbers that DuckDB stores."""
    type_ = plain_type(field)
    if pa.types.is_temporal(type_):
        return pa.array(values, pa.int32() if pa.types.is_date(type_) else pa.int64()).view(type_)
    if field.type == "list":
        flat = array(field.children[0], [each for value in values if value is not None for each in value])
        lengths = [0 if value is None else len(value) for value in values]
        offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
        nulls = pa.array([value is None for value in values])
        return pa.ListArray.from_arrays(offsets, flat, type=type_, mask=nulls)
    return pa.array(values, type_)


def both_ways(bench: Bench, columns: tuple[Field, ...], rows: pa.Table) -> None:
    """Two tables with these rows, one in a file and one in the catalog, show the same, to readers old and new."""
    tables = [bench.lake.new_table(name, columns) for name in (T, U)]
    bench.commit(PlannedCommit(bench.lake.snapshot(), "pg", new_tables=tuple(tables)))
    file = write_data_file(TableFolder(bench.files, tables[0].path), rows, tables[0].columns)
    values = encoded(rows, tables[1].columns, bench.lake.catalog.dialect)
    assert values is not None
    inlined = InlinedRows(tables[1].columns, values, [None] * rows.num_rows)
    changes = (TableChange(bench.table(T).id, (file,)), TableChange(bench.table(U).id, inlined=(inlined,)))
    bench.commit(PlannedCommit(bench.lake.snapshot(), "pg", changes=changes))
    with connect(threads=1) as newcomer:
        attach(newcomer, bench.lake.url, bench.alias)
        for con in (bench.duck, newcomer):
            shown = [_shown(con, bench.alias, name) for name in (T, U)]
            assert shown[0] == shown[1]
            assert len(shown[0]) == rows.num_rows


def _shown(con: duckdb.DuckDBPyConnection, alias: str, name: TableName) -> list[Any]:
    found = con.execute(f"SELECT rowid, * FROM {alias}.public.{name.name} ORDER BY rowid")
    return [repr(row) for row in found.fetchall()]


def test_every_type_is_shown_as_it_is_from_a_file(bench: Bench) -> None:
    columns = numbered(tuple(column(f"c {type_}", type_) for type_ in VALUES))
    assert all(map(can_be_inlined, columns))
    most = max(map(len, VALUES.values())) + 1
    padded = {type_: [*values, *[None] * (most - len(values))] for type_, values in VALUES.items()}
    rows = pa.table({each.name: array(each, padded[each.type]) for each in columns})
    both_ways(bench, columns, rows)


def test_lists_of_every_type_are_shown_as_they_are_from_a_file(bench: Bench) -> None:
    kinds = {type_: [each for each in values if each != "a\0b"] for type_, values in VALUES.items() if type_ != "json"}
    columns = numbered(tuple(column(f"c{depth} {type_}", type_, lists=depth) for type_ in kinds for depth in (1, 2)))
    assert all(map(can_be_inlined, columns))
    arrays = {}
    for each in columns:
        values, depth = kinds[each.name.split(" ", 1)[1]], int(each.name[1])
        rows = [[*values, None], [], None]
        arrays[each.name] = array(each, [rows, [], None] if depth == 2 else rows)
    both_ways(bench, columns, pa.table(arrays))


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], database=None)
@given(rows=st.lists(st.lists(st.lists(st.one_of(st.none(), ANY_TEXT)))))
def test_lists_of_lists_of_any_text_are_read_back(duck: duckdb.DuckDBPyConnection, rows: list[Any]) -> None:
    (field,) = numbered((column("c", "varchar", lists=2),))
    table = pa.table({"c": pa.array(rows, pa.list_(pa.list_(pa.string()))).cast(plain_type(field))})
    (texts,) = encoded(table, [field], "sqlite") or [[]]
    for text, value in zip(texts, rows, strict=True):
        assert duck.execute("SELECT CAST($1 AS VARCHAR[][])", [text]).fetchone() == (value,)


@pytest.mark.parametrize(
    "field",
    [
        Field(1, "row_id", "int64"),
        Field(1, "End_Snapshot", "int64"),
        Field(1, "n" * 64, "int64"),
        Field(1, "{now}", "int64"),
        Field(1, "x", "int128"),
        Field(1, "x", "interval"),
        Field(1, "x", "struct", children=(Field(2, "a", "int32"),)),
        Field(1, "x", "list", children=(Field(2, "element", "json"),)),
    ],
    ids=lambda field: f"{field.name[:12]} {field.type}",
)
def test_what_the_catalog_cannot_hold_exactly_is_left_to_files(field: Field) -> None:
    assert not can_be_inlined(field)


def test_a_nul_inside_a_list_is_left_to_files_where_the_catalog_is_postgresql() -> None:
    (field,) = numbered((column("c", "varchar", lists=1),))
    rows = pa.table({"c": pa.array([["a\0b"]], plain_type(field))})
    assert encoded(rows, [field], "postgres") is None
    assert encoded(rows, [field], "sqlite") is not None


def test_names_of_columns_may_be_anything(bench: Bench) -> None:
    names = ['it\'s "quoted"', "a,b", "100 %s", "SELECT", "日本"]
    columns = tuple(Field(0, name, "int64") for name in ("id", *names))
    bench.create([(1, *range(5))], columns=columns)
    bench.apply(insert=[(2, *range(5))], inlined=True)
    bench.apply(update={2: (9, 9, 9, 9, 9)}, inlined=True)
    assert bench.rows() == [(1, *range(5)), (2, *[9] * 5)]


def test_an_updated_row_keeps_its_id_wherever_it_was_and_goes(bench: Bench) -> None:
    bench.create([(1, "a"), (2, "a")])
    start = bench.lake.snapshot().id
    bench.apply(insert=[(3, "a")], update={1: "b"}, delete=[2], inlined=True)
    bench.apply(update={1: "c", 3: "b"}, inlined=True)
    bench.apply(update={1: "d"})
    assert bench.rows() == [(1, "d"), (3, "b")]
    assert bench.sql("SELECT rowid, id FROM {l}.public.t ORDER BY id") == [(0, 1), (2, 3)]
    assert bench.changes(start + 1) == sorted(
        [
            (start + 1, "insert", 3, "a"),
            (start + 1, "delete", 2, "a"),
            (start + 1, "update_preimage", 1, "a"),
            (start + 1, "update_postimage", 1, "b"),
            (start + 2, "update_preimage", 1, "b"),
            (start + 2, "update_postimage", 1, "c"),
            (start + 2, "update_preimage", 3, "a"),
            (start + 2, "update_postimage", 3, "b"),
            (start + 3, "update_preimage", 1, "c"),
            (start + 3, "update_postimage", 1, "d"),
        ]
    )


def test_a_truncate_ends_rows_in_the_catalog_and_not_those_that_come_with_it(bench: Bench) -> None:
    bench.create([(1, "a")])
    bench.apply(insert=[(2, "b")], inlined=True)
    bench.commit(bench.truncation(insert=[(3, "c")]))
    assert bench.rows() == [(3, "c")]


@pytest.mark.parametrize("meanwhile", ["delete", "update"])
@pytest.mark.parametrize("planned", ["update", "truncate"])
def test_a_commit_whose_rows_another_client_has_changed_is_planned_again(
    bench: Bench, planned: str, meanwhile: str
) -> None:
    bench.create([(1, "a")])
    bench.apply(insert=[(2, "b"), (3, "c")], inlined=True)
    stale = bench.plan(update={2: "ours"}, inlined=True) if planned == "update" else bench.truncation()
    if meanwhile == "delete":
        bench.sql("DELETE FROM {l}.public.t WHERE id = 2")
    else:
        bench.apply(update={2: "theirs"}, inlined=True)  # the new version is in the same table of the catalog
    with pytest.raises(CommitConflict, match="another client"):
        bench.commit(stale)
    assert bench.rows() == [(1, "a"), *([(2, "theirs")] if meanwhile == "update" else []), (3, "c")]


def test_a_table_that_another_client_has_sorted_meanwhile_gets_no_rows_in_the_catalog(bench: Bench) -> None:
    bench.create([(1, "a")])
    planned = bench.plan(insert=[(2, "b")], inlined=True)
    bench.sql("ALTER TABLE {l}.public.t SET SORTED BY (id)")
    with pytest.raises(CommitConflict, match="another client altered"):
        bench.commit(planned)


def test_rows_of_others_elsewhere_are_no_conflict(bench: Bench) -> None:
    bench.create([(1, "a")])
    bench.apply(insert=[(2, "b")], inlined=True)
    planned = bench.plan(update={2: "ours"}, inlined=True)
    bench.sql("INSERT INTO {l}.public.t VALUES (3, 'theirs')")
    bench.commit(planned)
    assert bench.rows() == [(1, "a"), (2, "ours"), (3, "theirs")]


def test_rows_stay_readable_through_every_change_of_the_columns(bench: Bench) -> None:
    bench.create([(1, "a")])
    bench.apply(insert=[(2, "b")], inlined=True)
    table = bench.table()
    bench.alter((*table.columns, Field(3, "n", "int32", initial_default="7")))
    bench.apply(insert=[(3, "c", 8)], inlined=True)
    bench.alter([Field(each.id, "s2" if each.name == "s" else each.name, each.type) if each.id != 3
                 else Field(3, "n", "int64", initial_default="7") for each in bench.table().columns])  # fmt: skip
    bench.apply(insert=[(4, "d", 2**40)], update={2: ("B", 9)}, inlined=True)
    assert bench.rows() == [(1, "a", 7), (2, "B", 9), (3, "c", 8), (4, "d", 2**40)]
    bench.alter([each for each in bench.table().columns if each.name != "n"])
    bench.apply(update={3: "C"}, inlined=True)
    assert bench.rows() == [(1, "a"), (2, "B"), (3, "C"), (4, "d")]


def test_a_column_may_get_the_name_of_one_that_ducklake_has_for_rows_in_the_catalog(bench: Bench) -> None:
    bench.create([(1, "a")])
    bench.apply(insert=[(2, "b"), (3, "c")], inlined=True)
    bench.alter((*bench.table().columns, Field(3, "row_id", "int64", initial_default="7")))
    bench.apply(insert=[(4, "d", 8)], update={2: ("B", 9)})
    assert bench.rows() == [(1, "a", 7), (2, "B", 9), (3, "c", 7), (4, "d", 8)]


NEVER = FlushLimits(rows=1_000, age=dt.timedelta(days=1), bytes=1 << 20)


@pytest.mark.parametrize(
    ("limits", "due"),
    [
        (NEVER, False),
        (replace(NEVER, rows=3), True),
        (replace(NEVER, rows=4), False),
        (replace(NEVER, age=dt.timedelta(0)), True),
        (replace(NEVER, bytes=6_000), True),
        (replace(NEVER, bytes=9_000), False),
    ],
)
def test_rows_move_into_a_file_when_they_are_many_or_old_or_large(
    bench: Bench, limits: FlushLimits, *, due: bool
) -> None:
    bench.create([(1, "a")])
    with bench.lake.reading() as tx:
        assert due_to_flush(tx, bench.lake.url, bench.table(), FlushLimits(), 0) == []
    bench.apply(insert=[(2, "b" * 6_000), (3, "c")], inlined=True)
    bench.apply(update={3: "d"}, inlined=True)  # the version that has ended counts, too
    with bench.lake.reading() as tx:
        found = due_to_flush(tx, bench.lake.url, bench.table(), limits, 0)
    assert [each.state.rows for each in found] == ([3] if due else [])


def test_a_moment_is_spelled_as_duckdb_spells_it(duck: duckdb.DuckDBPyConnection) -> None:
    (field,) = numbered((column("c", "timestamptz"),))
    moment = dt.datetime(2026, 3, 1, 12, 0, 0, 5, dt.UTC)
    (texts,) = encoded(pa.table({"c": pa.array([moment], plain_type(field))}), [field], "sqlite") or [[]]
    assert duck.execute("SELECT CAST($1::TIMESTAMPTZ AS VARCHAR)", [texts[0]]).fetchone() == (texts[0],)


@pytest.mark.parametrize("scale", [0, 2, 6, 7, 18])
def test_a_decimal_is_spelled_with_all_its_digits_and_without_an_exponent(scale: int) -> None:
    (field,) = numbered((column("c", f"decimal(38,{scale})"),))
    numbers = [0, 1, -1, 10, -5 * 10**scale, 10**37, -(10**38 - 1)]
    values = [None, *(Decimal(each).scaleb(-scale, Context(prec=38)) for each in numbers)]
    (texts,) = encoded(pa.table({"c": pa.array(values, plain_type(field))}), [field], "sqlite") or [[]]
    assert texts == [None, *(format(each, "f") for each in values if each is not None)]
