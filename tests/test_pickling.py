"""Facts come back from Spark's workers as they were sent."""

from __future__ import annotations

import pickle
from dataclasses import dataclass

import pytest

from headwater.change import BaseType, Column, Facts, Relation, TableName
from headwater.ducklake.model import Field
from headwater.pickling import pickled_by_fields
from headwater.values.types import lake_type


@pickled_by_fields
@dataclass(frozen=True, slots=True)
class Fact:
    one: int
    other: tuple[int, ...] = ()


COLUMN = Column("amount", 1700, 786438, key=False, attnum=3, base=BaseType(1700, 786438, 0, "numeric(12,2)"), stamp="7")


@pytest.mark.parametrize(
    "fact",
    [
        Fact(1),
        Fact(1, (2, 3)),
        COLUMN,
        Relation(1, 2, TableName("public", "t"), "d", (COLUMN,), Facts({1: 2}, {3: ["a"]}), 4, "why"),
        Field(1, "v", "list", children=(Field(2, "element", "int32"),), initial_default="x"),
        lake_type(COLUMN),
    ],
)
def test_a_fact_comes_back_as_it_was(fact: object) -> None:
    assert pickle.loads(pickle.dumps(fact)) == fact
    assert repr(pickle.loads(pickle.dumps(fact))) == repr(fact)  # with what is not compared


def test_what_several_facts_share_is_sent_once() -> None:
    alike = [Field(1, "v", "int32")] * 100
    assert len({id(each) for each in pickle.loads(pickle.dumps(alike))}) == 1
