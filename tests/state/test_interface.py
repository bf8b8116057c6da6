"""The state in SQL: what there is to call and to see, who may do so, and that only our code runs with our rights."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_args

import psycopg
import pytest
from psycopg import errors
from tests.captured_group import execute

from headwater.change import Lsn, TableName
from headwater.errors import OperatorMustAct
from headwater.lake.counts import Counts
from headwater.state import Configured, State, TableOptions
from headwater.state.functions import ADMIN, READER
from headwater.state.interface import READABLE, create_roles
from headwater.state.requests import Verb
from headwater.state.transitions import Copied, Failed
from headwater.testing.postgres import EmbeddedPostgres

DOCS = Path(__file__).parents[2] / "docs"
ORDERS = TableName("public", "orders")
SIGNATURES = {
    "add_table": "source_table text, group_name text DEFAULT NULL::text, copy boolean DEFAULT true,"
    " lake_table text DEFAULT NULL::text, options jsonb DEFAULT '{}'::jsonb",
    "remove_table": "source_table text, group_name text DEFAULT NULL::text",
    "resync_table": "source_table text, group_name text DEFAULT NULL::text",
    "pause_table": "source_table text, group_name text DEFAULT NULL::text",
    "resume_table": "source_table text, group_name text DEFAULT NULL::text",
    "move_table": "source_table text, to_group text, group_name text DEFAULT NULL::text",
    "create_group": "name text, lake text DEFAULT NULL::text, settings jsonb DEFAULT '{}'::jsonb",
    "drop_group": "name text",
    "enable_group": "name text",
    "disable_group": "name text",
    "wait_for": "lsn pg_lsn DEFAULT NULL::pg_lsn, timeout interval DEFAULT '00:00:30'::interval,"
    " group_name text DEFAULT NULL::text",
}
ADD = "SELECT headwater.add_table('public.events')"
WAIT = "SELECT headwater.wait_for('0/1', '0s')"


def opened(url: str) -> State:
    state = State.connect(url)
    state.migrate()
    return state


@pytest.fixture
def state(database: str) -> Iterator[State]:
    with closing(opened(database)) as state:
        state.ensure_group("shop", "1/db", "headwater_shop", "headwater_shop")
        state.ensure_table("shop", 7, ORDERS, ORDERS)
        yield state


@contextmanager
def login(admin: str, *member_of: str, options: str = "") -> Iterator[str]:
    """A role that may log in, and its URL."""
    role = f"r_{uuid.uuid4().hex[:8]}"
    execute(admin, f"CREATE ROLE {role} LOGIN {options}", *(f"GRANT {each} TO {role}" for each in member_of))
    try:
        yield admin.replace("postgres@", f"{role}@")
    finally:
        execute(admin, f"DROP OWNED BY {role} CASCADE", f"DROP ROLE {role}")


def role_of(url: str) -> str:
    return url.split("//")[1].split("@")[0]


def may(url: str, sql: str) -> bool:
    with psycopg.connect(url, autocommit=True) as connection:
        try:
            connection.execute(sql)
        except errors.InsufficientPrivilege:
            return False
        return True


def test_there_is_a_function_for_every_verb(state: State) -> None:
    rows = state.query(
        "SELECT proname::text, pg_get_function_arguments(oid), prorettype::regtype::text FROM pg_proc"
        " WHERE pronamespace = 'headwater'::regnamespace AND proname NOT LIKE '\\_%%'"
    )
    assert {name: arguments for name, arguments, _ in rows} == SIGNATURES
    assert {name: kind for name, _, kind in rows} == dict.fromkeys(get_args(Verb), "bigint") | {"wait_for": "boolean"}


def test_every_function_has_a_search_path_and_none_is_for_everyone(state: State) -> None:
    rows = state.query(
        "SELECT proname::text, proconfig, prosecdef, proacl::text FROM pg_proc"
        " WHERE pronamespace = 'headwater'::regnamespace"
    )
    for name, settings, definer, rights in rows:
        assert settings == ["search_path=pg_catalog, pg_temp"], name
        assert definer != name.startswith("_"), name
        assert "{=X" not in rights, name
        assert ",=X" not in rights, name


def test_members_of_the_roles_change_or_look_and_others_do_neither(state: State) -> None:
    looks = [f"SELECT * FROM headwater.{name}" for name in READABLE]
    with login(state.url, ADMIN) as admin, login(state.url, READER) as reader, login(state.url) as other:
        assert [may(admin, each) for each in (ADD, WAIT, *looks)] == [True] * 7
        assert [may(reader, each) for each in (WAIT, *looks)] == [True] * 6
        assert not may(reader, ADD)
        assert not any(may(other, each) for each in (ADD, WAIT, *looks))
        for url in (admin, reader):
            assert not may(url, "UPDATE headwater.tables SET state = 'PAUSED'")
            assert not may(url, "INSERT INTO headwater.requests (verb, group_name) VALUES ('drop_group', 'shop')")
            assert not may(url, "SELECT headwater._request('drop_group', 'shop', NULL)")
            assert not may(url, "SELECT * FROM headwater.segments")
        for verb in get_args(Verb):
            arguments = "'shop'" if verb.endswith("group") else "'public.orders'"
            second = ", 'shop'" if verb == "move_table" else ""
            assert not may(reader, f"SELECT headwater.{verb}({arguments}{second})"), verb
        (request,) = state.waiting()
        assert request.requested_by == role_of(admin)


def test_who_asked_is_the_role_that_logged_in(state: State) -> None:
    with login(state.url, options="NOINHERIT") as url:
        execute(state.url, f"GRANT {ADMIN} TO {role_of(url)}")
        assert not may(url, ADD)  # before SET ROLE
        execute(url, f"SET ROLE {ADMIN}; {ADD}")
        (request,) = state.waiting()
        assert request.requested_by == role_of(url)


def test_the_right_to_call_a_function_is_not_enough(state: State) -> None:
    with login(state.url) as other:
        role = role_of(other)
        execute(state.url, f"GRANT USAGE ON SCHEMA headwater TO {role}")
        execute(state.url, f"GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA headwater TO {role}")
        with psycopg.connect(other, autocommit=True) as connection:
            with pytest.raises(errors.InsufficientPrivilege, match=f"role '{role}' is not a member of {ADMIN}") as hint:
                connection.execute(ADD)
            assert hint.value.diag.message_hint == f"GRANT {ADMIN} TO {role}"
            with pytest.raises(errors.InsufficientPrivilege, match=f"is not a member of {READER} or {ADMIN}"):
                connection.execute(WAIT)
        with closing(State.connect(other)) as asking, pytest.raises(OperatorMustAct, match="is not a member"):
            asking.ask("add_table", source_table="t")


def test_the_owner_of_the_schema_and_a_superuser_need_no_role(database: str) -> None:
    with login(database) as owner, login(database, options="SUPERUSER") as boss:
        execute(database, f"CREATE SCHEMA headwater AUTHORIZATION {role_of(owner)}")
        with closing(opened(owner)) as state:
            state.ensure_group("shop", "1/db", "headwater_shop", "headwater_shop")
            assert may(owner, ADD)
            assert may(boss, "SELECT headwater.add_table('another')")


def test_no_function_or_operator_of_another_schema_runs_with_our_rights(state: State) -> None:
    """A member of headwater_admin who would like to be more than that puts traps into the way."""
    with login(state.url, ADMIN) as url:
        role = role_of(url)
        execute(
            state.url,
            "CREATE TABLE public.caught (who text)",
            f"GRANT INSERT, SELECT ON public.caught TO {role}",
            f"CREATE SCHEMA trap AUTHORIZATION {role}",
        )
        trap = "LANGUAGE plpgsql AS $$ BEGIN INSERT INTO public.caught VALUES (current_user); RETURN {}; END $$"
        with psycopg.connect(url, autocommit=True) as connection:
            for arguments, returns, value in (
                ("quote_literal(text)", "text", "$1"),
                ("quote_nullable(text)", "text", "$1"),
                ("format(text, text)", "text", "$1"),
                ("replace(text, text, text)", "text", "$1"),
                ("cardinality(text[])", "int", "1"),
                ("pg_has_role(name, name, text)", "boolean", "true"),
                ("pg_notify(text, text)", "text", "$1"),
                ("same(text, text)", "boolean", "true"),
            ):
                connection.execute(f"CREATE FUNCTION trap.{arguments} RETURNS {returns} {trap.format(value)}")
            connection.execute("CREATE OPERATOR trap.= (LEFTARG = text, RIGHTARG = text, FUNCTION = trap.same)")
            connection.execute("CREATE TEMPORARY TABLE pg_roles (rolname name, oid oid)")
            connection.execute("CREATE TEMPORARY TABLE pg_namespace (nspname name, nspowner oid)")
            connection.execute("SET search_path = trap, pg_temp, pg_catalog")
            connection.execute(ADD)
            with pytest.raises(errors.RaiseException, match="already in group"):
                connection.execute(ADD)
            connection.execute("SELECT headwater.pause_table('orders')")
            connection.execute("SELECT headwater.create_group('other', 'main')")
            connection.execute("SELECT headwater.move_table('orders', 'other')")
            connection.execute(WAIT)
            connection.execute("SELECT * FROM headwater.status")
            assert connection.execute("SELECT * FROM public.caught").fetchall() == []
            connection.execute("SELECT quote_literal('x'::text)")  # the trap works
            assert connection.execute("SELECT * FROM public.caught").fetchall() == [(role,)]


def test_text_in_a_name_is_never_run(state: State) -> None:
    odd = TableName("we;ird", "tab\"le'); DROP SCHEMA headwater CASCADE; --")
    state.ensure_table("shop", 8, odd, odd)
    for verb in ("pause_table", "resume_table", "resync_table", "remove_table"):
        request = state.request(state.ask(verb, source_table=str(odd)))
        assert request is not None
        assert request.table == str(odd)
    rows = state.query("SELECT table_name, lake_table FROM headwater.status WHERE table_name LIKE '%%ird%%'")
    assert rows == [(str(odd), str(odd))]


def test_the_status_has_a_row_for_every_table_and_what_waits_for_it(state: State) -> None:
    state.record("shop", 7, Copied(Lsn(5)))
    state.record_delivery("shop", Lsn(9), 3, {7: Lsn(9)}, {7: Counts(10, 1, 2, 3, 4)})
    retry = datetime(2030, 1, 1, tzinfo=UTC)
    state.record("shop", 7, Failed("it broke", retry))
    bills = TableName("app", "Bills")
    state.ensure_table("shop", 8, bills, TableName("raw", "bills"), Configured(TableName("app", "b"), TableOptions()))
    state.request_resync("shop", 8, "it was asked for")
    pause = state.ask("pause_table", source_table="app.b")
    again = state.ask("resume_table", source_table="app.Bills")
    add = state.ask("add_table", source_table="app.new")
    state.ask("disable_group", name="shop")
    rows = _dicts(state, 'SELECT * FROM headwater.status ORDER BY table_name COLLATE "C"')
    assert [row["table_name"] for row in rows] == ['app."Bills"', "app.new", "public.orders"]
    billing, new, orders = rows
    assert {name: value for name, value in orders.items() if value is not None} == {
        "group_name": "shop",
        "table_name": "public.orders",
        "lake_table": "public.orders",
        "state": "ERRORED",
        "copied_rows": 10,
        "copy_total": 10,
        "inserted": 1,
        "updated": 2,
        "deleted": 3,
        "quarantined": 4,
        "position": Lsn(9),
        "lag_seconds": 0.0,
        "error": "it broke",
        "failures": 1,
        "retry_at": retry,
    }
    assert (billing["lake_table"], billing["state"], billing["position"], billing["lag_seconds"]) == (
        "raw.bills",
        "PENDING",
        None,
        None,
    )
    assert billing["resync"] == "it was asked for"
    assert sorted(billing["waiting"].split(", ")) == [
        f"pause_table (request {pause} of postgres)",
        f"resume_table (request {again} of postgres)",
    ]
    assert (new["state"], new["waiting"]) == (None, f"add_table (request {add} of postgres)")
    for each in state.waiting():
        state.settle(each.id, "done")
    assert [row["waiting"] for row in _dicts(state, "SELECT waiting FROM headwater.status")] == [None, None]


def test_the_lag_is_the_age_of_the_oldest_change_that_is_staged(state: State) -> None:
    state.record("shop", 7, Copied(Lsn(5)))
    with state.transaction() as connection:
        connection.execute(
            "INSERT INTO headwater.relations (group_name, oid, namespace, name, identity, columns, lsn, seen)"
            " VALUES ('shop', 7, 'public', 'orders', 'd', '[]', '0/1', 'rows')"
        )
        for lsn, age in ((3, "1 hour"), (6, "10 minutes"), (8, "1 minute")):
            connection.execute(
                "WITH s AS (INSERT INTO headwater.segments (group_name, path, first_lsn, last_lsn, end_lsn, rows,"
                " bytes, file_bytes, first_commit_at, last_commit_at) VALUES ('shop', %(lsn)s::text, %(lsn)s, %(lsn)s,"
                " %(end)s, 1, 1, 1, now() - %(age)s::text::interval, now()) RETURNING id)"
                " INSERT INTO headwater.segment_parts SELECT s.id, r.id, 1, 1, 'I', %(lsn)s, %(lsn)s"
                " FROM s, headwater.relations r",
                {"lsn": Lsn(lsn), "end": Lsn(lsn + 1), "age": age},
            )

    def lag() -> float:
        ((seconds,),) = state.query("SELECT lag_seconds FROM headwater.status")
        return float(seconds)

    assert 600 <= lag() < 660
    state.record_delivery("shop", Lsn(7), 1, {7: Lsn(7)}, {})
    assert 60 <= lag() < 120
    state.record_delivery("shop", Lsn(9), 1, {7: Lsn(9)}, {})
    assert lag() == 0


@pytest.mark.parametrize("name", ["status", "requests", "deliveries"])
def test_every_column_of_a_view_is_explained(name: str, state: State) -> None:
    (row,) = [line for line in (DOCS / "sql.md").read_text().splitlines() if line.startswith(f"| `headwater.{name}`")]
    columns = state.query(
        "SELECT attname::text FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0", (f"headwater.{name}",)
    )
    assert [column for (column,) in columns if f"`{column}`" not in row and column != "id"] == []


def _marks(state: State) -> list[tuple[Any, ...]]:
    return state.query(
        "SELECT oid, xmin::text FROM pg_proc WHERE pronamespace = 'headwater'::regnamespace"
        " UNION ALL SELECT oid, xmin::text FROM pg_class WHERE relnamespace = 'headwater'::regnamespace ORDER BY 1"
    )


def test_a_second_start_changes_nothing_and_a_new_version_replaces_what_is_old(state: State) -> None:
    before = _marks(state)
    state.migrate()
    assert _marks(state) == before
    with state.transaction() as connection:
        connection.execute("UPDATE headwater.interface SET stamp = 'of an older program'")
        connection.execute(
            "CREATE VIEW public.mine AS SELECT * FROM headwater.status"
        )  # it depends on ours, which is replaced in place
        connection.execute(
            "CREATE OR REPLACE FUNCTION headwater.pause_table(source_table text, group_name text DEFAULT NULL)"
            " RETURNS bigint LANGUAGE sql AS 'SELECT 0::bigint'"
        )
    state.migrate()
    assert [oid for oid, _ in _marks(state)] == [oid for oid, _ in before]
    assert state.ask("pause_table", source_table="orders") > 0


def test_processes_that_start_at_once_do_not_get_in_each_others_way(state: State) -> None:
    with state.transaction() as connection:
        connection.execute("DELETE FROM headwater.interface")

    def start(_: int) -> None:
        with closing(opened(state.url)):
            pass

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(start, range(12)))
    assert state.query("SELECT count(*) FROM headwater.interface") == [(1,)]


@pytest.fixture
def bare(own_postgres: EmbeddedPostgres) -> Iterator[str]:
    """A new database, with a schema `headwater`, of a server without our roles."""
    name = f"d_{uuid.uuid4().hex[:8]}"
    execute(own_postgres.url(), f"CREATE DATABASE {name}")
    execute(own_postgres.url(name), "CREATE SCHEMA headwater")
    yield own_postgres.url(name)
    execute(own_postgres.url(), f"DROP DATABASE {name} WITH (FORCE)")
    execute(own_postgres.url(), f"DROP ROLE IF EXISTS {ADMIN}", f"DROP ROLE IF EXISTS {READER}")


def roles(url: str) -> list[str]:
    with psycopg.connect(url) as connection:
        rows = connection.execute("SELECT rolname FROM pg_roles WHERE rolname LIKE 'headwater%' ORDER BY 1").fetchall()
    return [name for (name,) in rows]


def test_a_role_that_may_not_create_roles_does_without_until_a_dba_has(bare: str) -> None:
    with login(bare) as service:
        execute(bare, f"GRANT USAGE, CREATE ON SCHEMA headwater TO {role_of(service)}")
        with closing(opened(service)) as state:
            assert roles(bare) == []
            state.ensure_group("shop", "1/db", "headwater_shop", "headwater_shop")
            assert state.ask("add_table", source_table="t")
            execute(bare, f"{create_roles()}; GRANT USAGE ON SCHEMA headwater TO {ADMIN}, {READER}")
            with login(bare, ADMIN) as member, login(bare, READER) as reader:
                assert not may(member, ADD)  # nothing was started since
                state.migrate()
                assert may(member, ADD)
                assert may(reader, "SELECT * FROM headwater.status")
                assert not may(reader, ADD)


def test_a_role_that_may_create_roles_creates_ours(bare: str) -> None:
    with login(bare, options="CREATEROLE") as service:
        execute(bare, f"GRANT USAGE, CREATE ON SCHEMA headwater TO {role_of(service)}")
        opened(service).close()
        assert roles(bare) == [ADMIN, READER]


def _dicts(state: State, sql: str) -> list[dict[str, Any]]:
    with state.transaction() as connection:
        cursor = connection.execute(sql)
        names = [each.name for each in cursor.description or ()]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
