"""Only files whose statistics allow it are searched for the rows that are replaced."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from tests.mirror import Mirror

from headwater import flow
from headwater.sink.ducklake import DuckLakeSink, Plan
from headwater.sink.target import DuckLakePlace


class Watching(DuckLakeSink):
    """Counts the files it lets Spark search."""

    searched: int = 0

    def places(
        self, plan: Plan, keys: Mapping[int, tuple[str, ...]], wanted: Mapping[int, tuple[int, int] | None]
    ) -> list[DuckLakePlace]:
        found = super().places(plan, keys, wanted)
        self.searched = len(found)
        return found


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
    mirror.execute(f"CREATE TABLE t (id {kind} PRIMARY KEY, n int)")
    mirror.start()
    for first in (0, 1000, 2000):  # a file each
        mirror.execute(f"INSERT INTO t SELECT {value.format('i')}, 0 FROM generate_series({first}, {first + 9}) i")
        mirror.sync()
    sink = Watching(mirror.m.sink._lake, mirror.m.sink.source)
    mirror.m = replace(mirror.m, sink=sink)
    mirror.execute(
        f"UPDATE t SET n = 1 WHERE id = {value.format(1005)}", f"DELETE FROM t WHERE id = {value.format(1007)}"
    )
    mirror.captured()
    assert flow.deliver(mirror.m).landed
    assert sink.searched == searched
    mirror.assert_equal("t")
