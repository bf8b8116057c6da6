"""An Iceberg lake in S3: with keys of our own, and with credentials that a REST catalog lends for each table."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from contextlib import ExitStack, closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from moto.server import ThreadedMotoServer
from pyarrow import fs
from pyiceberg.catalog import load_catalog

from headwater.change import TableName
from headwater.lake import quarantine
from headwater.lake.maintenance import Maintenance, MaintenancePolicy
from headwater.lake.reading import connect
from headwater.lake.stream import WAL
from headwater.lake.target import rows_of
from headwater.sink.iceberg import IcebergSink
from headwater.sink.iceberg.address import IcebergAddress
from tests.iceberg.restcatalog import rest_catalog
from tests.sink.sinkbench import OID, OTHER, Bench, T, U, relation

AT_ONCE = timedelta(0)


@pytest.fixture(scope="module")
def s3() -> Iterator[dict[str, str]]:
    """The properties that lead to a bucket."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    fs.S3FileSystem(
        access_key="key",
        secret_key="secret",
        scheme="http",
        endpoint_override=f"{host}:{port}",
        allow_bucket_creation=True,
    ).create_dir("lakes")
    yield {"s3.access-key-id": "key", "s3.secret-access-key": "secret", "s3.endpoint": f"http://{host}:{port}"}
    server.stop()


class Remote(Bench):
    """A lake in S3, which nothing in the environment leads to."""

    address: IcebergAddress

    @property
    def maintenance(self) -> Maintenance:
        found = self.sink.maintenance()
        assert found is not None
        return found


@pytest.fixture(params=["sql", "rest"])
def remote(
    request: pytest.FixtureRequest, s3: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Remote]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.delenv(name, raising=False)
    warehouse = f"s3://lakes/{tmp_path.name}-{request.param}"
    with ExitStack() as held:
        properties = {"type": "sql", "uri": f"sqlite:///{tmp_path}/i.sqlite", "warehouse": warehouse, **s3}
        if request.param == "rest":
            properties = held.enter_context(rest_catalog(tmp_path, warehouse, s3)).properties  # no keys: it lends some
        address = IcebergAddress(properties)
        with closing(address.open("0/db/g", WAL)):
            stock = held.enter_context(closing(load_catalog("default", **properties)))

        def read(name: TableName) -> list[dict[str, Any]]:
            found: list[dict[str, Any]] = stock.load_table(tuple(name)).scan().to_arrow().to_pylist()
            return found

        bench = Remote(lambda *to: held.enter_context(closing(address.open(*to))), read)
        object.__setattr__(bench, "address", address)
        yield bench


def test_a_lake_in_s3_is_written_read_and_maintained(remote: Remote) -> None:
    remote.copy([(number, "copied") for number in range(20)])
    remote.copy([(1, "u")], of=relation(oid=OTHER, name=U))
    for turn in range(5):
        remote.deliver(200 + turn, insert=[(100 + turn, "new")], update=[(turn, "changed")], delete=[10 + turn])
    remote.attempt(insert=[(1000, "never lands")])
    assert remote.sink.collect() == 1
    assert remote.sink.lost(every_file=True) == {}
    rows = remote.rows()
    merging = remote.maintenance.merging(T, MaintenancePolicy())
    assert merging is not None
    writer = pickle.loads(pickle.dumps(merging.writer))
    assert merging.commit([writer.write(each) for each in merging.bins]).written_files == 1
    assert remote.maintenance.expire(T, AT_ONCE).expired_snapshots == 6
    remote.maintenance.remove_orphans(T, AT_ONCE)
    assert remote.rows() == rows
    remote.deliver(300, update=[(5, "after")])
    remote.copy([(7, "new")], at=400, of=relation(oid=99), replaces=(OID, OTHER))
    assert remote.maintenance.remove_orphans(U, AT_ONCE).orphans > 0
    assert U not in remote.maintenance.tables()
    assert remote.rows() == [(7, "new")]


def test_duckdb_reads_a_lake_in_s3(remote: Remote) -> None:
    remote.copy([(1, "t")])
    remote.copy([(1, "u")], of=relation(oid=OTHER, name=U))
    reader = pickle.loads(pickle.dumps(remote.sink.reader(100)))
    with closing(reader.connect()) as con:
        reader.attach(con, "lake")
        assert con.execute("FROM lake.public.t, lake.public.u").fetchall() == [(1, "t", 1, "u")]
        assert con.execute(f"SELECT count(*) FROM lake.{quarantine.NAME}").fetchall() == [(0,)]
    queried = remote.address.queried()
    with closing(connect()) as con:
        queried.prepare(con)
        queried.attach(con, "lake")
        assert con.execute("FROM lake.public.t, lake.public.u").fetchall() == [(1, "t", 1, "u")]


def test_workers_use_what_the_catalog_lends_for_each_table_and_it_is_renewed_in_time(
    s3: dict[str, str], tmp_path: Path
) -> None:
    with (
        rest_catalog(tmp_path, f"s3://lakes/{tmp_path.name}", s3) as server,
        closing(IcebergAddress(server.properties).open("1/db/g", WAL)) as sink,
    ):
        assert isinstance(sink, IcebergSink)
        bench = Bench(lambda *_: sink, lambda _: [])
        bench.copy([(1, "t")])
        bench.copy([(1, "u")], of=relation(oid=OTHER, name=U))

        def lent() -> list[str]:
            target = pickle.loads(pickle.dumps(sink.plan().begin({OID: ("id",), OTHER: ("id",)}).target))
            return [target.landing(rows_of(oid)).s3.token for oid in (OID, OTHER)]

        first = lent()
        assert [each.split(" for ")[1] for each in first] == ["t", "u"]
        assert lent() == first
        sink._lake.renew_after = 0.0
        assert not set(lent()) & set(first)
