from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from captured_group import Group
from tests.conftest import VERSION

from headwater.testing.postgres import EmbeddedPostgres


@pytest.fixture
def group(database: str, tmp_path: Path) -> Iterator[Group]:
    group = Group.opened(database, tmp_path / "log")
    yield group
    group.state.close()


@pytest.fixture(scope="module")
def own_postgres() -> Iterator[EmbeddedPostgres]:
    """A server of the module's own, to be restarted, broken and misconfigured."""
    with tempfile.TemporaryDirectory(prefix="headwater-pg-", ignore_cleanup_errors=True) as folder:
        server = EmbeddedPostgres(Path(folder) / "pg", version=VERSION, settings={"max_replication_slots": "2"})
        yield server.start()
        server.stop()
