"""Named places where a test may kill the process, or have it fail, to prove that this loses and duplicates nothing.

`HEADWATER_FAILPOINT=capture.registered` kills this process (SIGKILL) the first time it gets there;
`capture.registered:3` the third time, `deliver.decoded=public.orders` when it works on that table.
`!deliver.written:3` does not kill: the third write fails once, as if a server did not answer.
Off, a failpoint costs one comparison with None.
The environment is read here, and not passed down, because Spark's Python workers must see it too.
"""

from __future__ import annotations

import os
import signal

from headwater.errors import Unreachable

__all__ = ["FAILPOINTS", "hit"]

FAILPOINTS = {
    "capture.read": "a transaction was read from the slot, nothing is on disk",
    "capture.streamed": "a file of a transaction in progress is on disk, not registered",
    "capture.written": "the segment file is on disk, not registered",
    "capture.registered": "the segment is registered, the slot is not confirmed",
    "capture.confirmed": "the slot is confirmed",
    "copy.read": "a Spark task has read rows of a first copy",
    "copy.range": "a Spark task has noted a range of a copy as done",
    "copy.written": "a first copy's files are written, not committed",
    "copy.committed": "a first copy is in the lake, the state does not have it yet",
    "deliver.folded": "the batch is folded, nothing written",
    "deliver.located": "a Spark task has found the rows to replace",
    "deliver.decoded": "a Spark task has decoded a table's rows, nothing of them is written",
    "deliver.written": "data files are in the lake's folder, not committed",
    "deliver.before-commit": "everything is written, and the catalog has not committed it",
    "iceberg.quarantined": "the quarantine has values of tables that have not landed",
    "iceberg.landed": "a table has its snapshot, the tables after it do not",
    "iceberg.unnoted": "all tables that change have landed, the ledger does not have the others yet",
    "iceberg.renaming": "a table has one of its new names, the tables after it do not",
    "iceberg.replaced": "a table's new copy has landed, the mirrors that it replaces are still there",
    "deliver.committed": "the lake has the batch, the state does not have it yet",
    "deliver.recorded": "the state has it too",
    "remove.written": "the deletes of a partition's rows are written, not committed",
    "remove.committed": "a partition's rows are gone from the lake, the state does not know it yet",
    "seed.written": "the rows of new destinations are written, not committed",
    "seed.committed": "destinations are seeded, the state does not know it yet",
    "route.written": "a Spark task has written a destination's share of a poll, not committed",
    "route.committed": "a destination has its share, others do not, and the state knows of none",
    "route.polled": "all destinations have their shares, the state does not know it yet",
    "maintain.read": "a Spark task has read the rows of files to be merged",
    "maintain.written": "merged files are written, not committed",
    "maintain.before-commit": "the catalog of a DuckLake has merged files in place of the old ones, not committed",
    "maintain.merged": "merged files are in the lake, in place of the old ones",
    "maintain.expired": "old snapshots are gone, the files that only they needed are still there",
}


def _armed() -> tuple[str, str, int, bool] | None:
    asked = os.environ.get("HEADWATER_FAILPOINT", "")
    where, _, nth = asked.removeprefix("!").partition(":")
    name, _, table = where.partition("=")
    if not name:
        return None
    if name not in FAILPOINTS:
        raise ValueError(f"unknown failpoint {name!r}; known: {', '.join(FAILPOINTS)}")
    return name, table, int(nth or 1), asked.startswith("!")


_target = _armed()
_left = _target[2] if _target else 0


def hit(name: str, table: str = "") -> None:
    """Die here, or fail, if this failpoint is armed."""
    global _left
    if _target is None or _target[0] != name or _target[1] not in ("", table):
        return
    _left -= 1
    if _left == 0 and _target[3]:
        raise Unreachable(f"the failpoint {name} was asked to fail", hint="only tests set HEADWATER_FAILPOINT")
    if _left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
