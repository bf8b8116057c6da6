"""Key indexes of a lake's data files, kept in a folder of this machine.

Not in the lake: other clients' clean-up would have to know of the files, and every client's files would need one. Not
in the catalog: it would grow by a row for each row. Here an index is a cache, and nothing depends on it.

*Made* by the first delivery that looks for few keys in a large file, whoever wrote the file: about 0.2 s for a million
rows, against 0.06 s for reading their keys each time. A table that only grows never pays it, as it would if indexes
were made with the files. *Kept* over restarts. *Checked* when a worker opens it: the file's path, size, time and number
of rows, the key's columns and types, and a checksum; an index that is missing, damaged or of another file is made anew.
Files of a lake never change under their name, so there is nothing to keep up to date: a merged or flushed file is a new
one. *Removed* a day after the last delivery that asked for it, sooner if the room is needed: when its data file is
gone, no delivery asks for it.

When the folder is full of indexes in use, files without one are read as if there were none: it must not happen that
each delivery makes the indexes that the next one needs, and throws them out again.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import time
import uuid
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa

from headwater.files import S3, filesystem, inside, is_local
from headwater.lake.keyindex import KeyIndex

__all__ = ["KeyIndexes", "file_identity"]

LIMIT = 16 << 30  # bytes of a group's indexes: 500 million keys of 16 bytes
LEAST_ROWS = 50_000  # of smaller files the keys are read, or remembered, as quickly
ROWS_PER_KEY = 8  # for more keys, as in a backlog, reading all is as quick
FREE = 0.1  # of the disk stays free: the log is on it, too
IN_USE = 3600.0  # seconds after its last use an index may go if there is no room for another
UNUSED = 24 * 3600.0  # seconds after its last use it goes
TOUCHED = 600.0  # seconds after which another use is noted
OPEN = 256  # in a worker
_ROW = 32  # bytes of an index for each row, about
_ENDING = ".keys"

Parts = tuple[pa.Schema, Iterable[pa.RecordBatch]]


@dataclass(frozen=True, slots=True)
class KeyIndexes:
    """A folder of indexes; picklable."""

    folder: str
    limit: int = LIMIT  # bytes
    least_rows: int = LEAST_ROWS  # of a file that has one
    rows_per_key: int = ROWS_PER_KEY  # of a file that gets one, for each key that is looked for
    temporary: bool = False  # `folder` is a name, and stands for one among the temporary files of whoever looks in it

    @classmethod
    def of_group(cls, log: str, place: str) -> KeyIndexes:
        """Those of a group whose log is at `log`, in the subfolder `place`: beside it, if it is on a disk."""
        if is_local(log):
            return cls(f"{inside(log)}/index/{place}")
        return cls(place.replace("/", "-"), temporary=True)

    @property
    def path(self) -> str:
        """The folder on this machine: Spark's executors may be on others, with other users and temporary files."""
        if not self.temporary:
            return self.folder
        return os.path.join(tempfile.gettempdir(), f"headwater-{os.getuid()}-{self.folder}")

    def get(self, name: str, rows: int, make: Callable[[], Parts] | None) -> KeyIndex | None:
        """The index called `name`, which says all that it depends on; without `make`, only if there is one.

        None too if there is no room for it.
        """
        if not _is_ours(self.path):
            return None
        path = os.path.join(self.path, hashlib.sha256(name.encode()).hexdigest() + _ENDING)
        found = _opened.get(path, name)
        if found is None and make is not None:
            with suppress(OSError):  # the disk is full, or may not be written
                if self._has_room(rows * _ROW):
                    self._write(path, name, make)
                    found = _opened.get(path, name)
        return found

    def may_have(self, rows: int) -> bool:
        """Whether a file of so many rows may have an index."""
        return self.least_rows <= rows < 1 << 32

    def worth_making(self, rows: int, keys: int) -> bool:
        """Whether to make one in order to look for so many keys."""
        return keys * self.rows_per_key <= rows

    def clear(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)

    def _write(self, path: str, name: str, make: Callable[[], Parts]) -> None:
        os.makedirs(self.path, mode=0o700, exist_ok=True)
        unfinished = f"{path}.{uuid.uuid4().hex}"
        try:
            _write(unfinished, name, *make())
            os.replace(unfinished, path)
        except BaseException:
            with suppress(OSError):
                os.unlink(unfinished)
            raise

    def _has_room(self, size: int) -> bool:
        """Whether so much may be added; what was not used for long goes, and what was not used lately if need be."""
        now, used = time.time(), 0
        kept = []
        for age, each in _by_age(self.path, now):
            if age > UNUSED:
                _delete(each.path)
            else:
                kept.append((age, each))
                used += each.stat().st_size
        for age, each in kept:
            if used + size > self.limit and age > IN_USE:
                used -= each.stat().st_size
                _delete(each.path)
        return used + size <= self.limit and _stays_free(self.path, size)


@lru_cache(maxsize=4096)  # asking an object store takes longer than the search
def file_identity(path: str, rows: int, s3: S3 | None = None) -> str:
    """What tells a data file and its content from all others: a lake deleted and made anew may use a name again."""
    found = filesystem(path, s3).get_file_info(inside(path))
    return f"{path} {found.size} {found.mtime_ns} {rows}"


class _Opened:
    """The indexes that this worker has open."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._held: OrderedDict[str, tuple[KeyIndex, float]] = OrderedDict()

    def get(self, path: str, name: str) -> KeyIndex | None:
        """None if there is no sound index of this name."""
        index, touched = self._held.pop(path, (None, 0.0))
        index = index or _read(path, name)
        if index is None:
            return None
        if time.monotonic() - touched > TOUCHED or not touched:
            touched = time.monotonic()
            with suppress(OSError):  # it was removed; what is open can still be read
                os.utime(path)
        self._held[path] = index, touched
        while len(self._held) > self._most:
            self._held.popitem(last=False)
        return index


_opened = _Opened(OPEN)


def _write(path: str, name: str, schema: pa.Schema, parts: Iterable[pa.RecordBatch]) -> None:
    """An Arrow file, and a checksum behind it."""
    with open(path, "xb") as file:
        sink = _Summed(file.write)
        with pa.ipc.new_file(pa.PythonFile(sink, "w"), schema.with_metadata({"name": name})) as writer:
            for part in parts:
                writer.write_batch(part)
        file.write(sink.sum.to_bytes(4, "little"))
        file.flush()
        os.fsync(file.fileno())


def _read(path: str, name: str) -> KeyIndex | None:
    try:
        with pa.memory_map(path) as file:
            whole = file.read_buffer()
        content, end = whole.slice(0, max(0, whole.size - 4)), whole.slice(max(0, whole.size - 4))
        if zlib.crc32(content).to_bytes(4, "little") != end.to_pybytes():
            return None
        found = pa.ipc.open_file(content)
    except (OSError, pa.ArrowInvalid):
        return None
    if (found.schema.metadata or {}).get(b"name") != name.encode():
        return None
    return KeyIndex([found.get_batch(number) for number in range(found.num_record_batches)])


class _Summed:
    """What a file is written through, to know the checksum of its content."""

    closed = False

    def __init__(self, write: Callable[[bytes], int]) -> None:
        self._write = write
        self.sum = 0

    def write(self, data: bytes) -> int:
        self.sum = zlib.crc32(data, self.sum)
        return self._write(data)

    def flush(self) -> None: ...
    def close(self) -> None: ...


def _is_ours(folder: str) -> bool:
    """Whether no other user has made it, as one could in the folder for temporary files."""
    return not os.path.lexists(folder) or os.lstat(folder).st_uid == os.getuid()


def _by_age(folder: str, now: float) -> list[tuple[float, os.DirEntry[str]]]:
    """The files of a folder, with the seconds since they were last used, the longest first."""
    found = []
    for each in os.scandir(folder) if os.path.lexists(folder) else ():
        with suppress(FileNotFoundError):  # another worker has removed it just now
            found.append((now - each.stat().st_mtime, each))
    return sorted(found, key=lambda each: -each[0])


def _delete(path: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(path)


def _stays_free(folder: str, size: int) -> bool:
    folder = os.path.abspath(folder)
    while not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    disk = shutil.disk_usage(folder)
    return disk.free - size > disk.total * FREE
