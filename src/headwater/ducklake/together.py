"""Commits to many lakes: those of one PostgreSQL database share transactions, so that one COMMIT serves many."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from headwater.ducklake.catalog import Locked, PostgresCatalog, PostgresTransaction, Raced, locked
from headwater.ducklake.committing import write_commit
from headwater.ducklake.lake import Lake
from headwater.ducklake.model import PlannedCommit
from headwater.ducklake.url import PostgresUrl
from headwater.errors import HeadwaterError, Unreachable

__all__ = ["commit_together"]

_SHARING = 50  # lakes in one transaction: PostgreSQL keeps up to 64 savepoints of one at hand

Outcome = int | HeadwaterError


@dataclass(frozen=True, slots=True)
class _Part:
    """One commit of a shared transaction, and its place in the order that was asked for."""

    index: int
    catalog: PostgresCatalog
    lake: Lake
    commit: PlannedCommit


def commit_together(commits: Sequence[tuple[Lake, PlannedCommit]]) -> list[Outcome]:
    """Commit to each lake as `Lake.commit` does; return the snapshot id or the error of each, in the order given.

    What fails in one lake does not disturb the others. CommitUnknown comes for all lakes that shared the transaction.
    """
    outcomes: dict[int, Outcome] = {}
    for parts in _sharing(commits):
        outcomes |= _in_one_transaction(parts)
    for index, (lake, commit) in enumerate(commits):
        if index not in outcomes:  # it shares a database with no other, or another writer was faster
            outcomes[index] = _alone(lake, commit)
    return [outcomes[index] for index in range(len(commits))]


def _sharing(commits: Sequence[tuple[Lake, PlannedCommit]]) -> Iterator[list[_Part]]:
    """The parts of each transaction, by schema: two processes that lock lakes in one order do not deadlock."""
    databases: dict[str, list[tuple[str, int, _Part]]] = defaultdict(list)
    for index, (lake, commit) in enumerate(commits):
        if isinstance(lake.url, PostgresUrl) and isinstance(lake.catalog, PostgresCatalog):
            part = _Part(index, lake.catalog, lake, commit)
            databases[lake.url.conninfo].append((lake.url.schema, index, part))
    for found in databases.values():
        parts = [part for *_, part in sorted(found, key=lambda each: each[:2])]
        for start in range(0, len(parts) if len(parts) > 1 else 0, _SHARING):
            yield parts[start : start + _SHARING]


def _in_one_transaction(parts: Sequence[_Part]) -> dict[int, Outcome]:
    """The outcomes of those that landed or failed, not of those that may try again since another writer was faster."""
    outcomes: dict[int, Outcome] = {}
    try:
        with parts[0].catalog.transaction(write=True) as shared:
            for part in parts:
                outcome = _written(part, shared)
                if outcome is not None:
                    outcomes[part.index] = outcome
    except Raced:
        return {}
    except HeadwaterError as error:  # of all of them
        return {part.index: _own(part.lake, error) for part in parts}
    return outcomes


def _written(part: _Part, shared: PostgresTransaction) -> Outcome | None:
    """The outcome of one part, if the transaction lands; None if another writer was faster."""
    try:
        with part.catalog.part_of(shared) as tx, _translated(part.lake):
            return write_commit(tx, part.lake.filesystem, part.lake.data_path, part.commit)
    except Locked:
        if part.lake.url.wait is None:
            return None
        shared.wait_less()  # the others have been kept waiting: of two that are locked, only the first costs time
        return locked(part.lake.url)
    except Raced:
        return None
    except HeadwaterError as error:
        if shared.lost:
            raise
        return error


def _own(lake: Lake, error: HeadwaterError) -> HeadwaterError:
    """The error of a shared transaction as one of this lake."""
    own = type(error)(f"{lake.url} shares a transaction with other lakes: {error.message}", hint=error.hint)
    own.__cause__ = error
    return own


def _alone(lake: Lake, commit: PlannedCommit) -> Outcome:
    try:
        with _translated(lake):
            return lake.commit(commit)
    except HeadwaterError as error:
        return error


@contextmanager
def _translated(lake: Lake) -> Iterator[None]:
    try:
        yield
    except OSError as error:  # a delete file that gets another snapshot is read and written again
        raise Unreachable(f"the files of {lake.url} cannot be reached: {error}") from error
