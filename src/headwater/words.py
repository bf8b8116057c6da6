"""Numbers, lengths of time and sizes as people read them."""

from __future__ import annotations

__all__ = ["counted", "duration_text", "progress", "short_duration", "size_text"]


def counted(number: int, noun: str, plural: str = "") -> str:
    """`1 table`, `2,000 tables`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def duration_text(seconds: float) -> str:
    """`1.2 s`, `3 min 20 s`, `2 h 5 min`, `3 d 4 h`."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, hours = int(seconds) // 60, int(seconds) // 3600
    if minutes < 60:
        return f"{minutes} min {int(seconds) % 60} s"
    return f"{hours} h {minutes % 60} min" if hours < 24 else f"{hours // 24} d {hours % 24} h"


def short_duration(seconds: float) -> str:
    """The same for a column, in one unit."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    for limit, length, unit in ((3600, 60, "min"), (86400, 3600, "h")):
        if seconds < limit:
            return f"{int(seconds) // length} {unit}"
    return f"{int(seconds) // 86400:,} d"


def size_text(size: float) -> str:
    """`12 kB`, in units of 1024, as PostgreSQL's own functions count."""
    for unit in ("B", "kB", "MB"):
        if size < 1024:
            return f"{int(size):,} {unit}"
        size /= 1024
    return f"{int(size):,} GB"


def progress(copied: int, total: int, rate: float) -> str:
    """How far a copy is, how fast it is, and how long it will take: as far as that can be known."""
    said = f"copied {copied:,} of about {counted(total, 'row')} so far"
    if rate < 1:
        return said
    left = f", about {duration_text((total - copied) / rate)} left" if total > copied else ""
    return f"{said}: {rate:,.0f} rows/s{left}"
