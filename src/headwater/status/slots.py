"""Whether a slot is about to lose WAL that it needs."""

from __future__ import annotations

from headwater.words import size_text

__all__ = ["slot_warning"]

_LITTLE = 0.25  # of max_slot_wal_keep_size


def slot_warning(wal_status: str | None, safe_bytes: int | None, wal_limit: int | None) -> str | None:
    """What to say about a slot's WAL before it is too late; None: nothing."""
    if wal_status == "lost":
        return "has lost WAL that it needs"
    if wal_status == "unreserved":
        return "will lose WAL that it needs at the next checkpoint: it keeps more than max_slot_wal_keep_size"
    if safe_bytes is not None and wal_limit is not None and safe_bytes < wal_limit * _LITTLE:
        left = f"{size_text(max(safe_bytes, 0))} of max_slot_wal_keep_size ({size_text(wal_limit)})"
        return f"is about to lose WAL that it needs: {left} are left"
    return None
