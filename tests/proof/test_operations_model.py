"""Random operators and random faults against a real service: at each quiet point the lake is what the source is.

Everything is decided by hypothesis from one seed: a failure names it, and `HEADWATER_SEED=n` plays it again (as far as
the moments at which processes are killed allow). `HEADWATER_STEPS` is how many steps an example has.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from functools import wraps
from typing import Any, ClassVar, TypeVar

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from tests.proof.operated import GROUPS, TABLES, Operated, spelled

SEEDS = os.environ.get("HEADWATER_SEED", "1,2,any").split(",")
STEPS = int(os.environ.get("HEADWATER_STEPS", "30"))
FAILPOINTS = (
    *("capture.registered:3", "capture.written:4", "copy.range", "copy.committed", "deliver.folded:2"),
    *("deliver.written:3", "deliver.before-commit:3", "deliver.committed:2", "deliver.recorded:3"),
    *("remove.written", "remove.committed"),
)
FAILING = (  # these do not kill: the n-th write fails
    *("!capture.written:3", "!capture.registered:2", "!copy.range:2", "!copy.written", "!copy.committed"),
    *("!deliver.decoded:3", "!deliver.written:3", "!deliver.before-commit:2", "!deliver.committed:2"),
    *("!deliver.recorded:2", "!remove.written", "!remove.committed"),
)
PARTS = ("_capture", "_deliver", "org.apache.spark.deploy.SparkSubmit", "pyspark.daemon")
tables, groups = st.sampled_from(TABLES), st.sampled_from(tuple(GROUPS))
dice = st.integers(0, 2**32).map(random.Random)
ways = st.sampled_from(("command", "sql"))
Step = TypeVar("Step", bound=Callable[..., None])


def step(**given: st.SearchStrategy[Any]) -> Callable[[Step], Step]:
    """A rule. When it fails, it says what happened before; hypothesis, which then tries again, gets the same answer."""

    def decorated(body: Step) -> Step:
        @wraps(body)
        def guarded(self: Operations, **values: Any) -> None:
            self.guarded(lambda: body(self, **values))

        any_rule: Any = rule
        made: Step = precondition(lambda self: self.begun)(any_rule(**given)(guarded))
        return made

    return decorated


class Operations(RuleBasedStateMachine):
    """What an operator may do and what may go wrong; `home` and the like are what should be."""

    failures: ClassVar[list[Exception]]

    def __init__(self) -> None:
        super().__init__()
        self.begun = False
        self.home: dict[str, str] = {}  # the group of each table that was added
        self.paused: set[str] = set()
        self.more = self.disabled = False  # whether there is a second group, and whether it is disabled
        self.joined: list[str] = []  # tables that the pattern brings
        self.steps: list[str] = []

    @initialize(number=st.integers(0, 2**16))
    def begin(self, number: int) -> None:
        """Hypothesis begins with what is simplest, which is nothing here: it would be the same for every seed."""
        if number:
            if self.failures:
                raise self.failures[0]
            self.operated, self.begun = Operated(), True

    @precondition(lambda self: not self.begun)
    @rule()
    def nothing(self) -> None:
        """Of the simplest example."""

    # Operators ------------------------------------------------------------------------------------------------------

    @step(table=tables, group=groups, how=ways)
    def add(self, table: str, group: str, how: str) -> None:
        possible = table not in self.home and (group == "shop" or self.more)
        if group == "more" and not self.more:
            why = "there is no group"
        else:
            why = "already in group" if self.home.get(table) == group else ""
        if possible:
            self.home[table] = group
        if possible or why:
            arguments = "table", "add", f"public.{table}", "--group", group
            self.ask(how, arguments, f"add_table('public.{table}', group_name => '{group}')", why)

    @step(table=tables, how=ways)
    def remove(self, table: str, how: str) -> None:
        why = "" if table in self.home else "there is no table"
        self.home.pop(table, None)
        self.paused.discard(table)
        arguments = "table", "remove", "--yes", f"public.{table}"
        self.ask(how, arguments, f"remove_table('public.{table}')", why)

    @step(table=tables, how=ways)
    def pause(self, table: str, how: str) -> None:
        why = "" if table in self.home else "there is no table"
        if not why:
            self.paused.add(table)
        self.ask(how, ("table", "pause", f"public.{table}"), f"pause_table('public.{table}')", why)

    @step(table=tables, how=ways)
    def resume(self, table: str, how: str) -> None:
        why = "" if table in self.home else "there is no table"
        self.paused.discard(table)
        self.ask(how, ("table", "resume", f"public.{table}"), f"resume_table('public.{table}')", why)

    @step(table=tables, how=ways)
    def resync(self, table: str, how: str) -> None:
        why = "is PAUSED" if table in self.paused else "" if table in self.home else "there is no table"
        self.ask(how, ("table", "resync", "--yes", f"public.{table}"), f"resync_table('public.{table}')", why)

    @precondition(lambda self: self.more and self.home)
    @step(table=tables, group=groups, how=ways)
    def move(self, table: str, group: str, how: str) -> None:
        why = "there is no table" if table not in self.home else ""
        if self.home.get(table) == group:
            why = "already in group"
        if not why:
            self.home[table] = group
            self.paused.discard(table)
        arguments = "table", "move", f"public.{table}", "--to", group
        self.ask(how, arguments, f"move_table('public.{table}', to_group => '{group}')", why)

    @step(how=ways)
    def create_group(self, how: str) -> None:
        why = "there is a group" if self.more else ""
        self.more = True
        settings = '{"flush": {"interval": "200ms"}}'
        arguments = "group", "create", "more", "--lake", "other", "--option", "flush.interval=200ms"
        self.ask(how, arguments, f"create_group('more', lake => 'other', settings => '{settings}')", why)

    @precondition(lambda self: self.more)
    @step(how=ways)
    def disable_or_enable_group(self, how: str) -> None:
        self.disabled = not self.disabled
        verb = "disable" if self.disabled else "enable"
        self.ask(how, ("group", verb, "more"), f"{verb}_group('more')", "")

    @precondition(lambda self: self.more)
    @step(how=ways)
    def drop_group(self, how: str) -> None:
        self.more = self.disabled = False
        for table in [name for name, group in self.home.items() if group == "more"]:
            del self.home[table]
            self.paused.discard(table)
        self.ask(how, ("group", "drop", "more", "--yes"), "drop_group('more')", "")

    @step(how=ways)
    def take_away_what_the_file_declares(self, how: str) -> None:
        arguments = "table", "remove", "--yes", "public.orders"
        self.ask(how, arguments, "remove_table('public.orders')", "is declared in headwater.yaml")

    def ask(self, how: str, arguments: tuple[str, ...], call: str, why: str) -> None:
        """By command or in SQL; if it cannot be, it is refused with the reason."""
        self.note(call if how == "sql" else " ".join(arguments))
        self.operated.serve()
        if how == "sql":
            done, said = self.operated.asked(call)
        else:
            code, said = self.operated.command(*arguments)
            done = code == 0
        assert (done, why in said) == (not why, True), f"{said}\n{self.operated.said()}"

    # Applications, and faults -----------------------------------------------------------------------------------------

    @step(chance=dice, times=st.integers(1, 6))
    def write(self, chance: random.Random, times: int) -> None:
        self.note(f"{times} random transactions")
        for _ in range(times):
            self.operated.write(chance)

    @step(chance=dice)
    def write_much_in_one_transaction(self, chance: random.Random) -> None:
        first = chance.randint(1, 10**9)
        self.note(f"10 000 rows from {first}")
        more = f"SELECT {first} + i, 'many', i FROM generate_series(1, 10000) i"
        self.operated.execute(
            f"INSERT INTO orders {more} ON CONFLICT DO NOTHING", "DELETE FROM orders WHERE id % 5 > 0"
        )

    @step(how=st.sampled_from(("add", "detach", "drop", "truncate")))
    def partitions_come_and_go(self, how: str) -> None:
        operated = self.operated
        self.note(operated.add_partition() if how == "add" else operated.take_partition(how))

    @step(goes=st.booleans())
    def tables_of_a_pattern_come_and_go(self, goes: bool) -> None:
        goes = goes and bool(self.joined)
        if goes:
            name = self.joined.pop(0)
            self.operated.execute(f"DROP TABLE joined.{name}")
        else:
            name = f"joined_{len(self.steps)}"
            self.joined.append(name)
            self.operated.execute(
                f"CREATE TABLE joined.{name} (id bigint PRIMARY KEY, item text)",
                f"INSERT INTO joined.{name} SELECT i, 'joins' FROM generate_series(1, 20) i",
            )
        self.note(f"table {name} {'goes' if goes else 'comes'}")

    @step(part=st.sampled_from(PARTS))
    def kill_a_process(self, part: str) -> None:
        self.note(f"kill -9 {part}: {self.operated.kill(part)}")

    @step(failpoint=st.sampled_from(("", *FAILPOINTS)))
    def kill_everything(self, failpoint: str) -> None:
        self.note(f"kill -9 of all; the next service dies at {failpoint!r} again and again")
        self.operated.run.kill()
        self.operated.serve(failpoint)

    @step(failpoint=st.sampled_from(FAILING))
    def writes_fail(self, failpoint: str) -> None:
        self.note(f"stop; in the next service {failpoint!r}")
        self.operated.serve()
        self.operated.stop()
        self.operated.serve(failpoint)

    @step()
    def kill_the_supervisor(self) -> None:
        self.note("kill -9 of the supervisor alone")
        self.operated.kill_supervisor()

    @step()
    def stop_and_start(self) -> None:
        self.note("stop and start")
        self.operated.serve()
        self.operated.stop()
        self.operated.serve()

    @step()
    def restart_source(self) -> None:
        self.note("restart of the source")
        self.operated.server.restart()

    @step()
    def crash_source(self) -> None:
        self.note("crash of the source")
        self.operated.server.pg_ctl("restart", "-m", "immediate", "-w")

    @step(lake=st.sampled_from(("main", "other")), seconds=st.floats(0.5, 7))
    def lock_the_catalog(self, lake: str, seconds: float) -> None:
        if (self.operated.folder / f"{lake}.sqlite").exists():
            self.note(f"lake {lake} is locked for {seconds:.1f} s")
            self.operated.lock_catalog(lake, seconds)

    # Quiet points -----------------------------------------------------------------------------------------------------

    @step()
    def positions_never_go_back(self) -> None:
        self.operated.check_positions()

    @step()
    def at_a_quiet_point_the_lake_is_what_the_source_is(self) -> None:
        self.note("quiet")
        self.quiet()

    def quiet(self) -> None:
        with self.operated.still():
            self.compare()

    def compare(self) -> None:
        served = {"shop"} | ({"more"} if self.more and not self.disabled else set())
        homes = {**dict.fromkeys(("orders", "parted", *self.joined), "shop"), **self.home}
        wanted = {
            (group, name): "PAUSED" if name in self.paused else "STREAMING"
            for name, group in homes.items()
            if group in served
        }
        self.operated.settle(wanted)
        self.operated.looked()
        self.operated.settle(wanted)
        self.operated.verify([spelled(name) for (_, name), state in wanted.items() if state == "STREAMING"])
        self.operated.check_positions()
        published = {group: {name for name, home in homes.items() if home == group} for group in ("shop", "more")}
        if not self.more:
            del published["more"]
        self.operated.check_leaks(published, served)

    def teardown(self) -> None:
        if self.begun:
            try:
                if not self.failures:
                    self.guarded(self.ended)
            finally:
                self.operated.close()

    def ended(self) -> None:
        """A quiet point, without a failpoint; the service ends, and nothing of it is left."""
        self.operated.serve()
        self.operated.stop()
        self.operated.serve()
        self.quiet()
        self.operated.stop()
        self.operated.check_that_nothing_is_left()

    def note(self, step: str) -> None:
        self.steps.append(step)

    def history(self) -> str:
        return "what happened:\n  " + "\n  ".join(self.steps)

    def guarded(self, check: Callable[[], None]) -> None:
        try:
            check()
        except Exception as error:
            error.add_note(self.history())
            self.failures.append(error)
            raise


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("number", SEEDS)
def test_whatever_operators_do_and_whatever_fails_the_lake_is_what_the_source_is(number: str) -> None:
    chosen = random.randrange(2**32) if number == "any" else int(number)
    plan = settings(
        max_examples=2, stateful_step_count=STEPS, deadline=None, database=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck), print_blob=False,
    )  # fmt: skip

    class Machine(Operations):
        failures: ClassVar[list[Exception]] = []

    try:
        run_state_machine_as_test(seed(chosen)(Machine), settings=plan)
    except Exception as error:
        met: Exception = Machine.failures[0] if Machine.failures else error  # else hypothesis says that it is flaky
        met.add_note(f"play it again with HEADWATER_SEED={chosen} HEADWATER_STEPS={STEPS}")
        raise met from None
