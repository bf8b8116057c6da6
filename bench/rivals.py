"""The other sides of the ratios: PostgreSQL's own programs, which do the least that can be done, and PyIceberg."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.catalog import load_catalog

from headwater.change import Lsn
from headwater.sink.iceberg.address import IcebergAddress

__all__ = ["Upsert", "copy_binary", "receive"]


def receive(program: Path, url: str, slot: str, publication: str, upto: Lsn) -> float:
    """Seconds pg_recvlogical takes to read a slot up to a position, into nothing."""
    options = ("-o", "proto_version=4", "-o", f"publication_names={publication}")
    command = [program, "-d", url, "--slot", slot, "--start", "--endpos", str(upto), "-f", "/dev/null", *options]
    return _timed([str(part) for part in command])


def copy_binary(program: Path, url: str, table: str) -> float:
    """Seconds psql takes to read a table in PostgreSQL's own binary form, into nothing."""
    return _timed([str(program), "-X", "-d", url, "-c", f"COPY {table} TO STDOUT (FORMAT binary)"])


class Upsert:
    """PyIceberg's own upsert, into a table with the rows of one of ours; what it gets is in memory already."""

    def __init__(self, folder: Path, of: IcebergAddress, table: str) -> None:
        folder.mkdir()
        self._catalog = load_catalog("rival", type="sql", uri=f"sqlite:///{folder}/ice.sqlite", warehouse=str(folder))
        ours = load_catalog("default", **of.properties)
        rows = ours.load_table(("public", table)).scan().to_arrow()
        ours.close()
        self._catalog.create_namespace("public")
        self._table = self._catalog.create_table(("public", table), rows.schema)
        self._table.append(rows)
        self._ids = rows["id"].to_numpy()

    def upsert(self, count: int) -> float:
        """Seconds for so many random rows."""
        wanted = np.random.default_rng().choice(self._ids, min(count, len(self._ids)), replace=False)
        rows = self._table.scan().to_arrow()
        rows = rows.filter(pc.is_in(rows["id"], pa.array(wanted)))
        at = rows.schema.get_field_index("amount")
        amounts = pc.add(rows["amount"], 1).cast(rows.schema.field("amount").type)
        changed = rows.set_column(at, rows.schema.field("amount"), amounts)
        begun = time.perf_counter()
        done = self._table.upsert(changed, join_cols=["id"])
        seconds = time.perf_counter() - begun
        assert done.rows_updated == changed.num_rows == len(wanted)
        return seconds

    def close(self) -> None:
        self._catalog.close()


def _timed(command: list[str]) -> float:
    begun = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - begun
