"""PyIceberg's files, with two promises more: what a catalog refers to survives a loss of power, and errors are ours."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

from pyiceberg.io import OutputStream
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO

from headwater.errors import Unreachable
from headwater.files import make_folder, sync

__all__ = ["DurableFileIO", "reaching_files"]


@contextmanager
def reaching_files() -> Iterator[None]:
    """A file of the warehouse that cannot be read or written, as an error of ours."""
    try:
        yield
    except OSError as error:
        raise Unreachable(
            f"a file of the warehouse cannot be reached: {type(error).__name__}: {error}",
            hint="`headwater check` says whether files are gone for good; otherwise `headwater run` tries again",
        ) from error


class DurableFileIO(PyArrowFileIO):
    """Named by the catalog property `py-io-impl`. An object store keeps what was written; a disk must be asked to."""

    def new_output(self, location: str) -> PyArrowFile:
        file = super().new_output(location)
        scheme, _, path = self.parse_location(location, self.properties)
        return _DurableFile(file, path) if scheme == "file" else file


class _DurableFile(PyArrowFile):
    def __init__(self, file: PyArrowFile, path: str) -> None:
        super().__init__(location=file.location, path=path, fs=file._filesystem)

    def create(self, overwrite: bool = False) -> OutputStream:
        make_folder(os.path.dirname(self._path))
        return _DurableStream(super().create(overwrite), self._path)


class _DurableStream:
    def __init__(self, stream: Any, path: str) -> None:
        self._stream = stream
        self._path = path

    def write(self, data: bytes) -> int:
        written: int = self._stream.write(data)
        return written

    def tell(self) -> int:
        at: int = self._stream.tell()
        return at

    def close(self) -> None:
        self._stream.close()
        sync(self._path)
        sync(os.path.dirname(self._path))

    def __enter__(self) -> _DurableStream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
