"""What the server knows: the newest look at the status and the deliveries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headwater.state.deliveries import DeliveryRow
from headwater.status import Status

__all__ = ["Look"]


@dataclass(frozen=True, slots=True)
class Look:
    """A look at a moment, in Unix time; without a status if the state did not answer, and with the reason."""

    at: float
    status: Status | None
    error: str | None
    deliveries: Mapping[str, tuple[DeliveryRow, ...]]  # by group, newest first
