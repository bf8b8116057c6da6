"""A catalog of Iceberg in PostgreSQL that another session holds, or that does not answer, is given up in time."""

from __future__ import annotations

import socket
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from headwater.errors import HeadwaterError, Unreachable
from headwater.iceberg.catalog import open_catalog
from headwater.lake.stream import FEED
from headwater.sink.iceberg.address import IcebergAddress


def test_a_lock_that_another_session_holds_is_given_up(database: str, tmp_path: Path) -> None:
    properties = {"type": "sql", "uri": database, "warehouse": str(tmp_path)}
    with closing(open_catalog(properties, frozenset(), create=True, wait=1)) as catalog:
        with psycopg.connect(database) as other:
            other.execute("LOCK TABLE iceberg_namespace_properties IN EXCLUSIVE MODE")  # who only reads does not wait
            with pytest.raises(HeadwaterError, match="lock timeout"):
                catalog.make_namespace("shop")
        catalog.make_namespace("shop")


def test_a_server_that_never_answers_is_given_up(tmp_path: Path) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        uri = f"postgresql://x@127.0.0.1:{server.getsockname()[1]}/x"
        address = IcebergAddress({"type": "sql", "uri": uri, "warehouse": str(tmp_path)}).within(2)
        with pytest.raises(Unreachable, match="timeout"):
            address.open("x", FEED)
