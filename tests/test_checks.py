"""`headwater check`: OK means that `run` starts, and nothing is created to find out."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from headwater.checks import check
from headwater.checks.dba import dba_script
from headwater.checks.schema import schema_changes
from headwater.checks.upkeep import upkeep
from headwater.config import Config
from headwater.control.expanding import with_patterns
from headwater.ducklake.opening import open_lake
from headwater.errors import HeadwaterError, OperatorMustAct
from headwater.supervise.lakes import own_lake
from headwater.supervise.opening import open_state
from headwater.supervise.readying import make_ready

Statements = list[str]


class Place:
    """A source with the table app.orders, and a role that may do all that is needed and no more."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url, self.folder = url, folder
        self.database = url.split("/")[3].split("?")[0]
        self.role = f"r_{self.database}"
        self.catalog = "sqlite:///lake.sqlite"
        self.iceberg = False
        self.run(
            f"CREATE ROLE {self.role} LOGIN REPLICATION",
            f"GRANT CREATE ON DATABASE {self.database} TO {self.role}",
            "CREATE SCHEMA app",
            f"GRANT USAGE ON SCHEMA app TO {self.role}",
            "CREATE TABLE app.orders (id int PRIMARY KEY)",
            f"ALTER TABLE app.orders OWNER TO {self.role}",
        )

    def run(self, *statements: str) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement)

    def config(self, *tables: str) -> Config:
        file, source = self.folder / "headwater.yaml", self.url.replace("postgres@", f"{self.role}@")
        lake = f"{{ducklake: '{self.catalog}', data_path: ./lake}}"
        if self.iceberg:
            lake = f"{{iceberg: {{type: sql, uri: '{self.catalog}', warehouse: ./lake}}}}"
        wanted = ", ".join(tables or ["app.orders"])
        file.write_text(
            f"source: {source}\nlog: ./log\nlakes: {{main: {lake}}}\ngroups: {{g: {{tables: [{wanted}]}}}}\n"
        )
        return Config.load(file, {})

    def problems(self, *tables: str) -> list[str]:
        return [each.message for each in check(self.config(*tables), {})]

    def start(self, *tables: str) -> None:
        """What `run` does before it starts its processes, and the lake."""
        config = self.config(*tables)
        with closing(open_state(config)) as state:
            make_ready(with_patterns(config)[0], state)
            own_lake(config, {}, state, "g").close()


@pytest.fixture
def place(database: str, tmp_path: Path) -> Iterator[Place]:
    made = Place(database, tmp_path)
    yield made
    made.run(
        "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = current_database()",
        f"DROP OWNED BY {made.role} CASCADE",
        f"DROP ROLE {made.role}",
    )


def test_names_of_columns_are_refused_that_the_lake_at_hand_keeps_for_itself(place: Place) -> None:
    place.run('ALTER TABLE app.orders ADD "RowId" int, ADD _file text, ADD "_Row_Id" int, ADD pos int')
    message = "table 'app.orders': {!r} is a column name that the lake keeps for itself"
    assert place.problems() == [message.format("RowId")]
    place.iceberg = True
    assert place.problems() == [message.format("_file"), message.format("_Row_Id")]


def test_a_role_with_all_it_needs_is_well_and_nothing_is_created(place: Place) -> None:
    assert place.problems() == []
    assert [path.name for path in place.folder.iterdir()] == ["headwater.yaml"]
    with psycopg.connect(place.url) as connection:
        assert connection.execute("SELECT to_regnamespace('headwater')").fetchone() == (None,)
    place.start()
    assert place.problems() == []


def test_a_lake_in_postgresql_is_not_created_by_a_check(place: Place) -> None:
    place.catalog = f"{place.url.replace('postgres@', f'{place.role}@')}&schema=lake"
    assert place.problems() == []
    with psycopg.connect(place.url) as connection:
        assert connection.execute("SELECT to_regnamespace('lake')").fetchone() == (None,)
    place.start()
    assert place.problems() == []


@pytest.mark.parametrize(
    ("taken", "reported"),
    [
        (["ALTER ROLE {role} NOREPLICATION"], [r"role '\w+' may not replicate"]),
        (
            ["REVOKE CREATE ON DATABASE {database} FROM {role}"],
            [
                r"may not create the schema 'headwater' in",
                r"publication 'headwater_g' does not exist, and role '\w+' may not create it for these tables",
            ],
        ),
        (["REVOKE USAGE ON SCHEMA app FROM {role}"], [r"role '\w+' may not use the schema 'app'"]),
        (["REVOKE SELECT ON app.orders FROM {role}"], [r"table 'app.orders' may not be read"]),
        (
            ["ALTER TABLE app.orders OWNER TO postgres", "GRANT SELECT ON app.orders TO {role}"],
            [r"publication 'headwater_g' does not exist, and role '\w+' may not create it for these tables"],
        ),
        (["CREATE SCHEMA headwater"], [r"may not use the schema 'headwater' in"]),
        (
            [
                "CREATE SCHEMA headwater",
                "CREATE TABLE headwater.migrations (version int, applied_at timestamptz)",
                "GRANT USAGE, CREATE ON SCHEMA headwater TO {role}",
            ],
            [r"may not write the tables of the schema 'headwater' in"],
        ),
    ],
    ids=["replication", "create", "usage", "select", "owner", "schema", "state tables"],
)
def test_a_role_that_lacks_one_right_is_refused_as_run_would_be(
    place: Place, taken: Statements, reported: Statements
) -> None:
    place.run(*(each.format(role=place.role, database=place.database) for each in taken))
    found = place.problems()
    assert len(found) == len(reported), found
    for message, pattern in zip(found, reported, strict=True):
        assert re.search(pattern, message), message
    if "may not be read" not in reported[0]:  # which only the copy finds out
        with pytest.raises(HeadwaterError):
            place.start()


def test_a_role_needs_no_right_to_create_what_is_there(place: Place) -> None:
    place.start()
    place.run(f"REVOKE CREATE ON DATABASE {place.database} FROM {place.role}")
    assert place.problems() == []
    place.start()


def test_partitions_must_be_readable_as_well(place: Place) -> None:
    place.run(
        "CREATE TABLE app.parts (id int PRIMARY KEY) PARTITION BY RANGE (id)",
        "CREATE SCHEMA cold",
        "CREATE TABLE cold.one PARTITION OF app.parts FOR VALUES FROM (0) TO (9)",
        f"ALTER TABLE app.parts OWNER TO {place.role}",
    )
    assert place.problems("app.parts") == [
        f"role '{place.role}' may not use the schema 'cold'",
        "table 'cold.one' may not be read",
    ]


@pytest.mark.parametrize(
    ("taken", "reported"),
    [
        (lambda place: [f"REVOKE CREATE ON DATABASE {place.database} FROM {place.role}"], "may not create tables in"),
        (lambda _: ["CREATE SCHEMA lake"], "may not create tables in the catalog"),
        (lambda _: None, "may not write the catalog"),
    ],
    ids=["no schema", "another's schema", "another's lake"],
)
def test_a_catalog_that_the_role_may_not_write_is_refused(
    place: Place, taken: Callable[[Place], Statements | None], reported: str
) -> None:
    place.start()  # so that nothing else needs the right
    catalog = f"{place.url}&schema=lake"
    if (statements := taken(place)) is not None:
        place.run(*statements)
    else:
        open_lake(catalog, str(place.folder / "lake")).close()
        place.run(
            f"GRANT USAGE, CREATE ON SCHEMA lake TO {place.role}",
            f"GRANT SELECT ON ALL TABLES IN SCHEMA lake TO {place.role}",
        )
    place.catalog = catalog.replace("postgres@", f"{place.role}@")
    assert any(reported in each for each in place.problems())


def test_a_name_that_the_lake_has_given_to_another_table_is_refused_before_a_copy(place: Place) -> None:
    with closing(open_lake(f"sqlite:///{place.folder}/lake.sqlite", str(place.folder / "lake"))) as lake:
        assert place.problems() == []
        with lake.attached() as (connection, alias):
            connection.execute(f"CREATE SCHEMA {alias}.app")
            connection.execute(f"CREATE TABLE {alias}.app.ORDERS (x int)")
            connection.execute(f"CREATE TABLE {alias}.app.mine (x int)")
    assert place.problems() == [
        "tables 'app.orders' and 'app.\"ORDERS\"' differ in case only, which DuckDB does not distinguish"
    ]
    assert place.problems("{table: app.orders, as: app.mine}") == [
        "the lake has another table or view 'app.mine' already"
    ]
    assert place.problems("{table: app.orders, as: app.other}") == []


def test_generated_columns_that_are_not_mirrored_are_a_warning(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    with psycopg.connect(place.url) as connection:
        virtual = connection.info.server_version >= 180000
    place.run("ALTER TABLE app.orders ADD s int GENERATED ALWAYS AS (id + 1) STORED")
    if virtual:
        place.run("ALTER TABLE app.orders ADD v int GENERATED ALWAYS AS (id + 1) VIRTUAL")
    name = "v" if virtual else "s"
    assert place.problems() == []
    assert "app.orders: its generated columns are not mirrored, because PostgreSQL does not send them" in caplog.text
    assert f"send them: {name}\n" in caplog.text
    caplog.clear()
    assert place.problems(f"{{table: app.orders, exclude: [{name}]}}") == []
    assert caplog.text == ""


def test_another_mode_of_a_mirrored_table_is_refused(place: Place) -> None:
    place.start()
    assert place.problems("{table: app.orders, mode: history}") == []  # nothing has been copied yet
    place.run("UPDATE headwater.tables SET position = '0/1'")
    (refused,) = check(place.config("{table: app.orders, mode: history}"), {})
    assert refused.exit_code == 2
    assert refused.message == "table 'app.orders' is mirrored with mode 'mirror', the config now says 'history'"
    assert refused.hint.startswith("set `mode: mirror` again, or ")


def test_a_state_of_a_newer_version_is_refused(place: Place) -> None:
    place.start()
    place.run("INSERT INTO headwater.migrations (version) VALUES (1000)")
    assert any("is of version 1000" in each for each in place.problems())


def test_a_config_that_was_copied_elsewhere_is_refused_and_the_first_goes_on(place: Place, tmp_path: Path) -> None:
    place.start()
    assert place.problems() == []
    place.folder = tmp_path / "copy"
    place.folder.mkdir()
    log, lake = check(place.config(), {})
    assert (log.exit_code, lake.exit_code) == (4, 4)
    assert f"group 'g' has its log in '{tmp_path}/log'" in log.message
    assert f"there is no log of it in '{tmp_path}/copy/log'" in log.message
    assert f"set `log` back to '{tmp_path}/log'; or start over with `headwater group drop g`" in log.hint
    assert f"group 'g' is mirrored into sqlite:///{tmp_path}/lake.sqlite" in lake.message
    assert f"sqlite:///{tmp_path}/copy/lake.sqlite, where there is no lake" in lake.message
    assert f"point `lakes.main` back to sqlite:///{tmp_path}/lake.sqlite; or" in lake.hint
    assert "`headwater group drop g`" in lake.hint
    with pytest.raises(HeadwaterError, match="has its log in"):
        place.start()
    assert [path.name for path in place.folder.iterdir()] == ["headwater.yaml"]
    place.folder = tmp_path
    assert place.problems() == []


def test_a_lake_that_was_moved_is_the_same_and_one_that_was_replaced_is_not(place: Place, tmp_path: Path) -> None:
    place.start()
    shutil.move(tmp_path / "lake.sqlite", tmp_path / "moved.sqlite")
    (gone,) = check(place.config(), {})
    assert gone.exit_code == 4
    assert "lake 'main' of group 'g' is not the one it was" in gone.message
    assert "and now there is no lake" in gone.message
    assert "restore it; or give it up: `headwater run --recopy` copies all its tables again" in gone.hint
    assert check(place.config(), {}, recopy=True) == []
    open_lake(f"sqlite:///{tmp_path}/lake.sqlite", str(tmp_path / "lake")).close()
    assert "and now there is another lake (id " in place.problems()[0]
    with pytest.raises(OperatorMustAct, match="is not the one it was"):
        place.start()
    place.catalog = "sqlite:///moved.sqlite"
    assert place.problems() == []
    place.start()
    config = place.config()
    with closing(open_state(config)) as state:
        row = state.group("g")
    assert row is not None
    assert row.lake_url == f"sqlite:///{tmp_path}/moved.sqlite"


def test_check_says_how_schema_changes_reach_the_log_and_installs_nothing(place: Place) -> None:
    config = place.config()
    assert "may not create event triggers" in schema_changes(config)
    place.run(f"ALTER ROLE {place.role} SUPERUSER")
    assert "`run` installs event triggers" in schema_changes(config)
    place.run(f"ALTER ROLE {place.role} NOSUPERUSER")
    assert "may not create event triggers" in schema_changes(config)


@pytest.mark.parametrize(
    ("maintenance", "said"),
    [
        ("on", "snapshots of the lakes never expire: a DuckLake keeps every version of every row"),
        ("off", "maintenance is off: small files pile up"),
        (
            "{expire: {age: 7d, keep: 100}}",
            "expire 7 d 0 h after a newer one has replaced them, but for the newest 100",
        ),
    ],
)
def test_check_says_what_becomes_of_snapshots(maintenance: str, said: str, place: Place, tmp_path: Path) -> None:
    place.config()
    file = tmp_path / "headwater.yaml"
    file.write_text(f"{file.read_text()}maintenance: {maintenance}\n")
    assert said in upkeep(Config.load(file, {}))


def test_a_superuser_runs_the_script_and_an_ordinary_role_uses_the_triggers(place: Place) -> None:
    config = place.config()
    place.run(dba_script(config))
    assert schema_changes(config) == "schema changes: reported by event triggers"
    place.start()
    with closing(open_state(config)) as state:
        group = state.group("g")
    assert group is not None
    assert group.ddl_lsn is not None


def test_the_script_for_a_dba_lets_a_role_that_owns_nothing_start(place: Place) -> None:
    place.run(
        f"REVOKE CREATE ON DATABASE {place.database} FROM {place.role}",
        f"REVOKE USAGE ON SCHEMA app FROM {place.role}",
        f"ALTER ROLE {place.role} NOREPLICATION",
        "ALTER TABLE app.orders OWNER TO postgres",
        "ALTER TABLE app.orders ADD s int GENERATED ALWAYS AS (id + 1) STORED, ADD hidden text",
        "CREATE TABLE app.parts (id int PRIMARY KEY) PARTITION BY RANGE (id)",
        "CREATE SCHEMA cold",
        "CREATE TABLE cold.one PARTITION OF app.parts FOR VALUES FROM (0) TO (9)",
        "CREATE TABLE app.keyless (id int)",
    )
    tables = ("{table: app.orders, exclude: [hidden]}", "app.parts")
    script = dba_script(place.config(*tables, "app.keyless", "app.nothing"))
    assert '-- Then: ALTER PUBLICATION "headwater_g" ADD TABLE "app"."keyless";' in script
    assert "-- hint: ALTER TABLE app.keyless REPLICA IDENTITY FULL;" in script
    assert "-- There is no table app.nothing" in script
    place.run(script)
    assert place.problems(*tables) == []
    place.start(*tables)
    with psycopg.connect(place.url, autocommit=True) as connection:
        connection.execute("SET ROLE headwater_reader")
        assert connection.execute("SELECT table_name FROM headwater.status").fetchall() == [
            ("app.orders",),
            ("app.parts",),
        ]

    def published() -> list[tuple[object, ...]]:
        with psycopg.connect(place.url) as connection:
            return connection.execute(
                "SELECT p.xmin::text, r.oid, r.prrelid::regclass::text FROM pg_publication p"
                " JOIN pg_publication_rel r ON r.prpubid = p.oid ORDER BY 3"
            ).fetchall()

    before = published()
    assert [name for *_, name in before] == ["app.orders", "app.parts"]
    place.run(dba_script(place.config(*tables)))
    assert published() == before  # so nothing is copied again
    assert place.problems(*tables) == []


def test_the_script_is_made_from_the_config_alone_while_the_role_cannot_connect(place: Place) -> None:
    source, tables = place.role, ("app.orders", "{table: app.other, exclude: [a]}")
    place.role = f"{source}_new"
    try:
        script = dba_script(place.config(*tables))
        assert "cannot be asked" in script.splitlines()[0]
        assert "app.other" not in script.partition("CREATE PUBLICATION")[2]
        place.run("CREATE TABLE app.other (id int PRIMARY KEY, a int)", script)
        place.run(dba_script(place.config(*tables)))
        assert place.problems(*tables) == []
    finally:
        place.run(f"DROP OWNED BY {place.role} CASCADE", f"DROP ROLE {place.role}")
        place.role = source


def test_a_publication_for_all_tables_is_made_again_by_the_script(place: Place) -> None:
    place.run("ALTER TABLE app.orders OWNER TO postgres", "CREATE PUBLICATION headwater_g FOR ALL TABLES")
    assert "is FOR ALL TABLES" in place.problems()[-1]
    place.run(dba_script(place.config()))
    assert place.problems() == []


def test_with_the_state_elsewhere_the_script_has_its_part_as_a_comment(place: Place) -> None:
    place.config()
    file = place.folder / "headwater.yaml"
    file.write_text(file.read_text() + "state: postgresql://keeper@127.0.0.1:1/state\n")
    script = dba_script(Config.load(file, {}))
    assert '-- GRANT USAGE, CREATE ON SCHEMA headwater TO "keeper";' in script
    assert "\nGRANT USAGE, CREATE ON SCHEMA headwater" not in script
    assert "\n--     CREATE ROLE headwater_admin NOLOGIN;\n" in script
    assert "\n    CREATE ROLE headwater_admin" not in script


def test_a_state_that_does_not_answer_hides_no_other_problem(place: Place) -> None:
    place.config("app.nothing")
    file = place.folder / "headwater.yaml"
    file.write_text(file.read_text() + "state: postgresql://127.0.0.1:1/state\n")
    found = "\n".join(each.message for each in check(Config.load(file, {}), {}))
    assert "cannot reach database 'state'" in found
    assert "'app.nothing'" in found


def test_partitions_that_the_lake_cannot_make_are_refused_with_those_that_it_can(place: Place) -> None:
    place.run("ALTER TABLE app.orders ADD created timestamptz, ADD name text, ADD ratio float8, ADD hidden date")
    by = "'day(created)', 'bucket(4, id)', name, 'truncate(3, name)', 'day(name)', ratio, gone, 'year(hidden)'"
    entry = f"{{table: app.orders, exclude: [hidden], partition_by: [{by}]}}"
    found = {each.message: each.hint for each in check(place.config(entry), {})}
    assert found == {
        "table 'app.orders': DuckLake has no partition transform 'truncate', which `truncate(3, name)` asks for": (
            "write a column's name, year(c), month(c), day(c), hour(c) or bucket(N, c)"
        ),
        "table 'app.orders': DuckLake does not partition by `day(name)`: 'name' is of type string": (
            "it takes a column's name or bucket(N, c)"
        ),
        "table 'app.orders': DuckLake does not partition by `ratio`: 'ratio' is of type float64": (
            "partition by another column"
        ),
        "table 'app.orders': `partition_by` names the column 'gone', which is not mirrored": (
            "it has: id, created, name, ratio"
        ),
        "table 'app.orders': `partition_by` names the column 'hidden', which is not mirrored": (
            "it has: id, created, name, ratio"
        ),
    }
    assert place.problems("{table: app.orders, partition_by: ['year(created)', 'month(created)', name]}") == []
    assert place.problems("{table: app.orders, mode: history, partition_by: ['day(_commit_ts)']}") == []


def test_the_script_for_a_dba_grants_and_publishes_the_tables_of_a_pattern(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    place.run(
        f"REVOKE CREATE ON DATABASE {place.database} FROM {place.role}",
        "ALTER TABLE app.orders OWNER TO postgres",
        "CREATE TABLE app.items (id int PRIMARY KEY)",
        "CREATE TABLE app.keyless (id int)",
    )
    script = dba_script(place.config("app.*"))
    assert '-- ALTER DEFAULT PRIVILEGES FOR ROLE "postgres" IN SCHEMA "app"' in script
    assert '-- Then: ALTER PUBLICATION "headwater_g" ADD TABLE "app"."keyless";' in script
    place.run(script)
    assert place.problems("app.*") == []
    place.start("app.*")
    place.run("CREATE TABLE app.later (id int PRIMARY KEY)")
    assert place.problems("app.*") == []  # one that a DBA has to publish stops none of the others
    assert "table 'app.later' may not be read" not in caplog.text
    assert "table 'app.later' matches a pattern of group 'g', and is not mirrored: may not be read" in caplog.text
    place.run(dba_script(place.config("app.*")))
    caplog.clear()
    assert place.problems("app.*") == []
    assert "app.later" not in caplog.text


def test_a_group_without_tables_is_worth_a_warning(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    assert place.problems("nowhere.*") == []
    assert "group g has no tables yet" in caplog.text
