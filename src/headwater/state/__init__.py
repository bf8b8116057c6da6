"""Groups, tables, their states, fences and locks: what must be known again after a restart."""

from headwater.state.lock import Lock
from headwater.state.rows import (
    Configured,
    Fence,
    GroupRow,
    Location,
    Member,
    Partitions,
    TableOptions,
    TableRow,
    TableState,
)
from headwater.state.store import State

__all__ = [
    "Configured",
    "Fence",
    "GroupRow",
    "Location",
    "Lock",
    "Member",
    "Partitions",
    "State",
    "TableOptions",
    "TableRow",
    "TableState",
]
