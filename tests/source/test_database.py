from __future__ import annotations

import threading
from dataclasses import replace

import psycopg
import pytest
from tests.captured_group import Group, execute, until

from headwater.change import TableName
from headwater.copy.snapshot import exported_snapshot
from headwater.errors import ConfigError, OperatorMustAct, SlotLost
from headwater.postgres.connect import connect
from headwater.source.publications import places, publication_tables
from headwater.source.publishing import ensure_publication
from headwater.source.relations import described
from headwater.source.server import identify, named_oid
from headwater.source.slots import slot_of

TABLES = {
    "plain": ("CREATE TABLE plain (id int PRIMARY KEY, t text, v varchar(7), n numeric(10, 2))",),
    "composite": ("CREATE TABLE composite (a int, b text, c int, PRIMARY KEY (c, a))",),
    "dropped": (
        "CREATE TABLE dropped (gone int, id uuid PRIMARY KEY DEFAULT gen_random_uuid(), x int)",
        "ALTER TABLE dropped DROP COLUMN gone",
    ),
    "generated": ("CREATE TABLE generated (id int PRIMARY KEY, twice int GENERATED ALWAYS AS (id * 2) STORED, z int)",),
    "by_index": (
        "CREATE TABLE by_index (id int PRIMARY KEY, code text NOT NULL)",
        "CREATE UNIQUE INDEX by_code ON by_index (code)",
        "ALTER TABLE by_index REPLICA IDENTITY USING INDEX by_code",
    ),
    "entire": ("CREATE TABLE entire (id int PRIMARY KEY, t text)", "ALTER TABLE entire REPLICA IDENTITY FULL"),
    "keyless": ("CREATE TABLE keyless (id int, t text)",),
    "late": ("CREATE TABLE late (id int PRIMARY KEY DEFERRABLE, t text)",),
    "Odd name": ('CREATE TABLE "Odd name" ("Id" int PRIMARY KEY, "sum é" text[])',),
    "parted": (
        "CREATE TABLE parted (id int, day date, PRIMARY KEY (id, day)) PARTITION BY RANGE (day)",
        "CREATE TABLE parted_1 (extra int, day date NOT NULL, id int NOT NULL)",
        "ALTER TABLE parted_1 DROP COLUMN extra",
        "ALTER TABLE parted ATTACH PARTITION parted_1 DEFAULT",
    ),
}


def test_a_table_is_described_as_the_stream_will_describe_it(group: Group) -> None:
    execute(group.url, "CREATE TYPE mood AS ENUM ('good', 'bad')", *(each for made in TABLES.values() for each in made))
    execute(group.url, "ALTER TABLE plain ADD COLUMN m mood")
    names = [TableName("public", name) for name in TABLES]
    group.prepare(*(str(name) for name in names))
    with group.capturing():
        execute(group.url, 'INSERT INTO "Odd name" VALUES (1)', "INSERT INTO parted VALUES (1, '2024-01-01')")
        for name in ("plain", "composite", "generated", "entire", "keyless", "late"):
            column = "a, b, c" if name == "composite" else "id"
            values = "1, 'b', 2" if name == "composite" else "1"
            execute(group.url, f"INSERT INTO {name} ({column}) VALUES ({values})")
        execute(group.url, "INSERT INTO dropped (x) VALUES (1)", "INSERT INTO by_index VALUES (1, 'c')")
        group.settle()
    ids = [row[0] for row in group.state.query("SELECT id FROM headwater.relations")]
    streamed = {relation.table: relation for relation in group.log.relations(ids).values()}
    with connect(group.url) as connection:
        for table in names:
            oid = named_oid(connection, table)
            present = described(connection, oid, "headwater_shop")
            assert replace(present, id=streamed[table].id) == streamed[table]


def test_a_table_that_is_not_there_is_told(group: Group) -> None:
    with connect(group.url) as connection, pytest.raises(ConfigError, match=r"no table 'public\.nothing'"):
        named_oid(connection, TableName("public", "nothing"))


def test_the_publication_follows_the_list_of_tables(group: Group) -> None:
    execute(group.url, *(f"CREATE TABLE {name} (id int PRIMARY KEY)" for name in ("one", "two", "three")))
    one, two, three = (TableName("public", name) for name in ("one", "two", "three"))
    with connect(group.url) as connection:

        def tables() -> set[TableName]:
            return {each.table for each in (publication_tables(connection, "headwater_shop") or {}).values()}

        for wanted in ([one, two], [two, three], [two, three], []):
            ensure_publication(connection, "headwater_shop", wanted)
            assert tables() == set(wanted)
        with pytest.raises(ConfigError, match="nothing"):
            ensure_publication(connection, "headwater_shop", [TableName("public", "nothing")])
        # `stored`, from PostgreSQL 18 on
        asked = "SELECT pubviaroot, coalesce(to_jsonb(p)->>'pubgencols', 's') FROM pg_publication p"
        row = connection.execute(asked).fetchone()
    assert row == (True, "s")


def test_a_publication_that_sends_less_is_set_right(group: Group) -> None:
    execute(group.url, "CREATE TABLE one (id int PRIMARY KEY)")
    one = [TableName("public", "one")]
    with connect(group.url) as connection:
        ensure_publication(connection, "p", one)
        assert places(connection, "p")
        for option in ("publish = 'insert'", "publish_via_partition_root = false"):
            execute(group.url, f"ALTER PUBLICATION p SET ({option})")
            assert places(connection, "p") == {}
            ensure_publication(connection, "p", one)
            assert places(connection, "p")
        execute(group.url, "DROP PUBLICATION p", "CREATE PUBLICATION p FOR ALL TABLES")
        with pytest.raises(OperatorMustAct, match=r"publication 'p' is FOR ALL TABLES, and must list its tables"):
            ensure_publication(connection, "p", one)


def test_a_publication_keeps_renamed_tables_and_row_filters_and_follows_lists_of_columns(group: Group) -> None:
    execute(group.url, *(f"CREATE TABLE {name} (id int PRIMARY KEY, x int, y int)" for name in ("one", "two")))
    one, two, uno = (TableName("public", name) for name in ("one", "two", "uno"))
    with connect(group.url) as connection:

        def lists() -> dict[TableName, tuple[frozenset[str] | None, str | None]]:
            found = publication_tables(connection, "p") or {}
            return {each.table: (each.columns, each.row_filter) for each in found.values()}

        ensure_publication(connection, "p", {one: ("id", "x"), two: None})
        assert lists() == {one: (frozenset({"id", "x"}), None), two: (None, None)}
        execute(group.url, "ALTER PUBLICATION p SET TABLE one (id, x) WHERE (id > 5), two WHERE (x IS NULL)")
        execute(group.url, "ALTER TABLE one RENAME TO uno")
        ensure_publication(connection, "p", {uno: ("id", "x"), two: None})
        assert lists() == {uno: (frozenset({"id", "x"}), "(id > 5)"), two: (None, "(x IS NULL)")}
        ensure_publication(connection, "p", {uno: None, two: ("id", "y")})
        assert lists() == {uno: (None, "(id > 5)"), two: (frozenset({"id", "y"}), "(x IS NULL)")}
        with pytest.raises(ConfigError, match="refuses the list of columns"):
            ensure_publication(connection, "p", {uno: ("id", "nothing")})


def test_a_table_of_another_owner_cannot_be_published_and_that_is_told(group: Group) -> None:
    execute(group.url, "CREATE TABLE one (id int PRIMARY KEY)", "CREATE ROLE stranger LOGIN REPLICATION")
    name = psycopg.conninfo.conninfo_to_dict(group.url)["dbname"]
    execute(group.url, f"GRANT CREATE ON DATABASE {name} TO stranger")
    try:
        with connect(group.url.replace("postgres@", "stranger@")) as connection:
            assert identify(connection).database == name
            with pytest.raises(OperatorMustAct, match="role 'stranger' may not create it for these tables") as refused:
                ensure_publication(connection, "p", [TableName("public", "one")])
            assert 'run: CREATE PUBLICATION "p" FOR TABLE "public"."one" WITH (publish = ' in refused.value.hint
    finally:
        execute(group.url, "DROP OWNED BY stranger", "DROP ROLE stranger")


def test_a_slot_somebody_else_made_is_not_adopted(group: Group) -> None:
    execute(group.url, "SELECT pg_create_logical_replication_slot('headwater_shop', 'pgoutput')")
    with pytest.raises(OperatorMustAct, match="slot 'headwater_shop' already, and it was not made for group 'shop'"):
        group.prepare()


def test_our_slot_is_adopted_even_if_we_died_before_noting_where_it_stands(group: Group) -> None:
    first = group.prepare()
    with group.state.transaction() as connection:
        connection.execute("UPDATE headwater.groups SET captured_lsn = NULL")
    assert group.prepare() == first == group.log.end()


def test_a_slot_that_is_gone_is_not_silently_made_again(group: Group) -> None:
    group.prepare()
    execute(group.url, "SELECT pg_drop_replication_slot('headwater_shop')")
    with pytest.raises(SlotLost, match="is gone"):
        group.prepare()
    with connect(group.url) as connection:
        assert slot_of(connection, "headwater_shop") is None


def test_an_exported_snapshot_shows_exactly_what_was_committed_before_its_position(group: Group) -> None:
    execute(group.url, "CREATE TABLE orders (id int PRIMARY KEY)")
    group.prepare("orders")
    with group.capturing():
        execute(group.url, "INSERT INTO orders VALUES (1)", "INSERT INTO orders VALUES (2)")
        with exported_snapshot(group.url) as exported:
            execute(group.url, "INSERT INTO orders VALUES (3)")
            with psycopg.connect(group.url) as reader:
                reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
                reader.execute(f"SET TRANSACTION SNAPSHOT '{exported.snapshot_name}'")
                copied = [row[0] for row in reader.execute("SELECT id FROM orders ORDER BY id")]
        group.settle()
    before = [row.new[0] for row in group.rows() if row.new and row.commit_lsn < exported.lsn.value]
    assert copied == [1, 2] == [int(each) for each in before if each]
    with connect(group.url) as connection:
        slots = "SELECT count(*) FROM pg_replication_slots WHERE temporary AND database = current_database()"
        assert connection.execute(slots).fetchone() == (0,)


def test_an_export_that_has_to_wait_says_for_whom(group: Group, caplog: pytest.LogCaptureFixture) -> None:
    execute(group.url, "CREATE TABLE orders (id int PRIMARY KEY)")
    with psycopg.connect(group.url, application_name="slow one") as slow:
        slow.execute("INSERT INTO orders VALUES (1)")
        pid = slow.info.backend_pid

        def end() -> None:
            until(lambda: "slow one" in caplog.text)
            slow.commit()

        ender = threading.Thread(target=end)
        ender.start()
        with exported_snapshot(group.url, report_after=0.5) as exported:
            assert exported.lsn.value > 0
        ender.join()
    assert f"PostgreSQL pid {pid} ('slow one'" in caplog.text
