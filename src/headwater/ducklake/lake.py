"""An open DuckLake: ask it, commit to it. `opening` opens one."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from functools import cached_property
from typing import TypeVar

import duckdb
from pyarrow import fs

from headwater.change import TableName
from headwater.ducklake import attempts, inlined, reading
from headwater.ducklake.asking import Asking
from headwater.ducklake.catalog import TRIES, Catalog, Raced, Transaction, locked, pauses
from headwater.ducklake.committing import write_commit
from headwater.ducklake.evolution import check_names
from headwater.ducklake.extension import attach, connect, load_for
from headwater.ducklake.gates import for_duckdb
from headwater.ducklake.inlined import InlinedCounts, InlinedTable
from headwater.ducklake.model import (
    Field,
    LakeTable,
    LiveFile,
    NewTable,
    PlannedCommit,
    Snapshot,
    TablePosition,
    numbered,
)
from headwater.ducklake.positions import mirrors, positions, reached
from headwater.ducklake.schema import safe_folder, schema_folder
from headwater.ducklake.url import LakeUrl, SqliteUrl
from headwater.errors import CommitConflict, OperatorMustAct, Unreachable
from headwater.files import S3, filesystem, inside
from headwater.lake.names import Names
from headwater.lake.stream import P

__all__ = ["Lake"]

Done = TypeVar("Done")


class _Undone(Exception):
    """Roll the transaction back: it was a trial."""


class Lake:
    """An open lake. It may be used from several threads; it reconnects by itself."""

    def __init__(self, url: LakeUrl, data_path: str, catalog: Catalog, s3: S3 | None) -> None:
        self.url = url
        self.data_path = data_path
        self.s3 = s3
        self._catalog = catalog
        self._asking = Asking(catalog, url)

    @cached_property
    def filesystem(self) -> fs.FileSystem:
        """Where the lake's files are. It is not sent to workers: they call `files.filesystem` themselves."""
        return filesystem(self.data_path, self.s3)

    @property
    def catalog(self) -> Catalog:
        return self._catalog

    def close(self) -> None:
        self._catalog.close()

    # -- questions

    def kept_open(self) -> AbstractContextManager[None]:
        """Inside, one connection serves all that this thread asks and changes."""
        return self._catalog.kept_open()

    def at_once(self) -> AbstractContextManager[None]:
        """Inside, this thread asks everything in one transaction: it costs less, and all answers are of one moment.

        Nothing may be changed inside.
        """
        return self._asking.at_once()

    def id(self) -> str:
        """The lake's identity, wherever it is moved: the UUID that DuckLake gave its first schema."""
        with self.reading() as tx:
            return reading.first_schema(tx)

    def prepared(self) -> bool:
        """Whether Headwater has ever opened it for writing."""
        with self.reading() as tx:
            return bool(tx.existing(["headwater_position"]))

    def snapshot(self) -> Snapshot:
        with self.reading() as tx:
            return reading.newest_snapshot(tx)

    def table(self, name: TableName) -> LakeTable | None:
        return self.tables([name]).get(name)

    def tables(self, names: Collection[TableName] | None = None) -> dict[TableName, LakeTable]:
        """Those of the named tables that exist, spelled exactly so; without names, all tables."""
        with self.reading() as tx:
            return reading.live_tables(tx, self.data_path, names)

    def files(
        self,
        table_ids: Collection[int],
        snapshot: Snapshot,
        bounds_of: Mapping[int, Collection[int]] | None = None,
        partitions_of: Collection[int] = (),
    ) -> list[LiveFile]:
        """The data files of these tables at a snapshot, with the bounds of `bounds_of[table_id]` columns.

        Files of the tables in `partitions_of` come with their partitions. `table_ids` may be a mapping from the ids to
        the tables' folders: then these are not asked for.
        """
        with self.reading() as tx:
            return reading.live_files(tx, self.data_path, table_ids, snapshot.id, bounds_of or {}, partitions_of)

    def missing_files(self, table_ids: Collection[int], *, every_file: bool) -> dict[int, str]:
        """A file that is gone of each table that has lost one; the oldest of each is looked for, or `every_file`."""
        found = self._paths(table_ids)
        oldest = dict[int, str]()
        for path, table_id in found.items():
            oldest.setdefault(table_id, path)
        asked = list(found if every_file else oldest.values())
        try:
            infos = self.filesystem.get_file_info([inside(path) for path in asked])
        except OSError as error:
            raise Unreachable(f"the files of {self.url} cannot be looked at: {error}") from error
        gone = {path for path, info in zip(asked, infos, strict=True) if info.type == fs.FileType.NotFound}
        live = self._paths(table_ids) if gone else {}  # once more: another client may have merged them meanwhile
        return {live[path]: path for path in gone if path in live}

    def _paths(self, table_ids: Collection[int]) -> dict[str, int]:
        """The live files, oldest first, and the table of each."""
        found = self.files(table_ids, self.snapshot())
        deletes = {each.delete_file.path: each.table_id for each in found if each.delete_file is not None}
        return {each.path: each.table_id for each in found} | deletes

    def inlined_counts(self, table_ids: Collection[int], snapshot: Snapshot) -> dict[int, list[InlinedCounts]]:
        """How many rows of these tables are in the catalog itself, by its tables, of each the oldest first."""
        with self.reading() as tx:
            return inlined.inlined_counts(tx, table_ids, snapshot.id)

    def inlined_tables(
        self, found: Sequence[InlinedCounts], now: Mapping[int, LakeTable] | None = None
    ) -> list[InlinedTable]:
        """Those tables of the catalog, each with the columns of its time; `now` are the lake's tables, if known."""
        with self.reading() as tx:
            return inlined.inlined_tables(tx, found, now)

    def positions(self, source: str, kind: type[P]) -> dict[int, TablePosition[P]]:
        """How far each table of a source has come here, by the source's OID."""
        with self.reading() as tx:
            return positions(tx, source, kind)

    def mirrors(self, source: str, kind: type[P]) -> tuple[Snapshot, dict[int, TablePosition[P]], dict[int, LakeTable]]:
        """The newest snapshot, how far each table of a source has come, and by their ids those tables that exist."""
        with self.reading() as tx:
            return mirrors(tx, self.data_path, source, kind)

    def reached(self, source: str, kind: type[P]) -> tuple[int, P] | None:
        """How far the foremost table of a source has come, and the snapshot that shows it; None if there is none."""
        with self.reading() as tx:
            return reached(tx, source, kind)

    def commits(self) -> list[tuple[int, str | None]]:
        """Every snapshot that is not expired, the oldest first, with the extra info of its commit."""
        with self.reading() as tx:
            return reading.commits(tx)

    def names_at(self, snapshot: int) -> dict[int, TableName]:
        """The names that tables had in a snapshot, by their ids."""
        with self.reading() as tx:
            return reading.names_at(tx, snapshot)

    def next_column_id(self, table_id: int) -> int:
        """The id for the next column of a table: never used before, not even by a column that was dropped."""
        with self.reading() as tx:
            return reading.next_column_id(tx, table_id)

    def names(self, giving_up: Collection[int] = ()) -> Names:
        """The names that are taken, without those of the tables in `giving_up`."""
        with self.reading() as tx:
            taken = [name for name, id_, _ in reading.relations(tx) if id_ not in giving_up]
            return Names(reading.schemas(tx), taken)

    # -- changes

    def new_table(self, name: TableName, columns: Collection[Field]) -> NewTable:
        """Prepare a table for a commit to create: its columns numbered, its folder known."""
        check_names(str(name), columns)
        with self.reading() as tx:
            schema_path = reading.schema_path(tx, self.data_path, name.schema)
        if schema_path is None:
            schema_path = self.data_path + safe_folder(name.schema, schema_folder(name.schema))
        id_ = str(uuid.uuid4())
        return NewTable(name, id_, schema_path + safe_folder(name.name, id_), numbered(tuple(columns)))

    def uuid_of(self, table: LakeTable) -> str:
        """What identifies a table for as long as the lake has it."""
        with self.reading() as tx:
            ((uuid,),) = tx.rows("SELECT table_uuid FROM ducklake_table WHERE table_id = %s LIMIT 1", table.id)
        return str(uuid)

    def commit(self, commit: PlannedCommit) -> int:
        """Write it as one snapshot, on top of what others committed meanwhile; return its id.

        CommitConflict: nothing landed, plan again. AlreadyDelivered: nothing landed, a position was not the expected
        one. CommitUnknown: ask the positions. TimedOut: nothing landed, another client holds the catalog.
        """
        for wait in pauses(self.url.wait):
            try:
                with self._writing() as tx:
                    return write_commit(tx, self.filesystem, self.data_path, commit)
            except Raced:
                time.sleep(wait)
        if self.url.wait is not None:
            raise locked(self.url)
        raise CommitConflict(f"the catalog {self.url} was busy {TRIES} times in a row", hint="try again")

    def begin(self, source: str) -> str:
        """Note an attempt to write: files get its name, and `commit` lands it. `collect` deletes what does not land."""
        return self.changed_by(lambda tx: attempts.begin(tx, source))

    def collect(self, source: str, elsewhere: Collection[str] = (), spared: Collection[str] = ()) -> int:
        """Delete the files of a source's attempts that did not land, and of these that are noted elsewhere; how many.

        None may be under way. Those of `spared` ones stay.
        """
        left = self.changed_by(lambda tx: attempts.close(tx, source, elsewhere, spared))
        if not left:
            return 0
        with self.reading() as tx:
            found = attempts.leftovers(tx, self.filesystem, self.data_path, left)
        for path in found:
            self.filesystem.delete_file(path)
        # The next call looks once more for some of them: a worker may outlive its job, and write for a moment.
        self.changed_by(lambda tx: attempts.forget(tx, [each for each, closed in left.items() if closed]))
        return len(found)

    def changed_by(self, work: Callable[[Transaction], Done]) -> Done:
        """Do this to the catalog in one transaction; again, if another writer was in its way."""
        for wait in pauses(self.url.wait):
            try:
                with self._writing() as tx:
                    return work(tx)
            except Raced:
                time.sleep(wait)
        raise locked(self.url)

    def probe(self, source: str) -> None:
        """TimedOut if a commit for this source would wait for a lock now. Nothing is changed."""

        def tried(tx: Transaction) -> None:
            newest = reading.newest_snapshot(tx)
            tx.insert("ducklake_snapshot", "snapshot_id", [(newest.id + 1,)])
            if tx.existing(["headwater_position"]):
                tx.execute("UPDATE headwater_position SET source = source WHERE source = %s", source)
            raise _Undone

        with suppress(_Undone):
            self.changed_by(tried)

    # -- DuckDB

    @contextmanager
    def attached(
        self, *, read_only: bool = False, snapshot: int | None = None
    ) -> Iterator[tuple[duckdb.DuckDBPyConnection, str]]:
        """A DuckDB connection with this lake attached, and its alias there."""
        if isinstance(self.url, SqliteUrl):
            self._catalog.close()
        with connect() as con:
            load_for(con, self.url)  # it takes longer than all the rest, and others wait for us from here on
            with for_duckdb(self.url), closing(con):
                try:
                    attach(con, self.url, "lake", s3=self.s3, read_only=read_only, snapshot=snapshot)
                except duckdb.Error as error:
                    what = f"DuckDB cannot attach {self.url}: {' '.join(str(error).split())}"
                    raise (Unreachable if isinstance(error, duckdb.IOException) else OperatorMustAct)(what) from None
                yield con, "lake"

    def _writing(self) -> AbstractContextManager[Transaction]:
        assert not self._asking.at_once_now, "nothing is changed while everything is asked at once"
        return self._catalog.transaction(write=True)

    def reading(self) -> AbstractContextManager[Transaction]:
        """A transaction for questions, all of which see one state of the catalog; inside `at_once`, that of it."""
        return self._asking.transaction()
