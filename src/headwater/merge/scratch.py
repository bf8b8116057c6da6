"""Where the fold leaves its result for the next job's tasks: Arrow files beside the log, gone after the batch.

Not Spark's cache: the tasks that search the lake need a table's keys as a set, and a row that is only going to be
written has no reason to travel through the JVM.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import pyarrow as pa
from pyarrow import fs

from headwater.files import filesystem, inside

__all__ = ["Kept", "Scratch", "Span", "one_batch"]

_KEYS = pa.schema([pa.field("key", pa.binary())])


class Span(NamedTuple):
    """Some rows of a record batch."""

    first: int
    rows: int


class Kept(NamedTuple):
    """Where one table's share of one bucket lies: `number` is that of its record batch in the bucket's two files.

    A table that shares the record batches with others has only some rows of each: these upserts and these keys.
    """

    bucket: int
    oid: int
    name: str
    number: int
    upserts: Span | None = None
    touched: Span | None = None


@dataclass(frozen=True, slots=True)
class Scratch:
    """A folder for one batch."""

    path: str

    @classmethod
    @contextmanager
    def opened(cls, root: str) -> Iterator[Scratch]:
        path = f"{root}/{uuid.uuid4().hex}"
        files = filesystem(path)
        files.create_dir(inside(path), recursive=True)
        try:
            yield cls(path)
        finally:
            files.delete_dir(inside(path))

    @staticmethod
    def clear(root: str) -> None:
        """Delete what batches that were killed have left there."""
        filesystem(root).delete_dir_contents(inside(root), missing_dir_ok=True)

    def keep(self, nets: Sequence[tuple[pa.RecordBatch, pa.Array]]) -> str:
        """Write the upserts and touched keys of a bucket, of a table or some tables each; the name to find them by."""
        name = uuid.uuid4().hex  # a task that Spark tries again must not meet its first attempt
        if nets:
            self._write(f"{name}.net", [upserts for upserts, _ in nets])
            self._write(f"{name}.keys", [pa.record_batch([touched], schema=_KEYS) for _, touched in nets])
        return name

    def keep_parts(self, parts: list[pa.RecordBatch]) -> str:
        """Write record batches, each of which is read by itself; return the name of their file."""
        name = uuid.uuid4().hex
        self._write(f"{name}.parts", parts)
        return name

    def part(self, name: str, number: int) -> pa.RecordBatch:
        return _open(f"{self.path}/{name}.parts").get_batch(number)

    def keep_rows(self, rows: pa.Table) -> str:
        """Write rows of the lake that others need to look into; return their name."""
        name = uuid.uuid4().hex
        self._write(f"{name}.rows", rows.combine_chunks().to_batches())
        return name

    def rows(self, name: str) -> pa.Table:
        return _opened(f"{self.path}/{name}.rows").read_all()

    def upserts(self, kept: Kept) -> pa.RecordBatch:
        file = f"{self.path}/{kept.name}.net"
        return _batch(file, kept.number) if kept.upserts is None else _shared(file, kept.number).slice(*kept.upserts)

    def touched(self, kept: Kept) -> pa.Array:
        file = f"{self.path}/{kept.name}.keys"
        if kept.touched is None:
            return _batch(file, kept.number).column(0)
        return _shared(file, kept.number).column(0).slice(*kept.touched)

    def _write(self, name: str, batches: list[pa.RecordBatch]) -> None:
        path = f"{self.path}/{name}"
        with (
            filesystem(path).open_output_stream(inside(path)) as out,
            pa.ipc.new_file(out, batches[0].schema) as writer,
        ):
            for batch in batches:
                writer.write_batch(batch)


@lru_cache(maxsize=2)  # the tables that share a batch are asked for one after the other
def _shared(uri: str, index: int) -> pa.RecordBatch:
    return _batch(uri, index)


def _batch(uri: str, index: int) -> pa.RecordBatch:
    return _opened(uri).get_batch(index)


@lru_cache(maxsize=4)  # a file has a batch for each table, and they are asked for one after the other
def _opened(uri: str) -> pa.RecordBatchFileReader:
    return _open(uri)


def _open(uri: str) -> pa.RecordBatchFileReader:
    files, path = filesystem(uri), inside(uri)
    return pa.ipc.open_file(
        pa.memory_map(path) if isinstance(files, fs.LocalFileSystem) else files.open_input_file(path)
    )


def one_batch(table: pa.Table) -> pa.RecordBatch:
    """The table as the one batch that a part of a file is."""
    batches = table.combine_chunks().to_batches()
    if len(batches) > 1:
        raise OverflowError("rows that are folded together have more than 2 GB")
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)
