"""Attempts to write to a lake: each is noted in the catalog before its first file, and its commit removes the note.

An attempt that is noted and no longer under way did not land: it failed, or its process was killed. Its files have its
name in theirs, so they can be found and deleted. Once closed, an attempt can no longer be committed: a process that was
only suspended cannot register files that are gone.

A caller that writes to many lakes at once may note one attempt for all of them elsewhere. Then a lake has a row of it
only once it is closed, and keeps that row: without it, the attempt could land.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Collection

from pyarrow import fs

from headwater.ducklake.catalog import Transaction
from headwater.errors import CommitConflict
from headwater.files import inside

__all__ = [
    "ATTEMPT_TABLE",
    "abandon",
    "attempt_of",
    "begin",
    "close",
    "end",
    "forget",
    "land",
    "leftovers",
    "under_way",
]

ATTEMPT_TABLE = (
    "CREATE TABLE IF NOT EXISTS headwater_attempt"
    " (attempt text PRIMARY KEY, source text, closed bigint NOT NULL)"  # no source: a caller has noted it elsewhere
)
_OPEN, _CLOSED, _FORGOTTEN = 0, 1, 2  # of the last, no files are looked for
_NOTE_ELSEWHERE = "INSERT INTO headwater_attempt(attempt, closed) VALUES (%s, %s) ON CONFLICT (attempt) DO NOTHING"
_NAME = re.compile(r"headwater-([0-9a-f]{32})-[^/]*\.parquet")


def begin(tx: Transaction, source: str) -> str:
    """Note a new attempt."""
    attempt = uuid.uuid4().hex
    tx.insert("headwater_attempt", "attempt, source, closed", [(attempt, source, _OPEN)])
    return attempt


def land(tx: Transaction, attempt: str, *, noted: bool) -> None:
    """Remove the note in the commit that lands the attempt."""
    if not noted:  # for the length of the commit it is: whoever closes the attempt meanwhile waits for its end
        tx.send(_NOTE_ELSEWHERE, attempt, _OPEN)
    if not tx.execute("DELETE FROM headwater_attempt WHERE attempt = %s AND closed = %s", attempt, _OPEN):
        raise CommitConflict(f"another process has closed attempt {attempt!r}", hint="plan again")


def end(tx: Transaction, attempt: str) -> None:
    """Remove the note of an attempt that has deleted its files by itself."""
    tx.execute("DELETE FROM headwater_attempt WHERE attempt = %s AND closed = %s", attempt, _OPEN)


def attempt_of(path: str) -> str | None:
    """The attempt that wrote a file; None if we did not."""
    found = _NAME.fullmatch(path.rsplit("/", 1)[-1])
    return found[1] if found else None


def under_way(tx: Transaction) -> set[str]:
    """The attempts of all sources that may still land; of those that are noted elsewhere, nothing is known here."""
    return {attempt for (attempt,) in tx.rows("SELECT attempt FROM headwater_attempt WHERE closed = %s", _OPEN)}


def abandon(tx: Transaction, found: Collection[str]) -> set[str]:
    """Those of these attempts that are not under way, and can never land from now on."""
    given_up = set(found) - under_way(tx)
    # One that was noted elsewhere has no row here: with one that is closed it cannot land.
    tx.execute_many(_NOTE_ELSEWHERE, [(each, _FORGOTTEN) for each in sorted(given_up)])
    return given_up


def close(tx: Transaction, source: str, elsewhere: Collection[str], spared: Collection[str] = ()) -> dict[str, bool]:
    """Close all attempts of a source but the `spared` ones, and these that are noted elsewhere.

    Returns the names of those whose files are to be looked for, and whether each was closed before.
    """
    found = {
        attempt: closed == _CLOSED
        for attempt, closed in tx.rows(
            "SELECT attempt, closed FROM headwater_attempt WHERE (source = %s OR source IS NULL) AND closed < %s",
            source,
            _FORGOTTEN,
        )
        if attempt not in spared
    }
    tx.execute_many(_NOTE_ELSEWHERE, [(each, _CLOSED) for each in elsewhere])
    tx.execute_many(
        "UPDATE headwater_attempt SET closed = %s WHERE attempt = %s AND source = %s AND closed = %s",
        [(_CLOSED, attempt, source, _OPEN) for attempt, closed in found.items() if not closed],
    )
    return dict.fromkeys(elsewhere, False) | found


def forget(tx: Transaction, attempts: Collection[str]) -> None:
    """Look for these no more."""
    tx.execute_many(
        "DELETE FROM headwater_attempt WHERE attempt = %s AND source IS NOT NULL", [(each,) for each in attempts]
    )
    tx.execute_many(
        "UPDATE headwater_attempt SET closed = %s WHERE attempt = %s", [(_FORGOTTEN, each) for each in attempts]
    )


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
