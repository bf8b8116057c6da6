"""Files of an Iceberg lake that are gone: which tables have lost some, and what becomes of the quarantine then."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from typing import Any

from pyarrow import fs
from pyiceberg.table import Table

from headwater.change import TableName
from headwater.files import filesystem, inside
from headwater.iceberg.credentials import s3_of_table
from headwater.iceberg.snapshots import FileChanges
from headwater.lake import quarantine
from headwater.sink.iceberg.lake import IcebergLake, TableCommit

__all__ = ["drop_quarantine", "lost"]


def lost(lake: IcebergLake[Any], *, every_file: bool) -> dict[TableName, str]:
    """The mirrors, and the quarantine, that have lost a file, and its path."""
    if lake.quarantine_is_lost():
        return {quarantine.NAME: f"the metadata of {quarantine.NAME}"}
    tables = {each.name: each.table for each in lake.standings().values()} | {quarantine.NAME: lake.quarantine()}
    found = {name: next(_missing(lake, table, every_file), None) for name, table in tables.items()}
    return {name: path for name, path in found.items() if path is not None}


def drop_quarantine(lake: IcebergLake[Any]) -> None:
    """Empty the quarantine. Its table stays: the groups' ledgers are in it, unless it cannot be read at all."""
    if not lake.quarantine_is_lost():
        with suppress(FileNotFoundError):
            lake.land_quarantine(TableCommit(FileChanges(), {}, emptied=True))
            return
    lake.catalog.drop(quarantine.NAME)
    lake.forget()


def _missing(lake: IcebergLake[Any], table: Table, every_file: bool) -> Iterator[str]:
    try:
        for path in islice(lake.paths(table), None if every_file else 1):
            if filesystem(path, s3_of_table(table)).get_file_info(inside(path)).type == fs.FileType.NotFound:
                yield path
    except FileNotFoundError:
        yield table.metadata.location
