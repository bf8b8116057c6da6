"""The events of rows that are in the catalog itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from headwater.ducklake.catalog import Transaction, open_catalog
from headwater.ducklake.inlined import InlinedTable, ReadRows, read_inlined
from headwater.ducklake.model import Field
from headwater.ducklake.url import LakeUrl
from headwater.errors import Outdated
from headwater.feed.spans import NEVER, Moment, Span
from headwater.feed.units import event_tables
from headwater.lake.sqltext import identifier

__all__ = ["INLINED_ROW", "InlinedUnit", "counted"]

INLINED_ROW = 200  # bytes of a row, about: the catalog does not say


def _condition(span: Span | Moment) -> tuple[str, tuple[int, ...]]:
    if isinstance(span, Moment):
        return "begin_snapshot <= %s AND (end_snapshot IS NULL OR end_snapshot > %s)", (span.snapshot,) * 2
    condition = "begin_snapshot > %s AND begin_snapshot <= %s OR end_snapshot > %s AND end_snapshot <= %s"
    return condition, (span.after, span.upto) * 2


def counted(tx: Transaction, table: InlinedTable, span: Span | Moment) -> int:
    """How many of its rows have events in the span, or are alive in the moment."""
    condition, given = _condition(span)
    ((count,),) = tx.rows(f"SELECT count(*) FROM {identifier(table.name)} WHERE {condition}", *given)
    return int(count)


@dataclass(frozen=True, slots=True)
class InlinedUnit:
    """The events of one of these tables; of its rows, those with `row_id % of == part`.

    `expected` is how many rows of the whole table are in the span: another number of them shows that they were moved.
    """

    url: LakeUrl
    table: InlinedTable
    span: Span | Moment
    expected: int
    rows: int
    bytes: int
    part: int = 0
    of: int = 1

    def read(self, columns: Sequence[Field], of_deletes: Sequence[Field]) -> Iterator[pa.Table]:
        found = self._rows(columns)
        if not len(found.ids):
            return
        made, ended = found.begun.to_numpy(), pc.fill_null(found.ended, NEVER).to_numpy()
        arrays = {each.id: found.columns[place].combine_chunks() for place, each in enumerate(columns)}
        deletes = {each.id: arrays[each.id] for each in of_deletes}
        yield from event_tables(self.span.events(made, ended), columns, arrays, deletes)

    def _rows(self, columns: Sequence[Field]) -> ReadRows:
        condition, given = _condition(self.span)
        with closing(open_catalog(self.url)) as catalog, catalog.transaction() as tx:
            there = tx.existing([self.table.name])
            if not there or counted(tx, self.table, self.span) != self.expected:
                raise Outdated(
                    f"rows in the table {self.table.name!r} of the catalog {self.url} are no longer there",
                    hint="they were flushed to a file meanwhile: plan again",
                )
            part = f"({condition}) AND row_id %% %s = %s"
            return read_inlined(tx, self.table, columns, part, *given, self.of, self.part)
