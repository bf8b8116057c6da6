"""Which snapshot of a DuckLake shows the source at a position: every commit of ours says its own."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from headwater.change import TableName
from headwater.ducklake.lake import Lake
from headwater.lake.sink import TableSnapshot
from headwater.lake.stream import P
from headwater.sink.ducklake.standing import DuckLakeStanding

__all__ = ["newest_at", "snapshots_at"]


def snapshots_at(
    lake: Lake, source: str, standings: Mapping[int, DuckLakeStanding[P]], at: P
) -> dict[int, TableSnapshot[P]]:
    """The newest snapshot at or below a position, for the tables that it has: all show it together."""
    kind = type(at)
    if not standings or (newest := lake.reached(source, kind)) is None:
        return {}
    kept = [(id_, _position(extra, source, kind)) for id_, extra in lake.commits()]
    found = newest_at(kept, newest, at)
    if found is None:
        return {}
    snapshot, position = found
    names = lake.names_at(snapshot)
    there = {oid: _name(each, names) for oid, each in standings.items()}
    return {
        oid: TableSnapshot(name, snapshot, min(position, standings[oid].position), _read_by(name, snapshot))
        for oid, name in there.items()
        if name is not None
    }


def newest_at(kept: Sequence[tuple[int, P | None]], reached: tuple[int, P], at: P) -> tuple[int, P] | None:
    """The newest of the snapshots before the first that goes past a position, and the position that it shows.

    `kept` are the lake's snapshots, ours with their positions; `reached` is where the newest of ours is, even if it is
    expired. After a table was brought up to the others by itself, positions go back for a while. What others committed
    shows the position of the commit before it; nothing is known if that one is expired.
    """
    known = dict([reached]) | {id_: shown for id_, shown in kept if shown is not None}
    there, found, highest = {id_ for id_, _ in kept}, None, None
    for id_ in sorted(there | known.keys()):
        if id_ in known:
            if known[id_] > at:
                break
            highest = max(known[id_], highest or known[id_])
        elif id_ - 1 not in there | known.keys():
            highest = None
        if highest is not None and id_ in there:
            found = id_, highest
    return found


def _position(extra: str | None, source: str, kind: type[P]) -> P | None:
    """None if the commit is not one of this source."""
    try:
        said = json.loads(extra or "null")
    except ValueError:
        return None  # another client's
    ours = isinstance(said, dict) and said.get("source") == source
    return kind.parse(said[kind.label]) if ours else None


def _name(standing: DuckLakeStanding[P], names: Mapping[int, TableName]) -> TableName | None:
    """The name that the mirror had; if it was copied again since, the older mirror had this one's."""
    return names.get(standing.table.id) or (standing.name if standing.name in names.values() else None)


def _read_by(name: TableName, snapshot: int) -> dict[str, str]:
    return {"DuckDB": f"FROM {name} AT (VERSION => {snapshot});"}
