"""One commit: a snapshot of any number of tables, written to the catalog in one transaction, positions included."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace

from pyarrow import fs

from headwater import failpoints
from headwater.change import TableName
from headwater.ducklake import reading
from headwater.ducklake.attempts import land
from headwater.ducklake.catalog import Transaction
from headwater.ducklake.conflicts import check
from headwater.ducklake.deletes import restamp
from headwater.ducklake.inlining import InlineWriter, NewRows
from headwater.ducklake.model import (
    DataFile,
    DeleteFile,
    FileDeletes,
    Partitioning,
    PlannedCommit,
    Snapshot,
    TableChange,
    TableRef,
    TableStats,
)
from headwater.ducklake.positions import advance
from headwater.ducklake.schema import WrittenSchema, write_schema
from headwater.ducklake.writing import TableFolder
from headwater.errors import TableError

__all__ = ["write_commit"]


def write_commit(tx: Transaction, files: fs.FileSystem, data_path: str, commit: PlannedCommit) -> int:
    """Write the commit into an open transaction, on top of the newest snapshot; return its snapshot id.

    Without changes only the positions move, and the newest snapshot's id comes back.
    """
    newest = reading.newest_snapshot(tx)
    if commit.attempt is not None:
        land(tx, commit.attempt, noted=commit.noted)
    if not (commit.changes or commit.new_tables or commit.alterations or commit.dropped):
        advance(tx, commit, newest.id, {})
    else:
        newest = _Writer(tx, files, data_path, commit, newest).write()
    failpoints.hit("deliver.before-commit")
    return newest.id


@dataclass
class _Writer:
    tx: Transaction
    files: fs.FileSystem
    data_path: str
    commit: PlannedCommit
    newest: Snapshot
    log: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.snapshot = self.newest.id + 1
        self._inline_writer = InlineWriter(self.tx, self.snapshot)
        self.next_file_id = self.newest.next_file_id
        self.schema = WrittenSchema(self.newest.schema_version, self.newest.next_catalog_id, {})
        unchanged = self.newest.id == self.commit.base.id and not self._changes_schema()
        self._seen = self.commit.seen if unchanged else {}

    def _changes_schema(self) -> bool:
        return bool(self.commit.new_tables or self.commit.alterations or self.commit.dropped)

    def write(self) -> Snapshot:
        # First of all: its primary key is the lock that serialises all writers of the lake, DuckDB's included.
        # Whatever is read after it stays true until we commit.
        begun = replace(self.newest, id=self.snapshot, next_file_id=self.newest.next_file_id + self._file_ids())
        self.tx.send(
            "INSERT INTO ducklake_snapshot(snapshot_id, snapshot_time, schema_version, next_catalog_id, next_file_id)"
            " VALUES (%s, {now}, %s, %s, %s)",
            *(begun.id, begun.schema_version, begun.next_catalog_id, begun.next_file_id),
        )
        check(self.tx, self.commit, self.newest)
        if self._changes_schema():
            self.schema = write_schema(self.tx, self.data_path, self.commit, self.newest, self.log)
        advance(self.tx, self.commit, self.snapshot, self.schema.created)
        # Before rows come: a new version of a row has the id of the one that ends.
        self._inline_writer.end(each for change in self.commit.changes for each in change.inlined_ends)
        self._insert_rows()
        self._delete()
        return self._finish(begun)

    def _file_ids(self) -> int:
        """How many ids of files the commit will use; at least one, since readers cache statistics by the next id."""
        new = [each.delete_file for change in self.commit.changes for each in change.deletes if each.delete_file]
        again = sum(self._is_stale(each) for each in new)
        return max(1, sum(len(change.data_files) for change in self.commit.changes) + len(new) + again)

    def _finish(self, begun: Snapshot) -> Snapshot:
        self.tx.insert(
            "ducklake_snapshot_changes",
            "snapshot_id, changes_made, author, commit_message, commit_extra_info",
            [(self.snapshot, ",".join(self.log), self.commit.author, self.commit.message, self.commit.extra_info)],
        )
        done = replace(begun, schema_version=self.schema.schema_version, next_catalog_id=self.schema.next_catalog_id)
        if done != begun:
            self.tx.send(
                "UPDATE ducklake_snapshot SET schema_version = %s, next_catalog_id = %s WHERE snapshot_id = %s",
                done.schema_version,
                done.next_catalog_id,
                done.id,
            )
        return done

    def _table_id(self, table: TableRef) -> int:
        return self.schema.created[table] if isinstance(table, TableName) else table

    def _new_file_id(self) -> int:
        self.next_file_id += 1
        return self.next_file_id - 1

    # -- rows

    def _insert_rows(self) -> None:
        changes = [
            (self._table_id(change.table), change)
            for change in self.commit.changes
            if change.data_files or change.inlined
        ]
        if not changes:
            return
        table_ids = [table_id for table_id, _ in changes]
        before, partitioned = self._tables_before(table_ids)
        after: dict[int, TableStats] = {}
        files: list[tuple[object, ...]] = []
        columns: list[tuple[object, ...]] = []
        partitions: list[tuple[object, ...]] = []
        inlined: list[NewRows] = []
        for table_id, change in changes:
            if change.data_files:
                self.log.append(f"inserted_into_table:{table_id}")
            records, next_row_id, size = before.get(table_id, (0, 0, 0))
            for file in change.data_files:
                id_ = self._new_file_id()
                # A file that has row ids must not look as if it followed another: merge_adjacent_files would drop them.
                row_id_start = None if file.has_row_ids else next_row_id
                partitions += ((id_, table_id, index, value) for index, value in enumerate(file.partition))
                files.append(
                    (
                        id_,
                        table_id,
                        self.snapshot,
                        file.path,
                        True,
                        "parquet",
                        file.rows,
                        file.size,
                        file.footer_size,
                        row_id_start,
                        _partition_id(partitioned.get(table_id), table_id, file),
                    )
                )
                columns.extend(self._column_rows(id_, table_id, file))
                records, size = records + file.rows, size + file.size
                next_row_id += 0 if file.has_row_ids else file.rows
            if change.inlined:
                self.log.append(f"inlined_insert:{table_id}")
                inlined.append(NewRows(table_id, change.inlined, next_row_id))
                records += sum(len(each.row_ids) for each in change.inlined)
                next_row_id += sum(each.row_ids.count(None) for each in change.inlined)
            after[table_id] = TableStats(records, next_row_id, size)
        self.tx.insert(
            "ducklake_data_file",
            "data_file_id, table_id, begin_snapshot, path, path_is_relative, file_format, record_count,"
            " file_size_bytes, footer_size, row_id_start, partition_id",
            files,
        )
        if partitions:
            keys = "data_file_id, table_id, partition_key_index, partition_value"
            self.tx.insert("ducklake_file_partition_value", keys, partitions)
        self.tx.insert(
            "ducklake_file_column_stats",
            "data_file_id, table_id, column_id, column_size_bytes, value_count, null_count, min_value, max_value,"
            " contains_nan",
            columns,
        )
        self._write_table_stats(after)
        known = {id_: each.inlined for id_, each in self._seen.items() if each.inlined is not None}
        if inlined and self._inline_writer.insert(inlined, known):
            self.schema = replace(self.schema, schema_version=self.newest.schema_version + 1)
        # DuckDB answers from a table's bounds without looking at files. We keep none: having none is always right,
        # while bounds that miss one of our values give wrong results.
        self.tx.send("DELETE FROM ducklake_table_column_stats WHERE table_id {among}", self.tx.ids(table_ids))

    def _tables_before(self, table_ids: Collection[int]) -> tuple[dict[int, TableStats], dict[int, Partitioning]]:
        """The statistics of these tables, but for those that never had a row; and how they are partitioned."""
        if all(each in self._seen for each in table_ids):
            seen = {each: self._seen[each].table for each in table_ids}
            stats = {id_: each.stats for id_, each in seen.items() if each.stats is not None}
            return stats, {id_: each.partitioning for id_, each in seen.items() if each.partitioning is not None}
        ids = self.tx.ids(table_ids)
        found = self.tx.rows(
            "SELECT t.table_id, p.partition_id, s.record_count, s.next_row_id, s.file_size_bytes FROM ducklake_table t"
            " LEFT JOIN ducklake_table_stats s ON s.table_id = t.table_id"
            " LEFT JOIN ducklake_partition_info p ON p.table_id = t.table_id AND p.end_snapshot IS NULL"
            " WHERE t.table_id {among} AND t.end_snapshot IS NULL",
            ids,
        )
        stats = {table_id: TableStats(*numbers) for table_id, _, *numbers in found if numbers[2] is not None}
        partitioned = any(partition_id is not None for _, partition_id, *_ in found)
        return stats, reading.partitionings(self.tx, ids) if partitioned else {}

    def _write_table_stats(self, after: Mapping[int, TableStats]) -> None:
        """Two statements, however many tables there are: DuckLake has no index by which one would be found."""
        self.tx.send("DELETE FROM ducklake_table_stats WHERE table_id {among}", self.tx.ids(after))
        self.tx.insert(
            "ducklake_table_stats",
            "table_id, record_count, next_row_id, file_size_bytes",
            [(table_id, *stats) for table_id, stats in after.items()],
        )

    @staticmethod
    def _column_rows(file_id: int, table_id: int, file: DataFile) -> Iterator[tuple[object, ...]]:
        for each in file.stats:
            yield (file_id, table_id, each.column_id, each.size, each.values, each.nulls, each.min, each.max,
                   each.contains_nan)  # fmt: skip

    # -- deletes

    def _delete(self) -> None:
        changes = [change for change in self.commit.changes if change.deletes or change.inlined_ends]
        if not changes:
            return
        for change in changes:
            self._delete_from(self._table_id(change.table), change)
        ended = [each.data_file_id for change in changes for each in change.deletes if each.ended]
        for table in ("ducklake_data_file", "ducklake_delete_file") if ended else ():
            self.tx.send(
                f"UPDATE {table} SET end_snapshot = %s WHERE data_file_id {{among}} AND end_snapshot IS NULL",
                self.snapshot,
                self.tx.ids(ended),
            )

    def _delete_from(self, table_id: int, change: TableChange) -> None:
        # Compaction checks for deleted_from_table only, a flush for inlined_delete only, and an open DELETE of DuckDB
        # notices neither our inlined deletes nor a delete file that includes older ones, but it does notice inserts.
        # Each of them would bring rows back or delete them twice, so a delete is logged as all three.
        self.log.append(f"deleted_from_table:{table_id}")
        self.log.append(f"inlined_delete:{table_id}")
        if not change.data_files and not change.inlined:
            self.log.append(f"inserted_into_table:{table_id}")
        self._inline_deletes(f"ducklake_inlined_delete_{table_id:d}", change)
        for each in change.deletes:
            if each.delete_file is not None:
                self._replace_delete_file(table_id, each, each.delete_file)

    def _inline_deletes(self, name: str, change: TableChange) -> None:
        if any(len(each.inlined) for each in change.deletes):
            if not any(each.seen_inlined for each in change.deletes):
                columns = "file_id BIGINT, row_id BIGINT, begin_snapshot BIGINT"
                self.tx.send(f"CREATE TABLE IF NOT EXISTS {name}({columns})")
            self.tx.insert(
                name,
                "file_id, row_id, begin_snapshot",
                (
                    (each.data_file_id, position, self.snapshot)
                    for each in change.deletes
                    for position in each.inlined.tolist()
                ),
            )
        absorbed = [each.data_file_id for each in change.deletes if each.delete_file and each.seen_inlined]
        if absorbed:
            self.tx.send(f"DELETE FROM {name} WHERE file_id {{among}}", self.tx.ids(absorbed))

    def _replace_delete_file(self, table_id: int, deletes: FileDeletes, new: DeleteFile) -> None:
        if self._is_stale(new):
            paths = reading.table_paths(self.tx, self.data_path, [table_id], self.newest.id)
            self._schedule_deletion(self._new_file_id(), paths[table_id] + new.path)
            new = restamp(TableFolder(self.files, paths[table_id]), new, self.snapshot)
        if deletes.seen_delete_file is not None:
            old = deletes.seen_delete_file
            self.tx.send("DELETE FROM ducklake_delete_file WHERE delete_file_id = %s", old.id)
            self._schedule_deletion(old.id, old.path)
        self.tx.insert(
            "ducklake_delete_file",
            "delete_file_id, table_id, begin_snapshot, data_file_id, path, path_is_relative, format, delete_count,"
            " file_size_bytes, footer_size, partial_max",
            [(self._new_file_id(), table_id, new.begin_snapshot, deletes.data_file_id, new.path, True, "parquet",
              new.count, new.size, new.footer_size, new.partial_max)],
        )  # fmt: skip

    def _is_stale(self, new: DeleteFile) -> bool:
        """Whether it was written for a snapshot that another client has taken."""
        return new.predicted not in (None, self.snapshot)

    def _schedule_deletion(self, id_: int, path: str) -> None:
        """Leave a file to ducklake_cleanup_old_files: an older snapshot, or a reader, may still need it."""
        self.tx.send(
            "INSERT INTO ducklake_files_scheduled_for_deletion(data_file_id, path, path_is_relative, schedule_start)"
            " VALUES (%s, %s, %s, {now})",
            id_,
            path.removeprefix(self.data_path),
            path.startswith(self.data_path),
        )


def _partition_id(partitioning: Partitioning | None, table_id: int, file: DataFile) -> int | None:
    """Files without values for the table's partition keys would be skipped by filters, or break compaction."""
    if len(file.partition) != (len(partitioning.keys) if partitioning else 0):
        raise TableError(
            f"another client has partitioned the lake's table {table_id} in a way that Headwater does not write",
            hint="run ALTER TABLE … RESET PARTITIONED BY on it",
        )
    return partitioning.id if partitioning else None
