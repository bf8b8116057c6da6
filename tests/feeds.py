"""The change feed of a table over every range of snapshots, as DuckDB shows it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headwater.change import TableName

__all__ = ["Feeds", "assert_same_feeds", "feeds"]

Rows = list[tuple[Any, ...]]
Feeds = dict[tuple[int, int], Rows]


def feeds(ask: Callable[[str], Rows], lake: str, name: TableName, since: int) -> Feeds:
    """By first and last snapshot: each change as (snapshot, row id, kind, values), sorted.

    Unfiltered: DuckDB 1.5.5 mislabels changes when it pushes a filter into the feed.
    """
    feed = f"ducklake_table_changes('{lake}', '{name.schema}', '{name.name}', {{}}, {{}})"
    known = [id_ for (id_,) in ask(f"SELECT snapshot_id FROM {lake}.snapshots() ORDER BY 1") if id_ >= since]
    return {
        (first, last): sorted(ask("SELECT * FROM " + feed.format(first, last)), key=repr)
        for place, first in enumerate(known)
        for last in known[place:]
    }


def assert_same_feeds(before: Feeds, after: Feeds) -> None:
    """Every range of snapshots that is still there shows what it showed; a new snapshot adds no change to it."""
    shared = [each for each in before if each in after]
    assert shared, "no range of snapshots is left to compare"
    for each in shared:
        assert after[each] == before[each], f"snapshots {each[0]} to {each[1]}"
    newest = max(last for _, last in before)
    for (first, last), rows in after.items():
        if first <= newest < last:
            assert rows == after[first, newest], f"snapshots {first} to {last}: the newest changes nothing"
        elif first > newest:
            assert rows == [], f"snapshots {first} to {last} change nothing"
