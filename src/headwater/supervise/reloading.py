"""The config file while it is in use: read again when it has changed."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

from headwater.config import Config

__all__ = ["Reloading", "needs_restart"]

logger = logging.getLogger(__name__)


def needs_restart(before: Config, now: Config) -> bool:
    """Whether the file says something else about what only a start takes up."""
    needed = [(each.source, each.state, each.log, each.spark) for each in (before, now)]
    if needed[0] == needed[1]:
        return False
    logger.warning("the config has another source, state, log or spark: the next start takes that up")
    return True


class Reloading:
    """The file as it was last read; call it to learn what it says by now."""

    def __init__(self, file: Path, env: Mapping[str, str]) -> None:
        self._file, self._env = file, env
        self._stamp = self._now()

    def __call__(self) -> Config | None:
        """The new config; None if the file has not changed, or cannot be used: then the old one stays in force."""
        stamp = self._now()
        if stamp == self._stamp:
            return None
        self._stamp = stamp
        try:
            return Config.load(self._file, self._env)
        except ExceptionGroup as problems:
            what = "; ".join(str(each) for each in problems.exceptions)
            logger.error("%s has changed and cannot be used, so the old one stays in force: %s", self._file, what)
            return None

    def again(self) -> Config | None:
        """What the file says now, changed or not; None if it cannot be used."""
        self._stamp = None
        return self()

    def _now(self) -> tuple[int, int] | None:
        try:
            found = self._file.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size
