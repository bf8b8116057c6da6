"""What became of a mirror, in numbers."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Counts"]


@dataclass(frozen=True, slots=True)
class Counts:
    """Rows copied and net changes since then; `quarantined` counts all values that their types could not hold."""

    copied: int = 0
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    quarantined: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            self.copied + other.copied,
            self.inserted + other.inserted,
            self.updated + other.updated,
            self.deleted + other.deleted,
            self.quarantined + other.quarantined,
        )
