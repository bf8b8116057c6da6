"""The columns a history table has before those of its source."""

from __future__ import annotations

import pyarrow as pa

from headwater.values.types import LakeType

__all__ = ["COLUMNS", "SCHEMA"]

_INTEGER = LakeType("bigint", pa.int64(), "int64")
_JSON = LakeType("json", pa.large_string(), "json")

COLUMNS = {
    "_op": LakeType("text", pa.large_string(), "string"),  # insert, update, delete, truncate, or copy: the first copy
    "_commit_lsn": _INTEGER,  # with _seq the order of all changes
    "_commit_ts": LakeType("timestamptz", pa.timestamp("us", tz="UTC"), "timestamptz"),
    "_xid": _INTEGER,
    "_seq": _INTEGER,
    "_old": _JSON,  # the row before, as far as the replica identity has it
    "_unchanged": _JSON,  # columns whose large values the source did not send again
}
SCHEMA = pa.schema([pa.field(name, kind.arrow) for name, kind in COLUMNS.items()])
