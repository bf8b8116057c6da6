"""Attempts to write to a lake: each leaves a marker before its first file, and takes it away when it has landed.

An attempt whose marker is there and that is no longer under way did not land, or not all of it: it failed, or its
process was killed. Its files have its name in theirs, so those that no snapshot has can be found and deleted.
"""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pyarrow import fs

from headwater.errors import CommitConflict
from headwater.files import S3, durable, filesystem, folder, inside

__all__ = ["Attempts", "attempt_of", "files_of", "under_way"]

_NAME = re.compile(r"headwater-([0-9a-f]{32})-[^/]*\.parquet$")


@dataclass(frozen=True, slots=True)
class Attempts:
    """The markers of one source, in a folder of the lake."""

    location: str  # of a table that the lake always has
    source: str
    s3: S3 | None = None

    def begin(self, locations: Iterable[str]) -> str:
        """Note a new attempt, which will write to the tables at these locations."""
        attempt = uuid.uuid4().hex
        where = folder(self._files, self._folder)
        with durable(self._files, where + attempt) as marker:
            marker.write(json.dumps(sorted(locations)).encode())
        return attempt

    def check(self, attempt: str) -> None:
        """CommitConflict if another process has taken this one for dead, and deleted its files."""
        if self._files.get_file_info(inside(self._folder) + attempt).type == fs.FileType.NotFound:
            raise CommitConflict(f"another process has closed attempt {attempt!r}", hint="plan again")

    def end(self, attempt: str) -> None:
        """Nothing of the attempt is left that no snapshot has."""
        path = inside(self._folder) + attempt
        if self._files.get_file_info(path).type != fs.FileType.NotFound:
            self._files.delete_file(path)

    def open(self) -> Mapping[str, list[str]]:
        """All attempts that have a marker, each with the locations that it writes to."""
        found = self._files.get_file_info(fs.FileSelector(inside(self._folder), allow_not_found=True))
        return {each.base_name: self._read(each.path) for each in found if each.type == fs.FileType.File}

    def _read(self, path: str) -> list[str]:
        with self._files.open_input_stream(path) as marker:
            text = marker.read()
        found: list[str] = json.loads(text) if text else []  # a kill while it was written: nothing was yet
        return found

    @property
    def _folder(self) -> str:
        return f"{self.location}/attempts/{hashlib.sha256(self.source.encode()).hexdigest()[:16]}/"

    @property
    def _files(self) -> fs.FileSystem:
        return filesystem(self.location, self.s3)


def files_of(location: str, attempts: Iterable[str], s3: S3 | None) -> list[str]:
    """The paths of these attempts' files in the table at this location, as the filesystem spells them."""
    files, wanted = filesystem(location, s3), set(attempts)
    found = files.get_file_info(fs.FileSelector(f"{inside(location)}/data", allow_not_found=True, recursive=True))
    return [each.path for each in found if attempt_of(each.path) in wanted]


def attempt_of(path: str) -> str | None:
    """The attempt that wrote a file, by the file's name; None if it is no data file of ours."""
    name = _NAME.search(path)
    return name[1] if name else None


def under_way(location: str, s3: S3 | None) -> set[str]:
    """The attempts of all sources that have a marker."""
    where = fs.FileSelector(f"{inside(location)}/attempts", allow_not_found=True, recursive=True)
    return {each.base_name for each in filesystem(location, s3).get_file_info(where) if each.is_file}
