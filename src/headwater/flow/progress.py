"""How far a long copy is, for the log."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Container, Iterator
from contextlib import contextmanager, suppress

from headwater.errors import Unreachable
from headwater.flow.mirroring import Mirroring
from headwater.words import progress

__all__ = ["progress_logged"]

logger = logging.getLogger(__name__)

REPORT_EVERY = 5.0  # seconds


@contextmanager
def progress_logged(m: Mirroring, oids: Container[int]) -> Iterator[None]:
    """Say every few seconds how far a long copy is; the tasks count their rows in the state."""
    done, begun = threading.Event(), time.monotonic()
    before = _copied(m, oids)[0]  # by an earlier copy, with which this one goes on

    def log() -> None:
        while not done.wait(REPORT_EVERY):
            with suppress(Unreachable):
                copied, total = _copied(m, oids)
                logger.info("%s", progress(copied, total, (copied - before) / (time.monotonic() - begun)))

    thread = threading.Thread(target=log, name="copy-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _copied(m: Mirroring, oids: Container[int]) -> tuple[int, int]:
    """How many rows of these tables are copied, and about how many there are."""
    rows = [row for row in m.state.tables(m.group) if row.oid in oids]
    return sum(row.copied_rows for row in rows), sum(max(row.copy_total or 0, row.copied_rows) for row in rows)
