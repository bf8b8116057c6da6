from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.captured_group import Group, execute

from headwater.change import TableName
from headwater.errors import AccessDenied, ConfigError, HeadwaterError, OperatorMustAct, SlotLost, Unreachable
from headwater.postgres.connect import connect
from headwater.source.check import problems
from headwater.source.checktable import TableWish
from headwater.source.publications import publication_tables
from headwater.source.publishing import ensure_publication
from headwater.source.slots import slot_of
from headwater.state import GroupRow
from headwater.testing.postgres import EmbeddedPostgres

OR_NEVER = " or `append_only: true` in the config, if its rows never change"


def found(url: str, *tables: str, known: Callable[[], dict[str, GroupRow]] = dict) -> list[HeadwaterError]:
    return problems(url, {"shop": [TableWish(TableName.parse(table)) for table in tables]}, known)


def wished(url: str, **wish: Any) -> list[tuple[str, str]]:
    return [
        (each.message, each.hint) for each in problems(url, {"shop": [TableWish(TableName("public", "t"), **wish)]})
    ]


def known(group: Group) -> Callable[[], dict[str, GroupRow]]:
    return lambda: {row.name: row for row in group.state.groups()}


def test_a_good_source_has_no_problems_before_and_after_it_is_prepared(group: Group) -> None:
    execute(group.url, "CREATE TABLE orders (id int PRIMARY KEY)")
    assert found(group.url, "orders") == []
    group.prepare("orders")
    assert found(group.url, "orders", known=known(group)) == []
    with group.capturing():
        assert found(group.url, "orders", known=known(group)) == []


def test_a_slot_that_moves_while_it_is_checked_was_not_moved_by_others(group: Group) -> None:
    execute(group.url, "CREATE TABLE orders (id int PRIMARY KEY)")
    group.prepare("orders")

    def while_capture_goes_on() -> dict[str, GroupRow]:
        rows = known(group)()
        execute(group.url, "INSERT INTO orders VALUES (1)")
        group.settle()
        with connect(group.url) as connection:
            while (slot := slot_of(connection, "headwater_shop")) and slot.confirmed_lsn == rows["shop"].captured_lsn:
                time.sleep(0.01)
        return rows

    with group.capturing():
        group.settle()
        assert found(group.url, "orders", known=while_capture_goes_on) == []


def test_all_problems_of_the_tables_are_reported_at_once_each_with_the_next_move(group: Group) -> None:
    execute(
        group.url,
        "CREATE TABLE orders (id int PRIMARY KEY)",
        "CREATE VIEW seen AS SELECT * FROM orders",
        "CREATE TABLE keyless (id int)",
        "CREATE TABLE late (id int PRIMARY KEY DEFERRABLE)",
        "CREATE TABLE entire (id int PRIMARY KEY)",
        "ALTER TABLE entire REPLICA IDENTITY FULL",
        "CREATE TABLE nothing (id int PRIMARY KEY)",
        "ALTER TABLE nothing REPLICA IDENTITY NOTHING",
        "CREATE UNLOGGED TABLE light (id int PRIMARY KEY)",
        "CREATE SCHEMA sales",
        "CREATE TABLE sales.invoices (id int PRIMARY KEY)",
    )
    names = ("ordres", "seen", "keyless", "late", "entire", "nothing", "light", "invoices", "orders")
    reported = [(type(each), each.message, each.hint) for each in found(group.url, *names)]
    assert reported == [
        (ConfigError, "there is no table 'public.ordres' in the source", "did you mean public.orders?"),
        (ConfigError, "'public.seen' is a view", "name the table behind it instead"),
        (
            OperatorMustAct,
            "table 'public.keyless' has no primary key: once it is published, PostgreSQL refuses to update or delete"
            " its rows",
            "ALTER TABLE public.keyless REPLICA IDENTITY FULL;" + OR_NEVER,
        ),
        (
            OperatorMustAct,
            "table 'public.late' has a deferrable primary key, which is no replica identity: once it is published,"
            " PostgreSQL refuses to update or delete its rows",
            "ALTER TABLE public.late REPLICA IDENTITY FULL;" + OR_NEVER,
        ),
        (
            OperatorMustAct,
            "table 'public.nothing' has replica identity NOTHING: once it is published, PostgreSQL refuses to update or"
            " delete its rows",
            "ALTER TABLE public.nothing REPLICA IDENTITY DEFAULT;" + OR_NEVER,
        ),
        (
            ConfigError,
            "table 'public.light' is unlogged or temporary: the WAL has nothing of it",
            "ALTER TABLE public.light SET LOGGED",
        ),
        (ConfigError, "there is no table 'public.invoices' in the source", "did you mean sales.invoices?"),
    ]


def test_a_partition_that_sends_less_of_its_old_rows_than_the_root_is_reported(group: Group) -> None:
    execute(
        group.url,
        "CREATE TABLE t (id int) PARTITION BY RANGE (id)",
        "CREATE TABLE t1 PARTITION OF t FOR VALUES FROM (0) TO (10)",
        "ALTER TABLE t REPLICA IDENTITY FULL",
    )
    assert wished(group.url) == [
        (
            "partition 'public.t1' of 'public.t' has another replica identity than its root",
            "ALTER TABLE public.t1 REPLICA IDENTITY FULL;",
        )
    ]
    execute(group.url, "ALTER TABLE t1 REPLICA IDENTITY FULL")
    assert wished(group.url) == []


def test_columns_that_the_config_names_are_checked(group: Group) -> None:
    with psycopg.connect(group.url) as connection:
        unsent = "VIRTUAL" if connection.info.server_version >= 180000 else "STORED"
    execute(group.url, f"CREATE TABLE t (id int PRIMARY KEY, amount numeric, v int GENERATED ALWAYS AS (id) {unsent})")
    assert wished(group.url, columns=("id", "amuont"), types={"amount": "decimal(20,4)"}) == [
        ("table 'public.t' has no column 'amuont', which `columns` names", "did you mean 'amount'?")
    ]
    assert wished(group.url, exclude=("id", "v")) == [
        ("table 'public.t': the columns of its key must be mirrored: id", "take them out of `exclude`")
    ]
    assert wished(group.url, columns=("amount",)) == [
        ("table 'public.t': the columns of its key must be mirrored: id", "add them to `columns`")
    ]
    ((message, hint),) = wished(group.url, columns=("id", "v"))
    assert "`columns` names 'v', a generated column that PostgreSQL does not send" in message
    assert "virtual ones never" in hint
    ((message, _),) = wished(group.url, types={"amount": "json"})
    assert "table 'public.t': column 'amount' (numeric) cannot be 'json' in the lake" in message
    execute(group.url, "ALTER TABLE t REPLICA IDENTITY FULL")
    ((message, _),) = wished(group.url, exclude=("amount",))
    assert message == "table 'public.t' has replica identity FULL: all its columns must be mirrored"


def test_names_that_a_lake_cannot_have_are_reported_unless_they_are_left_out(group: Group) -> None:
    execute(group.url, 'CREATE TABLE t (id int PRIMARY KEY, "Sum" int, sum int, "ROWID" int, _op int)')
    keeps = frozenset({"rowid"})
    collide, reserved = wished(group.url, reserved=keeps)
    assert collide == (
        "table 'public.t': a lake takes the columns 'Sum' and 'sum' for the same",
        "rename one of them, or leave it out with `exclude: [sum]`",
    )
    assert reserved == (
        "table 'public.t': 'ROWID' is a column name that the lake keeps for itself",
        "rename the column, or leave it out with `exclude: [ROWID]`",
    )
    assert wished(group.url, exclude=("sum", "ROWID"), reserved=keeps) == []
    assert wished(group.url, exclude=("sum",)) == []  # a lake that does not
    ((message, _),) = wished(group.url, exclude=("sum", "ROWID"), mode="history")
    assert message == "table 'public.t': '_op' is a column name that the lake needs for the history"


def test_problems_of_several_groups_are_reported_at_once(group: Group) -> None:
    execute(group.url, "CREATE TABLE orders (id int PRIMARY KEY)", "CREATE TABLE keyless (id int)")
    wanted = {
        "shop": [TableWish(TableName("public", "orders")), TableWish(TableName("public", "nothing"))],
        "other": [TableWish(TableName("public", "keyless"))],
    }
    reported = [each.message for each in problems(group.url, wanted)]
    assert [message.split(":")[0] for message in reported] == [
        "there is no table 'public.nothing' in the source",
        "table 'public.keyless' has no primary key",
    ]


def test_a_mirrored_table_that_was_renamed_replaced_or_dropped_is_its_own_matter(
    group: Group, caplog: pytest.LogCaptureFixture
) -> None:
    execute(group.url, "CREATE TABLE t (id int PRIMARY KEY)")
    with psycopg.connect(group.url) as connection:
        (oid,) = connection.execute("SELECT 't'::regclass::oid::bigint").fetchone() or (0,)
    execute(group.url, "ALTER TABLE t RENAME TO u")
    assert wished(group.url, oid=oid) == []
    assert caplog.text == ""
    execute(group.url, "CREATE TABLE t (id int PRIMARY KEY)")
    assert wished(group.url, oid=oid) == []
    assert "table 'public.t' is another table now" in caplog.text
    assert "in place of the old mirror" in caplog.text
    assert wished(group.url, oid=oid, replaced="stop") == []
    assert "the one that is mirrored is called 'public.u' now, and `replaced` is `stop`" in caplog.text
    execute(group.url, "DROP TABLE t", "CREATE TABLE t (id int)")
    assert wished(group.url, oid=oid) == []
    assert "is called 'public.u' now; table 'public.t' has no primary key" in caplog.text
    execute(group.url, "DROP TABLE u", "DROP TABLE t")
    assert wished(group.url, oid=oid) == []
    assert "table 'public.t' was dropped in the source" in caplog.text
    ((message, _),) = wished(group.url)
    assert "there is no table 'public.t'" in message


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("postgresql://u:topsecret@127.0.0.1:1/db", Unreachable),
        ("postgresql://u:topsecret@[bad", ConfigError),
        ("postgresql://stranger@/postgres?host={socket}", AccessDenied),
        ("postgresql://postgres@/nothing?host={socket}", AccessDenied),
    ],
)
def test_a_source_that_cannot_be_opened_is_the_one_problem(url: str, kind: type, postgres: EmbeddedPostgres) -> None:
    socket = psycopg.conninfo.conninfo_to_dict(postgres.url())["host"]
    (problem,) = found(url.format(socket=socket), "orders")
    assert type(problem) is kind
    assert problem.hint
    assert "topsecret" not in str(problem)


@pytest.fixture
def weak(group: Group) -> Iterator[str]:
    """The source as a role that may do nothing."""
    execute(group.url, "CREATE TABLE orders (id int PRIMARY KEY)", "CREATE ROLE weak LOGIN")
    yield group.url.replace("postgres@", "weak@")
    execute(group.url, "DROP OWNED BY weak", "DROP ROLE weak")


def test_every_missing_privilege_is_reported(weak: str) -> None:
    reported = [each.message.split(" in database")[0] for each in found(weak, "orders")]
    assert reported == [
        "role 'weak' may not replicate",
        "table 'public.orders' may not be read",
        "publication 'headwater_shop' does not exist, and role 'weak' may not create it for these tables",
    ]


@pytest.fixture
def reader(group: Group, weak: str) -> str:
    """The source as a role that may read and replicate, and nothing else."""
    execute(group.url, "ALTER ROLE weak REPLICATION", "GRANT SELECT ON ALL TABLES IN SCHEMA public TO weak")
    return weak


def test_a_publication_of_another_role_is_compared_and_each_difference_has_its_statement(
    group: Group, reader: str
) -> None:
    execute(group.url, 'CREATE TABLE "Odd" (id int PRIMARY KEY, a int, b int)', 'GRANT SELECT ON "Odd" TO weak')
    execute(group.url, "CREATE PUBLICATION headwater_shop FOR TABLE \"Odd\" (id, a) WITH (publish = 'insert')")
    wanted = [TableWish(TableName("public", "orders")), TableWish(TableName("public", "Odd"), exclude=("a",))]

    def lacking() -> dict[str, str]:
        return {each.message: each.hint.partition("run: ")[2] for each in problems(reader, {"shop": wanted})}

    first = lacking()
    refused = ", and role 'weak' may not alter it: its owner is 'postgres'"
    alter = 'ALTER PUBLICATION "headwater_shop"'
    whole, root = "publish = 'insert, update, delete, truncate'", "publish_via_partition_root = true"
    generated = "publish_generated_columns = stored"
    expected = {
        f"does not have {whole}": f"{alter} SET ({whole});",
        f"does not have {root}": f"{alter} SET ({root});",
        f"does not have {generated}": f"{alter} SET ({generated});",
        "does not list public.orders": f'{alter} ADD TABLE "public"."orders";',
        'sends a, id of public."Odd" instead of b, id': f'{alter} DROP TABLE "public"."Odd"; {alter} ADD TABLE'
        ' "public"."Odd" ("b", "id");',
    }
    with psycopg.connect(group.url) as connection:
        if connection.info.server_version < 180000:
            del expected[f"does not have {generated}"]
    assert first == {f"publication 'headwater_shop' {what}{refused}": move for what, move in expected.items()}
    with connect(reader) as connection, pytest.raises(OperatorMustAct, match="does not have publish = "):
        ensure_publication(connection, "headwater_shop", [each.table for each in wanted])
    for statement in first.values():
        execute(group.url, *filter(None, statement.split(";")))
    assert lacking() == {}
    with connect(reader) as connection:
        ensure_publication(connection, "headwater_shop", {wanted[0].table: None, wanted[1].table: ("id", "b")})


def test_a_publication_of_another_role_that_sends_too_much_is_only_worth_a_warning(
    group: Group, reader: str, caplog: pytest.LogCaptureFixture
) -> None:
    execute(group.url, "CREATE TABLE more (id int PRIMARY KEY)", "CREATE SCHEMA whole")
    group.prepare("orders")
    execute(group.url, "ALTER PUBLICATION headwater_shop ADD TABLE more")
    execute(group.url, "SELECT pg_drop_replication_slot('headwater_shop')")
    assert found(reader, "orders") == []
    assert "also sends public.more, which is read for nothing; its owner may run: ALTER PUBLICATION" in caplog.text
    with connect(reader) as connection:
        ensure_publication(connection, "headwater_shop", [TableName("public", "orders")])
        assert {str(each.table) for each in (publication_tables(connection, "headwater_shop") or {}).values()} == {
            "public.orders",
            "public.more",
        }
    execute(group.url, "ALTER PUBLICATION headwater_shop ADD TABLES IN SCHEMA whole")
    assert found(reader, "orders") == []
    assert "also sends all tables of the schemas whole" in caplog.text


def test_a_publication_for_all_tables_or_a_schema_must_list_its_tables(group: Group, reader: str) -> None:
    execute(group.url, "CREATE PUBLICATION headwater_shop FOR ALL TABLES")
    (problem,) = found(reader, "orders")
    assert problem.message == "publication 'headwater_shop' is FOR ALL TABLES, and must list its tables"
    execute(group.url, *filter(None, problem.hint.split(";")))
    assert found(reader, "orders") == []
    execute(
        group.url, "DROP PUBLICATION headwater_shop", "CREATE PUBLICATION headwater_shop FOR TABLES IN SCHEMA public"
    )
    assert "does not list public.orders" in str(found(reader, "orders"))


def test_a_table_without_replica_identity_is_not_to_be_published_before_it_has_one(group: Group, reader: str) -> None:
    execute(group.url, "CREATE TABLE keyless (id int)", "GRANT SELECT ON keyless TO weak")
    keyless, publication = found(reader, "orders", "keyless")
    assert "has no primary key" in keyless.message
    assert 'FOR TABLE "public"."orders" WITH' in publication.hint


def test_a_member_of_the_role_that_replicates_on_managed_servers_may_replicate(group: Group, weak: str) -> None:
    execute(group.url, "CREATE ROLE rds_replication")
    try:
        assert [each.hint for each in found(weak) if "may not replicate" in each.message] == [
            'GRANT rds_replication TO "weak"'
        ]
        execute(group.url, "GRANT rds_replication TO weak")
        assert not any("may not replicate" in each.message for each in found(weak))
    finally:
        execute(group.url, "DROP ROLE rds_replication")


def test_a_strange_slot_a_moved_slot_and_a_missing_slot_are_reported(group: Group) -> None:
    execute(group.url, "CREATE TABLE orders (id int PRIMARY KEY)")
    group.prepare("orders")
    (strange,) = found(group.url, "orders")  # with no state at hand, that slot belongs to no group
    assert "was not made for group 'shop'" in strange.message
    execute(group.url, "SELECT pg_logical_emit_message(true, 'x', 'x')")
    execute(group.url, "SELECT pg_replication_slot_advance('headwater_shop', pg_current_wal_lsn())")
    (moved,) = found(group.url, "orders", known=known(group))
    assert "was moved" in moved.message
    execute(group.url, "SELECT pg_drop_replication_slot('headwater_shop')")
    (gone,) = found(group.url, "orders", known=known(group))
    assert type(gone) is SlotLost
    assert gone.exit_code == 4


def test_another_cluster_is_reported(group: Group) -> None:
    group.prepare()
    with group.state.transaction() as connection:
        connection.execute("UPDATE headwater.groups SET source_id = '1/db'")
    (problem,) = found(group.url, known=known(group))
    assert "was captured from source '1/db'" in problem.message


def test_a_server_without_room_is_reported(own_postgres: EmbeddedPostgres, tmp_path: Path) -> None:
    url = own_postgres.url()
    slots = ("a", "b")
    execute(url, *(f"SELECT pg_create_physical_replication_slot('{name}')" for name in slots))
    try:
        (problem,) = found(url)
        assert "has 0 free replication slots, 2 are needed (max_replication_slots 2)" in problem.message
        group = Group.opened(url, tmp_path)
        with pytest.raises(OperatorMustAct, match="no free replication slot for 'headwater_shop'"):
            group.prepare()
        group.state.close()
    finally:
        execute(url, *(f"SELECT pg_drop_replication_slot('{name}')" for name in slots), "DROP SCHEMA headwater CASCADE")


def test_a_server_whose_wal_is_not_logical_is_reported(own_postgres: EmbeddedPostgres) -> None:
    execute(own_postgres.url(), "ALTER SYSTEM SET wal_level = replica")
    own_postgres.restart()
    try:
        (problem,) = found(own_postgres.url())
        assert "has wal_level 'replica', not 'logical'" in problem.message
        assert "restart" in problem.hint
    finally:
        execute(own_postgres.url(), "ALTER SYSTEM SET wal_level = logical")
        own_postgres.restart()


def test_a_slot_whose_wal_was_thrown_away_is_lost(own_postgres: EmbeddedPostgres, tmp_path: Path) -> None:
    url = own_postgres.url()
    execute(url, "CREATE TABLE orders (id int PRIMARY KEY)")
    group = Group.opened(url, tmp_path)
    group.prepare("orders")
    execute(url, "ALTER SYSTEM SET max_slot_wal_keep_size = '1MB'", "SELECT pg_reload_conf()")
    try:
        for _ in range(3):
            execute(url, "SELECT pg_switch_wal()", "CREATE TABLE x ()", "DROP TABLE x")
        execute(url, "CHECKPOINT")
        (problem,) = found(url, "orders", known=known(group))
        assert type(problem) is SlotLost
        with pytest.raises(SlotLost, match="has lost its WAL"):
            group.prepare("orders")
    finally:
        group.state.close()
        execute(url, "ALTER SYSTEM RESET max_slot_wal_keep_size", "SELECT pg_reload_conf()")
        execute(
            url,
            "SELECT pg_drop_replication_slot('headwater_shop')",
            "DROP SCHEMA headwater CASCADE",
            "DROP TABLE orders",
        )
        execute(url, "DROP PUBLICATION headwater_shop")
