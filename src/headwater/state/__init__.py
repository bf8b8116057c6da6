"""Groups, tables, their states, fences and locks: what must be known again after a restart."""

from headwater.state.additions import AddedTable
from headwater.state.deliveries import DeliveryRow, Phases, Work
from headwater.state.listening import Listener
from headwater.state.lock import Lock
from headwater.state.requests import Request, Verb
from headwater.state.rows import (
    Condition,
    Conditions,
    Configured,
    Fence,
    GroupRow,
    Location,
    Member,
    Partitions,
    Removal,
    TableOptions,
    TableRow,
    TableState,
)
from headwater.state.store import State

__all__ = [
    "AddedTable",
    "Condition",
    "Conditions",
    "Configured",
    "DeliveryRow",
    "Fence",
    "GroupRow",
    "Listener",
    "Location",
    "Lock",
    "Member",
    "Partitions",
    "Phases",
    "Removal",
    "Request",
    "State",
    "TableOptions",
    "TableRow",
    "TableState",
    "Verb",
    "Work",
]
