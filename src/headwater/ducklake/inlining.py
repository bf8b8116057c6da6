"""The rows of a commit that go into the catalog itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count

from headwater.ducklake.catalog import Transaction
from headwater.ducklake.inlinedvalues import column_type
from headwater.ducklake.model import Field, InlinedEnds, InlinedRows
from headwater.lake.sqltext import identifier

__all__ = ["InlineWriter", "NewRows", "create_inlined_table"]


@dataclass(frozen=True, slots=True)
class NewRows:
    """Rows of one table; those that are new get their ids from `next_row_id` on."""

    table_id: int
    rows: Sequence[InlinedRows]
    next_row_id: int

    @property
    def fields(self) -> tuple[Field, ...]:
        return self.rows[0].fields


@dataclass(frozen=True, slots=True)
class InlineWriter:
    """Writes into the transaction of a commit that makes the snapshot."""

    tx: Transaction
    snapshot: int

    def insert(self, tables: Sequence[NewRows], known: Mapping[int, str]) -> bool:
        """Insert rows; whether a table of the catalog was created for them. Some of these tables are `known`.

        Then the lake's schema version has to rise: readers that are attached look for such tables only when it does.
        """
        unknown = [each for each in tables if each.table_id not in known]
        found, created = self._targets(unknown) if unknown else ({}, False)
        names = {**known, **found}
        for each in tables:
            columns = ["row_id", "begin_snapshot", *(identifier(field.name) for field in each.fields)]
            self.tx.insert(names[each.table_id], ", ".join(columns), self._numbered(each))
        return created

    def end(self, ends: Iterable[InlinedEnds]) -> None:
        """Let rows end. They are still there: the commit was planned on this state of the catalog, or has looked."""
        for each in ends:
            among, given = ("", ()) if each.row_ids is None else (" AND row_id {among}", (self.tx.ids(each.row_ids),))
            name = identifier(each.name)
            self.tx.send(
                f"UPDATE {name} SET end_snapshot = %s WHERE end_snapshot IS NULL{among}", self.snapshot, *given
            )

    def _numbered(self, table: NewRows) -> list[tuple[object, ...]]:
        new, found = count(table.next_row_id), list[tuple[object, ...]]()
        for each in table.rows:
            ids = [next(new) if row_id is None else row_id for row_id in each.row_ids]
            found += zip(ids, [self.snapshot] * len(ids), *each.values, strict=True)
        return found

    def _targets(self, tables: Sequence[NewRows]) -> tuple[dict[int, str], bool]:
        """The table of the catalog for each, and whether one had to be created.

        It has the number of the newest version of the table's columns, by which readers find these columns.
        """
        ids = self.tx.ids(each.table_id for each in tables)
        versions: dict[int, int] = {}
        known: dict[int, tuple[int, str]] = {}
        for table_id, version, name in self.tx.rows(
            "SELECT table_id, max(schema_version), NULL FROM ducklake_schema_versions WHERE table_id {among}"
            " GROUP BY table_id UNION ALL SELECT table_id, schema_version, table_name"
            " FROM ducklake_inlined_data_tables WHERE table_id {among}",
            ids,
            ids,
        ):
            if name is None:
                versions[table_id] = version
            else:
                known[table_id] = max(known.get(table_id, (version, name)), (version, name))
        fit = {id_: name for id_, (version, name) in known.items() if version >= versions[id_]}
        new = [each for each in tables if each.table_id not in fit]
        created = {
            each.table_id: create_inlined_table(self.tx, each.table_id, versions[each.table_id], each.fields)
            for each in new
        }
        return {**fit, **created}, bool(new)


def create_inlined_table(tx: Transaction, table_id: int, version: int, fields: Sequence[Field]) -> str:
    """Create the table of the catalog for rows of this version of the columns, and register it; its name."""
    name = f"ducklake_inlined_data_{table_id:d}_{version:d}"
    columns = [f"{identifier(each.name)} {column_type(each, tx.dialect)}" for each in fields]
    head = "row_id BIGINT, begin_snapshot BIGINT, end_snapshot BIGINT"
    tx.send(f"CREATE TABLE {name}({', '.join([head, *columns])})".replace("%", "%%"))
    tx.insert("ducklake_inlined_data_tables", "table_id, table_name, schema_version", [(table_id, name, version)])
    return name
