"""What a delivery asks of a DuckLake's catalog does not depend on the tables that it does not touch."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headwater.change import Lsn, TableName
from headwater.ducklake.lake import Lake
from headwater.ducklake.opening import open_lake
from headwater.lake.sink import Inline, Volume
from headwater.lake.target import Destination, Sought, rows_of
from headwater.sink.ducklake.sink import DuckLakeSink
from tests.conftest import new_database
from tests.sink.sinkbench import Bench, relation, taken, typed, written


@dataclass
class Counting:
    """A catalog that counts the statements it is given; everything is done by the catalog itself."""

    catalog: Any
    statements: list[str] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.catalog, name)

    @contextmanager
    def transaction(self, *, write: bool = False) -> Iterator[Any]:
        with self.catalog.transaction(write=write) as tx:
            yield _CountedTransaction(tx, self.statements)


@dataclass(frozen=True)
class _CountedTransaction:
    tx: Any
    statements: list[str]

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.tx, name)
        if name in ("dialect", "ids"):
            return found

        def counted(*asked: Any) -> Any:
            self.statements.append(re.sub(r"\d+", "n", f"{name} {asked[0]}"))
            return found(*asked)

        return counted


@dataclass(frozen=True)
class Many:
    """A lake with many tables, all of which have rows in files and in the catalog; `counting` is its catalog."""

    bench: Bench
    counting: Counting
    tables: int

    def deliver(self, upto: int, oids: Collection[int]) -> list[str]:
        """Change rows in these tables, and move all on; the statements that it took."""
        self.counting.statements.clear()
        plan = self.bench.sink.plan()
        delivery = plan.begin(dict.fromkeys(oids, ("id",)), inline=Inline(dict.fromkeys(oids, Volume(2, 100))))
        reports: dict[Destination, list[bytes]] = {}
        for place in delivery.places(dict.fromkeys(oids, Sought())):
            assert place.oid is not None
            found, notes = taken(delivery.target, place, {1, 2})
            row = typed(relation(oid=place.oid), [(key, f"at {upto}") for key in found])
            ids = pa.array(list(found.values()), pa.int64())
            to = rows_of(place.oid)
            reports[to] = [*reports.get(to, []), *notes, *written(delivery.target, to, [(row, ids)])]
        delivery.commit(reports, (), {1000 + number: Lsn(upto) for number in range(self.tables)}, {})
        return list(self.counting.statements)


def many(lake: Lake, tables: int) -> Many:
    counting = Counting(lake.catalog)
    counted = Lake(lake.url, lake.data_path, counting, lake.s3)
    bench = Bench(lambda *to: DuckLakeSink(counted, *to), lambda _: [], inlined=True)
    for number in range(tables):
        of = relation(oid=1000 + number, name=TableName("public", f"t{number}"))
        bench.copy([(1, "a"), (2, "b"), (3, "c")], of=of)
        bench.deliver(200, of=of, update=[(1, "in the catalog")])
    return Many(bench, counting, tables)


@pytest.fixture(params=["sqlite", "postgres"])
def lakes(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[list[Lake]]:
    with ExitStack() as held:
        urls = [f"sqlite:///{tmp_path}/{each}.sqlite" for each in ("few", "more")]
        if request.param == "postgres":
            url = held.enter_context(new_database(request.getfixturevalue("postgres")))
            urls = [f"{url}&schema={each}" for each in ("few", "more")]
        yield [held.enter_context(closing(open_lake(url, str(tmp_path / url[-4:])))) for url in urls]


def test_idle_tables_cost_a_delivery_no_statement(lakes: list[Lake]) -> None:
    few, more = many(lakes[0], 2), many(lakes[1], 12)
    assert few.deliver(300, [1000]) == more.deliver(300, [1000])
    assert few.bench.standing(1001).position == more.bench.standing(1011).position == Lsn(300)


def test_a_delivery_to_one_table_asks_few_questions_and_its_commit_only_for_the_newest_snapshot(
    lakes: list[Lake],
) -> None:
    asked = many(lakes[0], 2).deliver(300, [1000])
    questions = [each for each in asked if each.startswith(("rows", "answers", "existing"))]
    written = next(number for number, each in enumerate(asked) if "INSERT INTO ducklake_snapshot(" in each)
    assert len(questions) <= 12, questions
    assert not [each for each in asked[written:] if each.startswith(("rows", "answers", "existing"))]


def test_a_touched_table_costs_a_delivery_a_few_writes_and_no_question(lakes: list[Lake]) -> None:
    some = many(lakes[1], 8)
    one = some.deliver(300, [1000])
    five = some.deliver(400, [1000, 1001, 1002, 1003, 1004])
    questions = [sum(each.startswith(("rows", "answers", "existing")) for each in asked) for asked in (one, five)]
    assert questions[0] == questions[1]
    assert len(five) - len(one) <= 4 * 4
