"""A group's replication slot: made, adopted, and refused when it is not ours or cannot give what is needed."""

from __future__ import annotations

from dataclasses import dataclass

import psycopg

from headwater.change import Lsn
from headwater.errors import OperatorMustAct, SlotLost
from headwater.postgres.connect import Connection
from headwater.postgres.timeline import Timeline
from headwater.source.naming import object_name
from headwater.source.server import SourceIdentity, identify
from headwater.state import GroupRow, State

__all__ = [
    "FAILOVER_SINCE",
    "Slot",
    "check_slot",
    "ensure_slot",
    "foreign_slot",
    "other_source",
    "promoted",
    "slot_gone",
    "slot_of",
    "start_over",
]


FAILOVER_SINCE = 17


@dataclass(frozen=True, slots=True)
class Slot:
    """A row of pg_replication_slots."""

    name: str
    plugin: str
    database: str
    confirmed_lsn: Lsn
    lost: str  # why it can never be read again; empty if it can
    failover: bool  # standbys that synchronise slots have it, too; True where the server knows no such thing


def slot_of(connection: Connection, name: str) -> Slot | None:
    version = connection.info.server_version // 10000
    lost = "CASE WHEN wal_status = 'lost' THEN 'wal_status is lost' ELSE '' END"
    if version >= 17:
        lost = f"coalesce(invalidation_reason, {lost})"
    elif version == 16:
        lost = f"CASE WHEN conflicting THEN 'it conflicts with recovery' ELSE {lost} END"
    failover = "failover" if version >= FAILOVER_SINCE else "true"
    row = connection.execute(
        f"SELECT slot_name::text, coalesce(plugin::text, 'physical'), coalesce(database::text, ''),"
        f" coalesce(confirmed_flush_lsn, '0/0'), {lost}, {failover} FROM pg_replication_slots WHERE slot_name = %s",
        (name,),
    ).fetchone()
    return None if row is None else Slot(*row)


def ensure_slot(connection: Connection, group: str, state: State) -> Lsn:
    """Create the group's slot, or adopt it if it is ours; return its position.

    The group must be in the state. A slot that another client made is refused, one that is gone is SlotLost.
    """
    # The slot first: a capture that is still running records a position, then moves the slot there.
    slot = slot_of(connection, object_name(group))
    row = state.group(group)
    assert row is not None, "ensure_group first"
    identity = identify(connection)
    if slot is None and row.captured_lsn is not None:
        raise slot_gone(row, identity)
    if slot is not None and not row.slot_requested:
        raise foreign_slot(row.slot, group)
    if slot is None:
        state.request_slot(group)
        slot = _create_slot(connection, row.slot)
    check_slot(slot, identity, row)
    state.begin_capture(group, slot.confirmed_lsn)
    return slot.confirmed_lsn


def _create_slot(connection: Connection, name: str) -> Slot:
    failover = ", failover => true" if connection.info.server_version // 10000 >= FAILOVER_SINCE else ""
    try:
        connection.execute(f"SELECT pg_create_logical_replication_slot(%s, 'pgoutput'{failover})", (name,))
    except psycopg.errors.ConfigurationLimitExceeded as exc:
        raise OperatorMustAct(
            f"no free replication slot for {name!r} in database {connection.info.dbname!r}",
            hint="raise max_replication_slots and restart the server, or drop a slot that is not used",
        ) from exc
    slot = slot_of(connection, name)
    assert slot is not None
    return slot


def check_slot(slot: Slot, identity: SourceIdentity, row: GroupRow) -> None:
    """Refuse a slot that is not ours to read, or that cannot give what comes after the end of the log.

    After a promotion the slot may well be ahead: it comes to a standby by another way than the state. Capture sees.
    """
    captured = None if promoted(row, identity) else row.captured_lsn
    if slot.plugin != "pgoutput" or slot.database != identity.database:
        raise OperatorMustAct(
            f"slot {slot.name!r} is not ours: it is one of {slot.plugin!r} in database {slot.database!r}",
            hint=f"drop it with SELECT pg_drop_replication_slot('{slot.name}'), or give the group another name",
        )
    if slot.lost:
        raise SlotLost(
            f"slot {slot.name!r} has lost its WAL: {slot.lost}",
            hint=f"{start_over(_group_of(slot))}; a larger max_slot_wal_keep_size gives more time",
        )
    if captured is not None and slot.confirmed_lsn > captured:
        raise OperatorMustAct(
            f"slot {slot.name!r} was moved to {slot.confirmed_lsn} by another client; our log ends at {captured}",
            hint=f"the changes in between are lost: {start_over(_group_of(slot))}",
        )


def _group_of(slot: Slot) -> str:
    return slot.name.removeprefix(object_name(""))


def start_over(group: str) -> str:
    """What is left to do when changes are gone for good."""
    return (
        f"`headwater group drop {group}`, then `headwater run` copies the tables again, in place of their old mirrors"
    )


def promoted(row: GroupRow, identity: SourceIdentity) -> bool:
    """Whether the source is on another timeline than the log."""
    return row.timeline is not None and identity.timeline not in (None, Timeline.parse(row.timeline).id)


def slot_gone(row: GroupRow, identity: SourceIdentity) -> SlotLost:
    why = ""
    if promoted(row, identity):
        why = (
            f"the source was promoted to timeline {identity.timeline}, and that standby did not have the slot (since"
            " PostgreSQL 17, a standby with sync_replication_slots = on keeps it); "
        )
    return SlotLost(
        f"slot {row.slot!r} of group {row.name!r} is gone; its log ends at {row.captured_lsn}",
        hint=f"{why}the changes since then are lost: {start_over(row.name)}",
    )


def foreign_slot(slot: str, group: str) -> OperatorMustAct:
    return OperatorMustAct(
        f"there is a slot {slot!r} already, and it was not made for group {group!r}",
        hint=f"drop it with SELECT pg_drop_replication_slot('{slot}'), or give the group another name",
    )


def other_source(row: GroupRow, identity: SourceIdentity) -> OperatorMustAct:
    return OperatorMustAct(
        f"group {row.name!r} was captured from source {row.source_id!r}, this one is {identity.source_id!r}",
        hint=f"point `source` back at that server; or start over: {start_over(row.name)}",
    )
