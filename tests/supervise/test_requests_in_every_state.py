"""What can be asked of a table in each state of its life, once, again, and by several at the same time."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import psycopg
import pytest
from click.testing import CliRunner
from tests.serving import HandService, handled

from headwater.change import Lsn
from headwater.commands.cli import cli
from headwater.config import Config
from headwater.errors import ConfigError, Unreachable
from headwater.postgres.connect import connect
from headwater.source.publications import publication_tables
from headwater.state import Request, State, TableRow, TableState, Verb
from headwater.state.transitions import CaughtUp, Copied, CopyBegun, Event, Failed, Paused
from headwater.supervise import dropping
from headwater.supervise.groups import drop_group, list_groups
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
        self.file = file
        self.config = Config.load(file, {})
        self.state = State.connect(url)
        self.state.migrate()
        make_ready(self.config, self.state)
        self.state.declare("/log", {"shop": ["public.orders"]})

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


class Interrupted(HandService):
    """A service that loses the source once, after what is wanted was changed."""

    lost = False

    def serve(self, name: str) -> None:
        if not self.lost:
            self.lost = True
            raise Unreachable("the source does not answer", hint="it comes back")
        super().serve(name)


def interrupted(place: Place, verb: Verb, **arguments: object) -> Request:
    """Ask for it; the first attempt loses the source, and a new service makes the second. What became of it."""
    asked = place.state.ask(verb, **arguments)
    (request,) = place.state.waiting()
    with pytest.raises(Unreachable):
        Handling(Interrupted(place.config, place.state), place.state).handle(request)
    (done,) = handled(place.config, place.state)
    assert done.id == asked
    return done


def test_an_addition_that_was_interrupted_is_brought_to_its_end(place: Place) -> None:
    done = interrupted(place, "add_table", source_table=ITEMS, group_name="shop")
    assert (done.failed, "is added to group 'shop'" in str(done.outcome)) == (False, True)
    assert (place.row().state, "items" in place.published()) == ("PENDING", True)


def test_a_removal_that_was_interrupted_is_brought_to_its_end(place: Place) -> None:
    place.bring_to("STREAMING")
    done = interrupted(place, "remove_table", source_table=ITEMS)
    assert (done.failed, "is removed from group 'shop'" in str(done.outcome)) == (False, True)
    assert (place.row().state, "items" in place.published()) == ("REMOVED", False)


def test_a_move_that_was_interrupted_is_brought_to_its_end(place: Place) -> None:
    place.bring_to("STREAMING")
    done = interrupted(place, "move_table", source_table=ITEMS, to_group="far")
    assert (done.failed, "is moved" in str(done.outcome)) == (False, True)
    assert (place.published(), place.published("far")) == ({"orders"}, {"items"})


def test_a_group_whose_creation_was_interrupted_is_created(place: Place) -> None:
    done = interrupted(place, "create_group", name="more", lake="other")
    assert (done.failed, "is created" in str(done.outcome)) == (False, True)
    assert place.state.group("more") is not None


def test_what_there_was_before_is_refused_after_an_interruption_all_the_same(place: Place) -> None:
    place.ask("create_group", name="more", lake="other")
    with place.state.transaction() as connection:  # two asked at the same time
        connection.execute("INSERT INTO headwater.requests (verb, group_name) VALUES ('create_group', 'more')")
    (done,) = handled(place.config, place.state)
    assert (done.failed, "there is a group 'more' already" in str(done.outcome)) == (True, True)


# The end of a group -------------------------------------------------------------------------------------------------


@pytest.fixture
def more(place: Place) -> Place:
    """With another group, which was added and has a table."""
    place.ask("create_group", name="more", lake="other")
    place.ask("add_table", source_table=ITEMS, group_name="more")
    return place


def test_other_requests_do_not_wait_for_who_still_works_on_a_group_that_is_dropped(more: Place) -> None:
    state = more.state
    with state.lock("deliver:more"):
        dropped = state.ask("drop_group", name="more")
        later = state.ask("enable_group", name="more")
        other = state.ask("pause_table", source_table="public.orders")
        begun = time.monotonic()
        handled(more.config, state)
        assert time.monotonic() - begun < 10
        assert [each.id for each in state.waiting()] == [dropped, later]
        assert state.disabled_groups() == {"more"}
    assert [(each.failed, str(each.outcome)[:11]) for each in handled(more.config, state)] == [
        (False, "group 'more"),
        (True, "the group w"),
    ]
    assert (state.disabled_groups(), state.added_groups()) == (set(), {})
    paused = state.request(other)
    assert paused is not None
    assert paused.handled_at is not None


@pytest.mark.parametrize("disabled", [False, True])
def test_a_group_that_someone_goes_on_working_on_is_not_dropped_and_goes_on_as_before(
    more: Place, disabled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if disabled:
        more.ask("disable_group", name="more")
    monkeypatch.setattr(dropping, "PATIENCE", 0.5)
    with more.state.lock("deliver:more"):
        more.state.ask("drop_group", name="more")
        (waits,) = handled(more.config, more.state)
        assert waits.handled_at is None
        time.sleep(0.5)
        (done,) = handled(more.config, more.state)
    assert (done.failed, "another headwater holds the lock 'deliver:more'" in str(done.outcome)) == (True, True)
    assert more.state.disabled_groups() == ({"more"} if disabled else set())
    assert more.published("more") == {"items"}


def test_a_drop_that_was_interrupted_is_brought_to_its_end_and_leaves_no_request(more: Place) -> None:
    asked = more.state.ask("drop_group", name="more")
    more.state.begin_request(asked, disabled=False, at=0)  # the run ended in the middle
    more.state.disable_group("more")
    drop_group(more.config, "more", asked)  # even before it could say so
    assert more.state.waiting() == []
    done = more.state.request(asked)
    assert done is not None
    assert (done.failed, "group 'more' is dropped: " in str(done.outcome)) == (False, True)
    assert more.state.disabled_groups() == set()


def test_the_list_of_groups_shows_what_was_asked_of_them_and_waits(more: Place) -> None:
    more.state.ask("disable_group", name="more")
    more.state.ask("create_group", name="later", lake="main")
    found = {each.name: (each.origin, each.waiting) for each in list_groups(more.config)}
    assert found == {
        "shop": ("config", ()),
        "far": ("config", ()),
        "more": ("added", ("disable_group",)),
        "later": ("asked", ("create_group",)),
    }
    listed = CliRunner().invoke(cli, ["-c", str(more.file), "group", "list"]).output
    assert "group 'more': disable_group waits for a `headwater run` that handles it" in listed
    assert "group 'later': create_group waits" in listed
