"""Where the config says that a lake is: looked at, checked, opened."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from headwater.change import TableName
from headwater.lake.partitioning import PartitionSupport
from headwater.lake.reading import QueriedLake
from headwater.lake.sink import Sink
from headwater.lake.stream import P, Stream

__all__ = ["LakeAddress"]


class LakeAddress(Protocol):
    """`str()` of it is fit for messages: without a password."""

    def within(self, seconds: int) -> LakeAddress:
        """The same lake; a catalog that is locked, or does not answer, is given up after so long: TimedOut."""
        ...

    def partitions(self) -> PartitionSupport:
        """What tables can be partitioned by there."""
        ...

    def check_could_open(self) -> None:
        """Refuse a lake that could not be opened for writing, or created. Nothing is changed."""
        ...

    def find(self, source: str, stream: Stream[P]) -> Sink[Any, P] | None:
        """The lake as it is, to look at; None if there is none. Nothing is created."""
        ...

    def folders(self) -> Mapping[str, str]:
        """Paths that are written to, by what is there (`lake`, `catalog of`)."""
        ...

    def queried(self) -> QueriedLake:
        """The lake, for people to query."""
        ...

    def lines(self, alias: str, table: TableName) -> list[str]:
        """What people type into DuckDB to read a table, under this name for the lake; no password is in it."""
        ...

    def reopen(self, source: str, stream: Stream[P]) -> Sink[Any, P]:
        """A lake that was opened before, without the questions that `open` asks: inside Spark's workers."""
        ...

    def open(self, source: str, stream: Stream[P]) -> Sink[Any, P]:
        """The lake, for the stream that it knows as `source`; created when missing."""
        ...
