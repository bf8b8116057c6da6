"""What the server says of values in quarantine, from a real lake: those that are not settled, and seldom asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.change import TableName
from headwater.ducklake.extension import attach, connect
from headwater.ducklake.url import SqliteUrl
from headwater.lake.counts import Counts
from headwater.state import State
from tests.captured_group import until
from tests.web.served import Served

COLUMNS = (
    "source VARCHAR, table_oid BIGINT, table_name VARCHAR, key VARCHAR, column_number BIGINT, column_name VARCHAR,"
    " value VARCHAR, lsn VARCHAR, row_key BLOB, resolved_lsn VARCHAR"
)


class Quarantine:
    """The lake's table of values that do not fit."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._do(f"CREATE TABLE lake.main.headwater_quarantine ({COLUMNS})")

    def put(self, oid: int, value: str, settled: str | None = None) -> None:
        settled = f"'{settled}'" if settled else "NULL"
        self._do(
            f"INSERT INTO lake.main.headwater_quarantine VALUES ('source/shop', {oid}, 't', '{{\"id\": 1}}', 2, 'n',"
            f" '{value}', '0/10', NULL, {settled})"
        )

    def settle(self, oid: int) -> None:
        self._do(f"UPDATE lake.main.headwater_quarantine SET resolved_lsn = '0/20' WHERE table_oid = {oid}")

    def _do(self, sql: str) -> None:
        with connect(threads=1) as con:
            attach(con, SqliteUrl(f"{self._folder}/lake.sqlite"), "lake", data_path=f"{self._folder}/lake")
            con.execute(sql)


@pytest.fixture
def quarantine(site: Served, state: State, tmp_path: Path) -> Quarantine:
    """With three values of `orders`, one of which is open, and two of `audit`, both settled."""
    state.ensure_table("shop", 2, TableName("public", "audit"), TableName("public", "audit"))
    made = Quarantine(tmp_path)
    for oid, value, settled in ((1, "NaN", None), (1, "1e99", "0/20"), (1, "2e99", "0/20"), (2, "NaN", "0/20")):
        made.put(oid, value, settled)
    state.note_counts("shop", {1: Counts(quarantined=3), 2: Counts(quarantined=2)})
    site.look()
    return made


def warnings(site: Served) -> list[str]:
    """What the page warns of after another look."""
    site.look()
    found = [each["what"] for each in site.get("/api/v1/overview").json["problems"]]
    return [each for each in found if "in quarantine" in each]


def test_only_values_that_are_not_settled_are_a_warning(site: Served, state: State, quarantine: Quarantine) -> None:
    del quarantine
    open_ones = ["table public.orders: 1 value in quarantine"]
    until(lambda: warnings(site) == open_ones)
    state.note_counts("shop", {2: Counts(quarantined=4)})  # two came since the lake was asked
    assert warnings(site) == ["table public.audit: 2 values in quarantine", *open_ones]


def test_before_the_lake_has_answered_all_values_are_a_warning(site: Served, state: State) -> None:
    state.note_counts("shop", {1: Counts(quarantined=3)})
    assert warnings(site) == ["table public.orders: 3 values in quarantine"]  # there is no lake yet


def test_a_hundred_panels_ask_the_lake_once(site: Served, quarantine: Quarantine) -> None:
    panel = "/api/v1/groups/shop/tables/public.orders"
    found = site.get(panel).json["quarantine"]
    assert (found["total"], found["error"]) == (1, None)
    assert [(each["column"], each["value"], each["lsn"]) for each in found["rows"]] == [("n", "NaN", "0/10")]
    quarantine.settle(1)
    site.look()
    for _ in range(100):
        assert site.get(panel).json["quarantine"] == found  # of the last minute
