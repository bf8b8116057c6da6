"""The quarantine in an Iceberg lake: its commit comes before those of the tables, and is taken back if they never come.

In the same commit the table's properties get the files that came for each mirror, and up to where it was to go. If the
process dies before a mirror has landed, the files that came for it are removed when the lake is next opened: the values
come again with the mirror's changes.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

from pyiceberg.table import Table
from pyiceberg.table.update import SetPropertiesUpdate

from headwater import failpoints
from headwater.change import Position
from headwater.iceberg.snapshots import FileChanges
from headwater.lake import quarantine
from headwater.lake.target import SETTLED, Reports, misfits_of
from headwater.sink.iceberg.lake import IcebergLake, TableCommit
from headwater.sink.iceberg.reports import file_changes, touched
from headwater.sink.iceberg.target import IcebergPlace, IcebergTarget, landing

__all__ = ["came_ahead", "keep", "settle_all", "take_back"]

_AHEAD = "headwater.ahead."


def keep(
    lake: IcebergLake[Any],
    reports: Reports,
    upto: Mapping[int, Position],
    settled: Collection[bytes] = (),
    planned: Table | None = None,
) -> bool:
    """Land values that the tables' types cannot hold, before the tables land; whether there were any.

    `planned` is the quarantine in which `settled` was found, if the lake may have loaded a newer one since.
    """
    notes = [*settled, *reports.get(SETTLED, ()), *(note for oid in upto for note in reports.get(misfits_of(oid), ()))]
    if not notes:
        return False
    ahead = {
        str(oid): {"upto": str(position), "files": [each.path for each in file_changes(mine).added]}
        for oid, position in upto.items()
        if (mine := reports.get(misfits_of(oid)))
    }
    said = SetPropertiesUpdate(updates={_ahead(lake.source): json.dumps(ahead)})
    commit = TableCommit(file_changes(notes), {}, None, (said,), frozenset(touched(notes)))
    lake.healed = False
    lake.land_quarantine(commit, planned)
    failpoints.hit("iceberg.quarantined")
    return True


def take_back(lake: IcebergLake[Any]) -> None:
    """Take back what came for mirrors that did not land."""
    table = lake.quarantine()
    ahead = json.loads(table.metadata.properties.get(_ahead(lake.source), "{}"))
    here = lake.standings()
    lost = {
        path
        for oid, each in ahead.items()
        if int(oid) not in here or here[int(oid)].position < lake.stream.position.parse(each["upto"])
        for path in each["files"]
    }
    said = SetPropertiesUpdate(updates={_ahead(lake.source): "{}"})
    if lost:
        live = {each.path: each for each in lake.files(table)}
        gone = [path for name in lost & live.keys() for path in live[name].paths]
        lake.land_quarantine(TableCommit(FileChanges(removed=gone), {}, None, (said,)))


def settle_all(lake: IcebergLake[Any], target: IcebergTarget, tables: Collection[int], at: Position) -> list[bytes]:
    """Mark every open value of these tables as settled: what is still bad comes again with their new copies."""
    if not tables:
        return []
    table = lake.quarantine()
    kept = landing(table, table.schema(), quarantine.KNOWN_BY)
    own = IcebergTarget({}, kept, target.source, target.attempt)
    settled = quarantine.settled_by(at)
    reports: list[bytes] = []
    for file in lake.files(table):
        place = IcebergPlace(None, file)
        found = {position: settled for position, _ in quarantine.unresolved(own, place, tables)}
        reports += quarantine.rewritten(own, place, found)
    return reports


def came_ahead(table: Table) -> set[str]:
    """The files that may still be taken back, of any source."""
    found = (json.loads(text) for name, text in table.metadata.properties.items() if name.startswith(_AHEAD))
    return {path for ahead in found for each in ahead.values() for path in each["files"]}


def _ahead(source: str) -> str:
    return f"{_AHEAD}{source}"
