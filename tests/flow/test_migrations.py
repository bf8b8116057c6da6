"""Migrations that a look at the catalog comes too late for: each on a table of its own, all in one mirror.

With event triggers every command is in the stream. Without them what cannot be proven is copied again. Either way the
lake is the source.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.mirror import Mirror

from headwater.postgres.connect import connect
from headwater.source import triggers as ddl
from headwater.status import open_status

COLUMNS = "id int PRIMARY KEY, v text, a int, gone text"
TYPES = (
    "CREATE TYPE {t}_mood AS ENUM ('good', 'bad')",
    "CREATE TYPE {t}_pair AS (x int, m {t}_mood)",
    "CREATE TYPE {t}_moods AS RANGE (SUBTYPE = {t}_mood)",
)
BUSY = "UPDATE {t} SET v = v || '!' WHERE id % 2 = 0"  # ordinary traffic
# By name: what is done, and whether the lake follows it with event triggers instead of copying the table again.
MIGRATIONS: dict[str, tuple[tuple[str, ...], bool]] = {
    "added, filled, dropped and added again under its name": (
        (
            "BEGIN; ALTER TABLE {t} ADD x int; INSERT INTO {t} VALUES (9, 'n', 1, 'g', 1); ALTER TABLE {t} DROP x;"
            " ALTER TABLE {t} ADD x int; COMMIT",
        ),
        True,
    ),
    "the same in steps": (
        (
            "ALTER TABLE {t} ADD x int",
            "INSERT INTO {t} VALUES (9, 'n', 1, 'g', 1)",
            "ALTER TABLE {t} DROP x",
            "ALTER TABLE {t} ADD x int",
            "INSERT INTO {t} VALUES (10, 'n', 1, 'g', 2)",
        ),
        True,
    ),
    "added, filled, renamed, and another under its name": (
        (
            "ALTER TABLE {t} ADD x int",
            "UPDATE {t} SET x = 1",
            "ALTER TABLE {t} RENAME x TO y",
            "ALTER TABLE {t} ADD x int",
            "UPDATE {t} SET x = 2 WHERE id = 1",
        ),
        True,
    ),
    "names go round in one transaction": (
        (
            "BEGIN; ALTER TABLE {t} RENAME v TO tmp; ALTER TABLE {t} RENAME gone TO v;"
            " ALTER TABLE {t} RENAME tmp TO gone; INSERT INTO {t} VALUES (9, 'gone', 1, 'v'); COMMIT",
            "INSERT INTO {t} VALUES (10, 'gone', 1, 'v')",
        ),
        True,
    ),
    "rows, then a stored generated column": (
        (BUSY, "ALTER TABLE {t} ADD g bigint GENERATED ALWAYS AS (a * 2) STORED", "INSERT INTO {t} VALUES (9, 'n', 1)"),
        False,
    ),
    "rows, then a default of each row's own": ((BUSY, "ALTER TABLE {t} ADD g float DEFAULT random()"), False),
    "rows, then an identity": ((BUSY, "ALTER TABLE {t} ADD g int GENERATED ALWAYS AS IDENTITY", BUSY), False),
    "rows, then a serial": ((BUSY, "ALTER TABLE {t} ADD g serial", BUSY), False),
    "a default, then a type that rewrites the table": (
        (
            "ALTER TABLE {t} DROP COLUMN gone",
            BUSY,
            "ALTER TABLE {t} ADD COLUMN d numeric(8,2) DEFAULT 7.5",
            "INSERT INTO {t} (id, v) VALUES (9, 'n')",
            "ALTER TABLE {t} ALTER COLUMN a TYPE bigint",
            BUSY,
        ),
        True,
    ),
    "a default, then VACUUM FULL": (
        (BUSY, "ALTER TABLE {t} ADD COLUMN d numeric(8,2) DEFAULT 7.5", "VACUUM FULL {t}", BUSY),
        True,
    ),
    "a default, then CLUSTER": (
        (BUSY, "ALTER TABLE {t} ADD COLUMN d int DEFAULT 7", "CLUSTER {t} USING {t}_pkey", BUSY),
        True,
    ),
    "a default and a type in one command": (
        (BUSY, "ALTER TABLE {t} ADD COLUMN d int DEFAULT 7, ALTER a TYPE bigint", BUSY),
        False,
    ),
    "a wider type": ((BUSY, "ALTER TABLE {t} ALTER a TYPE bigint", "UPDATE {t} SET a = 5000000000 WHERE id = 1"), True),
    "a wider type by a function": (
        ("DO $$ BEGIN ALTER TABLE {t} ALTER a TYPE bigint; END $$", BUSY),
        False,  # nothing shows that the command has no USING
    ),
    "a wider type with an expression": (("ALTER TABLE {t} ALTER a TYPE bigint USING a * 10", BUSY), False),
    "a wider type with an expression in a function": (
        ("DO $$ BEGIN EXECUTE 'ALTER TABLE {t} ALTER a TYPE bigint USI' || 'NG a * 10'; END $$", BUSY),
        False,
    ),
    "the same type with an expression": (("ALTER TABLE {t} ALTER v TYPE text USING upper(v)", BUSY), False),
    "the same type with an expression, rows before": ((BUSY, "ALTER TABLE {t} ALTER a TYPE int USING a + 1"), False),
    "a type to and fro": (
        ("ALTER TABLE {t} ALTER v TYPE varchar(2) USING left(v, 1)", "ALTER TABLE {t} ALTER v TYPE text"),
        False,
    ),
    "a label renamed inside a composite type": (("ALTER TYPE {t}_mood RENAME VALUE 'good' TO 'better'", BUSY), False),
    "an attribute added inside a composite type's table": (
        ("ALTER TABLE {t} ADD p {t}_pair", "UPDATE {t} SET p = '(1,good)'", "ALTER TYPE {t}_pair ADD ATTRIBUTE z int"),
        False,
    ),
    "an attribute of a composite type replaced by another of its type": (
        (BUSY, "ALTER TYPE {t}_pair DROP ATTRIBUTE x, ADD ATTRIBUTE x int", BUSY),
        False,
    ),
    "savepoints": (
        (
            "BEGIN; SAVEPOINT s; ALTER TABLE {t} ADD x int DEFAULT 3; RELEASE s;"
            " INSERT INTO {t} VALUES (9, 'n', 1, 'g', 1); SAVEPOINT s; ALTER TABLE {t} DROP x;"
            " ALTER TABLE {t} ADD y int; INSERT INTO {t} VALUES (10, 'n', 1, 'g', 1);"
            " ROLLBACK TO s; INSERT INTO {t} VALUES (11, 'n', 1, 'g', 2); COMMIT",
        ),
        True,
    ),
    "a column of the parent replaced by another of its name": (
        (
            BUSY,
            "ALTER TABLE {t}_parent DROP gone",
            "ALTER TABLE {t}_parent ADD gone text",
            "UPDATE {t} SET gone = 'new' WHERE id = 1",
        ),
        True,
    ),
    "the same type with an expression, in the parent": (
        ("ALTER TABLE {t}_parent ALTER v TYPE text USING upper(v)",),
        False,
    ),
    "a table renamed to and fro with a column between": (
        (
            "ALTER TABLE {t} RENAME TO {t}_other",
            "ALTER TABLE {t}_other ADD x int DEFAULT 4",
            "ALTER TABLE {t}_other RENAME TO {t}",
            BUSY,
        ),
        True,
    ),
    "another key with rows before and after": (
        (
            BUSY,
            "ALTER TABLE {t} DROP CONSTRAINT {t}_pkey",
            "ALTER TABLE {t} ADD PRIMARY KEY (a)",
            "UPDATE {t} SET id = id + 100 WHERE id < 3",
        ),
        True,
    ),
}
NESTED = {name for name in MIGRATIONS if "composite" in name}
INHERITED = {name for name in MIGRATIONS if "parent" in name}


def begun(mirror: Mirror) -> dict[str, str]:
    """A table for each migration, by its name."""
    tables = {name: f"t{number}" for number, name in enumerate(MIGRATIONS)}
    for name, table in tables.items():
        extra = ""
        if name in NESTED:
            mirror.execute(*(statement.format(t=table) for statement in TYPES))
            extra = f", n {table}_pair[], r {table}_moods"
        if name in INHERITED:
            mirror.execute(f"CREATE TABLE {table}_parent ({COLUMNS})")
            mirror.execute(f"CREATE TABLE {table} (PRIMARY KEY (id)) INHERITS ({table}_parent)")
        else:
            mirror.execute(f"CREATE TABLE {table} ({COLUMNS}{extra})")
        mirror.execute(f"INSERT INTO {table} SELECT i, 'v' || i, i, 'x' FROM generate_series(1, 4) i")
        if name in NESTED:
            mirror.execute(f"""UPDATE {table} SET n = '{{"(1,good)"}}', r = '[good,bad]'""")
    mirror.start(*(f"public.{table}" for table in tables.values()))
    return tables


def played(mirror: Mirror, tables: dict[str, str], between: Callable[[], object] = lambda: None) -> None:
    for name, table in tables.items():
        for statement in MIGRATIONS[name][0]:
            for each in statement.split("; ") if statement.startswith("BEGIN") else [statement]:
                mirror.execute(each.format(t=table))
            between()


def follows(mirror: Mirror, name: str) -> bool:
    """Whether the lake follows a migration: Iceberg's format 2 has no default for older rows, and so copies again."""
    statements, followed = MIGRATIONS[name]
    return followed and not (mirror.kind == "iceberg" and any("DEFAULT" in each for each in statements))


def assert_same(mirror: Mirror, tables: dict[str, str]) -> None:
    wrong: dict[str, Any] = {}
    for name, table in tables.items():
        asked = ", ".join(
            f'"{column}"::text'
            for (column,) in mirror.rows_of(
                f"SELECT attname FROM pg_attribute WHERE attrelid = '{table}'::regclass AND attnum > 0"
                " AND NOT attisdropped ORDER BY attnum"
            )
        )
        ours = sorted(mirror.ask(f"SELECT {asked} FROM lake.public.{table}"), key=repr)
        theirs = sorted(mirror.rows_of(f"SELECT {asked} FROM {table}"), key=repr)
        if [_plain(row) for row in ours] != [_plain(row) for row in theirs]:
            wrong[name] = {"lake": ours, "source": theirs}
    assert wrong == {}
    assert [each for each in mirror.verify() if not each.ok] == []


def _plain(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """The two print arrays of composite values with other quotes."""
    return tuple(str(each).translate(str.maketrans("[]'", '{}"')).replace('"', "") for each in row)


@pytest.mark.long
@pytest.mark.parametrize("triggers", [True, False], ids=["triggers", "catalog"])
def test_migrations_in_a_burst_arrive(mirror: Mirror, triggers: bool) -> None:
    mirror.triggers = triggers
    tables = begun(mirror)
    played(mirror, tables)
    mirror.looked()
    mirror.settle()
    mirror.looked()
    mirror.settle()
    assert_same(mirror, tables)


@pytest.mark.parametrize("triggers", [pytest.param(True, marks=pytest.mark.long), False], ids=["triggers", "catalog"])
def test_migrations_while_nothing_runs_arrive(mirror: Mirror, triggers: bool) -> None:
    mirror.triggers = triggers
    tables = begun(mirror)
    mirror.stop_capture()
    played(mirror, tables)
    mirror.reopen()
    mirror.capture()
    mirror.looked()
    mirror.settle()
    mirror.looked()
    mirror.settle()
    assert_same(mirror, tables)


def test_with_event_triggers_only_what_changes_rows_unseen_is_copied_again(mirror: Mirror) -> None:
    tables = begun(mirror)
    before = {row.oid: row.copy_lsn for row in mirror.m.state.tables("g")}
    played(mirror, tables)
    mirror.settle()
    after = {row.source.name: (before[row.oid], row.copy_lsn) for row in mirror.m.state.tables("g")}
    found = {name for name, table in tables.items() if after[table][0] != after[table][1]}
    assert found == {name for name in MIGRATIONS if not follows(mirror, name)}
    assert_same(mirror, tables)


def test_a_command_that_no_event_trigger_has_seen_has_its_table_copied_again(mirror: Mirror) -> None:
    mirror.execute("CREATE TABLE t (id int PRIMARY KEY, x int)", "INSERT INTO t VALUES (1, 1)")
    mirror.start()
    assert reported_by(mirror) == "event triggers"
    with connect(mirror.url) as connection:
        ddl.remove(connection)
    mirror.execute("ALTER TABLE t DROP x", "ALTER TABLE t ADD x int", "INSERT INTO t VALUES (2, 2)")
    mirror.captured()
    mirror.looked()
    assert mirror.settle()
    mirror.assert_equal("t")
    group = mirror.m.state.group("g")
    assert group is not None
    assert (group.ddl_marks, group.ddl_lsn) == (None, None)
    assert reported_by(mirror) == "catalog"


def reported_by(mirror: Mirror) -> str | None:
    """How schema changes reach the log, as `status` says."""
    with open_status(mirror.config, {}) as ask:
        return ask().groups[0].schema_changes
