"""A mirrored table as an Iceberg catalog has it now."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Generic

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from headwater.change import NewestCommit, Position, Relation, TableName
from headwater.errors import TableError
from headwater.iceberg.partitions import not_computable
from headwater.lake.counts import Counts
from headwater.lake.mirrored import MirroredColumns
from headwater.lake.stream import P

__all__ = [
    "COMMIT_LSN",
    "COMMIT_TS",
    "COPY",
    "POSITION",
    "SINCE",
    "SOURCE",
    "IcebergStanding",
    "Stretch",
    "carried_on",
    "delivered",
    "own_position",
    "ownership",
    "remembered",
    "showing",
    "shows_position",
    "standing_of",
    "stretches",
    "summary",
]

SOURCE, OID, COLUMNS = "headwater.source", "headwater.oid", "headwater.columns"  # properties of the table
POSITION, COUNTS = "headwater.position", "headwater.counts"  # in the summary of a snapshot
SINCE = "headwater.since"  # too, of a delivery: the position that it starts from
COMMIT_LSN, COMMIT_TS = "headwater.commit-lsn", "headwater.commit-ts"
COPY = "headwater.copy"  # a property that names the last copy of the table
NEWEST, SEQUENCE = "headwater.newest", "sequence-number"  # a property with our newest summary, and where it was said


@dataclass(frozen=True, slots=True)
class IcebergStanding(Generic[P]):
    """Implements `headwater.lake.sink.Standing`."""

    oid: int
    table: Table
    position: P
    mirrored: MirroredColumns
    counts: Counts

    @property
    def name(self) -> TableName:
        return TableName(*self.table.name())

    def check_writable(self) -> None:
        version = self.table.metadata.format_version
        if version != 2:
            raise TableError(
                f"another client has made {self.name} a table of format {version}, and Headwater writes format 2",
                hint="drop the table in the lake: `headwater run --recopy` copies it again",
            )

        if (name := not_computable(self.table.spec(), self.table.schema())) is not None:
            raise TableError(
                f"another client has partitioned {self.name} by {name!r}, which Headwater does not write",
                hint=f"run `ALTER TABLE {self.name} DROP PARTITION FIELD {name}` with that client",
            )

    def same_key(self, relation: Relation) -> bool:
        return self.mirrored.same_key(relation)


@dataclass(frozen=True, slots=True)
class Stretch(Generic[P]):
    """A snapshot of a table, and the first and the last position at which it is known to show the source exactly."""

    snapshot_id: int
    first: P
    last: P


def ownership(source: str, oid: int, mirrored: MirroredColumns) -> dict[str, str]:
    """The properties by which a table is known to mirror this one."""
    return {SOURCE: source, OID: str(oid), COLUMNS: str(mirrored)}


def summary(source: str, position: Position, counts: Counts) -> dict[str, str]:
    """What the summary of a snapshot of ours says."""
    return {SOURCE: source, POSITION: str(position), COUNTS: json.dumps(asdict(counts))}


def delivered(since: Position, newest: NewestCommit | None) -> dict[str, str]:
    """What it says in addition about a delivery."""
    commit = {COMMIT_LSN: str(newest.lsn), COMMIT_TS: newest.ts.isoformat()} if newest else {}
    return {SINCE: str(since), **commit}


def remembered(summary: Mapping[str, str], table: Table) -> dict[str, str]:
    """The property that says once more what the table's next snapshot says: others may expire that snapshot."""
    sequence = str(table.metadata.next_sequence_number())
    return {NEWEST: json.dumps({**summary, SEQUENCE: sequence})} if POSITION in summary else {}


def standing_of(
    table: Table, source: str, oid: int, kind: type[P], floor: tuple[P, P] | None = None
) -> IcebergStanding[P] | None:
    """None if the table is not the mirror of this one. `kind` is that of its positions.

    `floor` are a position that the table's own snapshots showed, and the later one that it stood at without a change.
    """
    properties = table.metadata.properties
    if (properties.get(SOURCE), properties.get(OID)) != (source, str(oid)):
        return None
    own = own_position(table, source, kind)
    position = floor[1] if floor is not None and floor[0] == own else own  # else others went back to a snapshot
    said = _newest(table, source)
    counts = Counts(**json.loads(said[COUNTS])) if said else Counts()
    return IcebergStanding(oid, table, position, MirroredColumns.parse(properties[COLUMNS]), counts)


def carried_on(table: Table, source: str) -> dict[str, str]:
    """What the summary of a snapshot says that changes no row: the same as the newest of ours."""
    said = _newest(table, source) or {}
    return {name: value for name, value in said.items() if name.startswith("headwater.")}


def shows_position(snapshot: Snapshot) -> bool:
    """Whether it says how far a source is, of any group."""
    return bool(snapshot.summary and POSITION in snapshot.summary.additional_properties)


def own_position(table: Table, source: str, kind: type[P]) -> P:
    """The position that the table's snapshots show by themselves."""
    said = _newest(table, source)
    return kind.parse(said[POSITION]) if said else kind(0)


def stretches(standing: IcebergStanding[P], source: str) -> list[Stretch[P]]:
    """The table's snapshots, the newest first; what other clients did after one of ours counts with it."""
    found: list[Stretch[P]] = []
    kind, newest, last = type(standing.position), None, standing.position
    for snapshot in _ancestry(standing.table):
        newest = newest or snapshot
        if _is_ours(snapshot, source):
            first = _position(snapshot, kind)
            found.append(Stretch(newest.snapshot_id, first, max(first, last)))
            newest, last = None, _since(snapshot, kind)
    if not found and newest is not None and (own := own_position(standing.table, source, kind)) > kind(0):
        current = standing.table.metadata.current_snapshot_id  # another client has expired all of ours
        return [Stretch(current, own, max(own, last))] if current is not None else []
    return found


def showing(table: Sequence[Stretch[P]], at: P) -> Stretch[P] | None:
    """The newest of a table's snapshots at or below this position; None if there is none as old."""
    return next((each for each in table if each.first <= at), None)


def _newest(table: Table, source: str) -> Mapping[str, str] | None:
    """What the newest snapshot of ours says; None if the table's history does not have one."""
    oldest: Snapshot | None = None
    for snapshot in _ancestry(table):
        if _is_ours(snapshot, source):
            return snapshot.summary.additional_properties if snapshot.summary else None
        oldest = snapshot
    said: dict[str, str] = json.loads(table.metadata.properties.get(NEWEST, "{}"))
    if oldest is None or said.get(SOURCE) != source:
        return None
    # Another client may have expired our snapshot: then all that the history still has are newer ones.
    then, kept = int(said[SEQUENCE]), {each.sequence_number or 0 for each in table.metadata.snapshots}
    return said if then not in kept and then < (oldest.sequence_number or 0) else None


def _ancestry(table: Table) -> Iterator[Snapshot]:
    by_id: Mapping[int, Snapshot] | None = None
    snapshot = table.metadata.current_snapshot()
    while snapshot is not None:
        yield snapshot
        by_id = by_id or {each.snapshot_id: each for each in table.metadata.snapshots}
        snapshot = by_id.get(snapshot.parent_snapshot_id) if snapshot.parent_snapshot_id is not None else None


def _is_ours(snapshot: Snapshot, source: str) -> bool:
    said = snapshot.summary.additional_properties if snapshot.summary else {}
    return said.get(SOURCE) == source and POSITION in said


def _since(snapshot: Snapshot, kind: type[P]) -> P:
    """Where the table was before; 0 for a copy, which does not depend on that."""
    said = snapshot.summary.additional_properties if snapshot.summary else {}
    return kind.parse(said[SINCE]) if SINCE in said else kind(0)


def _position(snapshot: Snapshot, kind: type[P]) -> P:
    assert snapshot.summary is not None
    return kind.parse(snapshot.summary.additional_properties[POSITION])
