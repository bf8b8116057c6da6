"""Which columns an Iceberg table can have."""

from __future__ import annotations

import pytest

from headwater.change import BaseType, Column, Relation
from headwater.errors import TableError
from headwater.sink.iceberg.columns import RESERVED, columns_of, evolved
from headwater.values.types import lake_types
from tests.sink.sinkbench import relation

ID = Column("id", 23, -1, True, 1, BaseType(23, -1, 0, "int4"))


def with_columns(*names: str, dims: int = 1) -> Relation:
    """A key, and arrays of these names."""
    base = BaseType(23, -1, dims, "int4")
    return relation(ID, *(Column(name, 1007, -1, False, number, base) for number, name in enumerate(names, 2)))


def made(of: Relation) -> list[str]:
    kinds = lake_types(of.columns, {}, calendar_only=True)
    return [field.name for field in columns_of(of, kinds, with_history=False).schema.fields]


@pytest.mark.parametrize("name", sorted({*RESERVED, "_FILE"}))
def test_a_name_that_readers_take_for_their_own_column_is_refused(name: str) -> None:
    with pytest.raises(TableError, match="keeps for itself"):
        made(with_columns(name))


def test_names_that_differ_in_case_only_are_refused() -> None:
    with pytest.raises(TableError, match="differ in case only"):
        made(with_columns("a", "A"))


def test_a_name_that_is_the_path_to_the_elements_of_a_list_is_refused() -> None:
    assert made(with_columns("tags", "element", "a.element")) == ["id", "tags", "element", "a.element"]
    with pytest.raises(TableError, match=r"'tags\.element' is also what Iceberg calls a part of 'tags'"):
        made(with_columns("tags", "tags.element"))
    with pytest.raises(TableError, match=r"'tags\.element\.element'"):
        made(with_columns("tags", "tags.element.element", dims=2))


def test_a_name_that_is_added_later_is_refused_alike() -> None:
    before, after = with_columns("tags"), with_columns("tags", "tags.element")
    now = columns_of(before, lake_types(before.columns, {}, calendar_only=True), with_history=False)
    kinds = lake_types(after.columns, {}, calendar_only=True)
    with pytest.raises(TableError, match=r"'tags\.element'"):
        evolved(now.schema, now.last_id, now.mirrored, after, kinds)
