"""Which rows are within a partition's bounds, and which files can have such rows."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pytest

from headwater.change import Column, Relation, TableName
from headwater.flow.spans import spans_of
from headwater.merge.remove import ColumnValues, RemovedRows
from headwater.state import Condition
from headwater.values.types import lake_types

INTEGER, TEXT, DATE, TIMESTAMPTZ, NUMERIC, BIGINT = 23, 25, 1082, 1184, 1700, 20


def relation(*types: int) -> Relation:
    columns = tuple(Column(f"c{at}", type_, -1, False, at) for at, type_ in enumerate(types, 1))
    return Relation(1, 2, TableName("public", "p"), "d", columns)


def spans(conditions: list[Condition], *types: int, calendar_only: bool = False, **asked: str) -> Any:
    found = relation(*types)
    return spans_of(conditions, found, lake_types(found.columns, asked, calendar_only=calendar_only))


def removed(conditions: list[list[Condition]], *types: int) -> RemovedRows:
    found = relation(*types)
    kinds = lake_types(found.columns, {}, calendar_only=False)
    known = [spans_of(each, found, kinds) for each in conditions]
    return RemovedRows(kinds, [each for each in known if each is not None])


def at(rows: RemovedRows, *columns: list[Any]) -> list[int]:
    arrays = [pa.array(each, rows.kinds[name].arrow) for name, each in zip(rows.columns, columns, strict=True)]
    return [int(each) for each in rows.among(arrays)]


@pytest.mark.parametrize("calendar_only", [False, True])
def test_bounds_become_whole_numbers_with_both_ends_included(calendar_only: bool) -> None:
    days = [Condition(1, "1970-01-02", "1970-01-05")]
    assert spans(days, DATE, calendar_only=calendar_only) == (ColumnValues("c1", 1, 3),)
    moments = [Condition(1, "1970-01-01 00:00:00+00", "1970-01-01 00:00:01.5+00")]
    assert spans(moments, TIMESTAMPTZ, calendar_only=calendar_only) == (ColumnValues("c1", 0, 1_499_999),)
    numbers = [Condition(2, None, "-5")]
    assert spans(numbers, TEXT, BIGINT, calendar_only=calendar_only) == (ColumnValues("c2", None, -6),)


NOT_ALIKE: dict[str, tuple[Condition, int]] = {
    "a numeric": (Condition(1, "0", "10"), NUMERIC),
    "text from one value to another": (Condition(1, "a", "b"), TEXT),
    "a date without an end": (Condition(1, "2026-01-01", None), DATE),
    "a time without a beginning": (Condition(1, None, "2026-01-01 00:00:00+00"), TIMESTAMPTZ),
    "infinity": (Condition(1, "2026-01-01", "infinity"), DATE),
    "a year before Christ": (Condition(1, "0044-03-15 BC", "2026-01-01"), DATE),
    "a year of five digits": (Condition(1, "2026-01-01", "10000-01-02"), DATE),
    "a column that is not there": (Condition(7, "0", "10"), INTEGER),
}


@pytest.mark.parametrize("case", NOT_ALIKE)
def test_what_a_lake_may_compare_otherwise_is_not_a_span(case: str) -> None:
    asked, type_ = NOT_ALIKE[case]
    assert spans([asked], type_) is None


def test_one_condition_that_cannot_be_checked_makes_all_of_them_useless() -> None:
    assert spans([Condition(1, "0", "10"), Condition(2, "0", "10")], INTEGER, NUMERIC) is None
    assert spans([], INTEGER) is None


def test_a_column_of_another_type_in_the_lake_is_not_compared() -> None:
    assert spans([Condition(1, "0", "10")], INTEGER, c1="varchar") is None


def test_rows_within_the_bounds_are_found_and_null_is_not_among_them() -> None:
    rows = removed([[Condition(1, "0", "10")]], INTEGER)
    assert at(rows, [-1, 0, None, 9, 10]) == [1, 3]
    days = removed([[Condition(1, "2026-01-01", "2026-02-01")]], DATE)
    assert at(days, [date(2025, 12, 31), date(2026, 1, 1), None, date(2026, 1, 31), date(2026, 2, 1)]) == [1, 3]
    moments = removed([[Condition(1, "2026-01-01 00:00:00+00", "2026-01-02 00:00:00+00")]], TIMESTAMPTZ)
    last = datetime(2026, 1, 1, 23, 59, 59, 999_999, UTC)
    assert at(moments, [None, last, datetime(2026, 1, 2, tzinfo=UTC)]) == [1]
    texts = removed([[Condition(1, values=("a", ""))]], TEXT)
    assert at(texts, ["a", "A", None, "", "a "]) == [0, 3]


def test_all_conditions_of_a_partition_count_and_any_of_several_partitions() -> None:
    first = [Condition(1, "0", "10"), Condition(2, values=("x",))]
    rows = removed([first, [Condition(1, "20", "30")]], INTEGER, TEXT)
    assert rows.columns == ("c1", "c2")
    assert at(rows, [1, 1, 20, 40], ["x", "y", None, "x"]) == [0, 2]


def test_files_are_looked_into_only_between_the_lowest_and_the_highest_value() -> None:
    assert removed([[Condition(1, "0", "10")], [Condition(1, values=("50", "40"))]], INTEGER).sought.bounds == (0, 50)
    assert removed([[Condition(1, "0", "10")], [Condition(1, "20", None)]], INTEGER).sought.bounds is None
    assert removed([[Condition(1, values=("a",))]], TEXT).sought.bounds is None
