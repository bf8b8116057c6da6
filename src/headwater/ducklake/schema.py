"""The schema changes of one commit, written to the catalog: tables dropped, altered, renamed and created."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from headwater.change import TableName
from headwater.ducklake import reading
from headwater.ducklake.catalog import Transaction
from headwater.ducklake.evolution import ColumnRow, check_names, column_rows, evolved
from headwater.ducklake.inlinedvalues import can_be_inlined
from headwater.ducklake.inlining import create_inlined_table
from headwater.ducklake.model import Alteration, Field, NewTable, PartitionKey, PlannedCommit, Snapshot
from headwater.errors import CommitConflict
from headwater.lake.names import Names

__all__ = ["WrittenSchema", "safe_folder", "schema_folder", "write_schema"]

_ENDS_WITH_ITS_TABLE = (  # as DuckLake's own DROP TABLE
    "ducklake_table",
    "ducklake_partition_info",
    "ducklake_column",
    "ducklake_column_tag",
    "ducklake_data_file",
    "ducklake_delete_file",
    "ducklake_sort_info",
)


@dataclass(frozen=True, slots=True)
class WrittenSchema:
    """The catalog's counters after the schema changes, and the ids of the tables that they created."""

    schema_version: int
    next_catalog_id: int
    created: dict[TableName, int]


class _TableRow(NamedTuple):
    id: int
    uuid: str
    schema_id: int
    schema: str
    name: str
    path: str  # as it is stored
    relative: bool


def write_schema(
    tx: Transaction, data_path: str, commit: PlannedCommit, newest: Snapshot, log: list[str]
) -> WrittenSchema:
    """Write everything a commit does to schemas, tables and columns; `log` receives DuckLake's names for it."""
    return _SchemaWriter(tx, data_path, commit, newest, log).write()


def safe_folder(name: str, otherwise: str) -> str:
    """The folder of a schema or table: its name, or `otherwise` if the name is not suitable."""
    return (name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else otherwise) + "/"


def schema_folder(name: str) -> str:
    """A folder for a schema whose name is not suitable: the same for every client that is about to create it."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"ducklake-schema:{name}"))


@dataclass
class _SchemaWriter:
    tx: Transaction
    data_path: str
    commit: PlannedCommit
    newest: Snapshot
    log: list[str]
    changed: bool = False
    versioned: set[int] = field(default_factory=set)
    created: dict[TableName, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.snapshot = self.newest.id + 1
        self.next_catalog_id = self.newest.next_catalog_id

    def write(self) -> WrittenSchema:
        self._drop(self.commit.dropped)
        tables = self._tables(each.table for each in self.commit.alterations)
        for each in self.commit.alterations:
            self._alter(tables[each.table], each)
        renamed = [
            (tables[each.table], each.name)
            for each in self.commit.alterations
            if each.name is not None and each.name != (tables[each.table].schema, tables[each.table].name)
        ]
        self._name(renamed)
        return WrittenSchema(self.newest.schema_version + self.changed, self.next_catalog_id, self.created)

    def _new_catalog_id(self) -> int:
        self.next_catalog_id += 1
        return self.next_catalog_id - 1

    def _end(self, table: str, column: str, ids: Iterable[int]) -> None:
        self.changed = True
        self.tx.execute(
            f"UPDATE {table} SET end_snapshot = %s WHERE end_snapshot IS NULL AND {column} {{among}}",
            self.snapshot,
            self.tx.ids(ids),
        )

    # -- tables that go or change

    def _drop(self, ids: tuple[int, ...]) -> None:
        if not ids:
            return
        for table in _ENDS_WITH_ITS_TABLE:
            self._end(table, "table_id", ids)
        self._end("ducklake_tag", "object_id", ids)
        self.log.extend(f"dropped_table:{id_}" for id_ in ids)

    def _tables(self, ids: Iterable[int]) -> dict[int, _TableRow]:
        found = self.tx.rows(
            "SELECT t.table_id, t.table_uuid, t.schema_id, s.schema_name, t.table_name, t.path, t.path_is_relative"
            " FROM ducklake_table t JOIN ducklake_schema s ON s.schema_id = t.schema_id"
            " WHERE t.table_id {among} AND t.end_snapshot IS NULL AND s.end_snapshot IS NULL",
            self.tx.ids(ids),
        )
        return {row[0]: _TableRow(*row) for row in found}

    def _alter(self, table: _TableRow, alteration: Alteration) -> None:
        check_names(f"{table.schema}.{table.name}", alteration.columns)
        have = self._columns(table.id)
        step = evolved(have, alteration.columns, reading.next_column_id(self.tx, table.id))
        if not step.ended and not step.begun:
            return
        self.tx.execute(
            "UPDATE ducklake_column SET end_snapshot = %s WHERE table_id = %s AND end_snapshot IS NULL"
            " AND column_id {among}",
            self.snapshot,
            table.id,
            self.tx.ids(step.ended),
        )
        self._insert_columns(table.id, step.begun)
        # DuckDB answers from a table's bounds, which do not include what older rows show in a new column.
        self.tx.execute("DELETE FROM ducklake_table_column_stats WHERE table_id = %s", table.id)
        self._new_version(table.id)
        self._follow_inlined(table.id, alteration.columns)
        self.log.append(f"altered_table:{table.id}")

    def _columns(self, table_id: int) -> dict[int, ColumnRow]:
        found = self.tx.rows(
            "SELECT column_id, column_order, column_name, column_type, initial_default, default_value, nulls_allowed,"
            " parent_column, default_value_type FROM ducklake_column WHERE table_id = %s AND end_snapshot IS NULL",
            table_id,
        )
        return {
            id_: ColumnRow(id_, order, name, type_, initial, default, bool(nullable), parent, kind)
            for id_, order, name, type_, initial, default, nullable, parent, kind in found
        }

    def _follow_inlined(self, table_id: int, columns: Sequence[Field]) -> None:
        """Unregister the catalog's empty tables for its rows, which have the old columns.

        One that has rows stays: they are shown under the new columns, as the rows of old files are. DuckDB puts its own
        small inserts into the newest one, so there must be one of the new columns then, if it can have them.
        """
        stays = False
        for (name,) in self.tx.rows(
            "SELECT table_name FROM ducklake_inlined_data_tables WHERE table_id = %s", table_id
        ):
            if self.tx.rows(f'SELECT 1 FROM "{name}" LIMIT 1'):
                stays = True
            else:
                self.tx.execute("DELETE FROM ducklake_inlined_data_tables WHERE table_name = %s", name)
        if stays and all(map(can_be_inlined, columns)):
            create_inlined_table(self.tx, table_id, self.newest.schema_version + 1, columns)

    def _insert_columns(self, table_id: int, rows: Iterable[ColumnRow]) -> None:
        self.tx.insert(
            "ducklake_column",
            "column_id, begin_snapshot, table_id, column_order, column_name, column_type, initial_default,"
            " default_value, nulls_allowed, parent_column, default_value_type, default_value_dialect",
            [
                (row.id, self.snapshot, table_id, row.order, row.name, row.type, row.initial_default, row.default,
                 row.nullable, row.parent, row.default_type, "duckdb")
                for row in rows
            ],
        )  # fmt: skip

    def _new_version(self, table_id: int) -> None:
        """Files before and after it are not merged; files of a table without any version would never be."""
        self.changed = True
        if table_id not in self.versioned:
            self.versioned.add(table_id)
            row = (self.snapshot, self.newest.schema_version + 1, table_id)
            self.tx.insert("ducklake_schema_versions", "begin_snapshot, schema_version, table_id", [row])

    # -- names

    def _name(self, renamed: list[tuple[_TableRow, TableName]]) -> None:
        """Give the renamed and the new tables their names; dropped and renamed tables have given up theirs by now."""
        if not renamed and not self.commit.new_tables:
            return
        self._end("ducklake_table", "table_id", [table.id for table, _ in renamed])
        wanted = [*(name for _, name in renamed), *(each.name for each in self.commit.new_tables)]
        self._check(wanted)
        schemas = self._schemas(wanted)
        for table, name in renamed:
            self._rename(table, name, *schemas[name.schema])
        for new in self.commit.new_tables:
            self._create_table(new, *schemas[new.name.schema])

    def _check(self, wanted: list[TableName]) -> None:
        """Refuse names that are taken; it is a conflict if they were free when the commit was planned."""
        taken = {name: since for name, _, since in reading.relations(self.tx)}
        created = {each.name for each in self.commit.new_tables}
        names = Names(reading.schemas(self.tx), taken)
        for name in wanted:
            if name in taken and (taken[name] > self.commit.base.id or name in created):
                raise CommitConflict(f"the lake has a table or view {str(name)!r} by now", hint="plan again")
            names.take(name)

    def _schemas(self, names: Iterable[TableName]) -> dict[str, tuple[int, str]]:
        """Id and absolute path of every schema; missing ones that tables need are created."""
        found = {
            name: (id_, path if not relative else self.data_path + path)
            for id_, name, path, relative in self.tx.rows(
                "SELECT schema_id, schema_name, path, path_is_relative FROM ducklake_schema WHERE end_snapshot IS NULL"
            )
        }
        for name in dict.fromkeys(each.schema for each in names):
            if name not in found:
                found[name] = self._create_schema(name)
        return found

    def _create_schema(self, name: str) -> tuple[int, str]:
        id_ = self._new_catalog_id()
        path = safe_folder(name, schema_folder(name))
        self.tx.insert(
            "ducklake_schema",
            "schema_id, schema_uuid, begin_snapshot, schema_name, path, path_is_relative",
            [(id_, str(uuid.uuid4()), self.snapshot, name, path, True)],
        )
        self.log.append(f"created_schema:{_quoted(name)}")
        return id_, self.data_path + path

    def _rename(self, table: _TableRow, name: TableName, schema_id: int, schema_path: str) -> None:
        path, relative = table.path, table.relative
        if schema_id != table.schema_id:  # the files stay where they are, outside the folder of the new schema
            where = reading.table_paths(self.tx, self.data_path, [table.id], self.newest.id)[table.id]
            path, relative = where.removeprefix(schema_path), where.startswith(schema_path)
        self._insert_table((table.id, table.uuid, self.snapshot, schema_id, name.name, path, bool(relative)))
        self._new_version(table.id)
        self.log.append(f"created_table:{_quoted(name.schema)}.{_quoted(name.name)}")
        if f"altered_table:{table.id}" not in self.log:
            self.log.append(f"altered_table:{table.id}")

    def _create_table(self, table: NewTable, schema_id: int, schema_path: str) -> None:
        if not table.path.startswith(schema_path):
            raise CommitConflict(f"the folder of schema {table.name.schema!r} is another by now", hint="plan again")
        id_ = self.created[table.name] = self._new_catalog_id()
        path = table.path.removeprefix(schema_path)
        self._insert_table((id_, table.uuid, self.snapshot, schema_id, table.name.name, path, True))
        self._insert_columns(id_, column_rows(table.columns))
        self._partition(id_, table.partition_keys)
        self._new_version(id_)
        self.tx.insert(
            "ducklake_metadata",  # other clients' small inserts must not go into the catalog
            "key, value, scope, scope_id",
            [("data_inlining_row_limit", "0", "table", id_)],
        )
        self.log.append(f"created_table:{_quoted(table.name.schema)}.{_quoted(table.name.name)}")

    def _partition(self, table_id: int, keys: Sequence[PartitionKey]) -> None:
        if not keys:
            return
        id_ = self._new_catalog_id()
        columns = "partition_id, table_id, begin_snapshot"
        self.tx.insert("ducklake_partition_info", columns, [(id_, table_id, self.snapshot)])
        self.tx.insert(
            "ducklake_partition_column",
            "partition_id, table_id, partition_key_index, column_id, transform",
            [(id_, table_id, index, key.column_id, key.transform) for index, key in enumerate(keys)],
        )

    def _insert_table(self, row: tuple[object, ...]) -> None:
        columns = "table_id, table_uuid, begin_snapshot, schema_id, table_name, path, path_is_relative"
        self.tx.insert("ducklake_table", columns, [row])


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
