"""What can be asked of a table in each state of its life, once, again, and by several at the same time."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import psycopg
import pytest
from tests.serving import HandService, handled

from headwater.change import Lsn
from headwater.config import Config
from headwater.errors import ConfigError
from headwater.postgres.connect import connect
from headwater.source.publications import publication_tables
from headwater.state import State, TableRow, TableState, Verb
from headwater.state.transitions import CaughtUp, Copied, CopyBegun, Event, Failed, Paused
from headwater.supervise.handling import Handling
from headwater.supervise.readying import make_ready

CONFIG = """
source: {source}
log: ./log
lakes:
  main: {{ducklake: "sqlite:///lake.sqlite", data_path: ./lake}}
  other: {{ducklake: "sqlite:///other.sqlite", data_path: ./other}}
groups:
  shop: {{lake: main, tables: [public.orders]}}
  far: {{lake: other, tables: []}}
"""
ITEMS = "public.items"
AT = datetime(2030, 1, 1, tzinfo=UTC)
LIFE: dict[TableState, tuple[Event, ...]] = {
    "PENDING": (),
    "SNAPSHOT": (CopyBegun(Lsn(5)),),
    "CATCHUP": (CopyBegun(Lsn(5)), Copied(Lsn(5))),
    "STREAMING": (CopyBegun(Lsn(5)), Copied(Lsn(5)), CaughtUp()),
    "ERRORED": (CopyBegun(Lsn(5)), Copied(Lsn(5)), Failed("it failed", AT)),
    "PAUSED": (CopyBegun(Lsn(5)), Copied(Lsn(5)), Paused("it was asked for")),
    "REMOVED": (CopyBegun(Lsn(5)), Copied(Lsn(5)), CaughtUp()),  # and then it is removed
}
STATES: tuple[TableState, ...] = tuple(LIFE)
REFUSED = {
    "already": "table 'public.items' is already in group 'shop'\nhint: headwater.resync_table copies it again",
    "paused": "table 'public.items' of group 'shop' is PAUSED, and would not be copied\nhint: first",
    "nowhere": "there is no table 'public.items' in any group\nhint: SELECT * FROM headwater.status",
}
# What becomes of a table that was added by command; a word in lower case: the request is refused, with that reason.
ASKED: dict[Verb, str] = {
    "add_table":    "already   already   already   already   already   already   PENDING",
    "remove_table": "REMOVED   REMOVED   REMOVED   REMOVED   REMOVED   REMOVED   nowhere",
    "resync_table": "PENDING   SNAPSHOT  PENDING   PENDING   PENDING   paused    nowhere",
    "pause_table":  "PAUSED    PAUSED    PAUSED    PAUSED    PAUSED    PAUSED    nowhere",
    "resume_table": "PENDING   SNAPSHOT  CATCHUP   STREAMING CATCHUP   CATCHUP   nowhere",
    "move_table":   "REMOVED   REMOVED   REMOVED   REMOVED   REMOVED   REMOVED   nowhere",
}  # fmt: skip
CASES = [(verb, state, word) for verb, line in ASKED.items() for state, word in zip(STATES, line.split(), strict=True)]


class Place:
    """A source with two tables, one in the file and one that is added by command, and a service without processes."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        with psycopg.connect(url, autocommit=True) as connection:
            for name in ("orders", "items", "notes"):
                connection.execute(f"CREATE TABLE {name} (id int PRIMARY KEY)")
        file = folder / "headwater.yaml"
        file.write_text(CONFIG.format(source=url))
        self.config = Config.load(file, {})
        self.state = State.connect(url)
        self.state.migrate()
        make_ready(self.config, self.state)
        self.state.declare({"shop": ["public.orders"]})

    def bring_to(self, state: TableState) -> None:
        """Add the table, and let it live until it is in this state."""
        self.ask("add_table", source_table=ITEMS, group_name="shop")
        oid = self.row().oid
        for event in LIFE[state]:
            self.state.record("shop", oid, event)
        if state == "REMOVED":
            self.ask("remove_table", source_table=ITEMS)

    def ask(self, verb: Verb, **arguments: object) -> str:
        """Ask for it, and have it done; what became of it."""
        self.state.ask(verb, **arguments)
        (done,) = handled(self.config, self.state)
        assert not done.failed, done.outcome
        return str(done.outcome)

    def row(self, group: str = "shop", name: str = "items") -> TableRow:
        return next(row for row in self.state.tables(group) if row.source.name == name)

    def published(self, group: str = "shop") -> set[str]:
        """What the source sends."""
        with connect(self.url) as connection:
            found = publication_tables(connection, f"headwater_{group}") or {}
        return {each.table.name for each in found.values()}

    def wanted(self, group: str = "shop") -> set[str]:
        return {row.source.name for row in self.state.tables(group) if row.state != "REMOVED"}


@pytest.fixture
def place(database: str, tmp_path: Path) -> Iterator[Place]:
    place = Place(database, tmp_path)
    yield place
    place.state.close()


def arguments_of(verb: Verb) -> dict[str, object]:
    more = {"add_table": {"group_name": "shop"}, "move_table": {"to_group": "far"}}
    return {"source_table": ITEMS, **more.get(verb, {})}


@pytest.mark.parametrize(("verb", "state", "word"), CASES, ids=str)
def test_a_request_does_its_work_in_every_state_or_is_refused_with_the_reason(
    verb: Verb, state: TableState, word: str, place: Place
) -> None:
    place.bring_to(state)
    before = place.row()
    assert before.state == state
    if word in REFUSED:
        with pytest.raises(ConfigError) as caught:
            place.ask(verb, **arguments_of(verb))
        assert REFUSED[word] in str(caught.value)
        assert place.row() == before
    else:
        said = place.ask(verb, **arguments_of(verb))
        assert (place.row().state, place.row().oid) == (word, before.oid), said
        assert ("needs no change" in said) == (verb in ("pause_table", "resume_table") and word == state)
    assert place.published() == place.wanted()
    assert place.published("far") == ({"items"} if verb == "move_table" and word == "REMOVED" else set())
    assert place.row(name="orders").state == "PENDING"  # the others have nothing to do with it


@pytest.mark.parametrize("state", STATES)
def test_a_table_that_is_removed_and_added_again_is_copied_whatever_it_was_at(state: TableState, place: Place) -> None:
    place.bring_to(state)
    for _ in range(2):
        if place.row().state != "REMOVED":
            place.ask("remove_table", source_table=ITEMS)
        assert (place.row().state, "items" in place.published()) == ("REMOVED", False)
        place.ask("add_table", source_table=ITEMS, group_name="shop")
        assert (place.row().state, "items" in place.published()) == ("PENDING", True)
        assert (place.row().failures, place.row().retry_at) == (0, None)


def test_requests_that_wait_are_handled_in_their_order_as_if_each_had_been_alone(place: Place) -> None:
    """A function takes those that wait as done, so that what is refused is refused when it is asked for."""
    state = place.state
    state.ask("add_table", source_table=ITEMS, group_name="shop")
    state.ask("pause_table", source_table=ITEMS)
    with pytest.raises(ConfigError, match="is already in group 'shop'"):
        state.ask("add_table", source_table=ITEMS, group_name="shop")
    state.ask("resume_table", source_table=ITEMS)
    state.ask("resync_table", source_table=ITEMS)
    state.ask("remove_table", source_table=ITEMS)
    with pytest.raises(ConfigError, match="there is no table"):
        state.ask("remove_table", source_table=ITEMS)
    state.ask("add_table", source_table=ITEMS, group_name="shop")
    done = handled(place.config, state)
    assert [(each.verb, each.failed) for each in done] == [
        ("add_table", False),
        ("pause_table", False),
        ("resume_table", False),
        ("resync_table", False),
        ("remove_table", False),
        ("add_table", False),
    ]
    assert place.row().state == "PENDING"
    assert place.published() == place.wanted() == {"orders", "items"}


def test_what_became_impossible_between_the_request_and_its_turn_fails_alone(place: Place) -> None:
    place.bring_to("STREAMING")
    place.state.ask("resync_table", source_table=ITEMS)
    place.state.ask("add_table", source_table="public.notes", group_name="shop")
    place.state.record("shop", place.row().oid, Paused("it was asked for"))
    first, second = handled(place.config, place.state)
    assert (first.failed, "is PAUSED, and would not be copied" in str(first.outcome)) == (True, True)
    assert (second.failed, place.row(name="notes").state) == (False, "PENDING")


@pytest.mark.parametrize("seed", [1, 2])
def test_many_who_ask_at_the_same_time_leave_nothing_behind_that_does_not_fit(seed: int, place: Place) -> None:
    """Six ask, one service handles, and deliveries record what happens to the tables meanwhile."""
    over = threading.Event()

    def ask(number: int) -> int:
        dice, asked = random.Random(f"{seed}/{number}"), 0
        with closing(State.connect(place.url)) as state:
            for _ in range(12):
                verb: Verb = dice.choice(tuple(ASKED))
                more = {"add_table": {"group_name": "shop"}, "move_table": {"to_group": dice.choice(("shop", "far"))}}
                try:
                    state.ask(verb, source_table=dice.choice((ITEMS, "public.notes")), **more.get(verb, {}))
                    asked += 1
                except ConfigError:  # somewhere else by now, or nowhere
                    continue
        return asked

    def live() -> None:
        dice = random.Random(f"{seed}/life")
        with closing(State.connect(place.url)) as state:
            while not over.is_set():
                for row in (*state.tables("shop"), *state.tables("far")):
                    steps: dict[TableState, Event] = {
                        "PENDING": CopyBegun(Lsn(5)), "SNAPSHOT": Copied(Lsn(6)), "CATCHUP": CaughtUp(),
                        "STREAMING": Failed("it failed", AT),
                    }  # fmt: skip
                    if dice.random() < 0.3 and row.state in steps:
                        record(state, row, steps[row.state])

    def serve() -> int:
        number = 0
        with closing(State.connect(place.url)) as state:
            handling = Handling(HandService(place.config, state), state)
            while not over.is_set() or state.waiting():
                for request in state.waiting():
                    handling.handle(request)
                    number += 1
        return number

    with ThreadPoolExecutor(8) as threads:
        serving, living = threads.submit(serve), threads.submit(live)
        asked = [each.result(120) for each in [threads.submit(ask, number) for number in range(6)]]
        over.set()
        assert serving.result(120) == sum(asked)
        living.result(120)
    bugs = place.state.query("SELECT verb, outcome FROM headwater.requests WHERE strpos(outcome, 'a bug') > 0")
    assert bugs == []
    added = {(each.group, each.table.removeprefix("public.")) for each in place.state.added_tables()}
    for group, declared in (("shop", {"orders"}), ("far", set[str]())):
        assert place.wanted(group) == declared | {name for where, name in added if where == group}
        assert place.published(group) == place.wanted(group)


def record(state: State, row: TableRow, event: Event) -> None:
    """As a delivery does, which has looked at the table a moment ago: it may be in another state by now."""
    with state.transaction() as connection:
        ((now,),) = connection.execute(
            "SELECT state FROM headwater.tables WHERE group_name = %s AND source_oid = %s FOR UPDATE",
            (row.group, row.oid),
        ).fetchall() or [(None,)]
    if now == row.state:
        state.record(row.group, row.oid, event)


def test_a_move_that_a_killed_run_has_begun_is_brought_to_its_end(place: Place) -> None:
    place.bring_to("STREAMING")
    asked = place.state.ask("move_table", source_table=ITEMS, to_group="far")
    place.state.move_added_table(ITEMS, "shop", "far")  # the run ended after that
    (done,) = handled(place.config, place.state)
    assert (done.id, done.failed, done.outcome) == (
        asked,
        False,
        "public.items is moved from group 'shop' to 'far', and will be copied",
    )
    assert (place.row("shop").state, place.row("far").state) == ("REMOVED", "PENDING")
    assert place.published("far") == {"items"}
