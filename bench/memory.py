"""How much memory processes have."""

from __future__ import annotations

import psutil

__all__ = ["memory_of"]


def memory_of(process: psutil.Process) -> float:
    """MiB of a process and its descendants; pages that they share are counted once."""
    total = 0
    for each in [process, *process.children(recursive=True)]:
        try:
            total += each.memory_full_info().pss
        except psutil.NoSuchProcess:
            continue
    return total / 2**20
