"""What the URL of a Spark master says."""

from __future__ import annotations

__all__ = ["is_cluster"]


def is_cluster(master: str) -> bool:
    """Whether tasks run on other machines than the driver, or may."""
    return not master.startswith("local")
