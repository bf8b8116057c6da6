"""What the options before the command say, and the config that they name."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from headwater.config import DEFAULT_FILE, Config
from headwater.logs import configure

__all__ = ["Session"]


@dataclass
class Session:
    """What the options before the command said."""

    file: Path | None
    log_format: Literal["text", "json"]
    secrets: set[str] = field(default_factory=set)

    def config(self) -> Config:
        """Read the config; from here on nothing shows its secrets."""
        config = Config.load(self.file or DEFAULT_FILE, os.environ)
        self.secrets |= config.secrets()
        configure(self.log_format, self.secrets)
        return config
