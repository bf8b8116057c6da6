"""What a merge did, and which tables it could not do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from headwater.errors import CannotFollow, ErrorKind, TableError
from headwater.lake.target import Destination, Reports
from headwater.pickling import pickled_by_fields

__all__ = ["Failed", "Failure", "Failures", "Merged", "Searched", "Written", "failures", "located_share", "reports_of"]


@pickled_by_fields
@dataclass(frozen=True, slots=True)
class Failure:
    """Why a table cannot go on."""

    error: str
    needs_recopy: bool = False  # nothing but a new copy would help
    kind: ErrorKind = "configuration"

    @classmethod
    def of(cls, error: TableError) -> Failure:
        return cls(str(error), isinstance(error, CannotFollow), error.kind)


Failures = Mapping[int, Failure]  # by table


class Failed(NamedTuple):
    """What a task says about a table that it could not do."""

    oid: int
    failure: Failure


class Written(NamedTuple):
    """What a task has written, as the lake reports it."""

    to: Destination
    report: bytes


class Searched(NamedTuple):
    """How long a task that also writes took to find what it replaces, and how long it took in all, in seconds."""

    searching: float
    whole: float


def failures(found: Iterable[object]) -> dict[int, Failure]:
    """The first failure of each table among what tasks say; if any of them needs a new copy, the table does."""
    first: dict[int, Failure] = {}
    for oid, failure in (each for each in found if isinstance(each, Failed)):
        known = first.get(oid, failure)
        first[oid] = replace(known, needs_recopy=known.needs_recopy or failure.needs_recopy)
    return first


def reports_of(found: Iterable[object]) -> Reports:
    """What tasks say that they have written, by destination."""
    reports: dict[Destination, list[bytes]] = {}
    for each in found:
        if isinstance(each, Written):
            reports.setdefault(each.to, []).append(each.report)
    return reports


def located_share(found: Iterable[object]) -> float:
    """The part of the tasks' time that searching took, where they searched and wrote."""
    searched = [each for each in found if isinstance(each, Searched)]
    whole = sum(each.whole for each in searched)
    return sum(each.searching for each in searched) / whole if whole else 0.0


@dataclass(frozen=True, slots=True)
class Merged:
    """The lake's reports by destination, the tables whose older rows all go, and those that could not be done.

    Seconds are those of whoever waited for the jobs; those of the fold are what is left of the whole.
    """

    reports: Reports = field(default_factory=dict)
    truncated: frozenset[int] = frozenset()
    failed: Failures = field(default_factory=dict)
    locate_seconds: float = 0.0
    write_seconds: float = 0.0
