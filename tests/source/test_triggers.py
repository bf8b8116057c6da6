"""Event triggers put each schema change of a published table into the stream, at its moment."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import psycopg
import pytest
from tests.captured_group import Group
from tests.conftest import MORE_VERSIONS, VERSIONS, new_database

from headwater.capture.pgoutput import Emitted, decode
from headwater.capture.watch import Watch, first_look
from headwater.change import TableName
from headwater.postgres.connect import Connection, connect
from headwater.source import triggers as ddl
from headwater.source.definition import Definition, parse
from headwater.source.relations import defined
from headwater.state.transitions import CaughtUp, Copied
from headwater.testing.postgres import EmbeddedPostgres


class Source:
    """A database with event triggers, a published table `t`, and what they report."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.run(
            "RESET search_path",
            "CREATE TYPE mood AS ENUM ('good', 'bad')",
            "CREATE TYPE pair AS (x int, m mood)",
            "CREATE TABLE t (id int PRIMARY KEY, v text, p pair[])",
            "CREATE TABLE elsewhere (id int PRIMARY KEY, v text)",
            "CREATE PUBLICATION headwater_g FOR TABLE t",
        )
        assert ddl.install(connection) is not None
        self.run("SELECT pg_create_logical_replication_slot('s', 'pgoutput')")

    def run(self, *statements: str) -> None:
        for statement in statements:
            self.connection.execute(statement.encode())

    def reported(self) -> list[dict[str, Any]]:
        """What the event triggers have put into the WAL since the last time."""
        rows = self.connection.execute(
            "SELECT data FROM pg_logical_slot_get_binary_changes('s', NULL, NULL, 'proto_version', '1',"
            " 'publication_names', 'headwater_g', 'messages', 'true')"
        ).fetchall()
        found = [decode(bytes(data)) for (data,) in rows]
        emitted = [each.content for each in found if isinstance(each, Emitted) and each.prefix == ddl.PREFIX]
        return [json.loads(content) for content in emitted if content]

    def definitions(self) -> list[Definition]:
        return [parse(each) for each in self.reported()]


@pytest.fixture(params=MORE_VERSIONS)
def source(servers: Callable[[int], EmbeddedPostgres], request: pytest.FixtureRequest) -> Iterator[Source]:
    with new_database(servers(request.param)) as url, closing(connect(url)) as connection:
        yield Source(connection)


def names(definition: Definition) -> list[str]:
    return [each.name for each in definition.attributes.values() if not each.dropped]


REPORTED = {
    "ALTER TABLE t ADD x int DEFAULT 7": "none",
    "ALTER TABLE t DROP v": "none",
    "ALTER TABLE t RENAME v TO w": "none",
    "ALTER TABLE t RENAME TO u": "none",
    "ALTER TABLE t REPLICA IDENTITY FULL": "none",
    "ALTER TABLE t ALTER id TYPE bigint": "cast",
    "alter table t alter id type bigint using id * 2": "values",
    "ALTER TABLE t ALTER v TYPE text USING upper(v)": "values",
    "ALTER TABLE t ADD r float DEFAULT random()": "values",
    "ALTER TABLE t ADD r int GENERATED ALWAYS AS (id * 2) STORED": "values",
    "ALTER TABLE t ADD r serial, ALTER id TYPE bigint": "values",
    "DO $$ BEGIN ALTER TABLE t ALTER id TYPE bigint; END $$": "values",
    "ALTER TYPE mood RENAME VALUE 'good' TO 'better'": "none",
    "ALTER TYPE pair ADD ATTRIBUTE y int": "none",
    "ALTER SCHEMA public RENAME TO other": "none",
    "ALTER INDEX t RENAME TO u": "none",
    "ALTER PUBLICATION headwater_g SET TABLE t WHERE (id > 1)": "none",
}


@pytest.mark.parametrize("statement", REPORTED)
def test_a_command_that_alters_a_published_table_is_reported_once(source: Source, statement: str) -> None:
    try:
        source.run(statement)
        (found,) = source.definitions()
        assert found.rewrite == REPORTED[statement]
        now = defined(source.connection, [found.oid])[found.oid]
        assert (found.table, found.attributes, found.types, found.names) == (
            now.table,
            now.attributes,
            now.types,
            now.names,
        )
        assert found.relation(found.attributes.values()) == now.relation(now.attributes.values())
    finally:
        if "SCHEMA" in statement:
            source.run("ALTER SCHEMA other RENAME TO public")


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE elsewhere ADD x int DEFAULT random()",
        "CREATE TEMP TABLE tt (id int); ALTER TABLE tt ADD x int; DROP TABLE tt",
        "CREATE TABLE made AS SELECT 1 AS one; DROP TABLE made",
        "CREATE INDEX ON t (v)",
        "CREATE TYPE other AS ENUM ('a'); ALTER TYPE other ADD VALUE 'b'; DROP TYPE other",
        "VACUUM FULL t",
        "ANALYZE t",
        "INSERT INTO t VALUES (1, 'v')",
    ],
)
def test_what_does_not_alter_a_published_table_is_not_reported(source: Source, statement: str) -> None:
    source.run(*statement.split("; "))
    assert source.reported() == []


@pytest.mark.parametrize("source", VERSIONS, indirect=True)
def test_a_column_that_goes_with_its_type_is_reported(source: Source) -> None:
    source.run("DROP TYPE pair CASCADE")
    (found,) = source.definitions()
    assert names(found) == ["id", "v"]


def test_the_row_type_of_another_table_is_one_of_a_tables_types(source: Source) -> None:
    source.run("ALTER TABLE t ADD e elsewhere", "ALTER TABLE elsewhere ADD x int")
    first, second = source.definitions()
    assert (
        first.relation(first.attributes.values()).facts.parts != second.relation(second.attributes.values()).facts.parts
    )


@pytest.mark.parametrize("source", VERSIONS, indirect=True)
def test_what_is_done_to_a_partition_is_reported_of_its_root(source: Source) -> None:
    source.run(
        "CREATE TABLE r (id int PRIMARY KEY, x text) PARTITION BY RANGE (id)",
        "CREATE TABLE r1 PARTITION OF r FOR VALUES FROM (0) TO (9)",
        "ALTER PUBLICATION headwater_g ADD TABLE r",
        "INSERT INTO r VALUES (1, 'x')",
    )
    assert [each.table for each in source.definitions()] == [TableName("public", "r")]  # it is published now
    source.run("ALTER TABLE r ADD y int DEFAULT 3", "ALTER TABLE r ALTER x TYPE text USING upper(x)")
    added, rewritten = source.definitions()
    assert (added.table, added.rewrite, added.attributes[3].missing) == (TableName("public", "r"), "none", "3")
    assert rewritten.rewrite == "values"


def test_what_is_done_to_a_parent_is_reported_of_the_tables_that_inherit_from_it(source: Source) -> None:
    source.run(
        "CREATE TABLE parent (id int, v text)",
        "CREATE TABLE child (PRIMARY KEY (id)) INHERITS (parent)",
        "CREATE TABLE grandchild (PRIMARY KEY (id)) INHERITS (child)",
        "CREATE TABLE root (id int PRIMARY KEY, v text) PARTITION BY RANGE (id)",
        "CREATE TABLE leaf PARTITION OF root FOR VALUES FROM (0) TO (9)",
        "ALTER PUBLICATION headwater_g ADD TABLE grandchild, leaf",
    )
    source.reported()
    for above, below in (("parent", "grandchild"), ("root", "leaf")):
        source.run(
            f"ALTER TABLE {above} ADD x int",
            f"ALTER TABLE {above} ALTER v TYPE text USING upper(v)",
            f"ALTER TABLE {above} ALTER x TYPE bigint",
        )
        found = source.definitions()
        assert {each.table.name for each in found} == {below}
        assert [(names(each), each.rewrite) for each in found] == [
            (["id", "v", "x"], rewrite) for rewrite in ("none", "values", "cast")
        ]


def test_ddl_of_ordinary_roles_is_reported(source: Source) -> None:
    role = f"app_{source.connection.info.dbname}"
    source.run(f"CREATE ROLE {role}", f"GRANT ALL ON SCHEMA public TO {role}", f"ALTER TABLE t OWNER TO {role}")
    try:
        source.reported()
        source.run(f"SET ROLE {role}", "SET search_path = public", "ALTER TABLE t ADD x int", "RESET ALL", "RESET ROLE")
        (found,) = source.definitions()
        assert names(found)[-1] == "x"
        source.run("SET session_replication_role = replica", "ALTER TABLE t DROP x")  # as a restore sets it
        assert [names(each)[-1] for each in source.definitions()] == ["p"]
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            source.run(f"SET ROLE {role}", "SELECT headwater.report('{}', '{}')")
    finally:
        source.run("RESET ALL", "RESET ROLE", f"DROP OWNED BY {role}", f"DROP ROLE {role}")


def test_the_values_in_a_definition_do_not_depend_on_the_session(source: Source) -> None:
    source.run("INSERT INTO t VALUES (1, 'v')", "SET DateStyle = 'German'", "SET TimeZone = 'Asia/Tokyo'")
    source.run("SET bytea_output = 'escape'", "SET search_path = pg_temp", "SET IntervalStyle = 'iso_8601'")
    source.run("ALTER TABLE public.t ADD x timestamptz DEFAULT '2024-01-01 12:00+02', ADD y bytea DEFAULT '\\x00ff'")
    (found,) = source.definitions()
    assert [each.missing for each in found.attributes.values()][3:] == ["2024-01-01 10:00:00+00", "\\x00ff"]


@pytest.mark.parametrize(
    "broken",
    [
        "DROP FUNCTION headwater.definition",
        "DROP FUNCTION headwater.report",
        "ALTER SCHEMA headwater RENAME TO elsewhere",
        "SET headwater.rewrites = 'not JSON'",
    ],
)
def test_a_trigger_that_fails_says_so_and_lets_the_command_through(source: Source, broken: str) -> None:
    source.run(broken)
    for statement in (
        "ALTER TABLE t ADD x int",
        "ALTER TABLE t ALTER v TYPE text USING upper(v)",
        "DROP TYPE pair CASCADE",
    ):
        source.reported()
        source.run(statement)
        assert {"lost": True} in source.reported(), statement
    source.run("INSERT INTO t (id, x) VALUES (1, 1)")


def test_without_the_schema_the_triggers_are_gone_and_commands_go_through(source: Source) -> None:
    source.run("DROP SCHEMA headwater CASCADE", "ALTER TABLE t ADD x int", "DROP TYPE pair CASCADE")
    assert source.reported() == []
    assert not ddl.installed(source.connection)


def test_marks_are_others_once_a_trigger_was_touched(source: Source) -> None:
    first = ddl.marks(source.connection)
    assert ddl.install(source.connection) == first
    source.run("ALTER EVENT TRIGGER headwater_command DISABLE")
    assert ddl.marks(source.connection) is None
    source.run("ALTER EVENT TRIGGER headwater_command ENABLE")  # but not always
    assert ddl.marks(source.connection) is None
    second = ddl.install(source.connection)
    assert second not in (None, first)
    source.run("CREATE OR REPLACE FUNCTION headwater.drop() RETURNS event_trigger LANGUAGE plpgsql AS 'BEGIN END'")
    assert ddl.marks(source.connection) is None
    ddl.remove(source.connection)
    assert ddl.marks(source.connection) is None
    assert source.connection.execute("SELECT count(*) FROM pg_event_trigger").fetchone() == (0,)
    source.run("ALTER TABLE t ADD x int")
    assert source.reported() == []


def test_a_role_that_may_not_install_them_goes_on_without(source: Source) -> None:
    role = f"plain_{source.connection.info.dbname}"
    ddl.remove(source.connection)
    source.run(f"CREATE ROLE {role} LOGIN", f"GRANT CREATE ON DATABASE {source.connection.info.dbname} TO {role}")
    try:
        source.run(f"SET ROLE {role}")
        assert ddl.install(source.connection) is None
    finally:
        source.run("RESET ROLE", f"DROP OWNED BY {role}", f"DROP ROLE {role}")


def test_a_row_never_comes_before_the_definition_it_was_written_under(group: Group) -> None:
    """PostgreSQL puts a message where its record ends, and a row where its record begins."""
    with psycopg.connect(group.url, autocommit=True) as plain:
        plain.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
        group.prepare("t")
        _known(group, "t")
        with group.capturing():
            with plain.transaction():
                for number in range(20):
                    with plain.transaction():
                        plain.execute("ALTER TABLE t DROP v")
                        plain.execute("ALTER TABLE t ADD v text")
                    plain.execute("INSERT INTO t VALUES (%s, 'x')", (number,))
            group.settle()
    numbers = [[column.attnum for column in row.relation.columns] for row in group.rows()]
    assert numbers == [[1, number + 3] for number in range(20)]
    assert {row.relation.generation for row in group.rows()} == {0}


def _known(group: Group, table: str) -> None:
    """As `run` leaves it: the table is known, and event triggers report what is done to it."""
    with closing(connect(group.url)) as connection:
        (oid,) = connection.execute("SELECT %s::regclass::oid::bigint", (f"public.{table}",)).fetchone() or (0,)
    name = TableName("public", table)
    group.state.ensure_table(group.name, oid, name, name)
    group.state.record(group.name, oid, Copied(group.log.end()))
    group.state.record(group.name, oid, CaughtUp())
    first_look(group.url, group.state, group.log, group.name)
    row = group.state.group(group.name)
    assert row is not None
    assert row.ddl_lsn is not None


@pytest.mark.parametrize(
    "tampering", ["ALTER EVENT TRIGGER headwater_command DISABLE", "DROP EVENT TRIGGER headwater_drop"]
)
def test_triggers_that_are_taken_away_are_noticed_and_taken_up_again_when_they_are_back(
    group: Group, tampering: str
) -> None:
    with psycopg.connect(group.url, autocommit=True) as plain, closing(connect(group.url)) as connection:
        plain.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
        group.prepare("t")
        _known(group, "t")
        watch = Watch(group.url, group.state, group.log, group.name, every=1.0)
        with group.capturing(), closing(watch):

            def look() -> object:
                watch.step()
                group.settle()
                watch.step()
                row = group.state.group(group.name)
                return row and (row.ddl_marks is not None, row.ddl_lsn is not None)

            assert look() == (True, True)
            plain.execute(tampering)
            assert look() == (False, False)
            newest = group.log.newest(_oid(group))
            assert newest is not None
            assert newest[1].generation == 0  # nothing was altered meanwhile
            plain.execute("ALTER TABLE t DROP v")
            ddl.install(connection)
            look()
            assert look() == (True, True)


def _oid(group: Group) -> int:
    (row,) = group.state.tables(group.name)
    return row.oid


def test_what_is_altered_while_the_triggers_are_away_has_the_table_copied_again(group: Group) -> None:
    with psycopg.connect(group.url, autocommit=True) as plain:
        plain.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
        group.prepare("t")
        _known(group, "t")
        watch = Watch(group.url, group.state, group.log, group.name, every=1.0)
        with group.capturing(), closing(watch):
            watch.step()
            plain.execute("SET event_triggers = off" if plain.info.server_version >= 170000 else "SELECT 1")
            if plain.info.server_version < 170000:
                plain.execute("ALTER EVENT TRIGGER headwater_command DISABLE")
            plain.execute("ALTER TABLE t DROP v")
            plain.execute("ALTER TABLE t ADD v text")
            plain.execute("INSERT INTO t VALUES (1, 'x')")
            group.settle()
            watch.step()
            group.settle()
            watch.step()
    newest = group.log.newest(_oid(group))
    assert newest is not None
    assert (newest[1].generation, [column.attnum for column in newest[1].columns]) == (1, [1, 3])
    assert "no event trigger" in newest[1].reason


def test_rows_that_were_rewritten_where_event_triggers_were_off_have_the_table_copied_again(group: Group) -> None:
    with psycopg.connect(group.url, autocommit=True) as plain:
        if plain.info.server_version < 170000:
            pytest.skip("there is no setting event_triggers before PostgreSQL 17")
        plain.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
        plain.execute("INSERT INTO t VALUES (1, 'x')")
        group.prepare("t")
        _known(group, "t")
        with group.capturing(), closing(Watch(group.url, group.state, group.log, group.name, every=1.0)) as watch:
            watch.step()
            plain.execute("ALTER TABLE t ADD d int DEFAULT 7")
            plain.execute("SET event_triggers = off")
            for statement, copied in (
                ("VACUUM FULL t", False),
                ("GRANT SELECT (v) ON t TO PUBLIC", False),
                ("ALTER TABLE t ALTER v TYPE text USING upper(v)", True),
            ):
                plain.execute(statement)
                group.state.add_fence(group.name, group.settle(), 60)  # it asks for a look at every table
                for _ in range(2):
                    watch.step()
                    group.settle()
                newest = group.log.newest(_oid(group))
                assert newest is not None
                assert (newest[1].generation > 0) is copied, statement


@pytest.mark.parametrize("restart", ["between the looks", "after the triggers are back"])
def test_that_triggers_were_away_is_known_after_a_restart(group: Group, restart: str) -> None:
    with psycopg.connect(group.url, autocommit=True) as plain, closing(connect(group.url)) as connection:
        plain.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
        group.prepare("t")
        _known(group, "t")
        with group.capturing():
            ddl.remove(connection)
            plain.execute("ALTER TABLE t DROP v")
            plain.execute("ALTER TABLE t ADD v text")
            plain.execute("INSERT INTO t VALUES (1, 'x')")  # taken for a row of the table as it was
            group.settle()
        if restart == "between the looks":
            with closing(Watch(group.url, group.state, group.log, group.name, every=1.0)) as watch:
                watch.step()
        else:
            group.prepare("t")
        with group.capturing(), closing(Watch(group.url, group.state, group.log, group.name, every=1.0)) as watch:
            watch.step()
            group.settle()
            watch.step()
    newest = group.log.newest(_oid(group))
    assert newest is not None
    assert newest[1].generation == 1
