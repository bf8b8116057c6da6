"""What the page shows at once: small, however many destinations there are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from headwater import __version__
from headwater.state.deliveries import DeliveryRow
from headwater.status import DestinationStatus, GroupStatus, PartStatus, RouteStatus, TableStatus
from headwater.web.facts import Look
from headwater.web.history import TableKey
from headwater.web.verdict import problems, verdict

__all__ = ["SERIOUS_FIRST", "delivery", "destination", "overview", "snapshots_of"]

SHOWN_DELIVERIES, SHOWN_WORST = 20, 5
SERIOUS_FIRST = ("error", "lagging", "paused", "flushing", "buffering", "healthy")


def overview(look: Look) -> dict[str, Any]:
    """The whole of a look, as the API has it."""
    word, sentence = verdict(look)
    now = look.status
    return {
        "at": round(look.at, 3),
        "version": __version__,
        "verdict": word,
        "sentence": sentence,
        "problems": [asdict(each) for each in problems(look)],
        "source": {
            "reachable": now is not None and now.source_error is None,
            "error": now.source_error if now else look.error,
            "lsn": now.source_lsn if now else None,
        },
        "groups": [_group(each, look) for each in now.groups] if now else [],
        "routes": [_route(each) for each in now.routes] if now else [],
    }


def snapshots_of(look: Look, group: str) -> bool:
    """Whether the lake of this group has snapshots of its own: a DuckLake. In Iceberg only its tables have some."""
    return look.config is None or look.config.groups[group].lake in look.config.ducklakes


def delivery(row: DeliveryRow, *, snapshots: bool = True) -> dict[str, Any]:
    """A delivery, as the API has it; without `snapshots` in its lake, what is noted in place of one is left out."""
    return {
        "id": row.id,
        "at": row.at.timestamp(),
        "position": str(row.position),
        "snapshot_id": row.snapshot_id if snapshots else None,
        "changes": row.changes,
        "tables": row.tables,
        "inserted": row.inserted,
        "updated": row.updated,
        "deleted": row.deleted,
        "bytes": row.bytes,
        "lag_seconds": round(row.lag_seconds, 3),
        "phases": {name: round(seconds, 4) for name, seconds in asdict(row.phases).items()},
    }


def destination(each: DestinationStatus) -> dict[str, Any]:
    """A destination, as the API has it; `name` is how commands spell its value."""
    return {"name": str(each)} | asdict(each)


def _group(group: GroupStatus, look: Look) -> dict[str, Any]:
    named = (
        *("name", "lake", "state", "lag_seconds", "lag_bytes", "captured_lsn", "delivered_lsn", "snapshot_id"),
        *("wal_bytes", "wal_limit_bytes", "log_bytes", "log_max_bytes", "staged_rows"),
    )
    rows = look.deliveries.get(group.name, ())[:SHOWN_DELIVERIES]
    return {name: getattr(group, name) for name in named} | {
        "disabled": group.name in look.disabled,
        "delivered_at": group.delivered_at.timestamp() if group.delivered_at else None,
        "capture": _part(group.capture),
        "delivery": _part(group.delivery),
        "tables": [_table(each, look.rates) for each in group.tables],
        "deliveries": [delivery(each, snapshots=snapshots_of(look, group.name)) for each in rows],
    }


def _part(part: PartStatus) -> dict[str, Any]:
    return {"state": part.state, "error": part.error}


def _table(table: TableStatus, rates: Mapping[TableKey, float]) -> dict[str, Any]:
    named = (
        *("table", "lake_table", "state", "mode", "rows", "lag_seconds", "quarantined", "error", "resync"),
        *("copied_rows", "copy_total", "copy_seconds"),
    )
    return {name: getattr(table, name) for name in named} | {
        "changes_per_second": rates.get(TableKey(table.group, table.table), 0.0),
        "retry_at": table.retry_at.timestamp() if table.retry_at else None,
    }


def _route(route: RouteStatus) -> dict[str, Any]:
    known = [each.lag_seconds for each in route.destinations if each.lag_seconds is not None]
    bad = [each for each in route.destinations if each.status in ("error", "lagging")]
    worst = sorted(bad, key=lambda each: (SERIOUS_FIRST.index(each.status), -(each.lag_seconds or 0.0)))
    return {
        "name": route.name,
        "source": route.source,
        "running": route.running,
        "counts": dict(Counter(each.status for each in route.destinations)),
        "lag_seconds": max(known, default=None),
        "worst": [destination(each) for each in worst[:SHOWN_WORST]],
    }
