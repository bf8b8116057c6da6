"""From canonical values to the numbers of destinations."""

from __future__ import annotations

import pickle

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.errors import ConfigError
from headwater.route.destinations import NOWHERE, Routing
from headwater.route.values import canonical_column


def test_every_row_goes_to_the_destination_of_its_value() -> None:
    routing = Routing.of(["02", "1"], pa.int32())
    routed = routing.route(canonical_column(pa.array([1, 2, None, 3, 2, 3], pa.int32())))
    assert routed.destinations.tolist() == [1, 0, NOWHERE, NOWHERE, 0, NOWHERE]
    assert routed.destinations.dtype == np.int32
    assert (routed.unrouted, routed.nulls) == (2, 1)


def test_the_default_takes_what_no_destination_takes() -> None:
    routing = Routing.of(["a"], pa.string(), has_default=True)
    routed = routing.route(canonical_column(pa.array(["a", "b", None, ""])))
    assert routed.destinations.tolist() == [0, 1, 1, 1]
    assert routing.default == 1
    assert (routed.unrouted, routed.nulls) == (0, 0)


def test_values_without_a_destination_are_named_once() -> None:
    column = canonical_column(pa.array(["b", None, "a", "c", "b"]))
    assert Routing.of(["a"], pa.string(), has_default=True).unknown(column) == ["b", "c"]
    assert Routing(()).unknown(column) == ["b", "a", "c"]


def test_no_destination_and_no_row_are_no_exceptions() -> None:
    routed = Routing(()).route(canonical_column(pa.array(["a", None])))
    assert (routed.destinations.tolist(), routed.unrouted, routed.nulls) == ([NOWHERE, NOWHERE], 1, 1)
    assert Routing(("a",)).route(pa.nulls(0, pa.large_string())).destinations.tolist() == []


@pytest.mark.parametrize(
    ("one", "other", "type_"),
    [("1", "01", pa.int64()), ("1.5", "1.50", pa.decimal128(9, 2)), ("t", "yes", pa.bool_()), ("a", "a", pa.string())],
)
def test_two_spellings_of_one_value_are_refused(one: str, other: str, type_: pa.DataType) -> None:
    with pytest.raises(ConfigError, match=f"'{one}' and '{other}' are one value of the routing column"):
        Routing.of([one, other], type_)


@given(st.lists(st.text(max_size=3), unique=True), st.lists(st.none() | st.text(max_size=3)), st.booleans())
def test_rows_are_routed_as_a_dictionary_would_after_a_journey_to_a_worker(
    values: list[str], rows: list[str | None], has_default: bool
) -> None:
    routing = pickle.loads(pickle.dumps(Routing.of(values, pa.string(), has_default=has_default)))
    known = {value: number for number, value in enumerate(values)}
    rest = len(values) if has_default else NOWHERE
    routed = routing.route(canonical_column(pa.array(rows, pa.string())))
    assert routed.destinations.tolist() == [rest if row is None else known.get(row, rest) for row in rows]
    if not has_default:
        assert routed.nulls == rows.count(None)
        assert routed.nulls + routed.unrouted == routed.destinations.tolist().count(NOWHERE)
