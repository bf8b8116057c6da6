from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from headwater.change import TableName
from headwater.state import State
from tests.web.served import Served, config_file, served


@pytest.fixture
def state(database: str) -> Iterator[State]:
    """The state of a database that has run: a group with one table that is not copied yet."""
    with closing(State.connect(database)) as state:
        state.migrate()
        state.ensure_group("shop", "source", "headwater_shop", "headwater_shop")
        state.ensure_table("shop", 1, TableName("public", "orders"), TableName("public", "orders"))
        yield state


@pytest.fixture
def site(state: State, database: str, tmp_path: Path) -> Iterator[Served]:
    """A server with a token, that has looked once."""
    del state  # it is there
    with served(config_file(tmp_path, database)) as found:
        found.look()
        yield found
