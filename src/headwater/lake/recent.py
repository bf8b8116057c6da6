"""What was read of small files not long ago. Files of a lake never change, so it is still true."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Generic, TypeVar

import pyarrow as pa

__all__ = ["SMALL_FILE", "Recent", "RecentKeys"]

Found = TypeVar("Found")
Pieces = Iterable[tuple[int, list[pa.Array]]]  # of a file's key columns, each with the position of its first row
SMALL_FILE = 10_000  # rows
_OVERHEAD = 1024  # bytes that an entry takes beside its values, about


class Recent(Generic[Found]):
    """At most so many bytes; what was asked for longest ago is forgotten first."""

    def __init__(self, limit: int, arrays: Callable[[Found], Iterable[pa.Array]]) -> None:
        self._limit = limit
        self._arrays = arrays
        self._held: OrderedDict[Hashable, tuple[Found, int]] = OrderedDict()
        self._size = 0
        self._lock = threading.Lock()

    def get(self, key: Hashable, read: Callable[[], Found]) -> Found:
        with self._lock:
            if key in self._held:
                self._held.move_to_end(key)
                return self._held[key][0]
        found = read()
        self.put(key, found)
        return found

    def put(self, key: Hashable, found: Found) -> None:
        """Remember what was read by other means."""
        self._add(key, found, _OVERHEAD + sum(array.nbytes for array in self._arrays(found)))

    def _add(self, key: Hashable, found: Found, size: int) -> None:
        with self._lock:
            self._size -= self._held.pop(key, (None, 0))[1]
            if size <= self._limit:
                self._held[key] = found, size
                self._size += size
            while self._size > self._limit:
                _, (_, freed) = self._held.popitem(last=False)
                self._size -= freed


class RecentKeys:
    """Keys of small files: there are many of them, and each is searched by many deliveries before they are merged."""

    def __init__(self, limit: int) -> None:
        self._recent = Recent[list[tuple[int, list[pa.Array]]]](
            limit, lambda pieces: (array for _, arrays in pieces for array in arrays)
        )

    def get(self, key: Hashable, rows: int, read: Callable[[], Pieces]) -> Iterator[tuple[int, list[pa.Array]]]:
        """The keys of a file that has so many rows."""
        return iter(read() if rows > SMALL_FILE else self._recent.get(key, lambda: list(read())))
