"""Only files whose statistics allow it are searched for the rows that are replaced."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.interrupted import Interrupted
from tests.mirror import Mirror

from headwater import flow


@pytest.mark.parametrize(
    ("kind", "value", "searched"),
    [
        ("bigint", "{}", 1),
        ("integer", "-{}", 1),
        ("date", "date '2026-01-01' + {}", 1),
        ("timestamptz", "timestamptz '2026-01-01 00:00+00' + interval '1 hour' * {}", 1),
        ("timestamp", "timestamp '1969-01-01' + interval '1 hour' * {}", 1),
        ("text", "{}::text", 3),  # not pruned: text is compared by other rules
    ],
)
def test_an_update_searches_only_files_that_may_hold_its_key(
    mirror: Mirror, kind: str, value: str, searched: int
) -> None:
    mirror.inline = "off"
    mirror.execute(f"CREATE TABLE t (id {kind} PRIMARY KEY, n int)")
    mirror.start()
    for first in (0, 1000, 2000):  # a file each
        mirror.execute(f"INSERT INTO t SELECT {value.format('i')}, 0 FROM generate_series({first}, {first + 9}) i")
        mirror.sync()
    looked: list[int] = []
    sink: Any = Interrupted(mirror.m.sink, searched=looked.append)
    mirror.m = replace(mirror.m, sink=sink)
    mirror.execute(
        f"UPDATE t SET n = 1 WHERE id = {value.format(1005)}", f"DELETE FROM t WHERE id = {value.format(1007)}"
    )
    mirror.captured()
    assert flow.deliver(mirror.m).landed
    assert looked == [searched]
    mirror.assert_equal("t")
