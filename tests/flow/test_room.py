"""A log with a limit: what goes to make room, who is asked to be copied again for it, and when capture has to wait."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from headwater.change import Column, Lsn, Relation, TableName
from headwater.errors import LogFull
from headwater.flow.room import GIVEN_UP, LogRoom
from headwater.log import Log
from headwater.state import State, TableRow
from headwater.state.routes import RouteId
from headwater.state.transitions import Copied, CopyBegun, Failed, Paused, Repositioned, Resumed
from headwater.words import size_text

BEGIN = Lsn(100)
ORDERS, LINES = 1, 2


class Kept:
    """A group whose log is written by hand: each segment ends 10 after the one before it."""

    def __init__(self, state: State, folder: Path) -> None:
        self.state, self.log = state, Log(state, "shop", str(folder / "log"))
        relation = Relation(0, ORDERS, TableName("public", "orders"), "d", (Column("id", 25, -1, key=True),))
        self.version = self.log.relation(relation, BEGIN).id
        one = self.log.stage(self._change(BEGIN))
        self.segment = one.file_bytes
        self.log.discard([one])
        for oid, name in ((ORDERS, "orders"), (LINES, "lines")):
            table = TableName("public", name)
            state.ensure_table("shop", oid, table, table)
            state.record("shop", oid, CopyBegun(BEGIN))
            state.record("shop", oid, Copied(BEGIN))

    def append(self, count: int) -> None:
        for _ in range(count):
            end = self.log.end()
            self.log.register([self.log.stage(self._change(end))], end, Lsn(end.value + 10))

    def _change(self, lsn: Lsn) -> dict[str, pa.Array]:
        return {
            "commit_lsn": pa.array([lsn.value], pa.int64()),
            "seq": pa.array([0], pa.int64()),
            "xid": pa.array([7], pa.int64()),
            "commit_ts": pa.array([0], pa.timestamp("us", tz="UTC")),
            "op": pa.array([ord("I")], pa.uint8()),
            "relation": pa.array([self.version], pa.int64()),
            "message": pa.array([b"I"], pa.binary()),
        }

    def room(self, segments: float, *routes: str) -> LogRoom:
        """For so many segments."""
        return LogRoom(self.state, self.log, int(segments * self.segment), routes)

    def move(self, oid: int, position: int) -> None:
        self.state.record("shop", oid, Repositioned(Lsn(position)))

    def row(self, oid: int) -> TableRow:
        return next(row for row in self.state.tables("shop") if row.oid == oid)

    def segments(self) -> int:
        return len(self.log.read(self.log.begin()).segments)


@pytest.fixture
def kept(database: str, tmp_path: Path) -> Iterator[Kept]:
    state = State.connect(database)
    state.migrate()
    state.ensure_group("shop", "1/db", "s", "p")
    state.begin_capture("shop", BEGIN)
    yield Kept(state, tmp_path)
    state.close()


def test_the_size_of_the_log_is_that_of_its_files(kept: Kept, tmp_path: Path) -> None:
    kept.append(3)
    assert kept.log.size() == sum(file.stat().st_size for file in (tmp_path / "log").rglob("*.parquet"))


def test_nothing_is_given_up_before_the_log_is_full(kept: Kept) -> None:
    kept.append(3)
    for oid in (ORDERS, LINES):
        kept.move(oid, 130)
    assert kept.room(4).grant(0, waited=False) == kept.segment
    assert kept.segments() == 3


def test_what_everyone_has_passed_goes_before_its_retention_is_over_oldest_first_and_no_more_than_needed(
    kept: Kept,
) -> None:
    kept.append(10)
    kept.move(ORDERS, 190)
    kept.move(LINES, 180)
    assert kept.room(10).grant(0, waited=False) > 0
    assert (kept.segments(), kept.log.begin()) == (8, Lsn(120))  # below 90 % of 10


def test_a_log_that_a_table_still_needs_is_full_and_says_who_needs_it(kept: Kept) -> None:
    kept.append(10)
    kept.move(ORDERS, 200)
    with pytest.raises(LogFull) as caught:
        kept.room(10).grant(0, waited=False)
    limit = size_text(10 * kept.segment)
    assert str(caught.value) == (
        f"the log of group 'shop' is full, as large as log.max_bytes allows ({limit}): capture waits, and the source"
        " keeps its WAL; table public.lines, which is CATCHUP, needs it\n"
        "hint: `headwater status` shows whether something keeps it from being delivered; or raise log.max_bytes, and"
        " start `headwater run` again"
    )
    assert kept.segments() == 10


def test_an_errored_table_keeps_its_log_and_the_next_move_is_to_resume_it(kept: Kept) -> None:
    kept.append(10)
    kept.move(ORDERS, 200)
    kept.state.record("shop", LINES, Failed("no", kept.row(LINES).updated_at))
    with pytest.raises(LogFull, match=r"(?s)public\.lines, which is ERRORED.*`headwater table resume public\.lines`"):
        kept.room(10).grant(0, waited=False)
    assert kept.segments() == 10


def test_a_route_that_has_not_read_the_log_keeps_it(kept: Kept) -> None:
    kept.append(10)
    for oid in (ORDERS, LINES):
        kept.move(oid, 200)
    kept.state.ensure_route(RouteId("by_company"), "1-db/shop", ORDERS)
    kept.state.end_poll(RouteId("by_company"), None, 100, (), {})
    with pytest.raises(LogFull, match="; route by_company, needs it"):
        kept.room(10, "by_company").grant(0, waited=False)
    assert kept.room(10).grant(0, waited=False) > 0  # it has left the config


def test_whoever_has_waited_goes_on_when_a_tenth_is_free(kept: Kept) -> None:
    kept.append(19)
    kept.move(ORDERS, 400)
    room = kept.room(20)
    with pytest.raises(LogFull):
        room.grant(0, waited=True)
    assert room.grant(0, waited=False) > 0
    kept.move(LINES, 120)
    assert room.grant(0, waited=True) > 0
    assert kept.segments() == 17


def test_a_paused_table_is_given_up_when_the_log_is_full_and_copied_after_it_is_resumed(
    kept: Kept, caplog: pytest.LogCaptureFixture
) -> None:
    kept.append(10)
    kept.move(ORDERS, 180)
    kept.state.record("shop", LINES, Paused("it was asked for"))
    assert kept.room(10).grant(0, waited=False) > 0
    assert (kept.segments(), kept.log.begin()) == (8, Lsn(120))  # no more than needed
    lines = kept.row(LINES)
    assert (lines.state, lines.resync, lines.resync_lsn) == ("PAUSED", GIVEN_UP, Lsn(120))
    assert f"table public.lines has to be copied again once it is resumed: {GIVEN_UP}" in caplog.text
    assert kept.row(ORDERS).resync is None
    caplog.clear()
    kept.append(2)
    assert kept.room(10).grant(0, waited=False) > 0  # it holds nothing any more
    assert "has to be copied" not in caplog.text
    kept.state.record("shop", LINES, Resumed())
    assert kept.row(LINES).state == "PENDING"


def test_a_copy_that_began_before_what_was_given_up_will_not_do(kept: Kept) -> None:
    kept.state.record("shop", LINES, Paused("it was asked for"))
    kept.state.record("shop", LINES, CopyBegun(Lsn(110)))
    kept.append(10)
    kept.move(ORDERS, 200)
    assert kept.room(10).grant(0, waited=False) > 0
    kept.state.record("shop", LINES, Copied(Lsn(110)))
    assert (kept.row(LINES).resync, kept.row(LINES).state) == (GIVEN_UP, "PAUSED")


def test_a_paused_table_is_not_given_up_when_that_frees_nothing(kept: Kept) -> None:
    kept.append(10)
    kept.state.record("shop", LINES, Paused("it was asked for"))
    with pytest.raises(LogFull, match=r"table public\.orders, which is CATCHUP"):
        kept.room(10).grant(0, waited=False)
    assert kept.row(LINES).resync is None


def test_a_paused_table_that_passed_segments_make_room_for_is_not_given_up(kept: Kept) -> None:
    kept.append(10)
    kept.move(ORDERS, 200)
    kept.move(LINES, 150)
    kept.state.record("shop", LINES, Paused("it was asked for"))
    assert kept.room(10).grant(0, waited=False) > 0
    assert (kept.row(LINES).resync, kept.segments()) == (None, 8)


def test_a_transaction_larger_than_the_whole_log_goes_on_once_nothing_else_is_in_it(
    kept: Kept, caplog: pytest.LogCaptureFixture
) -> None:
    kept.append(2)
    room, huge = kept.room(2), 100 * kept.segment
    with pytest.raises(LogFull):
        room.grant(huge, waited=False)
    for oid in (ORDERS, LINES):
        kept.move(oid, 120)
    with caplog.at_level(logging.WARNING):
        assert room.grant(huge, waited=True) == room.grant(huge, waited=False) == 1
    assert caplog.text.count("transactions in progress have") == 1


def test_a_log_smaller_than_a_segment_has_one_at_a_time(kept: Kept) -> None:
    kept.append(1)
    room = kept.room(0.01)
    with pytest.raises(LogFull):
        room.grant(0, waited=False)
    for oid in (ORDERS, LINES):
        kept.move(oid, 110)
    assert room.grant(0, waited=True) > 0
    assert kept.segments() == 0


@pytest.mark.parametrize("seed", range(5))
def test_nothing_is_lost_that_is_not_requested_again(kept: Kept, seed: int) -> None:
    """Tables that move, pause and resume at random, and a log that is as large as it may be."""
    chance = random.Random(seed)
    room = kept.room(5)
    for _ in range(60):
        oid = chance.choice((ORDERS, LINES))
        match chance.choice(("append", "append", "move", "pause", "resume", "copy")):
            case "append":
                try:
                    room.grant(chance.choice((0, kept.segment)), waited=chance.random() < 0.5)
                except LogFull:
                    continue
                kept.append(1)
            case "move" if kept.row(oid).state == "CATCHUP":
                position = kept.row(oid).position
                assert position is not None
                kept.move(oid, chance.randint(position.value, kept.log.end().value))
            case "pause":
                kept.state.record("shop", oid, Paused("by chance"))
            case "resume":
                kept.state.record("shop", oid, Resumed())
            case "copy" if kept.row(oid).state == "PENDING":
                kept.state.record("shop", oid, CopyBegun(kept.log.end()))
                kept.state.record("shop", oid, Copied(kept.log.end()))
        assert kept.log.size() <= 7 * kept.segment
        for row in kept.state.tables("shop"):
            assert row.position is not None
            assert row.resync == GIVEN_UP or kept.log.reaches(row.position)
