"""One run leads, others stand by: what changes while they wait, who has the groups, and what keeps none of them."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

import psycopg
import pytest
from tests.captured_group import until

from headwater.change import Lsn
from headwater.config import Config
from headwater.errors import LockHeld, Unreachable
from headwater.state import State, Verb
from headwater.state.transitions import CaughtUp, Copied
from headwater.supervise.asking import serves
from headwater.supervise.children import Child
from headwater.supervise.reloading import Reloading
from headwater.supervise.running import Look, ready
from headwater.supervise.serving import LOOK_EVERY, Serving
from headwater.testing.postgres import EmbeddedPostgres

CONFIG = """
source: {source}
log: ./log
lakes:
  main: {{ducklake: "sqlite:///lake.sqlite", data_path: ./lake}}
groups:
  first: {{tables: [public.a]}}
  second: {{tables: [public.b]}}
"""


class Site:
    """A source with four tables, and a config that several runs share."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url, self.file = url, folder / "headwater.yaml"
        self.file.write_text(CONFIG.format(source=url))
        self.execute(*(f"CREATE TABLE {name} (id int PRIMARY KEY)" for name in "abcd"))
        self.state = State.connect(url)
        self.state.migrate()

    def config(self) -> Config:
        return Config.load(self.file, {})

    def execute(self, *statements: str) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement)

    def rows(self, query: str) -> list[tuple[object, ...]]:
        with psycopg.connect(self.url, autocommit=True) as connection:
            return connection.execute(query).fetchall()

    def states(self) -> dict[str, str]:
        return {
            row.configured.name: row.state for name in ("first", "second", "third") for row in self.state.tables(name)
        }

    def close(self) -> None:
        self.state.close()

    def copied(self) -> None:
        """As delivery would: every table streams."""
        for group in self.state.groups():
            for row in self.state.tables(group.name):
                if row.state == "PENDING":
                    self.state.record(group.name, row.oid, Copied(Lsn(1)))
                    self.state.record(group.name, row.oid, CaughtUp())


class Instance:
    """A run's part that leads. Its captures are not started."""

    def __init__(self, site: Site) -> None:
        self._site, self._stop, self._held = site, threading.Event(), ExitStack()
        self.state = self._held.enter_context(closing(State.connect(site.url)))
        reload = Reloading(site.file, {})
        self.serving = self._held.enter_context(Serving(site.config(), self.state, reload, self._child, self._stop))

    def _child(self, group: str) -> Child:
        return Child(f"capture {group}", ["--version"], 1)

    def lead(self, *, wait: bool = False) -> bool:
        """As `run` does, up to its captures."""
        led = self.serving.lead(wait=wait) and ready(self.serving.config, self.state, self._stop)
        if led:
            self.serving.begin()
        return led

    def does(self, verb: Verb, **arguments: object) -> str:
        """What becomes of a request."""
        return self.became(self.state.ask(verb, **arguments))

    def became(self, request: int) -> str:
        while (found := self.state.request(request)) is None or found.handled_at is None:
            steps(self)
        assert not found.failed, found.outcome
        return found.outcome or ""

    def close(self) -> None:
        self._stop.set()
        self._held.close()


@pytest.fixture
def site(database: str, tmp_path: Path) -> Iterator[Site]:
    with closing(Site(database, tmp_path)) as site:
        yield site


@pytest.fixture
def instance(site: Site) -> Iterator[Callable[[], Instance]]:
    made: list[Instance] = []

    def new() -> Instance:
        made.append(Instance(site))
        return made[-1]

    yield new
    for each in made:
        each.close()


@contextmanager
def standing_by(instance: Instance, caplog: pytest.LogCaptureFixture) -> Iterator[threading.Thread]:
    """It waits while the block runs, and leads soon after."""
    failures: list[BaseException] = []

    def lead() -> None:
        try:
            assert instance.lead(wait=True)
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=lead)
    thread.start()
    until(lambda: "waiting: another headwater holds the lock" in caplog.text)
    yield thread
    thread.join(20)
    assert not thread.is_alive()
    assert failures == []


def test_a_standby_takes_over_what_there_is_by_then(
    site: Site, instance: Callable[[], Instance], caplog: pytest.LogCaptureFixture
) -> None:
    leader = instance()
    assert leader.lead()
    standby = instance()
    with standing_by(standby, caplog):
        leader.does("add_table", source_table="public.c", group_name="first")
        leader.does("create_group", name="third")
        text = site.file.read_text()
        site.file.write_text(text.replace("[public.a]", "[public.a, public.d]").replace("  second:", "  #second:"))
        until(lambda: steps(leader) and "d" in site.states())
        site.copied()
        leader.close()
    assert site.states() == {"a": "STREAMING", "b": "STREAMING", "c": "STREAMING", "d": "STREAMING"}
    assert set(standby.serving.config.groups) == {"first", "third"}
    assert {each.name for each in standby.serving.captures} == {"capture first", "capture third"}


def test_a_group_that_is_dropped_while_a_standby_waits_gets_no_new_slot(
    site: Site, instance: Callable[[], Instance], caplog: pytest.LogCaptureFixture
) -> None:
    leader = instance()
    assert leader.lead()
    leader.does("create_group", name="third")
    standby = instance()
    with standing_by(standby, caplog):
        leader.does("drop_group", name="third")
        leader.close()
    slots = site.rows("SELECT slot_name::text FROM pg_replication_slots WHERE database = current_database() ORDER BY 1")
    assert slots == [("headwater_first",), ("headwater_second",)]


def test_groups_that_are_disabled_are_the_leaders_all_the_same(
    site: Site, instance: Callable[[], Instance], caplog: pytest.LogCaptureFixture
) -> None:
    leader = instance()
    assert leader.lead()
    standby = instance()
    with standing_by(standby, caplog) as waiting:
        for name in ("first", "second"):
            leader.does("disable_group", name=name)
        time.sleep(2.5)  # more than a standby needs for a look
        assert waiting.is_alive()
        assert serves(site.state, site.config(), "first")  # so that commands wait for it
        assert leader.does("enable_group", name="first") == "group 'first' is enabled"
        leader.close()
    assert set(standby.serving.config.groups) == {"first"}


def test_a_second_run_on_the_same_log_is_refused(instance: Callable[[], Instance]) -> None:
    leader = instance()
    assert leader.lead()
    with pytest.raises(LockHeld, match=r"another headwater holds the lock 'lead:/.*/log': PostgreSQL pid \d"):
        instance().lead()


def test_a_run_that_only_captures_does_not_wait_for_those_that_deliver(site: Site) -> None:
    with site.state.lock("deliver:first"):
        assert ready(site.config(), site.state, threading.Event(), beside_deliveries=True)
    assert site.states() == {"a": "PENDING", "b": "PENDING"}


def lose_sessions(site: Site, *names: str) -> None:
    """Those that hold a lock end, as in a restart of the state's server."""
    for name in names:
        assert site.rows(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = current_database()"
            " AND pid IN (SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted)"
            f" AND application_name LIKE 'headwater {name}%'"
        )


def test_a_leader_that_has_lost_its_lock_to_a_standby_says_so(
    site: Site, instance: Callable[[], Instance], caplog: pytest.LogCaptureFixture
) -> None:
    leader = instance()
    assert leader.lead()
    with standing_by(instance(), caplog):
        lose_sessions(site, "lock lead", "lock run")
    with pytest.raises(LockHeld, match="another headwater holds the lock 'lead:/"):
        leader.serving.step()


def test_a_standby_outlives_a_restart_of_the_states_server_and_gives_the_leader_a_head_start(
    own_postgres: EmbeddedPostgres, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        closing(Site(own_postgres.url(), tmp_path)) as site,
        closing(Instance(site)) as leader,
        closing(Instance(site)) as standby,
    ):
        assert leader.lead()
        with standing_by(standby, caplog) as waiting:
            for _ in range(2):
                own_postgres.stop()
                until(lambda: re.search("waiting: (cannot reach|lost)", caplog.text))
                own_postgres.start()
                until(lambda: steps(leader))
                caplog.clear()
                until(lambda: "waiting: another headwater holds the lock 'lead:" in caplog.text)
            assert waiting.is_alive()
            leader.close()
        site.execute("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots")
    assert [each.name for each in standby.serving.captures] == ["capture first", "capture second"]


def steps(instance: Instance) -> bool:
    with suppress(Unreachable):
        instance.serving.step()
        instance.state.query("SELECT")  # on a new connection
        return True
    return False


@pytest.fixture
def guarded(own_postgres: EmbeddedPostgres, tmp_path: Path) -> Iterator[tuple[Site, psycopg.Connection]]:
    """A site whose login can be refused, and a superuser's connection."""
    with psycopg.connect(own_postgres.url(), autocommit=True) as admin:
        admin.execute("CREATE DATABASE guarded")
        admin.execute("CREATE ROLE app LOGIN SUPERUSER")
        url = own_postgres.url("guarded").replace("postgres@", "app@")
        with closing(Site(url, tmp_path)) as site:
            yield site, admin
        admin.execute("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE NOT active")
        admin.execute("DROP DATABASE guarded WITH (FORCE)")
        admin.execute("DROP ROLE app")


@contextmanager
def refused(admin: psycopg.Connection) -> Iterator[None]:
    """Inside, the server refuses the login, as during a change of the password."""
    admin.execute("ALTER ROLE app NOLOGIN")
    admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'app'")  # all at once
    until(lambda: not admin.execute("SELECT FROM pg_stat_activity WHERE usename = 'app'").fetchall())
    yield
    admin.execute("ALTER ROLE app LOGIN")


def test_a_service_and_a_standby_wait_while_the_login_is_refused(
    guarded: tuple[Site, psycopg.Connection], caplog: pytest.LogCaptureFixture
) -> None:
    site, admin = guarded
    site.file.write_text(
        site.file.read_text()
        .replace("[public.a]", "[{table: public.*, exclude: [public.b*]}]")
        .replace("[public.b]", "[]")
    )
    with closing(Instance(site)) as leader, closing(Instance(site)) as standby:
        assert leader.lead()
        look = Look(leader.serving, lambda: False, until_caught_up=False)
        with standing_by(standby, caplog) as waiting:
            with refused(admin):
                for _ in range(3):
                    assert look() is False
                until(lambda: caplog.text.count("refuses the connection") > 2)
                assert waiting.is_alive()
            until(lambda: steps(leader))
            number = leader.state.ask("add_table", source_table="public.b", group_name="second")
            with refused(admin), pytest.raises(Unreachable, match="refuses the connection"):
                leader.serving.serve("second")  # as the request does: it is tried again, not refused
            assert "public.b is added" in leader.became(number)
            assert waiting.is_alive()
            leader.close()


def test_requests_are_noticed_at_once_again_after_the_login_was_refused(
    guarded: tuple[Site, psycopg.Connection], caplog: pytest.LogCaptureFixture
) -> None:
    site, admin = guarded
    with closing(Instance(site)) as leader:
        assert leader.lead()
        with refused(admin):
            until(lambda: "requests are noticed after up to" in caplog.text)
        listening = "SELECT FROM pg_stat_activity WHERE application_name = 'headwater listener headwater'"
        until(lambda: bool(site.rows(listening)))
        until(lambda: steps(leader))
        leader.does("disable_group", name="first")
        begun = time.monotonic()
        leader.does("enable_group", name="first")  # else it is found at the next look, that many seconds after the last
        assert time.monotonic() - begun < LOOK_EVERY - 1
