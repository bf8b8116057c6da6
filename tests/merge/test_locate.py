"""Rows are located with key indexes as they are without: in any file, whoever wrote it and whatever became of it."""

from __future__ import annotations

import os
import pickle
import random
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from moto.server import ThreadedMotoServer
from pyarrow import fs

from headwater.change import BaseType, Column, Lsn, Relation
from headwater.ducklake.extension import attach, connect
from headwater.ducklake.url import parse_lake_url
from headwater.lake.address import LakeAddress
from headwater.lake.indexes import KeyIndexes, file_identity
from headwater.lake.maintenance import MaintenancePolicy
from headwater.lake.sink import Delivery, MirrorSpec, Sink
from headwater.lake.stream import WAL
from headwater.lake.target import Sought, rows_of
from headwater.merge.batch import Batch
from headwater.merge.locate import LOCATED, Locate
from headwater.merge.mirror import Mirror, MirrorColumn
from headwater.merge.outcome import Failed, Written
from headwater.merge.scratch import Kept, Scratch
from headwater.sink.ducklake.address import DuckLakeAddress
from headwater.sink.iceberg.address import IcebergAddress
from headwater.values.keys import key_bytes, key_values
from tests.sink.sinkbench import OID, T, column, kinds_of, relation, typed

Key = tuple[Any, ...]
UUID = Column("id", 2950, -1, True, 1, BaseType(2950, -1, 0, "uuid"))
SHAPES: Mapping[str, tuple[Relation, Callable[[int], Key]]] = {
    "number": (relation(column("id", "int8", 1), column("v", "text", 2)), lambda n: (n * 7,)),
    "uuid": (relation(UUID, column("v", "text", 2)), lambda n: (random.Random(n).randbytes(16),)),
    "text": (relation(column("id", "text", 1), column("v", "text", 2)), lambda n: (f"{n:x}" * (n % 9),)),
    "two columns": (
        relation(column("id", "int4", 1), column("b", "text", 2), column("v", "text", 3)),
        lambda n: (n % 5, f"b{n}"),
    ),
}


@dataclass
class Located:
    """A lake with one table, whose rows are found by a `Locate` of its own; `rows` are what it should hold."""

    address: LakeAddress
    folder: Path
    of: Relation
    key: Sequence[str]
    rows: dict[Key, str]
    delivered: int = 1

    @property
    def sink(self) -> Sink[Any, Lsn]:
        return self.address.open("pg", WAL)

    @property
    def indexes(self) -> KeyIndexes:
        return KeyIndexes(str(self.folder / "index"), least_rows=0, rows_per_key=0)

    @property
    def mirror(self) -> Mirror:
        kinds = kinds_of(self.of)
        columns = tuple(MirrorColumn(each.name, kinds[each.name], each.attnum) for each in self.of.columns)
        return Mirror(OID, "t", Lsn(0), columns, tuple(self.key), rows=0, bytes=0, inserts_only=False)

    def copy(self, rows: Mapping[Key, str]) -> None:
        with closing(self.sink) as sink:
            copy = sink.begin_copy([sink.new_mirror(MirrorSpec(self.of, kinds_of(self.of), T))], {})
            notes = copy.target.write(rows_of(OID), [(self._typed(rows), None)])
            copy.commit({OID: Lsn(1)}, {rows_of(OID): notes})
        self.rows = dict(rows)

    def deliver(self, upserts: Mapping[Key, str], deletes: Collection[Key] = ()) -> None:
        """What a delivery does; the rows that it replaces are found with the help of indexes."""
        with closing(self.sink) as sink:
            delivery = sink.plan().begin({OID: tuple(self.key)})
            found, reports = self.search(delivery, [*upserts, *deletes], self.indexes)
            old = {key: value for key, value in upserts.items() if key in found}
            new = {key: value for key, value in upserts.items() if key not in found}
            ids = pa.array([found[key] for key in old], pa.int64())
            loads = [(self._typed(old), ids), (self._typed(new), None)]
            reports += delivery.target.write(rows_of(OID), [each for each in loads if each[0].num_rows])
            self.delivered += 1
            delivery.commit({rows_of(OID): reports} if reports else {}, (), {OID: Lsn(self.delivered)}, {})
        self.rows = {key: value for key, value in self.rows.items() if key not in deletes} | dict(upserts)

    def check(self, keys: Sequence[Key], *, made: bool = True) -> None:
        """Each row that there is, and no other, is found with indexes and without, under the same id."""
        with closing(self.sink) as sink:
            delivery = sink.plan().begin({OID: tuple(self.key)})
            answers = []
            for indexes in (None, self.indexes, self.indexes):
                found, reports = self.search(delivery, keys, indexes)
                delivery.discard({rows_of(OID): reports})
                answers.append(found)
        assert answers[0].keys() == self.rows.keys() & set(keys)
        assert answers[0] == answers[1] == answers[2]
        assert made == any((self.folder / "index").glob("*"))

    def search(
        self, delivery: Delivery[Lsn], keys: Sequence[Key], indexes: KeyIndexes | None
    ) -> tuple[dict[Key, int | None], list[bytes]]:
        """The ids of live rows with one of the keys; they are taken out."""
        kinds = self.mirror.key_types
        columns = [pa.array(each, kind.arrow) for each, kind in zip(zip(*keys, strict=True), kinds, strict=True)]
        with Scratch.opened(str(self.folder / "scratch")) as room:
            name = room.keep([(pa.record_batch({"base": pa.nulls(1)}), key_bytes(columns, kinds))])
            batch: Any = Batch(None, {OID: self.mirror}, Lsn(9))  # type: ignore[arg-type]
            kept = (Kept(0, OID, name, 0),)
            locate = Locate(batch, delivery.target, room, {OID: (0,)}, kept, frozenset(), indexes)
            places = tuple(delivery.places({OID: Sought()}))
            answer = list(pickle.loads(pickle.dumps(locate)).found(places))
        assert not [each for each in answer if isinstance(each, Failed)]
        found = pa.Table.from_batches([each for each in answer if isinstance(each, pa.RecordBatch)], LOCATED)
        values = key_values(found["key"].combine_chunks(), kinds)
        names = zip(*(each.to_pylist() for each in values if each is not None), strict=True)
        return dict(zip(names, found["row_id"].to_pylist(), strict=True)), [
            each.report for each in answer if isinstance(each, Written)
        ]

    def merge(self) -> None:
        with closing(self.sink) as sink:
            maintenance = sink.maintenance()
            assert maintenance is not None
            merging = maintenance.merging(T, MaintenancePolicy())
            if merging is not None:
                merging.commit([merging.writer.write(each) for each in merging.bins])

    def as_another_client(self, *statements: str) -> None:
        assert isinstance(self.address, DuckLakeAddress)
        with connect(threads=1) as con:
            attach(con, parse_lake_url(self.address.catalog), "l")
            for statement in statements:
                con.execute(statement)

    def data_files(self) -> list[Path]:
        return [each for each in (self.folder / "lake").rglob("*.parquet") if "delete" not in each.name]

    def _typed(self, rows: Mapping[Key, str]) -> pa.Table:
        return typed(self.of, [(*key, value) for key, value in rows.items()])


@pytest.fixture
def ducklake(tmp_path: Path) -> DuckLakeAddress:
    return DuckLakeAddress(f"sqlite:///{tmp_path}/lake.sqlite", str(tmp_path / "lake"))


@pytest.fixture
def iceberg(tmp_path: Path) -> IcebergAddress:
    return IcebergAddress(
        {"type": "sql", "uri": f"sqlite:///{tmp_path}/lake.sqlite", "warehouse": str(tmp_path / "lake")}
    )


@pytest.fixture(params=["ducklake", "iceberg"])
def address(request: pytest.FixtureRequest) -> LakeAddress:
    found: LakeAddress = request.getfixturevalue(request.param)
    return found


def lake_of(address: LakeAddress, folder: Path, shape: str = "uuid") -> tuple[Located, Callable[[int], Key]]:
    of, key = SHAPES[shape]
    names = [each.name for each in of.columns if each.name != "v"]
    return Located(address, folder, of, names, {}), key


@pytest.mark.parametrize(
    "shape", [pytest.param(each, marks=pytest.mark.long) if each == "text" else each for each in SHAPES]
)
def test_after_any_history_the_same_rows_are_found_with_indexes(
    address: LakeAddress, tmp_path: Path, shape: str
) -> None:
    lake, key = lake_of(address, tmp_path, shape)
    chance = random.Random(shape)
    lake.copy({key(number): "copied" for number in range(60)})
    everything = list(dict.fromkeys(key(number) for number in range(90)))
    for step in range(5):
        changed = chance.sample(everything, 30)
        lake.deliver(dict.fromkeys(changed[:20], f"step {step}"), changed[20:])
        if step == 2:
            lake.merge()
        lake.check(chance.sample(everything, 60))


def test_the_keys_of_a_file_with_an_index_are_not_read_nor_its_row_ids(address: LakeAddress, tmp_path: Path) -> None:
    lake, key = lake_of(address, tmp_path)
    lake.copy({key(number): "copied" for number in range(20)})
    lake.deliver({key(number): "new" for number in range(5, 15)})
    lake.merge()  # its files have row ids of their own
    keys = [key(number) for number in range(4, 30)]
    with closing(lake.sink) as sink:
        delivery = sink.plan().begin({OID: ("id",)})
        before, _ = lake.search(delivery, keys, lake.indexes)
        for file in lake.data_files():
            known = file.stat()
            file.write_bytes(bytes(known.st_size))
            os.utime(file, ns=(known.st_atime_ns, known.st_mtime_ns))
        file_identity.cache_clear()
        assert lake.search(delivery, keys, lake.indexes)[0] == before
    assert before.keys() == {key(number) for number in range(4, 20)}


def test_rows_that_another_client_wrote_or_moved_are_found(ducklake: DuckLakeAddress, tmp_path: Path) -> None:
    lake, key = lake_of(ducklake, tmp_path, "number")
    lake.copy({key(number): "copied" for number in range(20)})
    lake.check([key(number) for number in range(60)])
    lake.as_another_client(
        "CALL l.set_option('parquet_row_group_size', 2048)",
        "INSERT INTO l.public.t SELECT n * 7, 'theirs' FROM range(20, 5000) AS t(n)",
        "DELETE FROM l.public.t WHERE id % 3 = 0",
        "UPDATE l.public.t SET v = 'changed' WHERE id % 5 = 0",
    )
    lake.rows = {key(n): "theirs" for n in range(5000) if n % 3}
    lake.check([key(number) for number in range(5020)])
    lake.as_another_client(
        "CALL ducklake_rewrite_data_files('l', delete_threshold => 0)", "CALL ducklake_merge_adjacent_files('l')"
    )
    lake.check([key(number) for number in range(60)])
    lake.deliver({key(1): "ours", key(25): "ours"}, [key(2)])
    lake.check([key(number) for number in range(60)])


def test_rows_without_a_key_are_not_in_an_index(address: LakeAddress, tmp_path: Path) -> None:
    """Of a key that was none when the file was written: rows with NULL in it are gone, or the key would not be one."""
    of = relation(column("id", "int8", 1), column("b", "text", 2), column("v", "text", 3))
    lake = Located(address, tmp_path, of, ["b"], {})
    with closing(lake.sink) as sink:
        copy = sink.begin_copy([sink.new_mirror(MirrorSpec(of, kinds_of(of), T))], {})
        rows = typed(of, [(number, None if number % 3 else f"b{number}", "v") for number in range(30)])
        copy.commit({OID: Lsn(1)}, {rows_of(OID): copy.target.write(rows_of(OID), [(rows, None)])})
    lake.rows = {(f"b{number}",): "v" for number in range(0, 30, 3)}
    lake.check([(f"b{number}",) for number in range(40)])


def test_a_column_that_took_the_name_of_the_key_has_another_index(ducklake: DuckLakeAddress, tmp_path: Path) -> None:
    lake, key = lake_of(ducklake, tmp_path, "number")
    lake.copy({key(number): "copied" for number in range(20)})
    keys = [key(number) for number in range(20)]
    lake.check(keys)
    lake.as_another_client(
        "ALTER TABLE l.public.t RENAME COLUMN id TO old", "ALTER TABLE l.public.t ADD COLUMN id BIGINT DEFAULT 7"
    )
    with closing(lake.sink) as sink:
        delivery = sink.plan().begin({OID: ("id",)})
        answers = [lake.search(delivery, keys, indexes)[0] for indexes in (None, lake.indexes)]
    assert answers[0].keys() == {(7,)}  # which every row shows
    assert answers[0] == answers[1]


def test_small_files_and_many_keys_make_no_index(ducklake: DuckLakeAddress, tmp_path: Path) -> None:
    lake, key = lake_of(ducklake, tmp_path)
    lake.copy({key(number): "copied" for number in range(20)})
    keys = [key(number) for number in range(10)]
    with closing(lake.sink) as sink:
        delivery = sink.plan().begin({OID: ("id",)})
        folder = str(tmp_path / "index")
        for indexes in (KeyIndexes(folder), KeyIndexes(folder, least_rows=0)):
            assert len(lake.search(delivery, keys, indexes)[0]) == 10
            assert not os.path.exists(folder)
        assert len(lake.search(delivery, keys[:2], KeyIndexes(folder, least_rows=0))[0]) == 2
    assert os.path.exists(folder)


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    for name, value in {
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
    }.items():
        monkeypatch.setenv(name, value)
    create = partial(fs.S3FileSystem, access_key="key", secret_key="secret", scheme="http", allow_bucket_creation=True)
    create(endpoint_override=f"{host}:{port}").create_dir("lakes")
    yield "lakes"
    server.stop()


def test_files_in_s3_have_indexes_on_disk(bucket: str, tmp_path: Path) -> None:
    address = DuckLakeAddress(f"sqlite:///{tmp_path}/lake.sqlite", f"s3://{bucket}/located")
    lake, key = lake_of(address, tmp_path)
    lake.copy({key(number): "copied" for number in range(20)})
    lake.deliver({key(number): "new" for number in range(5, 15)}, [key(3)])
    lake.check([key(number) for number in range(30)])
