"""What happens to tables without a row being sent is found in the catalog."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime

import psycopg
import pytest
from tests.captured_group import Group, until

from headwater import flow
from headwater.capture.watch import Watch, first_look
from headwater.change import Lsn, TableName
from headwater.errors import OperatorMustAct
from headwater.postgres.connect import connect
from headwater.source import triggers as ddl
from headwater.source.bounds import condition
from headwater.source.partitions import Partition, troubles
from headwater.source.publications import ALTERED, places
from headwater.source.server import named_oid
from headwater.state import Condition, Conditions, Member, Partitions
from headwater.state.transitions import CaughtUp, Copied, Event, Failed, Paused, RecopyRequested


class Watched:
    """A group that is captured, and a watch whose steps are taken by hand."""

    def __init__(self, group: Group, *tables: str, triggers: bool = True) -> None:
        self.group, self.triggers = group, triggers
        self.seen = "ddl" if triggers else "catalog"
        self.watch = Watch(group.url, group.state, group.log, group.name, every=1.0)
        self.plain = psycopg.connect(group.url, autocommit=True)
        group.prepare(*tables)
        if not triggers:  # as for a role that may not install them
            with connect(group.url) as connection:
                ddl.remove(connection)
            group.state.note_ddl(group.name, None)
        names = {table: TableName("public", table) for table in tables}
        self.oids = {table: named_oid(self.plain, name) for table, name in names.items()}
        for table, oid in self.oids.items():
            group.state.ensure_table(group.name, oid, TableName("public", table), TableName("public", table))
            group.state.record(group.name, oid, Copied(group.log.end()))
            group.state.record(group.name, oid, CaughtUp())
        first_look(group.url, group.state, group.log, group.name)

    def close(self) -> None:
        self.watch.close()
        self.plain.close()

    def look(self) -> None:
        """Take a look, and deal with it when the log has come that far."""
        self.watch.step()
        self.group.settle()
        self.watch.step()

    def run(self, *statements: str) -> None:
        for statement in statements:
            self.plain.execute(statement)

    def shapes(self, table: str) -> list[tuple[str, list[str]]]:
        """How each version of a table was seen, and its columns."""
        rows = self.group.state.query(
            "SELECT id, seen FROM headwater.relations WHERE oid = %s ORDER BY lsn, id", (self.oids[table],)
        )
        relations = self.group.log.relations(id for id, _ in rows)
        return [(seen, [column.name for column in relations[id].columns]) for id, seen in rows]

    def watched(self) -> Lsn:
        """How far the catalog was looked at, as who waits for a position learns it."""
        group = self.group.state.group(self.group.name)
        assert group is not None
        return group.watched_lsn or Lsn(0)

    def wait_for_look(self, lsn: Lsn) -> None:
        until(lambda: self.watched() >= lsn, every=0.001)

    def removals(self, table: str) -> list[tuple[str, Conditions]]:
        found = self.group.state.removals(self.group.name)
        return [(each.reason, each.conditions) for each in found if each.oid == self.oids[table]]

    def resync(self, table: str) -> str | None:
        return next(row.resync for row in self.group.state.tables(self.group.name) if row.oid == self.oids[table])


@contextmanager
def one_table(group: Group, *, triggers: bool) -> Iterator[Watched]:
    with psycopg.connect(group.url, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (id int PRIMARY KEY, x int)")
    watched = Watched(group, "t", triggers=triggers)
    with group.capturing():
        yield watched
    watched.close()


@pytest.fixture(params=["triggers", "catalog"])
def plain(group: Group, request: pytest.FixtureRequest) -> Iterator[Watched]:
    with one_table(group, triggers=request.param == "triggers") as watched:
        yield watched


@pytest.fixture
def bare(group: Group) -> Iterator[Watched]:
    """Without event triggers."""
    with one_table(group, triggers=False) as watched:
        yield watched


@pytest.fixture
def parted(group: Group) -> Iterator[Watched]:
    with psycopg.connect(group.url, autocommit=True) as connection:
        connection.execute("CREATE TABLE r (id int PRIMARY KEY, x int) PARTITION BY RANGE (id)")
        connection.execute("CREATE TABLE r1 PARTITION OF r FOR VALUES FROM (0) TO (10)")
        connection.execute("CREATE TABLE r2 PARTITION OF r FOR VALUES FROM (10) TO (20) PARTITION BY RANGE (id)")
        connection.execute("CREATE TABLE r2a PARTITION OF r2 FOR VALUES FROM (10) TO (15)")
        connection.execute("INSERT INTO r VALUES (1), (11)")
    watched = Watched(group, "r")
    with group.capturing():
        yield watched
    watched.close()


def test_a_schema_change_without_a_row_is_found(plain: Watched) -> None:
    first = ("catalog", ["id", "x"])
    plain.look()
    assert plain.shapes("t") == [first]
    plain.run("ALTER TABLE t ADD COLUMN y int")
    plain.look()
    assert plain.shapes("t") == [first, (plain.seen, ["id", "x", "y"])]
    plain.run("ALTER TABLE t RENAME TO u")
    plain.look()
    assert len(plain.shapes("t")) == 3
    newest = plain.group.log.newest(plain.oids["t"])
    assert newest is not None
    assert newest[1].table == TableName("public", "u")


def test_a_version_that_a_row_has_brought_is_not_found_again(plain: Watched) -> None:
    plain.run("ALTER TABLE t ADD COLUMN y int", "INSERT INTO t VALUES (1)")
    plain.group.settle()
    plain.look()
    assert [seen for seen, _ in plain.shapes("t")] == ["catalog", "ddl" if plain.triggers else "rows"]


def test_a_look_is_overtaken_by_a_change_that_tells_a_newer_shape(plain: Watched) -> None:
    plain.run("ALTER TABLE t ADD COLUMN y int")
    plain.watch.step()  # seen, and waits for the log
    plain.run("ALTER TABLE t ADD COLUMN z int", "INSERT INTO t VALUES (1)")
    plain.group.settle()
    plain.look()
    found = [("catalog", ["id", "x"]), (plain.seen, ["id", "x", "y"]), ("rows", ["id", "x", "y", "z"])]
    if plain.triggers:
        found[2] = ("ddl", ["id", "x", "y", "z"])
    assert plain.shapes("t") in (found, [found[0], found[2]])
    lsns = plain.group.state.query("SELECT lsn FROM headwater.relations ORDER BY id")
    assert lsns == sorted(lsns)


def test_a_look_is_overtaken_by_a_change_that_leaves_the_version_as_it_is(group: Group) -> None:
    """A new label makes no new version; to an older look it would seem to have been taken away."""
    with psycopg.connect(group.url, autocommit=True) as connection:
        connection.execute("CREATE TYPE mood AS ENUM ('good')")
        connection.execute("CREATE TABLE t (id int PRIMARY KEY, m mood)")
        connection.execute("CREATE TABLE u (id int PRIMARY KEY)")
    watched = Watched(group, "t", "u", triggers=True)
    watched.run("ALTER TABLE u ADD x int")  # capture does not run yet: the look has to wait
    watched.watch.step()
    watched.run("ALTER TYPE mood ADD VALUE 'bad'")
    with group.capturing():
        group.settle()
        watched.look()
    newest = group.log.newest(watched.oids["t"])
    watched.close()
    assert newest is not None
    assert newest[1].generation == 0


def test_a_version_that_is_noted_late_is_noted_where_no_delivery_has_been(bare: Watched) -> None:
    plain = bare
    delivered = plain.group.log.end()
    plain.run("ALTER TABLE t ADD COLUMN y int")
    plain.watch.step()  # seen, and waits for the log, unless that was very quick
    waits = plain.shapes("t")[-1][1] == ["id", "x"]
    plain.run("CREATE TABLE elsewhere (id int)")
    plain.group.settle()
    if waits:
        delivered = plain.group.log.end()  # as a delivery for the sake of other tables may have come
    plain.watch.step()
    newest = plain.group.log.newest(plain.oids["t"])
    assert newest is not None
    since, shape = newest
    assert [column.name for column in shape.columns] == ["id", "x", "y"]
    assert since >= delivered
    until(lambda: plain.group.log.end() > since)  # by itself: else it would be delivered with the next change only
    found = plain.group.log.defined(plain.oids.values(), delivered, plain.group.log.end())
    assert found == {shape.oid: (since, shape)}


def test_the_thread_looks_by_itself(plain: Watched) -> None:
    calls: list[int] = []
    watch = Watch(plain.group.url, plain.group.state, plain.group.log, "shop", lambda: calls.append(1), every=0.05)
    watch.start()
    plain.run("ALTER TABLE t DROP COLUMN x")
    with closing(watch):
        until(lambda: plain.shapes("t")[-1] == (plain.seen, ["id"]))
    assert calls
    assert not watch.is_alive()


def test_what_was_altered_before_a_position_is_known_once_the_catalog_was_watched_up_to_it(plain: Watched) -> None:
    watch = Watch(plain.group.url, plain.group.state, plain.group.log, "shop", every=0.001)
    watch.start()
    with closing(watch):
        for number in range(25):
            plain.run(f"ALTER TABLE t ADD COLUMN c{number} int")
            target = plain.group.settle()
            plain.wait_for_look(target)
            assert plain.shapes("t")[-1][1][-1] == f"c{number}"


@pytest.mark.parametrize("error", [ZeroDivisionError(), OperatorMustAct("another headwater holds the lock")])
def test_capture_does_not_go_on_without_its_watch(plain: Watched, error: Exception) -> None:
    def broken() -> None:
        raise error

    group, stop = plain.group, threading.Event()
    group.settle()  # or its own start takes back what is noted
    other = Group.opened(group.url, group.folder)
    with closing(other.state), pytest.raises(type(error)):
        flow.capture(group.url, other.state, other.log, stop, broken, look_every=0.01)
    row = group.state.group("shop")
    assert row is not None
    assert row.error == (str(error) or None)


@pytest.mark.parametrize(
    "tampering",
    [
        "ALTER PUBLICATION headwater_shop DROP TABLE t",
        "ALTER PUBLICATION headwater_shop SET (publish = 'insert')",
    ],
)
def test_a_publication_that_no_longer_sends_a_table_ends_capture(plain: Watched, tampering: str) -> None:
    plain.watch.step()
    plain.run(tampering)
    with pytest.raises(OperatorMustAct, match=r"does not send all changes of public\.t") as reported:
        flow.capture(plain.group.url, plain.group.state, plain.group.log, threading.Event(), look_every=0.01)
    row = plain.group.state.group("shop")
    assert row is not None
    assert row.error == str(reported.value)


def test_a_table_whose_place_in_the_publication_was_altered_is_copied_again(plain: Watched) -> None:
    with connect(plain.group.url) as connection:
        plain.group.state.note_published("shop", places(connection, "headwater_shop"))
    plain.watch.step()
    assert plain.resync("t") is None
    plain.run("ALTER PUBLICATION headwater_shop DROP TABLE t", "ALTER PUBLICATION headwater_shop ADD TABLE t")
    (before,) = plain.group.state.tables("shop")
    plain.watch.step()
    (after,) = plain.group.state.tables("shop")
    assert (after.state, after.resync) == ("PENDING", ALTERED)
    assert after.published != before.published
    plain.run("DROP TABLE t")  # which takes it out, too
    plain.watch.step()


def test_who_waits_for_a_position_learns_that_the_catalog_was_looked_at(plain: Watched) -> None:
    plain.watch.step()
    assert plain.watched() == Lsn(0)  # without a request, nothing is written
    target = plain.group.settle()
    plain.watch.step()
    assert plain.watched() >= target


LOOK = "look"
HARMLESS = {
    "nothing": (),
    "rows move": ("UPDATE r SET id = 12 WHERE id = 1", "DELETE FROM r WHERE id = 11"),
    "a new partition": (
        "CREATE TABLE r3 PARTITION OF r FOR VALUES FROM (20) TO (30)",
        "INSERT INTO r VALUES (21)",
    ),
    "a new partition, filled at once": (
        "BEGIN; CREATE TABLE r3 PARTITION OF r FOR VALUES FROM (20) TO (30); INSERT INTO r VALUES (21); COMMIT",
    ),
    "a new partition of a new partition": (
        "CREATE TABLE r3 PARTITION OF r FOR VALUES FROM (20) TO (30) PARTITION BY RANGE (id)",
        "CREATE TABLE r3a PARTITION OF r3 FOR VALUES FROM (20) TO (25)",
        "INSERT INTO r VALUES (21)",
    ),
    "an empty table is attached": (
        "CREATE TABLE r3 (LIKE r INCLUDING ALL)",
        "ALTER TABLE r ATTACH PARTITION r3 FOR VALUES FROM (20) TO (30)",
    ),
    "VACUUM FULL": ("VACUUM FULL r1", "VACUUM FULL r2a"),
    "TRUNCATE of the whole": ("TRUNCATE r",),
    "TRUNCATE of the whole, filled again": ("TRUNCATE r", "INSERT INTO r VALUES (1), (11)"),
}
GONE = "a partition was detached or dropped"
R1, R2, R2A = Condition(1, "0", "10"), Condition(1, "10", "20"), Condition(1, "10", "15")
LOST = {
    "a partition is detached": (("ALTER TABLE r DETACH PARTITION r1",), [(GONE, (R1,))]),
    "a partition is dropped": (("DROP TABLE r2a",), [(GONE, (R2, R2A))]),
    "a partitioned partition is detached": (("ALTER TABLE r DETACH PARTITION r2",), [(GONE, (R2,))]),
    "one below another goes, and then that": (
        ("DROP TABLE r2a", "CREATE TABLE r2b PARTITION OF r2 DEFAULT", "INSERT INTO r VALUES (12)", "DROP TABLE r2"),
        [(GONE, (R2,))],
    ),
    "TRUNCATE of one": (("TRUNCATE r2a",), [("partition public.r2a was truncated", (R2, R2A))]),
    "TRUNCATE of one, filled again": (
        ("TRUNCATE r1", "INSERT INTO r VALUES (3)", "ALTER TABLE r1 ALTER x SET STATISTICS 5", "ANALYZE r1"),
        [("partition public.r1 was truncated", (R1,))],
    ),
    "TRUNCATE of the whole, then of one": (
        ("TRUNCATE r", "INSERT INTO r VALUES (1), (11)", "TRUNCATE r1", "INSERT INTO r VALUES (2)"),
        [("partition public.r1 was truncated", (R1,))],
    ),
    "one goes, another is emptied": (
        ("DROP TABLE r1", "TRUNCATE r2a"),
        [(GONE, (R1,)), ("partition public.r2a was truncated", (R2, R2A))],
    ),
}
HARM = {
    "one goes, and another comes with rows": (
        (
            "ALTER TABLE r DETACH PARTITION r1",
            "CREATE TABLE r3 (LIKE r INCLUDING ALL)",
            "INSERT INTO r3 VALUES (2)",
            "ALTER TABLE r ATTACH PARTITION r3 FOR VALUES FROM (0) TO (10)",
        ),
        GONE,
    ),
    "the default one is emptied": (
        ("CREATE TABLE r3 PARTITION OF r DEFAULT", "INSERT INTO r VALUES (50)", LOOK, "TRUNCATE r3"),
        "partition public.r3 was truncated",
    ),
    "a table with rows is attached": (
        (
            "CREATE TABLE r3 (LIKE r INCLUDING ALL)",
            "INSERT INTO r3 VALUES (21)",
            "ALTER TABLE r ATTACH PARTITION r3 FOR VALUES FROM (20) TO (30)",
        ),
        "partition public.r3 was attached with rows",
    ),
    "one is made, filled and attached at once": (
        (
            "BEGIN; CREATE TABLE r3 (LIKE r INCLUDING ALL); INSERT INTO r3 VALUES (21);"
            " ALTER TABLE r ATTACH PARTITION r3 FOR VALUES FROM (20) TO (30); COMMIT",
        ),
        "partition public.r3 was attached with rows",
    ),
    "a tree with rows is attached": (
        (
            "CREATE TABLE r3 (LIKE r INCLUDING ALL) PARTITION BY RANGE (id)",
            "CREATE TABLE r3a PARTITION OF r3 FOR VALUES FROM (20) TO (25)",
            "INSERT INTO r3 VALUES (21)",
            "ALTER TABLE r ATTACH PARTITION r3 FOR VALUES FROM (20) TO (30)",
        ),
        "partition public.r3 was attached with rows",
    ),
    "one goes and comes back": (
        (
            "ALTER TABLE r DETACH PARTITION r1",
            "INSERT INTO r1 VALUES (2)",
            "ALTER TABLE r ATTACH PARTITION r1 FOR VALUES FROM (0) TO (10)",
        ),
        "partition public.r1 was detached and attached again",
    ),
}


@pytest.mark.parametrize("case", HARMLESS)
def test_what_is_sent_or_moves_no_rows_needs_no_copy(parted: Watched, case: str) -> None:
    parted.run(*HARMLESS[case])
    parted.look()
    assert parted.resync("r") is None
    assert parted.removals("r") == []


@pytest.mark.parametrize("case", LOST)
def test_what_takes_rows_away_unseen_has_those_within_the_bounds_removed(parted: Watched, case: str) -> None:
    statements, removals = LOST[case]
    parted.run(*statements)
    parted.look()
    assert parted.resync("r") is None
    assert parted.removals("r") == removals
    parted.look()
    assert parted.removals("r") == removals


@pytest.mark.parametrize("case", HARM)
def test_what_moves_rows_unseen_has_the_table_copied_again(parted: Watched, case: str) -> None:
    statements, reason = HARM[case]
    for statement in statements:
        parted.look() if statement == LOOK else parted.run(statement)
    parted.look()
    assert parted.resync("r") == reason
    assert parted.removals("r") == []


def test_a_table_that_waits_for_a_copy_needs_no_removal(parted: Watched) -> None:
    parted.group.state.request_resync("shop", parted.oids["r"], "a test wants it")
    parted.run("DROP TABLE r1")
    parted.look()
    assert parted.removals("r") == []
    (row,) = parted.group.state.tables("shop")
    assert (row.resync, row.resync_lsn > Lsn(0)) == ("a test wants it", True)


BOUNDS = {
    "FOR VALUES FROM (1) TO ('-5')": Condition(3, "1", "-5"),
    "FOR VALUES FROM (MINVALUE) TO ('2026-01-01 00:00:00+00')": Condition(3, None, "2026-01-01 00:00:00+00"),
    "FOR VALUES FROM ('2026-01-01') TO (MAXVALUE)": Condition(3, "2026-01-01"),
    "FOR VALUES IN ('it''s, ok', '', 'NULL', 7)": Condition(3, values=("it's, ok", "", "NULL", "7")),
    "FOR VALUES IN ('a', NULL)": None,
    "FOR VALUES WITH (modulus 4, remainder 0)": None,
    "DEFAULT": None,
}


@pytest.mark.parametrize("printed", BOUNDS)
def test_bounds_are_read_as_the_catalog_prints_them(printed: str) -> None:
    assert condition(3, printed) == BOUNDS[printed]
    assert condition(None, printed) is None


def test_a_partition_that_may_not_be_looked_into_is_taken_to_have_rows(parted: Watched) -> None:
    parted.run("CREATE ROLE blind LOGIN")
    before = Partitions(Lsn(0), 0, {2: Member(7, 5)})
    now = {
        1: Partition(TableName("public", "r1"), 1, 5, 0, False),
        2: Partition(TableName("public", "r2a"), 8, 5, 0, False),
    }
    try:
        with connect(parted.group.url.replace("postgres@", "blind@")) as blind:
            reported = list(troubles(blind, before, now, truncated=()))
    finally:
        parted.run("DROP ROLE blind")
    said = [each.reason for each in reported]
    assert said == ["partition public.r1 was attached with rows", "partition public.r2a was truncated"]


def test_what_happened_to_partitions_while_we_were_down_counts(group: Group) -> None:
    with psycopg.connect(group.url, autocommit=True) as connection:
        connection.execute("CREATE TABLE r (id int PRIMARY KEY) PARTITION BY RANGE (id)")
        connection.execute("CREATE TABLE r1 PARTITION OF r FOR VALUES FROM (0) TO (10)")
        watched = Watched(group, "r")
        connection.execute("ALTER TABLE r DETACH PARTITION r1")
    with group.capturing():
        first_look(group.url, group.state, group.log, group.name)  # at the next start: known tables stay as known
        watched.look()
    assert watched.removals("r") == [(GONE, (R1,))]
    watched.close()


LATER = datetime(2099, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("event", [Paused("it was asked for"), Failed("it failed", LATER)], ids=["paused", "errored"])
def test_a_partition_of_a_table_that_waits_takes_its_rows_along_once_the_table_goes_on(
    parted: Watched, event: Event
) -> None:
    state, name, oid = parted.group.state, parted.group.name, parted.oids["r"]
    state.record(name, oid, event)
    parted.run("ALTER TABLE r DETACH PARTITION r1")
    parted.look()
    assert (len(parted.removals("r")), parted.resync("r")) == (1, None)


def test_a_partition_of_a_paused_table_that_is_to_be_copied_anyway_asks_for_a_later_copy(parted: Watched) -> None:
    state, name, oid = parted.group.state, parted.group.name, parted.oids["r"]
    state.record(name, oid, Paused("it was asked for"))
    state.record(name, oid, RecopyRequested("the log was given up"))
    parted.run("ALTER TABLE r DETACH PARTITION r1")
    parted.look()
    (row,) = state.tables(name)
    assert (parted.removals("r"), row.resync_lsn > Lsn(0)) == ([], True)
