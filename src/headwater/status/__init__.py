"""How far each group is: one report, which the terminal and programs render."""

from headwater.status.moments import Moment, TableMoment, moment
from headwater.status.report import (
    STALE_SECONDS,
    GroupStatus,
    PartStatus,
    RunState,
    Status,
    TableStatus,
    open_status,
    status,
)

__all__ = [
    "STALE_SECONDS",
    "GroupStatus",
    "Moment",
    "PartStatus",
    "RunState",
    "Status",
    "TableMoment",
    "TableStatus",
    "moment",
    "open_status",
    "status",
]
