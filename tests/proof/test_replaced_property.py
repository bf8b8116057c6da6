"""Tables replaced, recreated and swapped under their names, in any order, between small deliveries, looks and restarts.

A failing seed is reported, and played again with `HEADWATER_SEED=n`.
"""

from __future__ import annotations

import os
import random
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from soak.replacing import Replacing

from headwater import flow
from headwater.errors import CommitError
from headwater.state.transitions import Failed
from tests.mirror import Mirror

NAMES = ("a", "b", "c")
ROUNDS, STEPS = 3, 14
SEEDS = os.environ.get("HEADWATER_SEED", "1,2,any").split(",")


class Disturbed:
    """A mirror whose parts are stopped and started while its source is migrated."""

    def __init__(self, mirror: Mirror, seed: int) -> None:
        self.mirror, self.chance = mirror, random.Random(seed)
        self.captures = True
        self.source = Replacing(mirror.source, self.chance, NAMES, self.disturb)

    def disturb(self) -> None:
        """Something, or nothing."""
        chance = self.chance.random()
        if chance < 0.2:
            self._say("delivers")
            with suppress(CommitError):
                flow.deliver(replace(self.mirror.m, max_rows=self.chance.choice((1, 5, 50))))
        elif chance < 0.3:
            self._say("copies")
            flow.copy(self.mirror.m)
        elif chance < 0.38 and self.captures:
            self._say("looks")
            self.mirror.looked()
        elif chance < 0.46:
            self._say("capture stops" if self.captures else "capture starts")
            (self.mirror.stop_capture if self.captures else self.mirror.capture)()
            self.captures = not self.captures

    def restart(self) -> None:
        """As a new `headwater run` begins: nothing is captured meanwhile."""
        self._say("starts again")
        if self.captures:
            self.mirror.stop_capture()
        self.mirror.reopen()
        self.mirror.capture()
        self.captures = True

    def settle(self) -> None:
        """Until nothing waits any more; a table that was replaced while it was being copied is tried again at once."""
        if not self.captures or self.chance.random() < 0.5:
            self.restart()
        self.mirror.looked()
        for _ in range(5):
            self.mirror.settle()
            rows = [row for row in self.mirror.m.state.tables("g") if row.state == "ERRORED" and row.retry_at]
            for row in rows:
                self.mirror.m.state.record("g", row.oid, Failed(row.error or "", datetime.now(UTC)))
            flow.retry(self.mirror.m)
            if not rows:
                return

    def _say(self, what: str) -> None:
        self.source.said.append(f"-- headwater {what}")


def assert_mirrored(mirror: Mirror) -> None:
    rows = mirror.m.state.tables("g")
    assert {row.state for row in rows} <= {"CATCHUP", "STREAMING"}, [(row.source, row.state, row.error) for row in rows]
    called = dict(mirror.rows_of("SELECT oid::bigint, relname::text FROM pg_class WHERE relkind = 'r'"))
    assert sorted(called[row.oid] for row in rows) == sorted(NAMES)
    assert sorted(row.lake.name for row in rows) == sorted(NAMES)
    assert mirror.tables() == sorted(NAMES)
    mirror.assert_equal(*NAMES)
    for name in NAMES:
        ours = [column for column, *_ in mirror.ask(f"DESCRIBE lake.public.{name}")]
        assert ours == [column.name for column in mirror.source.execute(f"SELECT * FROM {name}").description or ()]
    assert mirror.m.sink.standings().keys() == {row.oid for row in rows}


@pytest.mark.parametrize(
    "asked", [pytest.param(seed, marks=() if seed == SEEDS[-1] else pytest.mark.long) for seed in SEEDS]
)
def test_whatever_takes_a_tables_name_is_what_the_lake_has_under_it(mirror: Mirror, asked: str) -> None:
    seed = random.SystemRandom().randrange(10**6) if asked == "any" else int(asked)
    disturbed = Disturbed(mirror, seed)
    try:
        disturbed.source.create()
        mirror.start(*(f"public.{name}" for name in NAMES))
        for _ in range(ROUNDS):
            for _ in range(STEPS):
                disturbed.source.step()
                disturbed.disturb()
            disturbed.settle()
            assert_mirrored(mirror)
    except BaseException as error:
        said = mirror.folder / "said.sql"
        said.write_text("\n".join(disturbed.source.said))
        error.add_note(f"play it again with HEADWATER_SEED={seed}; all statements are in {said}")
        raise
