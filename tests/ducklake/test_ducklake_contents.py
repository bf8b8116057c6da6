"""Old files under new columns, and lists: DuckDB and our own reader find the same values in them."""

from __future__ import annotations

import math
import os
import stat
import uuid
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lakebench import Bench, T

from headwater.change import TableName
from headwater.ducklake.contents import read_columns, read_rows
from headwater.ducklake.deletes import delete_rows, restamp
from headwater.ducklake.evolution import promotable
from headwater.ducklake.model import Alteration, Field, LiveFile, PlannedCommit, TableChange
from headwater.ducklake.stats import column_stats, overlaps
from headwater.ducklake.texts import text_of, value_of
from headwater.ducklake.writing import TableFolder, plain_type, write_data_file
from headwater.errors import TableError
from headwater.files import filesystem
from headwater.lake.casting import fitted

SQLITE = pytest.mark.parametrize("lake_url", ["sqlite"], indirect=True)
MERGE = "CALL ducklake_merge_adjacent_files('{l}')"
REWRITE = "CALL ducklake_rewrite_data_files('{l}', delete_threshold => 0)"
DAY, TIME = 2**31 - 1, 2**63 - 1  # infinity

# By type: numbers or values as Arrow stores them, and the same in SQL.
VALUES: dict[str, list[tuple[Any, str]]] = {
    "boolean": [(True, "true"), (False, "false")],
    "int8": [(-128, "-128"), (127, "127")],
    "int16": [(-32768, "-32768"), (9, "9")],
    "int32": [(-(2**31), "-2147483648"), (10, "10")],
    "int64": [(-(2**63), "-9223372036854775808"), (9, "9")],
    "uint8": [(0, "0"), (255, "255")],
    "uint16": [(65535, "65535")],
    "uint32": [(2**32 - 1, "4294967295")],
    "uint64": [(2**64 - 1, "18446744073709551615")],
    "float32": [(0.1, "'0.1'::FLOAT"), (16777217.0, "'16777216'::FLOAT"), (-math.inf, "'-inf'"), (math.nan, "'nan'")],
    "float64": [(0.1, "0.1"), (math.inf, "'inf'"), (-0.0, "0"), (5e-324, "5e-324"), (math.nan, "'nan'")],
    "decimal(4,2)": [(Decimal("99.99"), "'99.99'"), (Decimal("-0.01"), "'-0.01'")],
    "decimal(38,10)": [(Decimal("-" + "9" * 28 + ".0000000001"), f"'-{'9' * 28}.0000000001'")],
    "varchar": [("", "''"), ("NULL", "'NULL'"), ('it\'s [a, "b"] ü\n', "'it''s [a, \"b\"] ü\n'")],
    "json": [('{"a": 1}', "'{\"a\": 1}'")],
    "blob": [(b"", "''::BLOB"), (b"\x00\xff\\'\"a", r"'\x00\xff\x5c\x27\x22a'::BLOB")],
    "uuid": [(uuid.UUID(int=1 << 127).bytes, f"'{uuid.UUID(int=1 << 127)}'")],
    "date": [
        (0, "'1970-01-01'"),
        (-780000, "'0167-06-08 (BC)'"),
        (10**7, "'29349-01-26'"),
        (DAY, "'infinity'"),
        (-DAY, "'-infinity'"),
    ],
    "time": [(86_400_000_000, "'24:00:00'"), (1, "'00:00:00.000001'")],
    "timestamp": [
        (-(10**17), "'1200-02-15 (BC) 14:13:20'"),
        (TIME, "'infinity'"),
        (-TIME, "'-infinity'"),
        (1, "'1970-01-01 00:00:00.000001'"),
    ],
    "timestamptz": [
        (9 * 10**18, "'287168-08-24 16:00:00+00'"),
        (TIME, "'infinity'"),
        (-1, "'1969-12-31 23:59:59.999999+00'"),
    ],
}


def array_of(values: list[Any], type_: str) -> pa.Array:
    """Values as Arrow stores them: days and microseconds as numbers, since Python's dates end too early."""
    plain = plain_type(Field(0, "v", type_))
    if pa.types.is_temporal(plain):
        return pa.array(values, pa.int32() if type_ == "date" else pa.int64()).view(plain)
    return pa.array(values, plain)


def listed(values: pa.Array) -> pa.Array:
    """[all values and a NULL], NULL, []"""
    with_null = pa.concat_arrays([values, pa.nulls(1, values.type)])
    offsets = pa.array([0, len(with_null), len(with_null), len(with_null)], pa.int32())
    return pa.ListArray.from_arrays(offsets, with_null, mask=pa.array([False, True, False]))


def same(left: pa.Array, right: pa.Array) -> bool:
    return bool(left.type == right.type and left.to_string() == right.to_string())  # NaN is not equal to itself


def land(bench: Bench, columns: list[Field], data: pa.Table, name: TableName = T) -> None:
    new = bench.lake.new_table(name, columns)
    written = write_data_file(TableFolder(bench.files, new.path), data, new.columns)
    bench.commit(
        PlannedCommit(bench.lake.snapshot(), "pg", new_tables=(new,), changes=(TableChange(name, (written,)),))
    )


def add_file(bench: Bench, data: pa.Table, columns: tuple[Field, ...] | None = None) -> int:
    """Rows in a file of their own, in the same commit as the columns they have."""
    table = bench.table()
    written = write_data_file(TableFolder(bench.files, table.path), data, columns or table.columns)
    alterations = (Alteration(table.id, columns),) if columns else ()
    change = TableChange(table.id, (written,))
    return bench.commit(PlannedCommit(bench.lake.snapshot(), "pg", changes=(change,), alterations=alterations))


def everything(bench: Bench, field: Field) -> pa.Array:
    """A column of all live files, in their order, by our own reader."""
    pieces = [columns[0] for live in bench.live() for _, columns in read_columns(bench.files, live, [field])]
    return pa.chunked_array(pieces, plain_type(field)).combine_chunks()


# -- defaults


def test_every_types_default_shows_in_old_rows_and_filters_find_it(bench: Bench) -> None:
    bench.create([(1, "old"), (2, "gone")])
    columns, expected, n = list(bench.table().columns), {}, bench.next_id()
    for type_, samples in VALUES.items():
        for value, sql in samples:
            array = array_of([value], type_)
            field = Field(n, f"c{n}", type_, initial_default=text_of(array[0], type_))
            expected[field], n = (array, sql), n + 1
            columns.append(field)
    bench.alter(columns, insert=[(3, "new", *[None] * len(expected))])

    def check() -> None:
        equal = ", ".join(f"count(*) FILTER ({field.name} = {sql})" for field, (_, sql) in expected.items())
        (counts,) = bench.sql(f"SELECT {equal} FROM {{l}}.public.t WHERE id = 1")
        assert dict(zip(expected, counts, strict=True)) == dict.fromkeys(expected, 1)
        assert bench.sql("SELECT id FROM {l}.public.t WHERE c3 IS NULL") == [(3,)]
        for field, (array, _) in expected.items():
            assert same(everything(bench, field).slice(0, 1), array), field

    check()
    for field, (_, sql) in list(expected.items())[::4]:
        assert bench.sql(f"SELECT id FROM {{l}}.public.t WHERE {field.name} = {sql} ORDER BY 1") == [(1,), (2,)], field
    bench.apply(delete=[2])
    bench.sql(REWRITE)  # now the defaults are values in a file
    assert len(bench.live()) == 2
    assert everything(bench, columns[2]).null_count == 1
    equal = " AND ".join(f"{field.name} = {sql}" for field, (_, sql) in expected.items() if "boolean" not in field.type)
    assert bench.sql(f"SELECT count(*) FROM {{l}}.public.t WHERE {equal}") == [(1,)]


@given(
    data=st.data(), type_=st.sampled_from(["date", "timestamp", "timestamptz", "time", "float64", "float32", "blob"])
)
@settings(max_examples=150, deadline=None)
def test_a_text_is_read_as_the_value_it_was_written_from(data: st.DataObject, type_: str) -> None:
    values: dict[str, st.SearchStrategy[Any]] = {
        "date": st.integers(-2440588, 106751991) | st.sampled_from([DAY, -DAY]),
        "time": st.integers(0, 86_400_000_000),
        "float64": st.floats(allow_nan=False),
        "float32": st.floats(allow_nan=False, width=32),
        "blob": st.binary(),
    }
    array = array_of([data.draw(values.get(type_, st.integers(-(2**57), 2**62) | st.just(TIME)))], type_)
    again = value_of(text_of(array[0], type_), type_, array.type)
    assert same(pa.array([again], array.type), array)


def test_a_default_that_is_no_value_of_its_type_is_refused() -> None:
    for type_ in ("date", "time", "timestamp", "uuid", "int32", "decimal(4,2)"):
        with pytest.raises(TableError, match="'no such thing'"):
            value_of("no such thing", type_, plain_type(Field(1, "v", type_)))


# -- promotions

# From, to, values old files have, a new value, and what else is looked for, in SQL.
PROMOTED = [
    ("int8", "int16", ["-128", "10", "127"], "300", ["266", "-129", "11"]),
    ("int32", "int64", ["-2147483648", "10"], f"{2**40}", [f"{2**32 + 10}"]),
    ("uint8", "int16", ["0", "255"], "-1", ["256", "10"]),
    ("uint8", "uint64", ["0", "255"], f"{2**64 - 1}", ["256", "511"]),
    ("uint32", "int64", ["10", "4294967295"], "-1", [f"{2**32 + 10}"]),
    ("int32", "decimal(12,0)", ["-2147483648", "10"], "999999999999", ["9", "2147483648"]),
    ("uint64", "decimal(38,0)", ["10", f"{2**64 - 1}"], f"{2**70}", ["-1", f"{2**64}"]),
    ("decimal(4,2)", "decimal(12,2)", ["-99.99", "1.25"], "12345678.12", ["1.24", "100", "-100"]),
]
SQL = {
    **{"int8": "TINYINT", "int16": "SMALLINT", "int32": "INTEGER", "int64": "BIGINT"},
    **{"uint8": "UTINYINT", "uint16": "USMALLINT", "uint32": "UINTEGER", "uint64": "UBIGINT"},
    **{"float32": "FLOAT", "float64": "DOUBLE"},
}


@pytest.mark.parametrize(("old", "new", "values", "fresh", "sought"), PROMOTED)
@SQLITE
def test_a_promoted_columns_old_values_are_found_sorted_and_bounded(
    bench: Bench, old: str, new: str, values: list[str], fresh: str, sought: list[str]
) -> None:
    assert promotable(old, new)
    sql_type = SQL.get(new, new)

    def file(text: str, type_: str) -> pa.Table:
        return bench.duck.execute(f"SELECT ({text})::{SQL.get(type_, type_)} AS v").to_arrow_table()

    land(bench, [Field(0, "v", old)], file(values[0], old))
    for value in values[1:]:
        add_file(bench, file(value, old))
    field = replace(bench.table().columns[0], type=new)
    add_file(bench, file(fresh, new), (field,))
    texts = ", ".join(f"({text})::{sql_type}" for text in [*values, fresh])
    bench.duck.execute(f"CREATE OR REPLACE TEMP TABLE promoted AS SELECT unnest([{texts}]) AS v")

    def check() -> None:
        def answers(table: str) -> list[Any]:
            return [
                bench.sql(f"SELECT v FROM {table} WHERE v {operator} ({text})::{sql_type} ORDER BY v")
                for text in [*values, fresh, *sought]
                for operator in ("=", "<>", "<", "<=", ">", ">=")
            ] + [
                [row[:2] for row in bench.sql(f"DESCRIBE {table}")],
                bench.sql(f"SELECT min(v), max(v) FROM {table}"),
                bench.sql(f"SELECT v FROM {table} ORDER BY v LIMIT 1"),
                bench.sql(f"SELECT v FROM {table} ORDER BY v DESC LIMIT 1"),
            ]

        assert answers("{l}.public.t") == answers("promoted")
        wanted = bench.duck.execute("SELECT v FROM promoted").to_arrow_table()["v"]
        assert sorted(everything(bench, field).to_pylist()) == sorted(wanted.to_pylist())

    check()
    for text in values:  # our own pruning, with the bounds the old files have
        (key,) = column_stats(file(text, new), [field])
        files = bench.lake.files([bench.table().id], bench.lake.snapshot(), {bench.table().id: [field.id]})
        assert any(overlaps(each.bounds[field.id], new, (key.min, key.max)) for each in files)
    bench.sql(MERGE)
    check()


WRONGLY_FILTERED = [
    ("float32", "float64", "0.1, 9", "= 0.1"), ("int32", "float64", "10, -5", "> 9.6"),
    ("int16", "float32", "10, -5", "> 9.6"), ("int32", "decimal(12,2)", "10, -5", "> 9.6"),
    ("decimal(4,2)", "decimal(12,4)", "1.25, -1", "> 1.2499"),
    ("date", "timestamp", "'2020-01-01', '2021-01-01'", "< '2020-01-01 12:00:00'"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "values", "condition"), WRONGLY_FILTERED)
@SQLITE
def test_what_duckdb_promotes_but_then_filters_wrongly_is_not_promotable(
    bench: Bench, old: str, new: str, values: str, condition: str
) -> None:
    """When this fails, DuckDB has learned better, and the type may be promoted."""
    assert not promotable(old, new)
    bench.sql(f"CREATE TABLE {{l}}.main.p AS SELECT unnest([{values}])::{SQL.get(old, old)} AS v")
    bench.sql(f"ALTER TABLE {{l}}.main.p ALTER v TYPE {SQL.get(new, new)}")
    bench.sql("CREATE OR REPLACE TEMP TABLE copied AS FROM {l}.main.p")
    found, right = (bench.sql(f"SELECT count(*) FROM {t} WHERE v {condition}") for t in ("{l}.main.p", "copied"))
    assert found != right


# -- lists


def test_lists_of_every_type_read_back_and_survive_compaction(bench: Bench) -> None:
    types = list(VALUES)
    columns = [Field(0, "id", "int64")]
    for index, type_ in enumerate(types):
        element = Field(0, "element", type_)
        columns.append(Field(0, f"l{index}", "list", children=(element,)))
        columns.append(Field(0, f"ll{index}", "list", children=(Field(0, "element", "list", children=(element,)),)))
    arrays: dict[str, pa.Array] = {}
    for index, type_ in enumerate(types):
        values = array_of([value for value, _ in VALUES[type_]], type_)
        once = listed(values)
        arrays[f"l{index}"] = once
        twice = pa.ListArray.from_arrays(pa.array([0, 3, 3, 3], pa.int32()), once, mask=pa.array([False, False, True]))
        arrays[f"ll{index}"] = twice
    land(bench, columns, pa.table({"id": pa.array([1, 2, 3]), **arrays}))
    add_file(bench, pa.table({"id": pa.array([4, 5, 6]), **arrays}))

    def check() -> None:
        assert bench.sql("SELECT id FROM {l}.public.t ORDER BY 1") == [(1,), (2,), (3,), (4,)]
        wanted, nested = [], []
        for index, type_ in enumerate(types):
            texts = ", ".join(sql for _, sql in VALUES[type_])
            literal = f"[{texts}, NULL]::{SQL.get(type_, type_)}[]"
            wanted.append(f"l{index} = {literal}")
            nested.append(f"ll{index} = [{literal}, NULL, []]")
        for condition in [*wanted, *nested]:
            assert bench.sql(f"SELECT id FROM {{l}}.public.t WHERE {condition} ORDER BY 1") == [(1,), (4,)], condition
        for field in bench.table().columns[1:]:
            own = everything(bench, field)
            assert same(own.slice(0, 1), arrays[field.name].slice(0, 1).cast(own.type)), field
        assert bench.sql("SELECT id FROM {l}.public.t WHERE l3 IS NULL ORDER BY 1")[:1] == [(2,)]

    bench.sql("DELETE FROM {l}.public.t WHERE id IN (5, 6)")
    check()
    for step in (REWRITE, MERGE):
        bench.sql(step)
        check()
    assert len(bench.live()) == 1


@SQLITE
def test_statistics_of_lists_are_duckdbs_own(bench: Bench) -> None:
    """Of the values inside; empty and NULL lists count as NULLs."""
    columns = [
        Field(0, "l", "list", children=(Field(0, "element", "int32"),)),
        Field(0, "ll", "list", children=(Field(0, "element", "list", children=(Field(0, "element", "varchar"),)),)),
        Field(0, "f", "list", children=(Field(0, "element", "float64"),)),
    ]
    data = pa.table(
        {
            "l": pa.array([[1, 2, None], None, []], pa.list_(pa.int32())),
            "ll": pa.array([[["a", "b"], None, [None]], [], None], pa.list_(pa.list_(pa.string()))),
            "f": pa.array([[1.5, math.nan], [None], [-2.5]], pa.list_(pa.float64())),
        }
    )
    land(bench, columns, data)
    bench.sql("INSERT INTO {l}.public.t SELECT * FROM {l}.public.t")
    ours, theirs = (
        bench.sql(
            "SELECT column_id, value_count, null_count, min_value, max_value"
            f" FROM __ducklake_metadata_{bench.alias}.ducklake_file_column_stats"
            f" WHERE data_file_id = {live.id} ORDER BY 1"
        )
        for live in bench.live()
    )
    assert ours == theirs
    assert [stats[0] for stats in ours] == [2, 5, 7]


def test_elements_hidden_under_a_null_are_not_written() -> None:
    hidden = pa.ListArray.from_arrays(
        pa.array([0, 2, 3], pa.int32()), pa.array([1, 2, 3], pa.int32()), mask=pa.array([True, False])
    )
    assert fitted(hidden, pa.list_(pa.int64())).to_pylist() == [None, [3]]
    assert fitted(hidden.slice(1), pa.list_(pa.int64())).to_pylist() == [[3]]
    assert fitted(pa.nulls(2), pa.list_(pa.uuid())).to_pylist() == [None, None]


# -- reading old rows


def test_rows_are_read_by_position_from_the_row_groups_that_hold_them(bench: Bench) -> None:
    bench.create([(i, f"v{i}") for i in range(10)])
    id_, s = bench.table().columns
    (live,) = bench.live()
    schema = pq.read_schema(live.path)
    many = pq.read_table(live.path)
    pq.write_table(many, live.path, row_group_size=3)
    assert pq.read_schema(live.path).equals(schema)
    with open(live.path, "r+b") as file:  # spoil the first row group: whoever reads it fails
        file.seek(4)
        file.write(b"\xff" * 40)
    more = Field(3, "more", "list", children=(Field(4, "element", "int8"),))
    fields = [replace(s, name="renamed"), id_, more, Field(9, "x", "decimal(6,1)", initial_default="2.5")]
    found = read_rows(bench.files, live, fields, np.array([3, 7, 8, 9]))
    assert found.schema == pa.schema(
        {"renamed": pa.string(), "id": pa.int64(), "more": pa.list_(pa.int8()), "x": pa.decimal128(6, 1)}
    )
    assert found.to_pylist() == [{"renamed": f"v{i}", "id": i, "more": None, "x": Decimal("2.5")} for i in (3, 7, 8, 9)]
    assert read_rows(bench.files, live, fields, np.array([], np.int64)).num_rows == 0
    assert read_rows(bench.files, live, fields[2:], np.array([0, 9])).num_rows == 2  # no column of the file is needed


def test_columns_come_in_pieces_with_the_position_of_their_first_row(bench: Bench) -> None:
    bench.create([(i, f"v{i}") for i in range(7)])
    (live,) = bench.live()
    pq.write_table(pq.read_table(live.path), live.path, row_group_size=3)
    pieces = list(read_columns(bench.files, live, [bench.table().columns[0], Field(3, "new", "int8")]))
    assert [(first, ids.to_pylist(), new.to_pylist()) for first, (ids, new) in pieces] == [
        (0, [0, 1, 2], [None] * 3),
        (3, [3, 4, 5], [None] * 3),
        (6, [6], [None]),
    ]


def test_a_file_of_others_without_field_ids_is_read_by_the_names_it_came_with(bench: Bench, tmp_path: Path) -> None:
    bench.create()
    pq.write_table(pa.table({"s": ["x", "y"], "id": pa.array([1, 2])}), tmp_path / "theirs.parquet")
    bench.sql(f"CALL ducklake_add_data_files('{{l}}', 't', '{tmp_path}/theirs.parquet', schema => 'public')")
    id_, s = bench.table().columns
    bench.alter((id_, replace(s, name="text"), Field(3, "s", "varchar", initial_default="d")))
    (live,) = bench.live()
    found = read_rows(bench.files, live, bench.table().columns, np.array([1]))
    assert found.to_pylist() == [{"id": 2, "text": "y", "s": "d"}]
    assert bench.rows() == [(1, "x", "d"), (2, "y", "d")]
    bench.apply(update={2: ("z", "e")})
    assert bench.rows() == [(1, "x", "d"), (2, "z", "e")]


def test_names_with_dots_are_names_like_others(bench: Bench) -> None:
    columns = (
        Field(0, "id", "int64"),
        Field(0, "a", "varchar"),
        Field(0, "a.b", "varchar"),
        Field(0, "a.list.element", "list", children=(Field(0, "element", "varchar"),)),
    )
    bench.create([(1, "x", "y", ["z"])], columns=columns)
    assert bench.rows() == [(1, "x", "y", ["z"])]
    (live,) = bench.live()
    for field, value in zip(bench.table().columns, (1, "x", "y", ["z"]), strict=True):
        assert read_rows(bench.files, live, [field], np.array([0])).to_pylist() == [{field.name: value}]


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> dict[int, Any]:
    """What was on disk when it was last synced, by inode: a file's size, or a folder's names."""
    found: dict[int, Any] = {}
    fsync = os.fsync

    def seen(handle: int) -> None:
        fsync(handle)
        about = os.fstat(handle)
        found[about.st_ino] = set(os.listdir(handle)) if stat.S_ISDIR(about.st_mode) else about.st_size

    monkeypatch.setattr(os, "fsync", seen)
    return found


def test_files_and_new_folders_are_on_disk_before_they_are_reported(tmp_path: Path, synced: dict[int, Any]) -> None:
    folder, column = tmp_path / "lake" / "public" / "t", Field(1, "id", "int64")
    path = f"{folder}/"
    where = TableFolder(filesystem(str(folder)), path)
    data = write_data_file(where, pa.table({"id": [1, 2, 3]}), [column])
    live = LiveFile(1, 1, path + data.path, 3, 0, inlined_positions=np.array([0]), inlined_snapshots=np.array([4]))
    deletes = delete_rows(where, live, np.array([1]), snapshot=5, inline_limit=0).delete_file
    assert deletes is not None
    again = restamp(where, deletes, 6)
    for name, size in [(data.path, data.size), (deletes.path, deletes.size), (again.path, again.size)]:
        assert synced[(folder / name).stat().st_ino] == size
    assert synced[folder.stat().st_ino] == {data.path, deletes.path, again.path}
    for made in (folder, *folder.parents[:2]):
        assert made.name in synced[made.parent.stat().st_ino]
