"""A group that is being captured, and its log read back. As a program: capture until stdin ends."""

from __future__ import annotations

import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headwater.capture.quota import Room
from headwater.capture.run import prepare, run_capture
from headwater.change import Lsn, Relation, TableName
from headwater.log import Log
from headwater.source.server import wal_target
from headwater.state import State


def execute(url: str, *statements: str) -> None:
    """Each statement in its own transaction."""
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement)


def transaction(url: str, *statements: str) -> None:
    """All statements in one transaction."""
    with psycopg.connect(url) as connection:
        for statement in statements:
            connection.execute(statement)


def until(condition: Callable[[], object], seconds: float = 60, every: float = 0.02) -> None:
    """Wait for what is sure to come; how long it takes is not the point."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not in {seconds:.0f} s"
        time.sleep(every)


@dataclass
class Captured:
    """A row of the log, its tuples as text."""

    commit_lsn: int
    seq: int
    xid: int
    op: str
    table: str
    old: tuple[str | None, ...] | None
    new: tuple[str | None, ...] | None
    relation: Relation


@dataclass
class Group:
    """A group of the source at `url`."""

    url: str
    state: State
    log: Log
    folder: Path
    name: str = "shop"

    @classmethod
    def opened(cls, url: str, folder: Path) -> Group:
        state = State.connect(url)
        state.migrate()
        return cls(url, state, Log(state, "shop", str(folder)), folder)

    def prepare(self, *tables: str) -> Lsn:
        return prepare(self.url, self.state, self.name, [TableName.parse(table) for table in tables])

    @contextmanager
    def capturing(
        self, roll_bytes: int = 16 << 20, predecessor: float = 90.0, room: Room | None = None
    ) -> Iterator[threading.Event]:
        """Capture in a thread; what it raises is raised at the end of the block."""
        stop, failure = threading.Event(), []

        def run() -> None:
            try:
                run_capture(
                    self.url,
                    self.state,
                    self.log,
                    self.name,
                    stop=stop,
                    roll_bytes=roll_bytes,
                    predecessor=predecessor,
                    room=room,
                )
            except BaseException as exc:
                failure.append(exc)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield stop
        finally:
            stop.set()
            thread.join(60)
            assert not thread.is_alive()
            if failure:
                raise failure[0]

    def settle(self, seconds: float = 30) -> Lsn:
        """Wait until everything committed so far is in the log."""
        lsn = wal_target(self.url)
        self.state.add_fence(self.name, lsn, seconds)
        deadline = time.monotonic() + seconds
        while self.log.end() < lsn:
            assert time.monotonic() < deadline, f"the log is at {self.log.end()}, not at {lsn}"
            time.sleep(0.02)
        return lsn

    @property
    def begin(self) -> Lsn:
        """Where the log begins."""
        row = self.state.group(self.name)
        return (row and row.trimmed_lsn) or Lsn(0)

    def staged(self, after: Lsn | None = None, upto: Lsn | None = None) -> Iterator[pa.Table]:
        """Every segment's rows as a reader must take them, between two ends of the log."""
        for segment in self.log.read(after or self.begin, upto).segments:
            table = pq.read_table(segment.path)
            if segment.commit is not None:
                assert pc.unique(table["commit_lsn"]).to_pylist() == [0]
                aborted = pa.array(segment.aborted, pa.int64())
                table = table.filter(pc.invert(pc.is_in(table["xid"], value_set=aborted)))
                for name, value in zip(("commit_lsn", "commit_ts", "xid"), segment.commit, strict=True):
                    fact = pa.scalar(value.value if isinstance(value, Lsn) else value, table.schema.field(name).type)
                    at = table.schema.get_field_index(name)
                    table = table.set_column(at, name, pa.repeat(fact, table.num_rows))
            assert table.num_rows == segment.rows == sum(part.rows for part in segment.parts)
            yield table

    def messages(self) -> list[tuple[int, int, bytes]]:
        """(commit_lsn, seq, message) of everything in the log, in commit order."""
        names = ("commit_lsn", "seq", "message")
        return sorted(
            row for table in self.staged() for row in zip(*(table[name].to_pylist() for name in names), strict=True)
        )

    def rows(self, after: Lsn | None = None, upto: Lsn | None = None) -> list[Captured]:
        """Everything in the log, or between two ends that it had, in commit order."""
        tables = list(self.staged(after, upto))
        ids = {id for table in tables for id in pc.unique(table["relation"]).to_pylist()}
        relations = self.log.relations(ids)
        found = []
        for table in tables:
            for row in table.to_pylist():
                relation = relations[row["relation"]]
                old, new = _tuples(row["message"])
                place = row["commit_lsn"], row["seq"], row["xid"]
                found.append(Captured(*place, chr(row["op"]), str(relation.table), old, new, relation))
        return sorted(found, key=lambda row: (row.commit_lsn, row.seq))

    def files(self) -> list[Path]:
        """Every segment file on disk."""
        return sorted(self.folder.rglob("*.parquet"))


def _tuples(message: bytes) -> tuple[tuple[str | None, ...] | None, tuple[str | None, ...] | None]:
    found: dict[str, tuple[str | None, ...]] = {}
    at = 5
    while message[:1] != b"T" and at < len(message):
        kind, at = chr(message[at]), at + 1
        (count,) = struct.unpack_from("!H", message, at)
        at += 2
        values: list[str | None] = []
        for _ in range(count):
            tag, at = message[at : at + 1], at + 1
            if tag == b"t":
                (size,) = struct.unpack_from("!I", message, at)
                values.append(message[at + 4 : at + 4 + size].decode())
                at += 4 + size
            else:
                values.append(None)
        found["new" if kind == "N" else "old"] = tuple(values)
    return found.get("old"), found.get("new")


if __name__ == "__main__":
    group, ended = Group.opened(sys.argv[1], Path(sys.argv[2])), threading.Event()

    def end_with_stdin() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=end_with_stdin, daemon=True).start()
    run_capture(group.url, group.state, group.log, group.name, stop=ended, roll_bytes=int(sys.argv[3]))
    # Not getrusage: what it reports of a child begins with the peak of the process that started it.
    print(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])
