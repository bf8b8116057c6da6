"""A whole mirror whose source fails over: to a standby that has everything, or lacks the newest changes."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from pyspark.sql import SparkSession

from headwater import flow
from headwater.capture.promotion import BEYOND
from headwater.errors import Unreachable
from tests.captured_group import until
from tests.mirror import Mirror
from tests.standby import Pair, pair_of_servers


class Failing(Mirror):
    """A mirror of a pair of servers, both in its URL."""

    pair: Pair

    def fail_over(self) -> None:
        self.source.close()
        self.pair.promote()
        self.source = psycopg.connect(self.url, autocommit=True)

    def followed(self) -> None:
        """Wait until capture reads the new primary."""
        until(lambda: (row := self.m.state.group("g")) is not None and (row.timeline or "").endswith(" 2"))

    def copies(self) -> int:
        return sum(row.copied_rows for row in self.m.state.tables("g"))


@pytest.fixture
def failing(spark: SparkSession, tmp_path: Path) -> Iterator[Failing]:
    with pair_of_servers() as pair, closing(Failing(pair.url, spark, tmp_path)) as made:
        made.pair = pair
        made.execute(
            "CREATE TABLE orders (id bigint PRIMARY KEY, item text)",
            "CREATE TABLE quiet (id bigint PRIMARY KEY, item text)",
            "INSERT INTO orders SELECT i, 'old' FROM generate_series(1, 100) i",
            "INSERT INTO quiet SELECT i, 'old' FROM generate_series(1, 100) i",
        )
        yield made


def test_a_failover_that_loses_nothing_goes_unnoticed_by_the_lake(
    failing: Failing, caplog: pytest.LogCaptureFixture
) -> None:
    failing.start()
    failing.sync()
    failing.pair.kept("headwater_g")
    failing.execute("UPDATE orders SET item = 'new' WHERE id < 10")
    failing.pair.level()
    failing.fail_over()
    failing.execute("DELETE FROM orders WHERE id > 90", "INSERT INTO quiet VALUES (1000, 'promoted')")
    assert not failing.settle()
    failing.assert_equal("orders", "quiet")
    assert {each.verdict for each in failing.verify()} == {"equal"}
    assert failing.copies() == 200
    assert [each.levelno for each in caplog.records if "the source was promoted" in each.message] == [logging.WARNING]


def test_what_only_the_old_primary_had_is_not_in_the_lake_after_a_failover(
    failing: Failing, caplog: pytest.LogCaptureFixture
) -> None:
    failing.start()
    failing.sync()
    failing.pair.kept("headwater_g")
    failing.pair.level()
    failing.pair.standby.stop()
    failing.execute(
        "INSERT INTO orders SELECT i, 'lost' FROM generate_series(1000, 9000) i",
        "UPDATE quiet SET item = 'lost' WHERE id < 50",
    )
    failing.sync()
    before = {oid: each.position for oid, each in failing.m.sink.standings().items()}
    assert failing.ask("SELECT count(*) FROM lake.public.orders WHERE item = 'lost'") == [(8001,)]
    failing.fail_over()
    failing.execute("INSERT INTO orders VALUES (1000, 'kept')")
    failing.followed()
    assert failing.settle()
    failing.execute("INSERT INTO orders VALUES (1001, 'later')")
    failing.settle()
    failing.assert_equal("orders", "quiet")
    assert {each.verdict for each in failing.verify()} == {"equal"}
    assert f"table public.quiet will be copied again: {BEYOND}" in caplog.text
    now = {oid: each.position for oid, each in failing.m.sink.standings().items()}
    assert all(now[oid] > position for oid, position in before.items())


@pytest.mark.long
def test_a_failover_in_the_middle_of_a_copy_costs_no_more_than_another_one(
    failing: Failing, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing.start(copy=False)
    failing.captured()
    failing.pair.kept("headwater_g")
    failing.pair.level()
    failing.pair.standby.stop()
    failing.execute("INSERT INTO orders VALUES (5000, 'lost')")
    module = sys.modules["headwater.flow.copy"]
    written = module._written

    def then_fails_over(*given: object) -> object:
        done = written(*given)
        monkeypatch.undo()
        failing.fail_over()
        failing.followed()
        return done

    monkeypatch.setattr(module, "_written", then_fails_over)
    assert flow.copy(failing.m) == {}
    failing.execute("INSERT INTO orders VALUES (5001, 'kept')")
    assert failing.settle()
    failing.assert_equal("orders", "quiet")
    assert failing.files() == failing.known_files()
    slots = "SELECT count(*) FROM pg_replication_slots WHERE temporary"
    until(lambda: failing.rows_of(slots) == [(0,)])


@pytest.mark.long
def test_a_failover_while_ranges_are_read_is_waited_out(failing: Failing, monkeypatch: pytest.MonkeyPatch) -> None:
    failing.start(copy=False)
    failing.captured()
    failing.pair.kept("headwater_g")
    failing.pair.level()
    module = sys.modules["headwater.flow.copy"]
    planned = module.planned

    def then_fails_over(*given: object) -> object:
        done = planned(*given)
        monkeypatch.undo()
        failing.fail_over()
        return done

    monkeypatch.setattr(module, "planned", then_fails_over)
    with pytest.raises(Unreachable, match=r"the snapshot in which .* was being copied is gone|the source went away"):
        flow.copy(failing.m)
    assert failing.settle()
    failing.assert_equal("orders", "quiet")
    assert failing.files() == failing.known_files()
