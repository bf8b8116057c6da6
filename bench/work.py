"""What is done to the source, as SQL that runs inside the server, and how two copies of a table are compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import duckdb
from psycopg import sql

from headwater.change import Lsn
from headwater.lake.address import LakeAddress
from headwater.lake.reading import connect
from headwater.postgres.connect import connect as connect_source

__all__ = ["ROW", "Database", "Rows"]

_COLUMNS = "id {} PRIMARY KEY, customer int, amount numeric(12,2), status text, note text, placed timestamptz"
_VALUES = """
    (i % 100000)::int, (i % 1000000) / 100.0, (ARRAY['new', 'paid', 'sent', 'done'])[1 + i % 4],
    'order number ' || i || ' of customer ' || i % 100000, timestamptz '2026-01-01 00:00:00Z' + i * interval '1 second'
"""
ROW = {  # of number i, by the type of its key; DuckDB understands it, too
    "bigint": f"i, {_VALUES}",
    "uuid": f"md5(i::text)::uuid, {_VALUES}",
}
_QUOTED_ROW = ROW["bigint"].replace("'", "''").replace("%", "%%")  # inside a literal that is a format
# 64 % inserts, 22 % updates and 14 % deletes of rows anywhere in the table, in transactions of some size.
_MIX = f"""
CREATE PROCEDURE mix(tables text[], changes int, fewest int, most int) LANGUAGE plpgsql AS $$
DECLARE
    wanted int; done int := 0; inserts int; updates int; name text; newest bigint;
    chosen CONSTANT text := '(SELECT (SELECT id FROM %1$I WHERE id >= r ORDER BY id LIMIT 1)'
        ' FROM (SELECT (random() * $1)::bigint AS r FROM generate_series(1, $2)) AS _)';
BEGIN
    WHILE done < changes LOOP
        wanted := least(fewest + floor(random() * (most - fewest + 1))::int, changes - done);
        inserts := round(wanted * 0.64);
        updates := round(wanted * 0.22);
        FOREACH name IN ARRAY tables LOOP
            EXECUTE format('SELECT coalesce(max(id), 0) FROM %I', name) INTO newest;
            EXECUTE format('INSERT INTO %I SELECT {_QUOTED_ROW} FROM generate_series($1, $2) AS i', name)
                USING newest + 1, newest + inserts;
            EXECUTE format('UPDATE %1$I SET amount = amount + 1, status = ''changed'' WHERE id IN ' || chosen, name)
                USING newest, updates;
            EXECUTE format('DELETE FROM %1$I WHERE id IN ' || chosen, name) USING newest, wanted - inserts - updates;
        END LOOP;
        done := done + wanted;
        COMMIT;
    END LOOP;
END $$
"""
_TEXT = "concat_ws('|', id, customer, amount, status, note)"
_SOURCE_SUM = f"""
    SELECT count(*), sum(('x' || substr(md5({_TEXT}), 1, 12))::bit(48)::bigint), sum(extract(epoch FROM placed)::bigint)
    FROM {{}}
"""
_LAKE_SUM = f"""
    SELECT count(*), sum(('0x' || substr(md5({_TEXT}), 1, 12))::bigint), sum(epoch(placed)::bigint)
    FROM lake.public.{{}} WHERE {{}}
"""


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of a table: each that has a number up to `last` which is a multiple of `step`."""

    last: int
    key: str = "bigint"  # its type
    step: int = 1

    def ids(self, number: str) -> str:
        """SQL: the key of a row that has this number."""
        return {"bigint": f"({number})::bigint", "uuid": f"md5((({number})::bigint)::text)::uuid"}[self.key]


class Database:
    """A database of its own on the server; a slot sees no changes of others."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._connection = connect_source(url, application_name="bench")
        self._connection.execute("RESET search_path")  # tables are made here
        self._connection.execute(_MIX)

    def create(self, table: str, rows: int | Rows) -> None:
        name, rows = sql.Identifier(table), rows if isinstance(rows, Rows) else Rows(rows)
        self.execute(sql.SQL(f"CREATE TABLE {{}} ({_COLUMNS.format(rows.key)})").format(name))
        self._insert(table, rows.step, rows)
        self.execute(sql.SQL("VACUUM (FREEZE, ANALYZE) {}").format(name))

    def insert(self, table: str, first: int, last: int) -> None:
        """Rows, in one transaction."""
        self._insert(table, first, Rows(last))

    def _insert(self, table: str, first: int, rows: Rows) -> None:
        series = f"generate_series({first}, {rows.last}::bigint, {rows.step})"
        self.execute(
            sql.SQL(f"INSERT INTO {{}} SELECT {ROW[rows.key]} FROM {series} AS i").format(sql.Identifier(table))
        )

    def mix(self, tables: Sequence[str], changes: int, fewest: int = 10, most: int = 100) -> None:
        """So many changes to each of the tables; one transaction touches all of them."""
        self.execute("CALL mix(%s, %s, %s, %s)", (list(tables), changes, fewest, most))

    def update(self, table: str, rows: Rows, count: int) -> None:
        """Random updates of these rows in one transaction."""
        number = f"{rows.step} * (1 + floor(random() * {rows.last // rows.step}))"
        self.execute(
            sql.SQL(
                "UPDATE {} SET amount = amount + 1, status = 'changed' WHERE id IN"
                f" (SELECT {rows.ids(number)} FROM generate_series(1, {count}))"
            ).format(sql.Identifier(table))
        )

    def end(self, table: str) -> Lsn:
        """The position after everything done so far, with one more change behind it for capture to see."""
        position = Lsn.parse(self.one("SELECT pg_current_wal_insert_lsn()::text")[0])
        name = sql.Identifier(table)
        self.execute(
            sql.SQL("UPDATE {0} SET customer = 0 WHERE id = (SELECT id FROM {0} ORDER BY id DESC LIMIT 1)").format(name)
        )
        return position

    def same_as(self, address: LakeAddress, tables: Sequence[str], where: str = "true") -> int:
        """The number of rows; AssertionError if a lake's table does not hold exactly the source's rows.

        With `where`, that is asked only of the rows in the lake for which it is true.
        """
        rows = 0
        with connect() as lake:
            queried = address.queried()
            queried.prepare(lake)
            queried.attach(lake, "lake")
            for table in tables:
                ours, theirs = self._sum(table), _lake_sum(lake, table, where)
                assert ours == theirs, f"{table}: the source has {ours}, the lake {theirs}"
                rows += ours[0]
        return rows

    def execute(self, statement: sql.Composed | str, values: Sequence[Any] = ()) -> None:
        self._connection.execute(statement, values or None)

    def one(self, statement: str) -> tuple[Any, ...]:
        row: tuple[Any, ...] | None = self._connection.execute(statement).fetchone()
        assert row is not None
        return row

    def close(self) -> None:
        self._connection.close()

    def _sum(self, table: str) -> tuple[int, ...]:
        row = self._connection.execute(sql.SQL(_SOURCE_SUM).format(sql.Identifier(table))).fetchone()
        assert row is not None
        return tuple(int(each or 0) for each in row)


def _lake_sum(lake: duckdb.DuckDBPyConnection, table: str, where: str) -> tuple[int, ...]:
    row = lake.execute(_LAKE_SUM.format(table, where)).fetchone()
    assert row is not None
    return tuple(int(each or 0) for each in row)
