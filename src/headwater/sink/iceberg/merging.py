"""Merged files put in place of the old ones: in a snapshot that has the same rows, and shows the same position."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pyiceberg.table import Table

from headwater.change import TableName
from headwater.errors import AlreadyDelivered, CommitConflict
from headwater.iceberg.attempts import Attempts
from headwater.iceberg.packing import Bin
from headwater.iceberg.snapshots import FileChanges
from headwater.lake.maintenance import Chores, Ready
from headwater.sink.iceberg.lake import IcebergLake, TableCommit
from headwater.sink.iceberg.rewriting import IcebergMergeWriter, Merged, read_merged
from headwater.sink.iceberg.standing import carried_on

__all__ = ["IcebergMerging"]

_TRIES = 5


@dataclass(frozen=True, slots=True)
class IcebergMerging:
    """Implements `headwater.lake.maintenance.Merging`."""

    lake: IcebergLake[Any]
    attempts: Attempts
    table: Table  # as it was planned on
    bins: Sequence[Bin]
    writer: IcebergMergeWriter

    def commit(self, reports: Sequence[bytes], ready: Ready = lambda: None) -> Chores:
        self.attempts.check(self.writer.attempt)
        left = [read_merged(each) for each in reports]
        landed: list[Merged] = []
        ready()
        for _ in range(_TRIES):
            now, valid = self._still_valid(left)
            self._delete([each for each in left if each not in valid])
            left = valid
            if not left or now is None:
                break
            try:
                self.lake.rewritten(self.lake.land(now, self._commit(now, left), self._same_position(now)))
            except (CommitConflict, AlreadyDelivered):  # a delivery was faster: look again at what it has changed
                continue
            landed, left = left, []
        self._delete(left)
        self.attempts.end(self.writer.attempt)
        bins = [each.bin for each in landed]
        files = sum(len(each.files) for each in landed)
        return Chores(sum(len(each.files) for each in bins), sum(each.size for each in bins), files)

    def _still_valid(self, merged: Sequence[Merged]) -> tuple[Table | None, list[Merged]]:
        """The table as it is now, and what can still land: files that are there, with the same deletes as before."""
        before, now = self.table.metadata, self.lake.catalog.load(TableName(*self.table.name()))
        if now is None or now.metadata.table_uuid != before.table_uuid:
            return None, []
        if now.metadata.current_schema_id != before.current_schema_id:
            return None, []
        live = {each.path: each.paths for each in self.lake.files(now)}
        return now, [m for m in merged if all(live.get(each.path) == each.paths for each in m.bin.files)]

    def _commit(self, table: Table, merged: Sequence[Merged]) -> TableCommit:
        old = [each for m in merged for each in m.bin.files]
        # A delete file for several data files may still be needed; of the others nothing is left to delete from.
        deletes = [d.path for each in old for d in each.deletes if d.of == each.path]
        added = [file for m in merged for file in m.files]
        changes = FileChanges(added, [*(each.path for each in old), *deletes], same_rows=True)
        said = carried_on(table, self.lake.source)
        return TableCommit(changes, said, touched=frozenset(each.path for each in old))

    def _same_position(self, planned: Table) -> Callable[[Table], None]:
        """The snapshot says the position of the one before it: a delivery in between must be looked at first."""
        own = self.lake.own_position(planned)

        def check(table: Table) -> None:
            if self.lake.own_position(table) != own:
                raise AlreadyDelivered(f"{'.'.join(table.name())} was delivered to meanwhile", hint="plan again")

        return check

    def _delete(self, merged: Sequence[Merged]) -> None:
        for path in (file.path for each in merged for file in each.files):
            self.table.io.delete(path)
