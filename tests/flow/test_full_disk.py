"""A disk without space is waited for: the log's by capture, the lake's by the tables that need it."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.captured_group import Group, execute, until
from tests.mirror import Mirror

from headwater import flow

Grow = Callable[[], None]
ROWS = "SELECT i, string_agg(md5(random()::text), '') FROM generate_series({}) i, generate_series(1, 100) GROUP BY i"


def disk(folder: Path) -> Iterator[Grow]:
    """A disk of 1 MiB at `folder`; called, it grows."""
    folder.mkdir(parents=True)
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(folder)], check=False, capture_output=True
    )
    if mounted.returncode:
        pytest.skip("this user may not mount a small disk")
    try:
        yield lambda: _run("mount", "-o", "remount,size=100m", str(folder))
    finally:
        _run("umount", "--lazy", str(folder))


def _run(*command: str) -> None:
    subprocess.run(command, check=True)


@pytest.fixture
def log_disk(tmp_path: Path) -> Iterator[Grow]:
    yield from disk(tmp_path / "log")


@pytest.fixture
def lake_disk(tmp_path: Path) -> Iterator[Grow]:
    yield from disk(tmp_path / "lake")


def test_capture_waits_for_space_in_the_log_and_says_so(
    log_disk: Grow, group: Group, caplog: pytest.LogCaptureFixture
) -> None:
    execute(group.url, "CREATE TABLE orders (id int PRIMARY KEY, item text)")
    group.prepare("orders")
    with group.capturing():
        execute(group.url, "INSERT INTO orders VALUES (0, 'small')")
        before = group.settle()
        execute(group.url, f"INSERT INTO orders {ROWS.format('1, 1000')}")
        until(lambda: "No space left on device" in caplog.text)
        assert "capture of group 'shop' waits" in caplog.text
        row = group.state.group("shop")
        assert row is not None
        assert row.confirmed_lsn is not None
        assert row.confirmed_lsn.value - before.value < 1 << 20  # the rest is still the source's to keep
        log_disk()
        group.settle(60)
    assert len(group.rows()) == 1001


@pytest.mark.ducklake_only
def test_a_table_waits_for_space_in_the_lake_and_goes_on_by_itself(lake_disk: Grow, mirror: Mirror) -> None:
    mirror.inline = "off"
    mirror.execute(
        "CREATE TABLE orders (id int PRIMARY KEY, item text)",
        "CREATE TABLE small (id int PRIMARY KEY)",
        "INSERT INTO orders VALUES (0, 'small')",
    )
    mirror.start()
    mirror.sync()
    mirror.execute(f"INSERT INTO orders {ROWS.format('1, 1000')}", "INSERT INTO small VALUES (1)")
    mirror.sync()
    by_name = {row.source.name: row for row in mirror.m.state.tables("g")}
    assert by_name["orders"].state == "ERRORED"
    assert "No space left on device" in (by_name["orders"].error or "")
    assert by_name["small"].state == "STREAMING"
    mirror.assert_equal("small")
    lake_disk()
    flow.try_again(mirror.m.state, "g")
    mirror.settle()
    mirror.assert_equal("orders", "small")
    assert mirror.files() == mirror.known_files()  # what did not fit is deleted
