"""The rows of groups: which source, slot, log and lake each has, and how far it is."""

from __future__ import annotations

from collections.abc import Callable

from headwater.change import Lsn
from headwater.errors import OperatorMustAct
from headwater.postgres.timeline import Timeline
from headwater.state.additions import forget_group
from headwater.state.database import Database, storable
from headwater.state.requests import give_up_requests
from headwater.state.rows import GroupRow, Location, Stage

__all__ = ["Groups"]

_GROUP = (
    "SELECT name, source_id, slot, publication, slot_requested, captured_lsn, confirmed_lsn, delivered_lsn,"
    " trimmed_lsn, ddl_marks, ddl_lsn, ddl_doubted, watched_lsn, snapshot_id, delivered_at, capture_error,"
    " delivery_error, log_path, log_id, lake_url, lake_id, timeline, forked_lsn, updated_at FROM headwater.groups"
)


class Groups(Database):
    """The groups of the state."""

    def ensure_group(self, name: str, source_id: str, slot: str, publication: str) -> GroupRow:
        """Make the group known; refuse one that belongs to another source."""
        self._write(
            "INSERT INTO headwater.groups (name, source_id, slot, publication) VALUES (%s, %s, %s, %s)"
            " ON CONFLICT (name) DO NOTHING",
            (name, source_id, slot, publication),
        )
        row = self.group(name)
        assert row is not None
        if (row.source_id, row.slot, row.publication) != (source_id, slot, publication):
            raise OperatorMustAct(
                f"group {name!r} was captured from source {row.source_id!r}, slot {row.slot!r};"
                f" now it should be {source_id!r}, slot {slot!r}",
                hint=f"point `source` back at that database; or start over: `headwater group drop {name}`, then"
                " `headwater run` copies the tables again",
            )
        return row

    def group(self, name: str) -> GroupRow | None:
        return next(iter(self._rows(GroupRow, f"{_GROUP} WHERE name = %s", (name,))), None)

    def groups(self) -> list[GroupRow]:
        return self._rows(GroupRow, f"{_GROUP} ORDER BY name", ())

    def drop_group(self, name: str, settled: tuple[int, str] | None = None) -> None:
        """Forget the group, its tables, the index of its log, and what was asked of it before it was to be dropped.

        `settled` is the request that asked for that, if one did, and what became of it.
        """
        with self.transaction() as connection:
            # Segments first: the rows of their parts refer to the relations.
            connection.execute("DELETE FROM headwater.segments WHERE group_name = %s", (name,))
            connection.execute("DELETE FROM headwater.groups WHERE name = %s", (name,))
            forget_group(connection, name)
            give_up_requests(connection, name, settled)

    def record_lake(self, group: str, lake: Location | None) -> None:
        """Note which lake is the group's; None: the one that is opened next."""
        self._write(
            "UPDATE headwater.groups SET lake_url = %s, lake_id = %s, updated_at = now() WHERE name = %s",
            (*(lake or (None, None)), group),
        )

    def record_log(self, group: str, settle: Callable[[Location | None], Location]) -> None:
        """Note which log is the group's: `settle` turns what is recorded into that. One process at a time does so."""
        with self.transaction() as connection:
            row = connection.execute(
                "SELECT log_path, log_id FROM headwater.groups WHERE name = %s FOR UPDATE", (group,)
            ).fetchone()
            assert row is not None, "a group is made before its log is used"
            recorded = Location.of(*row)
            if (settled := settle(recorded)) != recorded:
                connection.execute(
                    "UPDATE headwater.groups SET log_path = %s, log_id = %s, updated_at = now() WHERE name = %s",
                    (*settled, group),
                )

    def record_error(self, group: str, stage: Stage, error: str | None) -> None:
        """Note what keeps a stage of the group from going on; None: nothing any more."""
        error = storable(error)
        self._write(
            f"UPDATE headwater.groups SET {stage}_error = %s, updated_at = now()"
            f" WHERE name = %s AND {stage}_error IS DISTINCT FROM %s",
            (error, group, error),
        )

    def request_slot(self, group: str) -> None:
        """Note that the group's slot is about to be created, so that it is known as ours after a crash."""
        self._write("UPDATE headwater.groups SET slot_requested = true, updated_at = now() WHERE name = %s", (group,))

    def begin_capture(self, group: str, lsn: Lsn) -> None:
        """Note where the new slot begins, and the log with it: nothing from before that position can be read."""
        self._write(
            "UPDATE headwater.groups SET captured_lsn = %s, confirmed_lsn = %s, trimmed_lsn = %s, captured_at = now(),"
            " updated_at = now()"
            " WHERE name = %s AND captured_lsn IS NULL",
            (lsn, lsn, lsn, group),
        )

    def follow(self, group: str, timeline: Timeline, forked: Lsn | None = None, begin: Lsn | None = None) -> None:
        """Note the timeline that the log goes on with, and where it `forked` off; at `begin`, the log begins anew.

        The lake is compared with that later, see `settle_fork`.
        """
        self._write(
            "UPDATE headwater.groups SET timeline = %(timeline)s, forked_lsn = least(forked_lsn, %(forked)s),"
            " captured_lsn = greatest(captured_lsn, %(begin)s), confirmed_lsn = greatest(confirmed_lsn, %(begin)s),"
            " trimmed_lsn = greatest(trimmed_lsn, %(begin)s), updated_at = now() WHERE name = %(group)s",
            {"timeline": str(timeline), "forked": forked, "begin": begin, "group": group},
        )

    def settle_fork(self, group: str, forked: Lsn) -> None:
        """What the lake has beyond this fork is dealt with."""
        self._write(
            "UPDATE headwater.groups SET forked_lsn = NULL, updated_at = now() WHERE name = %s AND forked_lsn = %s",
            (group, forked),
        )

    def note_ddl(self, group: str, marks: str | None) -> None:
        """Note what marks the event triggers now; they are not trusted before the next look at all tables."""
        self._write(
            "UPDATE headwater.groups SET ddl_marks = %s, ddl_lsn = NULL,"
            " ddl_doubted = ddl_doubted OR ddl_lsn IS NOT NULL WHERE name = %s",
            (marks, group),
        )

    def trust_ddl(self, group: str, lsn: Lsn) -> None:
        """What the event triggers may have missed is dealt with; if they exist, they report every change from here."""
        self._write(
            "UPDATE headwater.groups SET ddl_doubted = false,"
            " ddl_lsn = CASE WHEN ddl_marks IS NOT NULL THEN coalesce(ddl_lsn, %s) END"
            " WHERE name = %s AND (ddl_doubted OR (ddl_marks IS NOT NULL AND ddl_lsn IS NULL))",
            (lsn, group),
        )

    def note_watched(self, group: str, lsn: Lsn) -> None:
        """What the catalog showed up to `lsn` is dealt with. Written only if a fence waits for it."""
        self._write(
            "UPDATE headwater.groups SET watched_lsn = %(lsn)s WHERE name = %(group)s AND EXISTS (SELECT FROM"
            " headwater.fences f WHERE f.group_name = name AND f.expires_at > now() AND f.lsn <= %(lsn)s"
            " AND f.lsn > coalesce(watched_lsn, '0/0'))",
            {"lsn": lsn, "group": group},
        )
