"""How far each group and each route is: one report, which the terminal and programs render."""

from headwater.status.kept import OldestChange
from headwater.status.moments import Moment, TableMoment, moment
from headwater.status.plain import plain
from headwater.status.report import (
    STALE_SECONDS,
    GroupStatus,
    PartStatus,
    RunState,
    SkippedTable,
    Status,
    TableStatus,
    open_status,
    status,
)
from headwater.status.routes import DestinationStatus, InstanceStatus, RouteStatus, statuses_of_routes

__all__ = [
    "STALE_SECONDS",
    "DestinationStatus",
    "GroupStatus",
    "InstanceStatus",
    "Moment",
    "OldestChange",
    "PartStatus",
    "RouteStatus",
    "RunState",
    "SkippedTable",
    "Status",
    "TableMoment",
    "TableStatus",
    "moment",
    "open_status",
    "plain",
    "status",
    "statuses_of_routes",
]
