"""The columns a history table has before those of its source."""

from __future__ import annotations

import pyarrow as pa

__all__ = ["COLUMNS", "SCHEMA"]

COLUMNS = (  # name, how it travels, what it is in the lake
    ("_op", pa.large_string(), "varchar"),  # insert, update, delete, truncate; copy: it was there at the first copy
    ("_commit_lsn", pa.int64(), "int64"),  # with _seq the order of all changes
    ("_commit_ts", pa.timestamp("us", tz="UTC"), "timestamptz"),
    ("_xid", pa.int64(), "int64"),
    ("_seq", pa.int64(), "int64"),
    ("_old", pa.large_string(), "json"),  # the row before, as far as the replica identity has it
    ("_unchanged", pa.large_string(), "json"),  # columns whose large values the source did not send again
)
SCHEMA = pa.schema([pa.field(name, arrow) for name, arrow, _ in COLUMNS])
