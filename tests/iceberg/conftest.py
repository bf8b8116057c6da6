from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import duckdb
import pytest

from headwater.lake.reading import connect
from headwater.sink.iceberg.reader import load_iceberg
from tests.iceberg.icebench import IceBench


@pytest.fixture(scope="module")
def duck() -> Iterator[duckdb.DuckDBPyConnection]:
    with connect(threads=1) as connection:
        load_iceberg(connection)
        yield connection


@pytest.fixture
def ice(tmp_path: Path, duck: duckdb.DuckDBPyConnection) -> Iterator[IceBench]:
    bench = IceBench(tmp_path, duck)
    with closing(bench.catalog), closing(bench.stock):
        yield bench
