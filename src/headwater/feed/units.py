"""Pieces of a plan that Spark's workers read, each by itself: without the driver's objects, and in bounded memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from headwater.ducklake.contents import stored_columns
from headwater.ducklake.model import Field, RowNumbers
from headwater.ducklake.writing import plain_type
from headwater.feed.spans import NEVER, Events, Moment, Snapshots, Span
from headwater.feed.stored import StoredFile, outdated
from headwater.files import S3, filesystem
from headwater.lake.casting import fitted, unlabelled
from headwater.lake.parquet import opened, read_group

__all__ = ["POSITION", "UPSERT", "FileUnit", "Unit", "event_schema", "event_tables"]

POSITION, UPSERT = "_position", "_upsert"


class Unit(Protocol):
    """A part of a plan: about so many events, and bytes to read for them. It can be pickled."""

    @property
    def rows(self) -> int: ...
    @property
    def bytes(self) -> int: ...

    def read(self, columns: Sequence[Field], of_deletes: Sequence[Field]) -> Iterator[pa.Table]:
        """The events, as `event_schema(columns)`; a delete has values in the columns `of_deletes` only.

        Outdated: what was planned is no longer where it was.
        """
        ...


def event_schema(columns: Iterable[Field]) -> pa.Schema:
    """`_position`, the snapshot of the event; `_upsert`, else it is a delete; then the row."""
    fields = [pa.field(POSITION, pa.int64()), pa.field(UPSERT, pa.bool_())]
    return pa.schema([*fields, *(pa.field(each.name, unlabelled(plain_type(each))) for each in columns)])


def event_tables(
    events: Events, columns: Sequence[Field], upserts: dict[int, pa.Array], deletes: dict[int, pa.Array]
) -> Iterator[pa.Table]:
    """Events as tables: their rows are taken from the given columns, by the columns' ids."""
    schema = event_schema(columns)
    for places, at, upsert, found in (
        (events.upserted, events.upserted_at, True, upserts),
        (events.deleted, events.deleted_at, False, deletes),
    ):
        if len(places):
            taken = pa.array(places)
            values = [
                fitted(found[id_].take(taken), type_) if id_ in found else pa.nulls(len(places), type_)
                for id_, type_ in zip([each.id for each in columns], schema.types[2:], strict=True)
            ]
            yield pa.Table.from_arrays(
                [pa.array(at), pa.repeat(pa.scalar(upsert), len(places)), *values], schema=schema
            )


@dataclass(frozen=True, slots=True, eq=False)
class FileUnit:
    """The events of a data file: those of the row groups that begin with one of the rows [first, last)."""

    file: StoredFile
    span: Span | Moment
    first: int
    last: int
    rows: int
    bytes: int
    s3: S3 | None = None

    def read(self, columns: Sequence[Field], of_deletes: Sequence[Field]) -> Iterator[pa.Table]:
        with outdated(self.file.path):
            files = filesystem(self.file.path, self.s3)
            deleted = self.file.deleted(files)
            with opened(files, self.file.path) as parquet:
                yield from self._read(parquet, deleted, columns, of_deletes)

    def _read(
        self,
        parquet: pq.ParquetFile,
        deleted: tuple[RowNumbers, Snapshots],
        columns: Sequence[Field],
        of_deletes: Sequence[Field],
    ) -> Iterator[pa.Table]:
        start = 0
        for group in range(parquet.num_row_groups):
            first, start = start, start + parquet.metadata.row_group(group).num_rows
            if not self.first <= first < self.last or not self._may_have_events(deleted, first, start):
                continue
            events = self.span.events(self.file.made(parquet, group), self._ended(deleted, first, start))
            upserts = self._columns(parquet, group, columns if len(events.upserted) else ())
            deletes = upserts or self._columns(parquet, group, of_deletes if len(events.deleted) else ())
            wanted = {each.id for each in of_deletes}
            kept = {id_: array for id_, array in deletes.items() if id_ in wanted}
            yield from event_tables(events, columns, upserts, kept)

    def _may_have_events(self, deleted: tuple[RowNumbers, Snapshots], first: int, last: int) -> bool:
        """Whether rows [first, last) can have any: a few deletes of a large file are found without reading it all."""
        if isinstance(self.span, Moment) or self.file.makes_rows_in(self.span) or self.file.ends_rows_in(self.span):
            return True
        rows, snapshots = deleted
        inside = slice(*np.searchsorted(rows, [first, last]))
        return bool(np.any(snapshots[inside] > self.span.after))

    def _ended(self, deleted: tuple[RowNumbers, Snapshots], first: int, last: int) -> Snapshots:
        whole = isinstance(self.span, Moment) or self.file.end not in self.span.quiet
        ended = np.full(last - first, self.file.end if self.file.end is not None and whole else NEVER, np.int64)
        rows, snapshots = deleted
        inside = slice(*np.searchsorted(rows, [first, last]))
        at = rows[inside] - first
        ended[at] = np.minimum(ended[at], snapshots[inside])
        return ended

    def _columns(self, parquet: pq.ParquetFile, group: int, fields: Sequence[Field]) -> dict[int, pa.Array]:
        found = read_group(parquet, group, stored_columns(parquet, self.file, fields)) if fields else ()
        return {field.id: array for field, array in zip(fields, found, strict=True)}
