"""Which names are free in a lake: DuckDB, which reads it, ignores case."""

from __future__ import annotations

from collections.abc import Iterable

from headwater.change import TableName
from headwater.errors import TableError

__all__ = ["Names"]


class Names:
    """The names that are taken: of schemas, and of tables and views."""

    def __init__(self, schemas: Iterable[str], relations: Iterable[TableName]) -> None:
        self._schemas = {name.lower(): name for name in schemas}
        self._relations = {_folded(name): name for name in relations}

    def take(self, name: TableName) -> None:
        """Take a name; TableError if it is not free."""
        schema, there = self._schemas.get(name.schema.lower(), name.schema), self._relations.get(_folded(name))
        if schema != name.schema:
            raise TableError(
                f"schemas {name.schema!r} and {schema!r} differ in case only, which DuckDB does not distinguish",
                hint="put the tables of one of them into another schema with `as:`",
            )
        if there == name:
            raise TableError(
                f"the lake has another table or view {str(name)!r} already",
                hint="drop or rename it in the lake, or let the table land elsewhere with `as:`",
            )
        if there is not None:
            raise TableError(
                f"tables {str(name)!r} and {str(there)!r} differ in case only, which DuckDB does not distinguish",
                hint="give one of them another name in the lake with `as:`",
            )
        self._schemas[schema.lower()] = schema
        self._relations[_folded(name)] = name


def _folded(name: TableName) -> tuple[str, str]:
    return name.schema.lower(), name.name.lower()
