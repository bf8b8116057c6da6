"""Folders of tables that we have dropped: readers may still be at work there, so maintenance deletes the files later.

Each has a marker, which is written before the table is dropped. So the files are found, whoever dies when.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from pyarrow import fs

from headwater.change import TableName
from headwater.files import S3, durable, filesystem, folder, inside

__all__ = ["DroppedFolder", "DroppedFolders"]


@dataclass(frozen=True, slots=True)
class DroppedFolder:
    """Where a dropped table's files are, the name that it had, and since when it has been dropped, at the earliest."""

    name: TableName
    location: str
    since: datetime

    def is_shared(self, locations: Iterable[str]) -> bool:
        """Whether a table at one of these locations has files in the folder, or has the folder among its own."""
        own = self.location.rstrip("/") + "/"
        return any(own.startswith(each) or each.startswith(own) for each in (x.rstrip("/") + "/" for x in locations))


@dataclass(frozen=True, slots=True)
class DroppedFolders:
    """Those of one source, as their markers have them."""

    location: str  # of a table that the lake always has
    source: str
    s3: S3 | None = None

    def add(self, name: TableName, location: str) -> None:
        """Note a table that is about to be dropped."""
        where = folder(self._files, self._folder)
        with durable(self._files, where + _marker(location)) as marker:
            marker.write(json.dumps({"name": list(name), "location": location}).encode())

    def all(self) -> list[DroppedFolder]:
        found = self._files.get_file_info(fs.FileSelector(inside(self._folder), allow_not_found=True))
        read = (self._read(each) for each in found if each.type == fs.FileType.File)
        return [each for each in read if each is not None]

    def remove(self, dropped: DroppedFolder) -> None:
        """Nothing is left to delete there, or another table has it."""
        self._files.delete_file(inside(self._folder) + _marker(dropped.location))

    def _read(self, marker: fs.FileInfo) -> DroppedFolder | None:
        with self._files.open_input_stream(marker.path) as stream:
            text = stream.read()
        if not text:  # a kill while it was written: the table is there yet
            return None
        kept = json.loads(text)
        return DroppedFolder(TableName(*kept["name"]), kept["location"], marker.mtime)

    @property
    def _folder(self) -> str:
        return f"{self.location}/dropped/{hashlib.sha256(self.source.encode()).hexdigest()[:16]}/"

    @property
    def _files(self) -> fs.FileSystem:
        return filesystem(self.location, self.s3)


def _marker(location: str) -> str:
    return hashlib.sha256(location.encode()).hexdigest()[:32]
