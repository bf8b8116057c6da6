"""Slots of groups that the config no longer names: no process reads them, and the source keeps WAL for them."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass

from headwater.state.store import State

__all__ = ["Leftover", "leftovers"]


@dataclass(frozen=True, slots=True)
class Leftover:
    """A slot that a group has left behind. Headwater never drops it on its own: another config may have the group."""

    group: str
    slot: str
    wal_bytes: int

    def __str__(self) -> str:
        return (
            f"group {self.group!r} is not in the config, and its slot {self.slot!r} keeps {self.wal_bytes >> 20} MB of"
            f" WAL: if it is no longer needed, run `headwater group drop {self.group}`"
        )


def leftovers(source: State, state: State, configured: Container[str]) -> tuple[Leftover, ...]:
    """The slots of groups that are in the state and not in the config."""
    slots = {row.slot: row.name for row in state.groups() if row.name not in configured}
    found = source.query(
        "SELECT slot_name::text, coalesce(pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn), 0)::bigint"
        " FROM pg_replication_slots"
        " WHERE slot_name = ANY(%s) AND NOT active AND database = current_database() ORDER BY 1",
        (list(slots),),
    )
    return tuple(Leftover(slots[slot], slot, size) for slot, size in found)
