"""A lake that DuckDB writes, the feed of a table in it, and DuckDB's own answers to compare with."""

from __future__ import annotations

import pickle
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from itertools import pairwise
from typing import Any

import duckdb
import pyarrow as pa

from headwater.change import TableName
from headwater.ducklake.extension import attach, connect
from headwater.ducklake.finding import find_lake
from headwater.ducklake.lake import Lake
from headwater.ducklake.model import Field
from headwater.ducklake.url import parse_lake_url
from headwater.feed.source import Bound, Changes, SourceTable, TableAt
from headwater.feed.units import POSITION, UPSERT, Unit

__all__ = ["ALL", "FeedBench", "Rows", "T", "duckdb_with_lakes", "events_of", "net", "rows_of"]

T = TableName("main", "t")
ALL = Bound(10**9, 10**12)
Row = tuple[Any, ...]
Rows = Counter[Row]


def duckdb_with_lakes() -> duckdb.DuckDBPyConnection:
    con = connect(threads=1)
    con.execute("SET arrow_lossless_conversion = true")
    return con


class FeedBench:
    """`sql` asks DuckDB, in which the lake is called `alias` (`{l}` in the SQL); its tables are the source."""

    def __init__(self, lake: Lake, duck: duckdb.DuckDBPyConnection, alias: str) -> None:
        self.lake, self.duck, self.alias = lake, duck, alias

    @classmethod
    @contextmanager
    def opened(cls, url: str, data_path: str, duck: duckdb.DuckDBPyConnection) -> Iterator[FeedBench]:
        """A new lake."""
        alias = f"l{uuid.uuid4().hex[:8]}"
        attach(duck, parse_lake_url(url), alias, data_path=data_path)
        lake = find_lake(url, data_path)
        assert lake is not None
        try:
            yield cls(lake, duck, alias)
        finally:
            lake.close()
            with suppress(duckdb.Error):  # unless a test failed in a transaction
                duck.execute("ROLLBACK")
            with suppress(duckdb.Error):  # unless a test ended it with an internal error
                duck.execute(f"DETACH {alias}")

    def sql(self, *queries: str) -> list[Row]:
        for each in queries:
            found = self.duck.execute(each.replace("{l}", self.alias))
        return found.fetchall()

    def together(self, *queries: str) -> int:
        """Run them in one transaction."""
        self.sql("BEGIN", *queries, "COMMIT")
        return self.newest

    def do(self, query: str) -> int:
        """Run it; return the newest snapshot."""
        self.sql(query)
        return self.newest

    def inline(self, limit: int) -> None:
        """How many rows DuckDB may put into the catalog with one statement."""
        self.sql(f"CALL {{l}}.set_option('data_inlining_row_limit', {limit})")

    @property
    def newest(self) -> int:
        return self.lake.snapshot().id

    @property
    def snapshots(self) -> list[int]:
        """Those that are not expired."""
        return [id_ for id_, _ in self.lake.commits()]

    def table(self, name: TableName = T, **options: Any) -> SourceTable:
        return SourceTable(self.lake, name, **options)

    def at(self, snapshot: int, name: TableName = T) -> TableAt:
        found = self.table(name).at(snapshot)
        assert found is not None
        return found

    def shown(self, snapshot: int, name: TableName = T) -> Rows:
        """What DuckDB shows of the table in a snapshot."""
        return rows_of(
            self.duck.execute(
                f'SELECT * FROM {self.alias}."{name.schema}"."{name.name}" AT (VERSION => {snapshot})'
            ).to_arrow_table()
        )

    def changes(self, after: int, upto: int, name: TableName = T) -> Changes:
        """All changes of a span at once."""
        found = self.table(name).changes(after, self.at(upto, name), ALL)
        assert found.upto == self.at(upto, name)
        return found

    def events(self, after: int, upto: int, name: TableName = T) -> Rows:
        """The feed of a span: (snapshot, whether it is an upsert, *row)."""
        found = self.changes(after, upto, name)
        return events_of(found.units, found.upto.table.columns)

    def scanned(self, snapshot: int, columns: Sequence[Field], name: TableName = T) -> Rows:
        """What the feed shows of the table in a snapshot, under the columns of this or another one."""
        found = events_of(self.table(name).scan(self.at(snapshot, name)), columns)
        assert {event[:2] for event in found} <= {(snapshot, True)}
        return Rows({event[2:]: count for event, count in found.items()})

    def duckdb_events(self, after: int, upto: int, name: TableName = T) -> Rows:
        """The same as DuckDB's own feed has it; unfiltered, because it mislabels changes if a filter is pushed down."""
        found = self.duck.execute(
            f"SELECT * FROM ducklake_table_changes('{self.alias}', '{name.schema}', '{name.name}', {after + 1}, {upto})"
        ).to_arrow_table()
        names = ["snapshot_id", "change_type", *found.column_names[3:]]
        events = Rows()
        for row in rows_of(found.select(names)).elements():
            events[row[0], row[1] in ("insert", "update_postimage"), *row[2:]] += 1
        return events

    def in_pieces(self, after: int, upto: int, most: Bound, name: TableName = T, **options: Any) -> list[Changes]:
        """The changes of a span as a reader gets them who takes at most so much at once."""
        pieces, at = list[Changes](), after
        while at < upto:
            pieces.append(self.table(name, **options).changes(at, self.at(upto, name), most))
            assert at < pieces[-1].upto.snapshot <= upto
            at = pieces[-1].upto.snapshot
        return pieces

    def check(self, after: int, upto: int, name: TableName = T, scanned: Callable[..., Rows] | None = None) -> Rows:
        """Events on top of what `after` showed must come to what `upto` shows; return them."""
        scanned = cache(self.scanned) if scanned is None else scanned
        columns = self.at(upto, name).table.columns
        events = self.events(after, upto, name)
        applied = Rows(scanned(after, columns, name))
        for _, upsert, *row in sorted(events.elements(), key=lambda event: (event[0], event[1])):
            if upsert:
                applied[tuple(row)] += 1
            else:
                assert applied[tuple(row)] > 0, f"({after}, {upto}]: {row} is deleted, but was not there"
                applied[tuple(row)] -= 1
        assert +applied == scanned(upto, columns, name), f"({after}, {upto}]"
        return events

    def check_all(
        self, name: TableName = T, since: int = 0, shown: Mapping[int, Rows] | None = None
    ) -> dict[tuple[int, int], Rows]:
        """Every snapshot as DuckDB shows it; every pair of snapshots; adjacent spans divide a wider one exactly.

        `shown` is what DuckDB showed of snapshots while they were the newest: it may show something else now.
        """
        there = [id_ for id_ in self.snapshots if id_ >= since and self.table(name).at(id_) is not None]
        scanned = cache(self.scanned)
        columns = {id_: self.at(id_, name).table.columns for id_ in there}
        for id_ in there:
            wanted = (shown or {}).get(id_) or self.shown(id_, name)
            assert scanned(id_, columns[id_], name) == wanted, f"snapshot {id_}"
        found = {(low, high): self.check(low, high, name, scanned) for low in there for high in there if low < high}
        for low, middle in pairwise(there):
            for high in there:
                if high > middle and columns[middle] == columns[high]:
                    assert found[low, high] == found[low, middle] + found[middle, high], (low, middle, high)
        return found


def events_of(units: Iterable[Unit], columns: Sequence[Field]) -> Rows:
    """What workers read: units travel to them pickled."""
    found = Rows()
    for unit in units:
        for table in pickle.loads(pickle.dumps(unit)).read(columns, columns):
            assert table.column_names == [POSITION, UPSERT, *(each.name for each in columns)]
            found.update(rows_of(table))
    return found


def net(events: Rows) -> Rows:
    """Without rows that are both upserted and deleted in one snapshot."""
    pairs = Rows({event: min(count, events[event[0], not event[1], *event[2:]]) for event, count in events.items()})
    return events - pairs


def rows_of(table: pa.Table) -> Rows:
    """Rows as comparable values."""
    columns = [_values(column) for column in table.columns]
    return Rows(zip(*columns, strict=True))


def _values(column: pa.ChunkedArray) -> list[Any]:
    if pa.types.is_temporal(column.type):  # Python's dates end at the year 9999
        column = column.cast(pa.int32() if column.type.bit_width == 32 else pa.int64())
    return [_value(each) for each in column.to_pylist()]


def _value(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return tuple(_value(each) for each in value)
    if isinstance(value, dict):
        return tuple((key, _value(each)) for key, each in value.items())
    if isinstance(value, uuid.UUID):
        return value.bytes
    if isinstance(value, float):
        return repr(value)  # so that NaN equals NaN, and 0.0 does not equal -0.0
    return value
