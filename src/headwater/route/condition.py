"""A route's `where`: a SQL condition on single rows, evaluated by DuckDB inside Spark's tasks."""

from __future__ import annotations

from dataclasses import dataclass

import duckdb
import pyarrow as pa

from headwater.errors import ConfigError
from headwater.lake.casting import fitted

__all__ = ["Condition"]


@dataclass(frozen=True, slots=True)
class Condition:
    """Each image of a change is judged by its own values: a row that no longer fulfils it leaves the destination.

    `schema` has the columns that the condition may name, in the types in which DuckDB knows them.
    """

    sql: str
    schema: pa.Schema

    def check(self) -> None:
        """ConfigError if DuckDB cannot evaluate it on rows of the schema."""
        try:
            self.fulfilled(self.schema.empty_table())
        except duckdb.Error as error:
            what = " ".join(str(error).split("\n\n")[0].split())
            raise ConfigError(
                f"`where: {self.sql}` cannot be evaluated: {what}",
                hint=f"write a condition on the columns {', '.join(self.schema.names)}, as in SELECT … WHERE",
            ) from None

    def fulfilled(self, rows: pa.Table) -> pa.Array:
        """For each row, whether the condition is true; NULL is not."""
        typed = pa.table([fitted(rows[each.name], each.type) for each in self.schema], schema=self.schema)
        with duckdb.connect(config=_CLOSED) as con:  # cheap beside a piece of events, and it keeps nothing
            con.execute("SET TimeZone = 'UTC'")
            con.register("rows", typed)
            found = con.execute(f"SELECT coalesce((\n{self.sql}\n)::BOOLEAN, false) AS fulfilled FROM rows")
            return found.to_arrow_table()["fulfilled"].combine_chunks()


_CLOSED: dict[str, str | bool | int | float | list[str]] = {
    "threads": "1",
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
}
