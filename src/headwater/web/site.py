"""What the application works with."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from headwater.config import Server
from headwater.web.facts import Facts

__all__ = ["Site"]


@dataclass(frozen=True, slots=True)
class Site:
    """`leads` is not set as long as it belongs to a standby; `stop` ends it."""

    facts: Facts
    server: Server
    env: Mapping[str, str]
    file: Path
    leads: threading.Event
    stop: threading.Event
