"""The status as plain values, for JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from headwater.status.report import Status

__all__ = ["plain"]


def plain(status: Status) -> dict[str, Any]:
    """What `headwater status --json` prints, and the API answers."""
    return {"healthy": status.healthy, "problems": status.problems} | asdict(status)
