"""Attempts to write to a lake: each is noted in the catalog before its first file, and its commit removes the note.

An attempt that is noted and no longer under way did not land: it failed, or its process was killed. Its files have its
name in theirs, so they can be found and deleted. Once closed, an attempt can no longer be committed: a process that was
only suspended cannot register files that are gone.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Collection

from pyarrow import fs

from headwater.ducklake.catalog import Transaction
from headwater.errors import CommitConflict
from headwater.files import inside

__all__ = ["ATTEMPT_TABLE", "begin", "close", "forget", "land", "leftovers"]

ATTEMPT_TABLE = (
    "CREATE TABLE IF NOT EXISTS headwater_attempt"
    " (attempt text PRIMARY KEY, source text NOT NULL, closed bigint NOT NULL)"
)
_NAME = re.compile(r"headwater-([0-9a-f]{32})-[^/]*\.parquet")


def begin(tx: Transaction, source: str) -> str:
    """Note a new attempt."""
    attempt = uuid.uuid4().hex
    tx.insert("headwater_attempt", "attempt, source, closed", [(attempt, source, 0)])
    return attempt


def land(tx: Transaction, attempt: str) -> None:
    """Remove the note in the commit that lands the attempt."""
    if not tx.execute("DELETE FROM headwater_attempt WHERE attempt = %s AND closed = 0", attempt):
        raise CommitConflict(f"another process has closed attempt {attempt!r}", hint="plan again")


def close(tx: Transaction, source: str) -> dict[str, bool]:
    """Close all attempts of a source; return their names, and whether each was closed before."""
    found = {
        attempt: bool(closed)
        for attempt, closed in tx.rows("SELECT attempt, closed FROM headwater_attempt WHERE source = %s", source)
    }
    tx.execute("UPDATE headwater_attempt SET closed = 1 WHERE source = %s AND closed = 0", source)
    return found


def forget(tx: Transaction, attempts: Collection[str]) -> None:
    tx.execute_many("DELETE FROM headwater_attempt WHERE attempt = %s", [(each,) for each in attempts])


def leftovers(tx: Transaction, files: fs.FileSystem, data_path: str, attempts: Collection[str]) -> list[str]:
    """The files of these attempts that are not in the catalog."""
    selector = fs.FileSelector(inside(data_path), allow_not_found=True, recursive=True)
    found = [each.path for each in files.get_file_info(selector) if each.type == fs.FileType.File]
    mine = {path: name for path in found if (name := _NAME.search(path)) and name[1] in attempts}
    known = _registered(tx, attempts) if mine else set()
    return [path for path, name in mine.items() if name[0] not in known]


def _registered(tx: Transaction, attempts: Collection[str]) -> set[str]:
    found = set[str]()
    for table in ("ducklake_data_file", "ducklake_delete_file", "ducklake_files_scheduled_for_deletion"):
        for attempt in attempts:
            rows = tx.rows(f"SELECT path FROM {table} WHERE path LIKE %s", f"%headwater-{attempt}-%")
            found |= {path.rsplit("/", 1)[-1] for (path,) in rows}
    return found
