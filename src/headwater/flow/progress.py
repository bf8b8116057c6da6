"""How far a long copy is, for the log."""

from __future__ import annotations

import logging
import threading
from collections.abc import Container, Iterator
from contextlib import contextmanager, suppress

from headwater.errors import Unreachable
from headwater.flow.mirroring import Mirroring
from headwater.words import counted

__all__ = ["progress_logged"]

logger = logging.getLogger(__name__)

REPORT_EVERY = 5.0  # seconds


@contextmanager
def progress_logged(m: Mirroring, oids: Container[int]) -> Iterator[None]:
    """Say every few seconds how far a long copy is; the tasks count their rows in the state."""
    done = threading.Event()

    def log() -> None:
        while not done.wait(REPORT_EVERY):
            with suppress(Unreachable):
                rows = [row for row in m.state.tables(m.group) if row.oid in oids]
                total = sum(max(row.copy_total or 0, row.copied_rows) for row in rows)
                copied = sum(row.copied_rows for row in rows)
                logger.info("copied %s of about %s so far", f"{copied:,}", counted(total, "row"))

    thread = threading.Thread(target=log, name="copy-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
