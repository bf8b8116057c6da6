"""Compare source and lake at the same position, row counts and content, while writes go on."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal

from headwater.change import Relation, TableName
from headwater.copy.reading import Range, balanced, showing
from headwater.copy.snapshot import Exported, exported_snapshot
from headwater.errors import HeadwaterError, TableError, Unreachable
from headwater.flow import Mirroring
from headwater.lake.sink import Reader
from headwater.postgres.connect import Connection
from headwater.source.relations import described, row_filter
from headwater.state import TableRow
from headwater.values.types import lake_types
from headwater.verify.align import aligned
from headwater.verify.compare import Compared, Difference, Sides, compare
from headwater.verify.pair import Pair

__all__ = ["Difference", "Verdict", "Verified", "verify"]

Verdict = Literal["equal", "differs", "not compared"]

TRIES = 5
AWAITED = ("PENDING", "SNAPSHOT", "CATCHUP", "STREAMING")  # states in which a table comes to where the source is
LOSING = "the rows of a partition that was detached, dropped or truncated are being removed from the mirror"


@dataclass(frozen=True, slots=True)
class Verified:
    """A table's or a destination's verdict; `reason` says why it is that. What need not be compared is `ok`."""

    group: str | None  # None: it is a destination's
    table: str
    lake_table: str
    verdict: Verdict
    ok: bool = True
    reason: str = ""
    position: str | None = None
    snapshot_id: int | None = None
    source_rows: int | None = None
    lake_rows: int | None = None
    differences: tuple[Difference, ...] = ()
    route: str | None = None
    destination: str | None = None


@dataclass(frozen=True, slots=True)
class _Choice:
    """Which tables to compare: all, or `only` these; not those that `left` the config."""

    only: Collection[TableName]
    left: Collection[TableName]

    def includes(self, row: TableRow) -> bool:
        return not self.only or row.source in self.only

    def excuse(self, row: TableRow) -> str:
        """Why a table need not be compared; empty: it must be."""
        if row.state in ("PAUSED", "REMOVED"):
            return _state(row)
        if not row.options.copied and not row.copied_rows:
            return "it was added without a copy, so its mirror lacks the rows of before"
        return "it is no longer in the config" if row.source in self.left else ""


def verify(
    m: Mirroring, only: Collection[TableName], patience: float, left: Collection[TableName] = ()
) -> list[Verified]:
    """Compare a group's tables, or only these, with their mirrors, except those that `left` the config."""
    choice = _Choice(only, left)
    rows = [row for row in m.state.tables(m.group) if choice.includes(row)]
    if not any(row.state in AWAITED and not choice.excuse(row) for row in rows):
        return [_not_compared(row, choice.excuse(row) or _state(row), ok=bool(choice.excuse(row))) for row in rows]
    for _ in range(TRIES):
        with exported_snapshot(m.source_url) as exported, aligned(m, exported.lsn, patience) as snapshot:
            if snapshot is not None:
                with m.state.pinned(m.lake_id, snapshot):
                    return _compared(m, choice, exported, snapshot)
    raise Unreachable(
        f"the lake of group {m.group!r} could not be aligned with a snapshot of the source in {TRIES} attempts",
        hint="try again",
    )


def _compared(m: Mirroring, choice: _Choice, exported: Exported, snapshot: int) -> list[Verified]:
    found: list[Verified] = []
    pairs, rows = {}, {}
    reader = m.sink.reader(snapshot)
    mirrors = _mirrors(reader)
    with showing(m.source_url, exported.snapshot_name) as connection:
        losing = {each.oid for each in m.state.removals(m.group)}
        for row in filter(choice.includes, m.state.tables(m.group)):
            if excuse := choice.excuse(row):
                found.append(_not_compared(row, excuse, ok=True))
                continue
            if row.oid in losing and row.state in ("CATCHUP", "STREAMING"):
                found.append(_not_compared(row, LOSING, ok=False))
                continue
            try:
                pair = _pair(m, row, connection, mirrors)
                if pair.history and not pair.key:
                    found.append(_not_compared(row, "its history has no key that identifies rows", ok=True))
                    continue
                pairs[row.oid] = pair, _ranges(m, connection, row)
                rows[row.oid] = row
            except HeadwaterError as error:
                found.append(_not_compared(row, error.message, ok=False))
    if pairs:
        sides = Sides(m.sink.source, m.source_url, exported.snapshot_name, reader)
        for oid, each in compare(m.spark, sides, pairs).items():
            found.append(_verdict(rows[oid], each, exported, snapshot if m.sink.lake_snapshots else None))
    return found


def _ranges(m: Mirroring, connection: Connection, row: TableRow) -> list[Range]:
    return balanced(connection, row.oid, m.spark.sparkContext.defaultParallelism)


def _not_compared(row: TableRow, reason: str, *, ok: bool) -> Verified:
    return Verified(row.group, str(row.source), str(row.lake), "not compared", ok=ok, reason=reason)


def _verdict(row: TableRow, each: Compared, exported: Exported, snapshot: int | None) -> Verified:
    if each.error:
        return _not_compared(row, each.error, ok=False)
    return Verified(
        group=row.group,
        table=str(row.source),
        lake_table=str(row.lake),
        verdict="equal" if each.equal else "differs",
        ok=each.equal,
        reason=each.fault,
        position=str(exported.lsn),
        snapshot_id=snapshot,
        source_rows=None if each.fault else each.source_rows,
        lake_rows=None if each.fault else each.lake_rows,
        differences=each.differences,
    )


def _mirrors(reader: Reader) -> dict[TableName, set[str]]:
    """The columns of each table in the lake as it was then, in lower case: DuckDB ignores case."""
    found: dict[TableName, set[str]] = {}
    with reader.connect() as con:
        reader.attach(con, "lake")
        query = "SELECT schema_name, table_name, column_name FROM duckdb_columns() WHERE database_name = ?"
        for schema, table, column in con.execute(query, ["lake"]).fetchall():
            found.setdefault(TableName(schema, table), set()).add(str(column).lower())
    return found


def _pair(m: Mirroring, row: TableRow, connection: Connection, mirrors: Mapping[TableName, set[str]]) -> Pair:
    """How to compare a table; TableError if it cannot be."""
    if row.state not in ("CATCHUP", "STREAMING"):
        raise TableError(_state(row))
    group = m.state.group(row.group)
    publication = group.publication if group else ""
    relation = described(connection, row.oid, publication)
    columns = mirrors.get(row.lake)
    if columns is None:
        raise TableError(f"the lake has no snapshot that shows {row.lake} then: it was dropped, or they have expired")
    lacking = [column.name for column in relation.columns if column.name.lower() not in columns]
    if lacking:
        raise TableError(f"the lake's table {row.lake} has no column {lacking[0]!r}")
    return Pair(
        relation,
        row.lake,
        tuple(lake_types(relation.columns, row.options.types, calendar_only=m.sink.calendar_only).values()),
        row_filter(connection, publication, row.oid),
        row.options.mode == "history",
        _earlier_names(m, relation),
        connection.info.parameter_status("server_encoding") == "SQL_ASCII",
    )


def _state(row: TableRow) -> str:
    """Why a table has no mirror to compare with now."""
    if row.state in ("PENDING", "SNAPSHOT"):
        return f"it is waiting to be copied again: {row.resync}" if row.resync else "it has not been copied yet"
    return f"it is {row.state}" + (f": {row.error}" if row.error else "")


def _earlier_names(m: Mirroring, relation: Relation) -> dict[str, list[str]]:
    """Other names that columns have had, by their present ones."""
    names: dict[int, list[str]] = {column.attnum: [column.name] for column in relation.columns}
    versions = m.state.query(
        "SELECT id FROM headwater.relations WHERE group_name = %s AND oid = %s", (m.group, relation.oid)
    )
    for column in (
        each for version in m.log.relations(id_ for (id_,) in versions).values() for each in version.columns
    ):
        if column.name not in (had := names.get(column.attnum, [column.name])):
            had.append(column.name)
    return {now: earlier for now, *earlier in names.values() if earlier}
