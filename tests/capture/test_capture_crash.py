"""Capture killed at every step, its source restarted, crashed or cut off: nothing lost, nothing doubled."""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from tests import captured_group
from tests.captured_group import Group

from headwater.capture.stream import ROLL_BYTES
from headwater.testing.postgres import EmbeddedPostgres

WITNESS = "SELECT data FROM pg_logical_slot_peek_binary_changes('witness', NULL, NULL, {options})"
OPTIONS = "'proto_version', '1', 'publication_names', 'headwater_shop'"


@pytest.fixture
def witnessed(own_postgres: EmbeddedPostgres, tmp_path: Path) -> Iterator[Group]:
    """A group in a database of its own, with a second slot that only the test reads."""
    name = f"t_{tmp_path.name[:40].lower()}".replace("-", "_")
    with psycopg.connect(own_postgres.url(), autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name}")
    group = Group.opened(own_postgres.url(name), tmp_path / "log")
    with psycopg.connect(group.url, autocommit=True) as connection:
        connection.execute("CREATE TABLE orders (id bigint PRIMARY KEY, note text)")
        connection.execute("CREATE TABLE lines (id bigint PRIMARY KEY)")
        group.prepare("orders", "lines")
        connection.execute("SELECT pg_create_logical_replication_slot('witness', 'pgoutput')")
    yield group
    group.state.close()
    with psycopg.connect(own_postgres.url(), autocommit=True) as admin:
        admin.execute("SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = %s", (name,))
        admin.execute(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = %s", (name,)
        )
        admin.execute(f"DROP DATABASE {name} WITH (FORCE)")


def work(url: str, rounds: range) -> None:
    """Transactions of 40 changes; every tenth is larger than a roll."""
    with psycopg.connect(url, autocommit=True) as connection:
        for number in rounds:
            rows = 3000 if number % 10 == 5 else 20
            with connection.transaction():
                connection.execute(
                    "INSERT INTO orders SELECT %s * 10000 + n, 'x' FROM generate_series(1, %s) n", (number, rows)
                )
                connection.execute(
                    "UPDATE orders SET note = 'y' WHERE id %% 10000 <= 10 AND id / 10000 = %s", (number,)
                )
                connection.execute("INSERT INTO lines VALUES (%s)", (number,))
                connection.execute("DELETE FROM orders WHERE id %% 10000 <= 9 AND id / 10000 = %s", (number,))


def witness(url: str) -> list[tuple[int, int, bytes]]:
    """(commit_lsn, seq, message) as the other slot has it."""
    found, commit_lsn, seq = [], 0, 0
    with psycopg.connect(url) as connection:
        for (message,) in connection.execute(WITNESS.format(options=OPTIONS)):
            if message[:1] == b"B":
                (commit_lsn,), seq = struct.unpack_from("!Q", message, 1), 0
            elif message[:1] in b"IUD":
                found.append((commit_lsn, seq, message))
                seq += 1
    return found


@contextmanager
def process(group: Group, failpoint: str = "", roll_bytes: int = 50_000) -> Iterator[subprocess.Popen[bytes]]:
    """A process that captures until its stdin is closed."""
    command = [sys.executable, captured_group.__file__, group.url, str(group.folder), str(roll_bytes)]
    environment = os.environ | {"HEADWATER_FAILPOINT": failpoint}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as child:
        try:
            yield child
        finally:
            child.kill()


def stream_large_ones(url: str) -> None:
    """The server sends every transaction that is larger than a roll while it is in progress."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"ALTER DATABASE {connection.info.dbname} SET logical_decoding_work_mem = '64kB'")


@pytest.mark.parametrize(
    ("failpoint", "streaming"),
    [
        ("capture.read:2", False),
        ("capture.written:2", False),
        ("capture.registered:2", False),
        ("capture.confirmed:2", False),
        ("capture.streamed:2", True),
        ("capture.streamed:5", True),
        ("capture.registered:3", True),
    ],
)
def test_capture_killed_at_a_step_loses_and_doubles_nothing(witnessed: Group, failpoint: str, streaming: bool) -> None:
    if streaming:
        stream_large_ones(witnessed.url)
    work(witnessed.url, range(10))
    with process(witnessed, failpoint=failpoint) as child:
        for number in range(10, 200):
            work(witnessed.url, range(number, number + 1))
            if child.poll() is not None:
                break
            time.sleep(0.02)
        assert child.wait(30) == -signal.SIGKILL
    with witnessed.capturing(roll_bytes=50_000):
        work(witnessed.url, range(200, 206))
        witnessed.settle()
    assert witnessed.messages() == witness(witnessed.url)
    segments = witnessed.log.read(witnessed.begin).segments
    assert len(witnessed.files()) == len(segments)
    assert any(segment.commit is not None for segment in segments) == streaming


def test_postgres_restarted_and_crashed_under_capture_loses_and_doubles_nothing(
    witnessed: Group, own_postgres: EmbeddedPostgres
) -> None:
    with process(witnessed) as child:
        work(witnessed.url, range(10))
        witnessed.settle()
        begun = time.monotonic()
        own_postgres.restart()
        # Our stream does not keep the server from shutting down: that would be for wal_sender_timeout, a minute.
        assert time.monotonic() - begun < 45
        work(witnessed.url, range(10, 20))
        witnessed.settle()
        own_postgres.pg_ctl("restart", "-m", "immediate", "-w")
        work(witnessed.url, range(20, 30))
        witnessed.settle()
        assert child.poll() is None
        child.communicate(timeout=30)
        assert child.returncode == 0
    assert witnessed.messages() == witness(witnessed.url)


@pytest.mark.parametrize("streaming", [False, True])
def test_a_stream_that_is_cut_off_is_taken_up_again(witnessed: Group, streaming: bool) -> None:
    if streaming:
        stream_large_ones(witnessed.url)
    with witnessed.capturing(roll_bytes=50_000):
        for number in range(3):
            work(witnessed.url, range(number * 10, number * 10 + 10))
            with psycopg.connect(witnessed.url) as connection:
                connection.execute("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active")
        witnessed.settle()
    assert witnessed.messages() == witness(witnessed.url)


def peak_mib(group: Group, first: int, last: int, note: int, roll_bytes: int) -> int:
    """What a process took at most that captured one transaction of these rows, whose notes are so many letters."""
    with process(group, roll_bytes=roll_bytes) as child:
        with psycopg.connect(group.url) as connection:
            connection.execute(
                "INSERT INTO orders SELECT n, repeat('x', %s) FROM generate_series(%s::int, %s) n", (note, first, last)
            )
        group.settle(180)
        out, _ = child.communicate(timeout=60)
    return int(out) // 1024


def test_memory_does_not_grow_with_the_size_of_a_transaction(witnessed: Group) -> None:
    small = peak_mib(witnessed, 1, 10_000, 800, 1 << 20)
    large = peak_mib(witnessed, 10_001, 160_000, 800, 1 << 20)
    assert large < small + 60, f"MiB: {small}, {large}"  # the transaction alone is 120 MiB of messages


@pytest.mark.long
def test_a_million_rows_in_one_transaction_take_little_more_memory_than_fifty_thousand(witnessed: Group) -> None:
    stream_large_ones(witnessed.url)
    small = peak_mib(witnessed, 1, 50_000, 100, ROLL_BYTES)
    large = peak_mib(witnessed, 100_001, 1_100_000, 100, ROLL_BYTES)
    assert large <= small * 1.5, f"MiB: {small}, {large}"  # the transaction alone is 150 MiB of messages
