"""What a merge did, and which tables it could not do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headwater.errors import CannotFollow, TableError
from headwater.lake.target import Reports

__all__ = ["Failure", "Failures", "Merged"]


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a table cannot go on."""

    error: str
    needs_recopy: bool = False  # nothing but a new copy would help

    @classmethod
    def of(cls, error: TableError) -> Failure:
        return cls(str(error), isinstance(error, CannotFollow))


Failures = Mapping[int, Failure]  # by table


@dataclass(frozen=True, slots=True)
class Merged:
    """The lake's reports by destination, the tables whose older rows all go, and those that could not be done."""

    reports: Reports = field(default_factory=dict)
    truncated: frozenset[int] = frozenset()
    failed: Failures = field(default_factory=dict)
