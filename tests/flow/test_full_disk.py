"""A disk without space is waited for: the log's by capture, the lake's by the delivery of its group."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.captured_group import Group, execute, until
from tests.mirror import Mirror

from headwater import flow
from headwater.errors import Unreachable

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
def test_a_delivery_that_finds_no_space_in_the_lake_is_made_again_when_there_is(
    lake_disk: Grow, mirror: Mirror
) -> None:
    mirror.inline = "off"
    mirror.execute("CREATE TABLE orders (id int PRIMARY KEY, item text)", "INSERT INTO orders VALUES (0, 'small')")
    mirror.start()
    mirror.sync()
    mirror.execute(f"INSERT INTO orders {ROWS.format('1, 1000')}")
    with pytest.raises(Unreachable, match="No space left on device"):
        mirror.sync()
    assert mirror.ask("SELECT count(*) FROM lake.public.orders") == [(1,)]
    lake_disk()
    mirror.sync()
    mirror.assert_equal("orders")
    flow.tidy(mirror.m)
    assert mirror.files() == mirror.known_files()  # what did not fit is deleted


@pytest.mark.ducklake_only
@pytest.mark.parametrize("asked", ["first", "again"])
def test_a_copy_that_finds_no_space_in_the_lake_is_made_when_there_is(
    lake_disk: Grow, mirror: Mirror, asked: str
) -> None:
    mirror.inline = "off"
    mirror.execute("CREATE TABLE orders (id int PRIMARY KEY, item text)", "INSERT INTO orders VALUES (0, 'small')")
    mirror.start(copy=asked == "again")
    mirror.execute(f"INSERT INTO orders {ROWS.format('1, 1000')}")
    (row,) = mirror.m.state.tables("g")
    before = mirror.known_files()  # older snapshots need them
    if asked == "again":
        mirror.m.state.request_resync("g", row.oid, "a test wants it")
    for _ in range(2):
        with pytest.raises(Unreachable, match="No space left on device"):
            flow.copy(mirror.m)
        (row,) = mirror.m.state.tables("g")
        assert (row.state, row.failures) == ("SNAPSHOT", 0)  # no fault of the table: the group says what it waits for
        assert len(mirror.files() - mirror.known_files()) <= 1  # what one attempt has left, the next one deletes
    if asked == "again":
        assert mirror.ask("SELECT id FROM lake.public.orders") == [(0,)]  # readers have the old rows meanwhile
    lake_disk()
    assert flow.copy(mirror.m)
    mirror.sync()
    mirror.assert_equal("orders")
    flow.tidy(mirror.m)
    assert mirror.files() - before == mirror.known_files() - before  # nothing is left behind
