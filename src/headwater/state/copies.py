"""The rows of copies that are not in the lake yet: what is done of each, so that a crash costs only the rest."""

from __future__ import annotations

import pickle
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from headwater.change import Lsn
from headwater.lake.target import Part
from headwater.postgres.connect import Connection
from headwater.state.database import Database

__all__ = ["Copies", "KeptCopy", "KeptRange", "forget"]


@dataclass(frozen=True, slots=True)
class KeptRange:
    """Pages of a table, or of a partition of it, as the source was at `lsn`: what the lake has to say about its rows.

    Without an end: to the end of the table, as it was then.
    """

    oid: int  # of the table or partition that has the pages
    first_page: int
    end_page: int | None
    lsn: Lsn
    rows: int
    attempt: str  # in the names of its files
    reports: tuple[tuple[Part, bytes], ...]


@dataclass(frozen=True, slots=True)
class KeptCopy:
    """What there is of a table's copy: one of the same `definition`, to where `note` says, can go on with it."""

    definition: str
    note: bytes
    ranges: tuple[KeptRange, ...] = ()


class Copies(Database):
    """The unfinished copies of the state."""

    def begin_copy(self, group: str, attempt: str, notes: Mapping[int, tuple[str, bytes]]) -> None:
        """Note of each table the definition and the lake's note; a copy that goes on has both already.

        From here on, only ranges of this attempt are noted.
        """

        def work(connection: Connection) -> None:
            connection.cursor().executemany(
                "INSERT INTO headwater.copies (group_name, source_oid, definition, note, attempt)"
                " VALUES (%s, %s, %s, %s, %s)"
                " ON CONFLICT (group_name, source_oid) DO UPDATE SET attempt = excluded.attempt",
                [(group, oid, definition, note, attempt) for oid, (definition, note) in notes.items()],
            )

        self._connection.run(work)

    def end_attempts(self, group: str) -> None:
        """Note no more ranges until a copy begins: tasks that outlived their driver may still be at work."""
        self._write(
            "UPDATE headwater.copies SET attempt = NULL WHERE group_name = %s AND attempt IS NOT NULL", (group,)
        )

    def keep_range(self, group: str, oid: int, done: KeptRange) -> None:
        """Note that a range is done. Noting it again changes nothing.

        Nor does it once the copy is to start over, or another attempt has taken it up, which may delete files of ours.
        """

        def work(connection: Connection) -> None:
            new = connection.execute(
                "INSERT INTO headwater.copied_ranges"
                " (group_name, source_oid, part_oid, first_page, end_page, lsn, rows, attempt, reports)"
                " SELECT group_name, source_oid, %s, %s, %s, %s, %s, %s, %s FROM headwater.copies"
                " WHERE group_name = %s AND source_oid = %s AND attempt = %s FOR SHARE ON CONFLICT DO NOTHING",
                (
                    *(done.oid, done.first_page, done.end_page, done.lsn, done.rows, done.attempt),
                    *(pickle.dumps(done.reports), group, oid, done.attempt),
                ),
            )
            connection.execute(
                "UPDATE headwater.tables SET copied_rows = copied_rows + %s, updated_at = now()"
                " WHERE group_name = %s AND source_oid = %s",
                (done.rows if new.rowcount else 0, group, oid),
            )

        self._connection.run(work)

    def copy_seconds(self, group: str) -> dict[int, float]:
        """How long ago each unfinished copy began, by table."""
        age = "extract(epoch FROM clock_timestamp() - begun_at)::float"
        return dict(self.query(f"SELECT source_oid, {age} FROM headwater.copies WHERE group_name = %s", (group,)))

    def kept_copies(self, group: str) -> dict[int, KeptCopy]:
        """The unfinished copies of a group's tables."""
        found = {
            oid: KeptCopy(definition, bytes(note))
            for oid, definition, note in self.query(
                "SELECT source_oid, definition, note FROM headwater.copies WHERE group_name = %s", (group,)
            )
        }
        ranges = self.query(
            "SELECT source_oid, part_oid, first_page, end_page, lsn, rows, attempt, reports"
            " FROM headwater.copied_ranges WHERE group_name = %s ORDER BY source_oid, part_oid, first_page",
            (group,),
        )
        kept: dict[int, list[KeptRange]] = {oid: [] for oid in found}
        for oid, part, first, end, lsn, rows, attempt, reports in ranges:
            kept[oid].append(KeptRange(part, first, end, lsn, rows, attempt, pickle.loads(reports)))
        return {oid: KeptCopy(each.definition, each.note, tuple(kept[oid])) for oid, each in found.items()}

    def forget_copies(self, group: str, tables: Collection[int]) -> None:
        """They are to start over."""
        self._connection.run(lambda connection: forget(connection, group, tables))


def forget(connection: Connection, group: str, tables: Collection[int]) -> None:
    """The same, in the caller's transaction."""
    connection.execute(
        "DELETE FROM headwater.copies WHERE group_name = %s AND source_oid = ANY(%s)", (group, list(tables))
    )
