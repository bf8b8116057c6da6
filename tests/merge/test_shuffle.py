"""Changes come out of the shuffle as they went in."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.merge.net import CHANGE
from headwater.merge.shuffle import SHUFFLED, packed, unpacked

TABLES = {3: 11, 4: 22, 9: 11}  # relation versions and their tables
changes = st.lists(
    st.tuples(
        st.binary(max_size=5),  # key
        st.sampled_from("IUDT!?"),
        st.sampled_from(sorted(TABLES)),
        st.none() | st.binary(max_size=5),  # message
        st.booleans(),  # has holes
        st.none() | st.binary(max_size=5),  # the key it had
    ),
    max_size=20,
)


@settings(deadline=None)
@given(changes)
def test_what_is_packed_is_unpacked_as_it_was(
    rows: list[tuple[bytes, str, int, bytes | None, bool, bytes | None]],
) -> None:
    expected = [
        # Only a row with holes can have moved, and then it has a message.
        {"bucket": 1, "oid": TABLES[version], "key": key, "lsn": 5, "seq": at, "op": ord(op), "relation": version,
         "message": (message or b"") if holes and origin is not None else message,
         "holes": holes, "origin": origin if holes else None}
        for at, (key, op, version, message, holes, origin) in enumerate(rows)
    ]  # fmt: skip
    table = pa.Table.from_pylist(expected, schema=CHANGE)
    columns = {
        name: table[name].combine_chunks() if name in ("key", "message") else table[name].to_numpy()
        for name in SHUFFLED.names
    }
    holes = np.array([row["holes"] for row in expected], bool)
    batch = packed(columns, holes, table["origin"].combine_chunks())
    assert batch.schema == SHUFFLED
    assert unpacked(pa.Table.from_batches([batch]), TABLES).to_pylist() == expected
