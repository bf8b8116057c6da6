"""What becomes of values in the quarantine when a batch touches their rows: on real files of a lake."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headwater.change import Lsn, Relation
from headwater.ducklake.model import DataFile, Field, LiveFile, numbered
from headwater.ducklake.types import ducklake_type
from headwater.lake.quarantine import FIELDS, KNOWN_BY, SCHEMA, Origin, quarantined
from headwater.lake.target import SETTLED
from headwater.merge.batch import Batch
from headwater.merge.net import UPSERT
from headwater.merge.resolve import Resolve
from headwater.merge.scratch import Kept, Scratch, one_batch
from headwater.merge.staged import StagedChanges
from headwater.sink.ducklake.places import FilePlace
from headwater.sink.ducklake.reports import TakenOut, Wrote, read_report
from headwater.sink.ducklake.target import DuckLakeTarget, Landing
from headwater.values.decode import Bad
from headwater.values.keys import row_keys
from tests.merge.messages import INT4, NUMERIC, OID, TEXT, TOAST, column, mirror, number, relation, update

SHAPE = relation(column("id", INT4, 1), column("price", NUMERIC, 3))
BAG = relation(column("item", TEXT, 2), column("price", NUMERIC, 3), identity="f")
NUMBERS = {"id": 1, "item": 2, "price": 3, "dropped since": 4}
OTHER = 88  # a table that is not in the batch
ROW = row_keys(pa.table({"item": pa.array(["a"]), "price": pa.nulls(1, pa.decimal128(10, 2))}), {})[0].as_py()


class Quarantine:
    """A quarantine in a folder, and a batch that touches rows."""

    def __init__(self, folder: Path) -> None:
        (folder / "q").mkdir()
        self.fields = numbered(tuple(Field(0, name, ducklake_type(kind)) for name, kind in FIELDS.items()))
        key = tuple(field for name in KNOWN_BY for field in self.fields if field.name == name)
        self.path = f"{folder}/q/"
        self.target = DuckLakeTarget({}, Landing(self.path, self.fields, key), snapshot=5, source="1/db/g")
        self.room = Scratch(str(folder))
        self.places: list[FilePlace] = []

    def hold(self, *entries: tuple[Any, ...], gone: tuple[int, ...] = (), source: str = "1/db/g") -> None:
        """A file of entries (oid, row_key, column[, resolved_lsn]); some of them deleted since."""
        rows = [
            {"source": source, "table_oid": oid, "row_key": key, "column_number": NUMBERS[name],
             "value": f"value {len(self.places)}.{at}", "resolved_lsn": rest[0] if rest else None}
            for at, (oid, key, name, *rest) in enumerate(entries)
        ]  # fmt: skip
        (report,) = self.target.write(SETTLED, [(pa.Table.from_pylist(rows, schema=SCHEMA), None)])
        wrote = read_report(report)
        assert isinstance(wrote, Wrote)
        assert isinstance(wrote.rows, DataFile)
        dead = pa.array(gone, pa.int64()).to_numpy()
        live = LiveFile(len(self.places), 0, self.path + wrote.rows.path, len(rows), 100, inlined_positions=dead)
        live = replace(live, inlined_snapshots=dead)
        self.places.append(FilePlace(None, live))

    def settle(
        self, touched: list[bytes], *upserts: dict[str, Any], shape: Relation = SHAPE, truncated: bool = False
    ) -> dict[str, tuple[Any, ...]]:
        """What has changed after a batch, by value: row id, key, row_key, resolved_lsn."""
        table = pa.Table.from_pylist([{"relation": 1} | each for each in upserts], schema=UPSERT)
        name = self.room.keep([(one_batch(table), pa.array(touched, pa.binary()))])
        batch = Batch(StagedChanges((), {1: shape}, Lsn(0x500)), {OID: mirror(shape)}, Lsn(0x500))
        settled = frozenset({OID} if truncated else ())
        run = Resolve(batch, self.target, self.room, (Kept(0, OID, name, 0),), settled, tuple(self.places))
        return dict(self._changed([read_report(each) for each in run()]))

    def _changed(self, reports: list[TakenOut | Wrote]) -> Iterator[tuple[str, tuple[Any, ...]]]:
        taken = sum(each.rows for each in reports if isinstance(each, TakenOut))
        written = 0
        for report in reports:
            if isinstance(report, Wrote):
                assert isinstance(report.rows, DataFile)
                assert report.rows.has_row_ids
                written += report.rows.rows
                rows = pq.read_table(self.path + report.rows.path).to_pylist()
                for row in rows:
                    at = row["_ducklake_internal_row_id"]
                    yield row["value"], (at, row["key"], row["row_key"], row["resolved_lsn"])
        assert taken == written


@pytest.fixture
def quarantine(tmp_path: Path) -> Quarantine:
    return Quarantine(tmp_path)


def test_values_whose_rows_are_overwritten_or_gone_are_settled_and_no_others(quarantine: Quarantine) -> None:
    quarantine.hold(
        (OID, number(1), "price"),
        (OID, number(2), "price"),
        (OTHER, number(1), "price"),
        (OID, number(1), "price", "0/1"),
        (OID, None, "price"),
        (OID, number(1), "price"),
        gone=(5,),
    )
    quarantine.hold((OID, number(3), "price"), (OID, number(4), "price"))
    quarantine.hold((OID, number(1), "price"), source="2/db/g")
    changed = quarantine.settle([number(1), number(3)], {"key": number(1), "message": update("1", "2.00")})
    assert changed == {
        "value 0.0": (100, None, number(1), "0/500"),
        "value 1.0": (100, None, number(3), "0/500"),
    }


def test_a_truncate_settles_all_values_of_the_table(quarantine: Quarantine) -> None:
    quarantine.hold((OID, number(1), "price"), (OTHER, number(2), "price"), (OID, None, "price"))
    quarantine.hold((OID, number(1), "price"), source="1/db/another group")
    assert quarantine.settle([], truncated=True).keys() == {"value 0.0", "value 0.2"}


def test_nothing_to_settle_touches_no_file(quarantine: Quarantine) -> None:
    quarantine.hold((OID, number(1), "price"))
    assert quarantine.settle([number(2)]) == {}


def test_what_was_settled_before_does_not_have_the_batch_read_again(quarantine: Quarantine) -> None:
    quarantine.hold((OID, number(1), "price", "0/1"), (OTHER, number(1), "price"))
    batch, nowhere = (
        Batch(StagedChanges((), {1: SHAPE}, Lsn(0x500)), {OID: mirror(SHAPE)}, Lsn(0x500)),
        Kept(0, OID, "no such file", 0),
    )
    run = Resolve(batch, quarantine.target, quarantine.room, (nowhere,), frozenset(), tuple(quarantine.places))
    assert list(run()) == []


@pytest.mark.parametrize(
    ("messages", "settled"),
    [
        ([update("1", TOAST)], False),
        ([update("1", TOAST), update("1", TOAST)], False),
        ([update("1", TOAST), update("1", "3.00")], True),
        ([update("1", TOAST), update("1", "NaN")], True),  # the new value is quarantined by itself
        ([update("1", None)], True),
    ],
)
def test_a_value_that_the_updates_left_alone_stays(
    messages: list[bytes], settled: bool, quarantine: Quarantine
) -> None:
    quarantine.hold((OID, number(1), "price"), (OID, number(2), "dropped since"))
    newest, *older = messages
    upsert = {"key": number(1), "message": newest, "older": older, "older_relations": [1] * len(older)}
    changed = quarantine.settle([number(1)], upsert | {"base": number(1)})
    assert changed.keys() == ({"value 0.0", "value 0.1"} if settled else {"value 0.1"})


def test_a_value_moves_with_its_row(quarantine: Quarantine) -> None:
    quarantine.hold((OID, number(9), "price"), (OID, number(1), "price"))
    moved = {"key": number(2), "message": update("2", TOAST, key=("1", None)), "base": number(1)}
    changed = quarantine.settle([number(1)], moved)
    assert changed == {"value 0.1": (101, '{"id": 2}', number(2), None)}


def test_of_equal_rows_without_a_key_as_many_values_are_settled_as_rows_go(quarantine: Quarantine) -> None:
    quarantine.hold(*[(OID, ROW, "price")] * 3, (OID, b"another", "price"), gone=(0,))
    quarantine.hold(*[(OID, ROW, "price")] * 3)
    first = quarantine.settle([ROW], shape=BAG)
    assert first.keys() == {"value 0.1"}
    quarantine.places = quarantine.places[1:]
    assert quarantine.settle([ROW, ROW], shape=BAG).keys() == {"value 1.0", "value 1.1"}


def test_the_quarantine_tells_the_key_as_people_know_it() -> None:
    rows = pa.table(
        {
            "id": pa.array([1, 2]),
            "uuid": pa.array([bytes(16), bytes(15) + b"\1"], pa.binary(16)),
            "bytes": pa.array([b"", b"\xff"], pa.large_binary()),
            "at": pa.array([0, 2**62]).view(pa.timestamp("us")),  # far beyond what Python's datetime knows
            "price": pa.array([Decimal("1.50"), Decimal("2.00")]),
            "bad": pa.nulls(2),
        }
    )
    key = ("id", "uuid", "bytes", "at", "price")
    origin = Origin("1/db/g", OID, "t", {"bad": 6})
    found = quarantined(origin, rows, key, {"bad": (Bad(1, "NaN"), Bad(0, "x"))}, lambda row: Lsn(16 * (row + 1)))
    assert found.schema == SCHEMA
    assert [json.loads(each) for each in found["key"].to_pylist()] == [
        {"id": 2, "uuid": "00000000-0000-0000-0000-000000000001", "bytes": "\\xff",
         "at": "<value out of range: 4611686018427387904>", "price": "2.00"},
        {"id": 1, "uuid": "00000000-0000-0000-0000-000000000000", "bytes": "\\x", "at": "1970-01-01 00:00:00.000000",
         "price": "1.50"},
    ]  # fmt: skip
    assert found.drop_columns(["key"]).to_pylist()[0] == {
        "source": "1/db/g", "table_oid": OID, "table_name": "t", "column_number": 6, "column_name": "bad",
        "value": "NaN", "lsn": "0/20", "row_key": None, "resolved_lsn": None,
    }  # fmt: skip


def test_the_quarantine_of_a_table_without_a_key_has_the_row_to_find_it_by() -> None:
    rows = pa.table({"item": ["a"], "price": pa.nulls(1, pa.decimal128(10, 2))})
    origin = Origin("1/db/g", OID, "t", NUMBERS)
    found = quarantined(origin, rows, (), {"price": (Bad(0, "NaN"),)}, lambda _: Lsn(16), row_keys(rows, {}))
    assert found.select(["key", "lsn", "row_key"]).to_pylist() == [{"key": None, "lsn": "0/10", "row_key": ROW}]
