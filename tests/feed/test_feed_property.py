"""Random histories that DuckDB's extension writes, and the feed of every span of them.

A failing seed is reported, and played again with `HEADWATER_SEED=n`.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headwater.feed.source import Bound
from tests.feed.feedbench import FeedBench, Rows, duckdb_with_lakes, events_of
from tests.feed.histories import DuckDBDied, History

SEEDS = os.environ.get("HEADWATER_SEED", "1,2").split(",")  # `make prove` plays any
MANY = [pytest.param(f"any {number}", marks=pytest.mark.long) for number in range(50)]


@contextmanager
def history_of(seed: str, url: str, folder: Path) -> Iterator[History]:
    """A new table and its history; what happened is printed if the test fails."""
    number = random.SystemRandom().randrange(10**6) if seed.startswith("any") else int(seed)
    with duckdb_with_lakes() as duck, FeedBench.opened(url, str(folder / "data"), duck) as bench:
        history = History(bench, random.Random(number))
        try:
            history.begin(partitioned=number % 4 == 0)
            yield history
        except DuckDBDied as died:
            pytest.skip(str(died))
        except BaseException as error:
            error.add_note("\n".join([f"play it again with HEADWATER_SEED={number}:", *history.ran]))
            raise


@pytest.mark.parametrize("seed", [*SEEDS, *MANY])
def test_one_statement_at_a_time_gives_the_events_of_duckdbs_own_feed(seed: str, feed_url: str, tmp_path: Path) -> None:
    with history_of(seed, feed_url, tmp_path) as history:
        history.steps(9, plain=True)
        for span, events in history.bench.check_all(since=1).items():
            assert events == history.bench.duckdb_events(*span), span


@pytest.mark.parametrize("seed", [*SEEDS, *MANY])
def test_events_lead_from_any_snapshot_to_any_later_one(seed: str, feed_url: str, tmp_path: Path) -> None:
    with history_of(seed, feed_url, tmp_path) as history:
        history.steps(14)
        found = history.bench.check_all(since=1, shown=history.shown)
        if found:
            check_in_pieces(history.bench, history.chance, found)


def check_in_pieces(bench: FeedBench, chance: random.Random, found: dict[tuple[int, int], Rows]) -> None:
    """Any bound divides a span into the same events."""
    (after, upto), wanted = chance.choice(list(found.items()))
    columns = bench.at(upto).table.columns
    pieces = bench.in_pieces(after, upto, Bound(chance.randrange(1, 60), 10**9), unit=Bound(7, 10**9))
    assert sum((events_of(each.units, columns) for each in pieces), Rows()) == wanted
