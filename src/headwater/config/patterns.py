"""From patterns to tables: which tables of a source a group has."""

from __future__ import annotations

from collections.abc import Iterable

from headwater.change import TableName
from headwater.config.groups import Group, MatchedTable

__all__ = ["expanded"]


def expanded(group: Group, names: Iterable[TableName]) -> Group:
    """The group with its real tables, in a source that has these: those that are listed, then those that match.

    A table that is listed is treated as its own entry says; of two patterns the first counts.
    """
    written = tuple(each for each in group.entries if not isinstance(each, MatchedTable))
    listed = {each.table for each in group.tables if not isinstance(each, MatchedTable)}
    matched = (group.matched(name) for name in dict.fromkeys(names) if name not in listed)
    return group.model_copy(update={"entries": (*written, *filter(None, matched))})
