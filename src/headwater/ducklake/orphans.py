"""Files of ours in a table's folder that the catalog does not know: left behind by processes that were killed."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from pyarrow import fs

from headwater.ducklake import attempts
from headwater.ducklake.attempts import attempt_of
from headwater.ducklake.catalog import Transaction
from headwater.ducklake.lake import Lake
from headwater.ducklake.model import LakeTable
from headwater.files import inside

__all__ = ["Orphan", "delete_orphans", "orphans"]

_KNOWN = ("ducklake_data_file", "ducklake_delete_file", "ducklake_files_scheduled_for_deletion")


@dataclass(frozen=True, slots=True)
class Orphan:
    """A file's path as its filesystem spells it, its size, and the attempt that wrote it."""

    path: str
    size: int
    attempt: str


def orphans(lake: Lake, table: LakeTable, older_than: timedelta) -> list[Orphan]:
    """Files that are older than this, are not part of the lake, and that no attempt noted in it may still bring.

    Those of other clients have other names.
    """
    selector = fs.FileSelector(inside(table.path), allow_not_found=True, recursive=True)
    then = datetime.now(UTC) - older_than
    found = [
        Orphan(each.path, each.size, attempt)
        for each in lake.filesystem.get_file_info(selector)
        if each.type == fs.FileType.File and (attempt := attempt_of(each.path)) and each.mtime < then
    ]
    if not found:
        return []
    with lake.reading() as tx:
        open_ = attempts.under_way(tx)
        known = _known(tx)
    return [each for each in found if each.attempt not in open_ and _name(each.path) not in known]


def delete_orphans(lake: Lake, found: Sequence[Orphan]) -> list[Orphan]:
    """Delete them; those that have landed meanwhile stay. None can land from now on."""
    if not found:
        return []
    given_up = lake.changed_by(lambda tx: attempts.abandon(tx, {each.attempt for each in found}))
    with lake.reading() as tx:
        known = _known(tx)
    gone = [each for each in found if each.attempt in given_up and _name(each.path) not in known]
    for each in gone:
        with suppress(FileNotFoundError):
            lake.filesystem.delete_file(each.path)
    return gone


def _known(tx: Transaction) -> set[str]:
    return {_name(path) for table in _KNOWN for (path,) in tx.rows(f"SELECT path FROM {table}")}


def _name(path: str) -> str:
    return path.rsplit("/", 1)[-1]
