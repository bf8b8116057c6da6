"""The files of a group's segments, in a local folder or under an `s3://` prefix. A file is durable when written."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from headwater.errors import ConfigError, Unreachable
from headwater.files import durable, filesystem, inside, make_folder
from headwater.log import segment

__all__ = ["Folder", "place"]

_SUFFIX = ".parquet"
_ID = "headwater.id"
_MANY = 20


def place(source_id: str, group: str) -> str:
    """A group's subfolder of a log: other sources may use the same log, with a group of the same name."""
    source = re.sub(r"[^A-Za-z0-9_-]", lambda odd: f"~{ord(odd[0]):x}~", source_id.replace("/", "-", 1))
    return f"{source}/{group}"


class Folder:
    """The files of one group, by their names in its folder."""

    def __init__(self, root: str, place: str) -> None:
        remote = root.startswith("s3://")
        self.root = root.rstrip("/") if remote else os.path.abspath(root)
        self._place = place
        self.uri = f"{self.root}/segments/{place}"
        self._system, self._path = filesystem(self.uri), inside(self.uri)
        self._local = not remote

    def id(self) -> str | None:
        """The folder's own id; None if it has none: it is new, or was deleted."""
        with self._reached():
            try:
                with self._system.open_input_stream(f"{self._path}/{_ID}") as stream:
                    return bytes(stream.read()).decode().strip()
            except FileNotFoundError:
                return None

    def is_copy_of(self, root: str) -> bool:
        """Whether the log at `root` still exists as well, with the same id. Another name of this folder is no copy."""
        original = Folder(root, self._place)
        if original.uri == self.uri:
            return False
        try:
            found = original.id()
        except Unreachable:
            return False  # it was moved away from there
        return found is not None and found == self.id() and not self._same(original)

    def _same(self, other: Folder) -> bool:
        return self._local and other._local and os.path.samefile(self._path, other._path)

    def identify(self, id: str) -> None:
        """Give the folder an id."""
        with self._written(_ID), durable(self._system, f"{self._path}/{_ID}") as stream:
            stream.write(f"{id}\n".encode())

    def uri_of(self, name: str) -> str:
        return f"{self.uri}/{name}"

    def write(self, name: str, table: pa.Table) -> int:
        """Write a segment and make it durable; return the size of the file."""
        with self._written(name), durable(self._system, f"{self._path}/{name}") as sink:
            segment.write(table, sink)
            return int(sink.tell())

    @contextmanager
    def _written(self, name: str) -> Iterator[None]:
        try:
            if self._local:  # every time: it may have been deleted meanwhile
                make_folder(self._path)
            yield
        except (PermissionError, NotADirectoryError, FileExistsError) as exc:
            raise ConfigError(
                f"the log folder {self.uri!r} cannot be written: {exc}", hint="make it writable, or change `log`"
            ) from exc
        except OSError as exc:
            raise Unreachable(
                f"cannot write {self.uri_of(name)!r}: {exc}",
                hint="free disk space, or check the object store",
            ) from exc

    def read(self, name: str, columns: Sequence[str] | None = None) -> pa.Table:
        """A segment's rows, in the file's order."""
        with self._reached():
            return pq.read_table(f"{self._path}/{name}", columns=columns, filesystem=self._system)

    def missing(self, names: Sequence[str]) -> list[str]:
        """Which of these files do not exist."""
        if len(names) > _MANY:  # a listing returns a thousand files at a time
            listed = set(self.names())
            names = [name for name in names if name not in listed]
        with self._reached():
            found = self._system.get_file_info([f"{self._path}/{name}" for name in names])
        return [name for name, info in zip(names, found, strict=True) if info.type == fs.FileType.NotFound]

    def names(self, older_than: timedelta | None = None) -> Iterator[str]:
        """The names of segment files; with `older_than`, only of those last written longer ago than that."""
        with self._reached():
            infos = self._system.get_file_info(fs.FileSelector(self._path, allow_not_found=True))
        for info in infos:
            old = older_than is None or datetime.now(UTC) - info.mtime >= older_than
            if info.base_name.endswith(_SUFFIX) and old:
                yield info.base_name

    def delete(self, names: Iterable[str]) -> None:
        """Delete files; one that is gone already is fine."""
        for name in names:
            with self._reached(), suppress(FileNotFoundError):
                self._system.delete_file(f"{self._path}/{name}")

    def remove(self) -> int:
        """Delete the folder with everything in it; return how many segments there were."""
        names = list(self.names())
        self.delete([*names, _ID])
        if self._local:
            with suppress(OSError):  # it does not exist, or holds files of others
                os.rmdir(self._path)
        return len(names)

    @contextmanager
    def _reached(self) -> Iterator[None]:
        try:
            yield
        except OSError as exc:
            raise Unreachable(
                f"the log folder {self.uri!r} does not answer: {exc}", hint="check the disk or the object store"
            ) from exc
