"""Whose fault an exception in a Spark task is: one table's, which fails alone, or that of something all tables need."""

from __future__ import annotations

import builtins
import errno
import os
import traceback

from headwater import errors
from headwater.errors import HeadwaterError, TableError, Unreachable

__all__ = ["needed_by_all", "raised", "shared_error", "table_error"]


def table_error(error: Exception) -> TableError:
    """The exception as the error of the table that the task was at; raised again if it is not the table's own.

    What a value can cause is the table's own: more bytes than Arrow's arrays hold, a bug of ours. A file or a server
    that does not answer is not. And if memory ran out, any table may be the one that has taken it: then the job dies,
    and `isolate` finds out which.
    """
    if isinstance(error, TableError):
        return error
    if isinstance(error, HeadwaterError | OSError | MemoryError):
        raise error
    frame = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{frame.filename.rsplit('/', 1)[-1]}:{frame.lineno}"
    return TableError(
        f"a Spark task failed at its rows: {type(error).__name__}: {error} ({where})",
        hint="a value may be too large for it: lower flush.rows; otherwise please report it",
        kind="bug",
    )


def needed_by_all(traceback_text: str) -> bool:
    """The same question about an exception that ended its task, and of which only the text has arrived."""
    said = raised(traceback_text)
    kind = getattr(builtins, said.partition(":")[0], None)
    unanswered = isinstance(kind, type) and issubclass(kind, OSError) and os.strerror(errno.ENOMEM) not in said
    return unanswered or said.startswith(HeadwaterError.__module__)


def shared_error(traceback_text: str) -> HeadwaterError:
    """Such an exception as an error of ours."""
    kind, _, said = raised(traceback_text).removeprefix(f"{HeadwaterError.__module__}.").partition(": ")
    ours = getattr(errors, kind, None)
    if isinstance(ours, type) and issubclass(ours, HeadwaterError):
        return ours(said)
    hint = "`headwater run` tries again by itself"
    if kind == FileNotFoundError.__name__:
        hint += "; if files of the lake are gone for good, stop this run: `headwater run --recopy` copies their tables"
    return Unreachable(f"a Spark task failed: {kind}: {said}", hint=hint)


def raised(traceback_text: str) -> str:
    """The line of a traceback that names the exception: the first after the frames."""
    lines = traceback_text.rstrip().splitlines()
    frames = [at for at, line in enumerate(lines) if line.startswith("  ")]
    return lines[min(frames[-1] + 1 if frames else 0, len(lines) - 1)]
