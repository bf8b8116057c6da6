"""Whose trouble an exception is, as an object and as the text of a traceback."""

from __future__ import annotations

import errno
import pickle
import traceback

import pyarrow as pa
import pytest

from headwater.errors import CannotFollow, HeadwaterError, OperatorMustAct, TableError, Unreachable
from headwater.merge import Failure
from headwater.spark.faults import needed_by_all, raised, table_error

OF_ALL = [
    FileNotFoundError(2, "No such file"),
    TimeoutError("s3"),
    Unreachable("no answer", hint="wait"),
    OperatorMustAct("no"),
]
OF_ANY = [MemoryError(), OSError(errno.ENOMEM, "Cannot allocate memory"), pa.lib.ArrowMemoryError("malloc failed")]
OF_ONE = [
    pa.ArrowInvalid("offset overflow"),
    pa.lib.ArrowCapacityError("more than 2 GB"),
    AssertionError("two\nlines"),
    KeyError("x"),
]


def thrown(error: Exception) -> str:
    try:
        raise error
    except Exception:
        return "An exception was thrown from the Python worker:\n" + traceback.format_exc()


@pytest.mark.parametrize("error", OF_ALL, ids=repr)
def test_what_all_tables_need_is_raised_again(error: Exception) -> None:
    assert needed_by_all(thrown(error))
    with pytest.raises(type(error)):
        table_error(error)


@pytest.mark.parametrize("error", OF_ANY, ids=repr)
def test_whose_memory_ran_out_is_not_known(error: Exception) -> None:
    assert not needed_by_all(thrown(error))
    with pytest.raises(type(error)):
        table_error(error)


@pytest.mark.parametrize("error", OF_ONE, ids=repr)
def test_what_a_row_can_cause_is_the_error_of_its_table(error: Exception) -> None:
    assert not needed_by_all(thrown(error))
    assert type(error).__name__ in raised(thrown(error))
    reported = table_error(error)
    assert type(reported) is TableError
    assert type(error).__name__ in str(reported)
    assert "test_faults.py:" in str(reported)


@pytest.mark.parametrize("error", [TableError("its own"), CannotFollow("its own")])
def test_a_table_error_is_what_it_is(error: HeadwaterError) -> None:
    assert table_error(error) is error


def test_what_helps_survives_the_way_from_a_worker() -> None:
    try:
        raise ValueError("no such value")
    except ValueError as error:
        bug = Failure.of(table_error(error))
    assert pickle.loads(pickle.dumps(bug)).kind == "bug"
    assert Failure.of(table_error(TableError("it has another key"))).kind == "configuration"
    assert pickle.loads(pickle.dumps(TableError("too large", kind="resource"))).kind == "resource"
