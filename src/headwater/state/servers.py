"""Which processes serve the page now, and where."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager

from headwater.state.lock import HELD, Lock
from headwater.state.store import State

__all__ = ["announce", "served_at"]


@contextmanager
def announce(state: State, address: str, log: str) -> Iterator[Lock]:
    """Within the block `served_at` has the address, as long as the lock is held: a process that is killed loses it."""
    name = f"serve:{socket.gethostname()}:{os.getpid()}"
    with state.lock(name) as lock:
        with state.transaction() as connection:
            connection.execute(
                "DELETE FROM headwater.servers s WHERE address = %s OR NOT EXISTS"
                f" (SELECT FROM pg_locks l WHERE {HELD.format(name='s.lock')})",
                (address,),
            )
            connection.execute(
                "INSERT INTO headwater.servers (lock, address, log_path) VALUES (%s, %s, %s)"
                " ON CONFLICT (lock) DO UPDATE SET address = excluded.address, log_path = excluded.log_path",
                (name, address, log),
            )
        yield lock


def served_at(state: State, log: str) -> tuple[str, ...]:
    """The addresses of the pages of all runs with this log."""
    if not state.knows("servers"):
        return ()  # an older version has made the state
    rows = state.query(
        "SELECT address FROM headwater.servers s WHERE log_path = %s"
        f" AND EXISTS (SELECT FROM pg_locks l WHERE {HELD.format(name='s.lock')}) ORDER BY started_at, address",
        (log,),
    )
    return tuple(address for (address,) in rows)
