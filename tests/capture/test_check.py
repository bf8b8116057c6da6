from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from captured_group import Group

from headwater.capture import problems
from headwater.change import TableName
from headwater.errors import ConfigError, HeadwaterError, OperatorMustAct, SlotLost, Unreachable
from headwater.state import GroupRow
from headwater.testing.postgres import EmbeddedPostgres


def run(url: str, *statements: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement)


def found(url: str, *tables: str, known: dict[str, GroupRow] | None = None) -> list[HeadwaterError]:
    return problems(url, {"shop": [TableName.parse(table) for table in tables]}, known)


def known(group: Group) -> dict[str, GroupRow]:
    return {row.name: row for row in group.state.groups()}


def test_a_good_source_has_no_problems_before_and_after_it_is_prepared(group: Group) -> None:
    run(group.url, "CREATE TABLE orders (id int PRIMARY KEY)")
    assert found(group.url, "orders") == []
    group.prepare("orders")
    assert found(group.url, "orders", known=known(group)) == []
    with group.capturing():
        assert found(group.url, "orders", known=known(group)) == []


def test_all_problems_of_the_tables_are_told_at_once_each_with_the_next_move(group: Group) -> None:
    run(
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
    told = [(type(each), each.message, each.hint) for each in found(group.url, *names)]
    assert told == [
        (ConfigError, "there is no table 'public.ordres' in the source", "did you mean public.orders?"),
        (ConfigError, "'public.seen' is a view", "name the table behind it instead"),
        (
            OperatorMustAct,
            "table 'public.keyless' has no primary key: updates and deletes could not be followed",
            "ALTER TABLE public.keyless ADD PRIMARY KEY (...); the key must not be deferrable",
        ),
        (
            OperatorMustAct,
            "table 'public.late' has a primary key that is not its replica identity: updates and deletes could not be"
            " followed",
            "ALTER TABLE public.late REPLICA IDENTITY DEFAULT; the key must not be deferrable",
        ),
        (
            OperatorMustAct,
            "table 'public.entire' has replica identity FULL, which is not supported yet",
            "ALTER TABLE public.entire REPLICA IDENTITY DEFAULT, with a primary key",
        ),
        (
            OperatorMustAct,
            "table 'public.nothing' has a primary key that is not its replica identity: updates and deletes could not"
            " be followed",
            "ALTER TABLE public.nothing REPLICA IDENTITY DEFAULT; the key must not be deferrable",
        ),
        (
            ConfigError,
            "table 'public.light' is unlogged or temporary: the WAL has nothing of it",
            "ALTER TABLE public.light SET LOGGED",
        ),
        (ConfigError, "there is no table 'public.invoices' in the source", "did you mean sales.invoices?"),
    ]


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("postgresql://u:topsecret@127.0.0.1:1/db", Unreachable),
        ("postgresql://u:topsecret@[bad", ConfigError),
        ("postgresql://nobody@/postgres?host={socket}", ConfigError),
        ("postgresql://postgres@/nothing?host={socket}", ConfigError),
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
    run(group.url, "CREATE TABLE orders (id int PRIMARY KEY)", "CREATE ROLE weak LOGIN")
    yield group.url.replace("postgres@", "weak@")
    run(group.url, "DROP OWNED BY weak", "DROP ROLE weak")


def test_every_missing_privilege_is_told(weak: str) -> None:
    told = [each.message.split(" in database")[0] for each in found(weak, "orders")]
    assert told == [
        "role 'weak' may not replicate",
        "role 'weak' may not create a publication",
        "table 'public.orders' may not be read",
        "table 'public.orders' belongs to another role, so it cannot be added to our publication",
    ]


def test_a_publication_of_another_role_that_lacks_a_table_is_told(group: Group, weak: str) -> None:
    run(group.url, "CREATE PUBLICATION headwater_shop")
    told = [each.message for each in found(weak, "orders")]
    assert "publication 'headwater_shop' belongs to another role and differs from the config in: public.orders" in told


def test_a_strange_slot_a_moved_slot_and_a_missing_slot_are_told(group: Group) -> None:
    run(group.url, "CREATE TABLE orders (id int PRIMARY KEY)")
    group.prepare("orders")
    (strange,) = found(group.url, "orders")  # with no state at hand, that slot is nobody's
    assert "was not made for group 'shop'" in strange.message
    run(group.url, "SELECT pg_logical_emit_message(true, 'x', 'x')")
    run(group.url, "SELECT pg_replication_slot_advance('headwater_shop', pg_current_wal_lsn())")
    (moved,) = found(group.url, "orders", known=known(group))
    assert "was moved" in moved.message
    run(group.url, "SELECT pg_drop_replication_slot('headwater_shop')")
    (gone,) = found(group.url, "orders", known=known(group))
    assert type(gone) is SlotLost
    assert gone.exit_code == 4


def test_another_cluster_is_told(group: Group) -> None:
    group.prepare()
    with group.state.transaction() as connection:
        connection.execute("UPDATE headwater.groups SET source_id = '1/db'")
    (problem,) = found(group.url, known=known(group))
    assert "was captured from source '1/db'" in problem.message


def test_a_server_without_room_is_told(own_postgres: EmbeddedPostgres, tmp_path: Path) -> None:
    url = own_postgres.url()
    slots = ("a", "b")
    run(url, *(f"SELECT pg_create_physical_replication_slot('{name}')" for name in slots))
    try:
        (problem,) = found(url)
        assert "has 0 free replication slots, 2 are needed (max_replication_slots 2)" in problem.message
        group = Group.opened(url, tmp_path)
        with pytest.raises(OperatorMustAct, match="no free replication slot for 'headwater_shop'"):
            group.prepare()
        group.state.close()
    finally:
        run(url, *(f"SELECT pg_drop_replication_slot('{name}')" for name in slots), "DROP SCHEMA headwater CASCADE")


def test_a_server_whose_wal_is_not_logical_is_told(own_postgres: EmbeddedPostgres) -> None:
    run(own_postgres.url(), "ALTER SYSTEM SET wal_level = replica")
    own_postgres.restart()
    try:
        (problem,) = found(own_postgres.url())
        assert "has wal_level 'replica', not 'logical'" in problem.message
        assert "restart" in problem.hint
    finally:
        run(own_postgres.url(), "ALTER SYSTEM SET wal_level = logical")
        own_postgres.restart()


def test_a_slot_whose_wal_was_thrown_away_is_lost(own_postgres: EmbeddedPostgres, tmp_path: Path) -> None:
    url = own_postgres.url()
    run(url, "CREATE TABLE orders (id int PRIMARY KEY)")
    group = Group.opened(url, tmp_path)
    group.prepare("orders")
    run(url, "ALTER SYSTEM SET max_slot_wal_keep_size = '1MB'", "SELECT pg_reload_conf()")
    try:
        for _ in range(3):
            run(url, "SELECT pg_switch_wal()", "CREATE TABLE x ()", "DROP TABLE x")
        run(url, "CHECKPOINT")
        (problem,) = found(url, "orders", known=known(group))
        assert type(problem) is SlotLost
        with pytest.raises(SlotLost, match="has lost its WAL"):
            group.prepare("orders")
    finally:
        group.state.close()
        run(url, "ALTER SYSTEM RESET max_slot_wal_keep_size", "SELECT pg_reload_conf()")
        run(
            url,
            "SELECT pg_drop_replication_slot('headwater_shop')",
            "DROP SCHEMA headwater CASCADE",
            "DROP TABLE orders",
        )
        run(url, "DROP PUBLICATION headwater_shop")
