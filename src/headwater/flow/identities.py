"""What a table's replica identity must tell a route: for every row that goes, its key and where it was."""

from __future__ import annotations

from headwater.change import Relation
from headwater.errors import TableError
from headwater.flow.routesource import RouteRules

__all__ = ["covers", "identity_problem", "needed"]


def needed(relation: Relation, rules: RouteRules) -> frozenset[int]:
    """The columns, by their numbers, that a route needs of every row that goes."""
    names = {rules.by, *([] if rules.append else rules.keys)}
    key = frozenset() if rules.append or rules.keys else relation.key_attnums
    found = (column.attnum for column in relation.columns if rules.where is not None or column.name in names)
    return key | frozenset(found)


def covers(relation: Relation, columns: frozenset[int]) -> bool:
    """Whether every update and delete under this version tells what the row had in these columns before.

    In a column that a version does not have yet, all rows have had the same.
    """
    if relation.identity == "f":
        return True
    there = columns & {column.attnum for column in relation.columns}
    return relation.identity != "n" and there <= relation.key_attnums


def identity_problem(relation: Relation, rules: RouteRules) -> TableError | None:
    """Why the changes of a table cannot be routed; None if they can, or if PostgreSQL lets rows only be inserted."""
    unchanged = relation.identity == "n" or (not relation.key and relation.identity != "f")
    columns = needed(relation, rules)
    if covers(relation, columns) or (rules.append and unchanged):
        return None
    table = relation.table
    lost = [each.name for each in relation.columns if each.attnum in columns - relation.key_attnums]
    why = "by which it routes" if lost == [rules.by] else "which it needs of rows that change"
    full = f"ALTER TABLE {table} REPLICA IDENTITY FULL;"
    index = ", ".join(each.name for each in relation.columns if each.attnum in columns)
    other = f" or USING INDEX, with a unique index on ({index}), all NOT NULL" if rules.where is None else ""
    return TableError(
        f"the replica identity of table {str(table)!r} does not cover {', '.join(map(repr, lost))}, {why}",
        hint=f"{full}{other}",
    )
