"""A route of its own for every test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.route.routebench import RouteBench, opened

from headwater.state import State

TABLE = "CREATE TABLE orders (id INTEGER NOT NULL, tenant VARCHAR, amount INTEGER, note VARCHAR)"


@pytest.fixture
def new_route(database: str, spark: SparkSession, tmp_path: Path) -> Iterator[Callable[..., RouteBench]]:
    """Makes a route with these options, whose source has an empty table of orders."""
    with ExitStack() as held, closing(State.connect(database)) as state:
        state.migrate()

        def made(**options: Any) -> RouteBench:
            bench = held.enter_context(closing(opened(tmp_path, spark, state, **options)))
            bench.sql(TABLE)
            return bench

        yield made


@pytest.fixture
def route(new_route: Callable[..., RouteBench]) -> RouteBench:
    return new_route()
