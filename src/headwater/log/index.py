"""The index of the log in PostgreSQL: the segments, what each holds, and up to where the log is complete."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby

from headwater.change import Committed, Lsn
from headwater.errors import OperatorMustAct
from headwater.log.segment import Part
from headwater.postgres.connect import Connection
from headwater.state import State

__all__ = ["Index", "Indexed", "Written"]

_PAGE = 500  # segments asked for at a time


@dataclass(frozen=True, slots=True)
class Written:
    """A segment file that is written and not yet registered."""

    name: str
    first_lsn: Lsn
    last_lsn: Lsn
    rows: int
    bytes: int  # in memory
    file_bytes: int
    first_commit: datetime  # by the source's clock, like the next
    last_commit: datetime
    parts: tuple[Part, ...]
    streamed: Committed | None = None  # its commit, if its rows do not have it
    aborted: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Indexed:
    """A registered segment."""

    id: int
    name: str
    first_lsn: Lsn
    last_lsn: Lsn
    end_lsn: Lsn
    rows: int
    bytes: int
    first_commit: datetime
    last_commit: datetime
    age: float  # seconds in the log, when it was read
    streamed_ts: datetime | None
    streamed_xid: int | None
    aborted: list[int]


class Index:
    """One group's rows in the tables segments and segment_parts."""

    def __init__(self, state: State, group: str) -> None:
        self._state = state
        self._group = group

    def bounds(self) -> tuple[Lsn, Lsn]:
        """Where the log begins (0/0: not yet) and where it ends."""
        rows = self._state.query(
            "SELECT trimmed_lsn, captured_lsn FROM headwater.groups WHERE name = %s", (self._group,)
        )
        begin, end = rows[0] if rows else (None, None)
        return begin or Lsn(0), end or Lsn(0)

    def whole_from(self) -> Lsn:
        """From where on nothing is missing: where the log begins, or behind what was lost of it."""
        rows = self._state.query(
            "SELECT greatest(trimmed_lsn, lost_lsn) FROM headwater.groups WHERE name = %s", (self._group,)
        )
        return (rows[0][0] if rows else None) or Lsn(0)

    def register(self, written: Sequence[Written], after: Lsn, upto: Lsn, check: Callable[[], None]) -> None:
        """Make the files part of the log, which grows from `after` to `upto`, in one transaction.

        `upto` is also noted as confirmed: it is sent to the slot next. Tried once: after Unreachable, ask `bounds`.
        `check` is called while no other process can register or sweep.
        """
        with self._state.transaction() as connection:
            moved = connection.execute(
                "UPDATE headwater.groups SET captured_lsn = %s, confirmed_lsn = %s, captured_at = now(),"
                " captured_commit_at = %s, captured_changes = captured_changes + %s, updated_at = now()"
                " WHERE name = %s AND captured_lsn = %s",
                (
                    *(upto, upto, max((each.last_commit for each in written), default=None)),
                    *(sum(each.rows for each in written), self._group, after),
                ),
            )
            if moved.rowcount != 1:
                raise OperatorMustAct(
                    f"the log of group {self._group!r} no longer ends at {after}: another process writes it",
                    hint="stop the other headwater; only one may capture a group",
                )
            check()
            for each in written:
                self._add(connection, each, upto)

    def _add(self, connection: Connection, each: Written, upto: Lsn) -> None:
        row = connection.execute(
            "INSERT INTO headwater.segments"
            " (group_name, path, first_lsn, last_lsn, end_lsn, rows, bytes, file_bytes, first_commit_at,"
            " last_commit_at, streamed_ts, streamed_xid, aborted)"
            " VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s::bigint[]) RETURNING id",
            (
                self._group,
                each.name,
                each.first_lsn,
                each.last_lsn,
                upto,
                each.rows,
                each.bytes,
                each.file_bytes,
                each.first_commit,
                each.last_commit,
                each.streamed and each.streamed.ts,
                each.streamed and each.streamed.xid,
                sorted(each.aborted),
            ),
        ).fetchone()
        assert row is not None
        connection.execute(
            "INSERT INTO headwater.segment_parts (segment_id, relation_id, rows, bytes, ops, first_lsn, last_lsn)"
            " SELECT %s, * FROM unnest(%s::bigint[], %s::bigint[], %s::bigint[], %s::text[], %s::pg_lsn[],"
            " %s::pg_lsn[])",
            (
                row[0],
                [part.relation_id for part in each.parts],
                [part.rows for part in each.parts],
                [part.bytes for part in each.parts],
                [part.ops for part in each.parts],
                [part.first_lsn for part in each.parts],
                [part.last_lsn for part in each.parts],
            ),
        )

    @contextmanager
    def still(self) -> Iterator[None]:
        """Within the block, nothing is registered."""
        with self._state.transaction() as connection:
            connection.execute("SELECT FROM headwater.groups WHERE name = %s FOR UPDATE", (self._group,))
            yield

    def segments(self, after: Lsn, before: Lsn) -> Iterator[Indexed]:
        """Segments that may hold a commit with after <= commit_lsn < before, in commit order."""
        place: tuple[Lsn, int] = (after, 0)
        while True:
            rows = self._state.query(
                "SELECT id, path, first_lsn, last_lsn, end_lsn, rows, bytes, first_commit_at, last_commit_at,"
                " extract(epoch FROM clock_timestamp() - created_at)::float8, streamed_ts, streamed_xid, aborted"
                " FROM headwater.segments WHERE group_name = %s AND (last_lsn, id) > (%s, %s)"
                " AND first_lsn < %s ORDER BY last_lsn, id LIMIT %s",
                (self._group, *place, before, _PAGE),
            )
            yield from (Indexed(*row) for row in rows)
            if len(rows) < _PAGE:
                return
            place = (rows[-1][3], rows[-1][0])

    def parts(self, segments: Sequence[int]) -> dict[int, tuple[Part, ...]]:
        rows = self._state.query(
            "SELECT segment_id, relation_id, rows, bytes, ops, first_lsn, last_lsn FROM headwater.segment_parts"
            " WHERE segment_id = ANY(%s) ORDER BY segment_id, relation_id",
            (list(segments),),
        )
        return {key: tuple(Part(*row[1:]) for row in group) for key, group in groupby(rows, lambda row: int(row[0]))}

    def truncations(self, oid: int, since: Lsn) -> list[tuple[str, list[int]]]:
        """Files that hold a TRUNCATE of the table at `since` or later, perhaps, and its versions in them."""
        rows = self._state.query(
            "SELECT s.path, array_agg(r.id) FROM headwater.segments s JOIN headwater.segment_parts p"
            " ON p.segment_id = s.id JOIN headwater.relations r ON r.id = p.relation_id"
            " WHERE s.group_name = %s AND r.oid = %s AND p.ops LIKE '%%T%%' AND p.last_lsn >= %s GROUP BY s.path",
            (self._group, oid, since),
        )
        return [(path, versions) for path, versions in rows]

    def names(self) -> set[str]:
        """Every registered file."""
        return {
            row[0]
            for row in self._state.query("SELECT path FROM headwater.segments WHERE group_name = %s", (self._group,))
        }

    def size(self) -> int:
        """Bytes of the registered files."""
        query = "SELECT coalesce(sum(file_bytes), 0)::bigint FROM headwater.segments WHERE group_name = %s"
        return int(self._state.query(query, (self._group,))[0][0])

    def end_of_oldest(self, size: int) -> Lsn | None:
        """Where the oldest segments end that have so many bytes together; None: all of them have fewer."""
        rows = self._state.query(
            "SELECT min(end_lsn) FROM (SELECT end_lsn, sum(file_bytes) OVER (ORDER BY end_lsn) AS size"
            " FROM headwater.segments WHERE group_name = %s) AS oldest WHERE size >= %s",
            (self._group, size),
        )
        return rows[0][0] if rows else None

    def changed(self, names: Collection[str]) -> list[tuple[int, Lsn, Lsn]]:
        """The tables with changes in these files: OID, the last of these commits, and the end of its segment."""
        rows = self._state.query(
            "SELECT r.oid, max(p.last_lsn), max(s.end_lsn) FROM headwater.segments s"
            " JOIN headwater.segment_parts p ON p.segment_id = s.id JOIN headwater.relations r ON r.id = p.relation_id"
            " WHERE s.group_name = %s AND s.path = ANY(%s) GROUP BY r.oid",
            (self._group, list(names)),
        )
        return [(oid, last, end) for oid, last, end in rows]

    def lose(self, names: Collection[str]) -> None:
        """Forget segments whose files are gone; the log begins after them once every reader has passed them."""
        with self._state.transaction() as connection:
            rows = connection.execute(
                "DELETE FROM headwater.segments WHERE group_name = %s AND path = ANY(%s) RETURNING end_lsn",
                (self._group, list(names)),
            ).fetchall()
            if rows:
                connection.execute(
                    "UPDATE headwater.groups SET lost_lsn = greatest(lost_lsn, %s) WHERE name = %s",
                    (max(end for (end,) in rows), self._group),
                )

    def trim(self, before: Lsn, retention: timedelta) -> list[str]:
        """Forget segments that end at or below `before` and are old enough; return their files."""
        with self._state.transaction() as connection:
            rows = connection.execute(
                "DELETE FROM headwater.segments WHERE group_name = %s AND end_lsn <= %s"
                " AND created_at <= now() - %s RETURNING path, end_lsn",
                (self._group, before, retention),
            ).fetchall()
            if rows:
                connection.execute(
                    "UPDATE headwater.groups SET trimmed_lsn = greatest(trimmed_lsn, %s) WHERE name = %s",
                    (max(end for _, end in rows), self._group),
                )
            connection.execute(
                "UPDATE headwater.groups SET trimmed_lsn = greatest(trimmed_lsn, lost_lsn), lost_lsn = NULL"
                " WHERE name = %s AND lost_lsn <= %s",
                (self._group, before),
            )
        return [path for path, _ in rows]
