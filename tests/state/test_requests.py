"""What operators ask for: checked where it is asked, kept until it is handled."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from tests.captured_group import execute, until

from headwater.change import Lsn, TableName
from headwater.config import Group, Table
from headwater.errors import ConfigError
from headwater.state import AddedTable, Configured, State, TableOptions
from headwater.state.functions import GROUP_SETTINGS, TABLE_OPTIONS
from headwater.state.listening import Listener
from headwater.state.requests import Verb
from headwater.state.transitions import Copied, Paused, Removed
from headwater.testing.postgres import EmbeddedPostgres

ORDERS = TableName("public", "orders")


@pytest.fixture
def state(database: str) -> Iterator[State]:
    """One group with one table, whose source is another database."""
    state = State.connect(database)
    state.migrate()
    state.ensure_group("shop", "1/db", "headwater_shop", "headwater_shop")
    state.ensure_table("shop", 7, ORDERS, ORDERS)
    yield state
    state.close()


def refused(state: State, verb: Verb, **arguments: object) -> str:
    with pytest.raises(ConfigError) as caught:
        state.ask(verb, **arguments)
    return str(caught.value)


def test_a_request_says_who_wants_what(state: State) -> None:
    id_ = state.ask(
        "add_table",
        source_table="app.events",
        group_name="shop",
        copy=False,
        lake_table="raw.Events",
        options={"mode": "history"},
    )
    request = state.request(id_)
    assert request is not None
    assert (request.verb, request.group, request.table) == ("add_table", "shop", "app.events")
    entry = {"table": "app.events", "as": 'raw."Events"', "mode": "history"}
    assert request.arguments == {"entry": entry, "copy": False}
    assert Table.model_validate(request.arguments["entry"]).target == TableName("raw", "Events")
    assert (request.requested_by, request.handled_at, request.failed, request.outcome) == (
        "postgres",
        None,
        False,
        None,
    )
    assert state.waiting() == [request]


def test_by_default_a_table_is_added_to_the_only_group_and_copied(state: State) -> None:
    request = state.request(state.ask("add_table", source_table="events"))
    assert request is not None
    assert (request.group, request.table) == ("shop", "public.events")
    assert request.arguments == {"entry": {"table": "public.events"}, "copy": True}


def test_requests_wait_in_their_order_until_each_is_settled_once(state: State) -> None:
    first = state.ask("pause_table", source_table="public.orders")
    second = state.ask("resume_table", source_table="public.orders")
    assert [each.id for each in state.waiting()] == [first, second]
    state.settle(first, "paused")
    state.settle(first, "something else", failed=True)
    assert [each.id for each in state.waiting()] == [second]
    settled = state.request(first)
    assert settled is not None
    assert (settled.outcome, settled.failed, settled.handled_at is None) == ("paused", False, False)
    state.settle(second, "no\0thing", failed=True)
    settled = state.request(second)
    assert settled is not None
    assert (settled.outcome, settled.failed) == (r"no\0thing", True)
    assert state.request(second + 1) is None


def test_requests_of_a_month_ago_are_forgotten_unless_they_wait(state: State) -> None:
    old, waiting, new = (state.ask("pause_table", source_table="orders") for _ in range(3))
    state.settle(old, "paused")
    with state.transaction() as connection:
        connection.execute("UPDATE headwater.requests SET handled_at = handled_at - interval '31 days' WHERE id < 99")
        connection.execute("UPDATE headwater.requests SET requested_at = now() - interval '1 year' WHERE id < 99")
    state.settle(new, "paused")
    assert state.request(old) is None
    assert state.request(new) is not None
    assert [each.id for each in state.waiting()] == [waiting]


@pytest.mark.parametrize(
    "name",
    [
        *(
            "orders",
            "public.orders",
            "public.Orders",
            '"public"."orders"',
            'app."a.b"',
            '"we;ird"."tab""le"',
            "a b.c d",
        ),
        *('Public."x""""y"', "user.order", "ä.ö", "_a$1.b", "1.2", "a'b.c\\d", "app.*", '"a\nb".c'),
    ],
)
def test_a_name_is_read_and_spelled_as_the_config_reads_and_spells_it(name: str, state: State) -> None:
    ((spelled,),) = state.query("SELECT headwater._spelled(headwater._named(%s))", (name,))
    assert spelled == str(TableName.parse(name))
    state.record("shop", 7, Removed("it was taken out of the config"))
    request = state.request(state.ask("add_table", source_table=name))
    assert request is not None
    assert TableName.parse(request.table or "") == TableName.parse(name)


@pytest.mark.parametrize(
    "name", ["", ".", "a.", ".a", "a.b.c", 'a"b', '"we;ird".tab"le', '"', '""', '"".a', '"a"b', 'a."b', "a..b", None]
)
def test_what_the_config_does_not_take_for_a_table_is_refused(name: str | None, state: State) -> None:
    if name is not None:
        with pytest.raises(ValueError, match="not a table name"):
            TableName.parse(name)
    verbs: tuple[Verb, ...] = ("add_table", "remove_table", "resync_table", "pause_table", "resume_table")
    for verb in verbs:
        assert "is not the name of a table\nhint: write schema.table" in refused(state, verb, source_table=name)
    assert "is not the name of a table" in refused(state, "move_table", source_table=name, to_group="shop")
    assert state.waiting() == []


def test_without_a_group_the_one_that_has_the_table_is_meant(state: State) -> None:
    state.ensure_group("other", "1/db", "headwater_other", "headwater_other")
    request = state.request(state.ask("pause_table", source_table="orders"))
    assert request is not None
    assert (request.group, request.table, request.arguments) == ("shop", "public.orders", {})
    state.ensure_table("other", 7, ORDERS, ORDERS)
    message = refused(state, "pause_table", source_table="orders")
    assert message == (
        "table 'public.orders' is in more than one group: other, shop\nhint: say which: group_name => 'other'"
    )
    request = state.request(state.ask("pause_table", source_table="orders", group_name="other"))
    assert request is not None
    assert request.group == "other"
    message = refused(state, "add_table", source_table="more")
    assert message == "there is more than one group: other, shop\nhint: say which: group_name => 'other'"


def test_groups_and_tables_that_are_not_there_are_refused_with_those_that_are(state: State) -> None:
    assert refused(state, "add_table", source_table="t", group_name="shpo") == (
        "there is no group 'shpo'\nhint: there are: shop"
    )
    assert refused(state, "pause_table", source_table="t", group_name="shpo") == (
        "there is no group 'shpo'\nhint: there are: shop"
    )
    assert "there is no table 'public.t' in any group" in refused(state, "pause_table", source_table="t")
    state.ensure_group("other", "1/db", "headwater_other", "headwater_other")
    assert refused(state, "pause_table", source_table="orders", group_name="other") == (
        "table 'public.orders' is not in group 'other'\nhint: it is in: shop"
    )
    verbs: tuple[Verb, ...] = ("drop_group", "enable_group", "disable_group")
    for verb in verbs:
        assert "there is no group NULL" in refused(state, verb, name=None)
        assert "there is no group 'x''y'" in refused(state, verb, name="x'y")
    assert state.waiting() == []


def test_without_any_group_there_is_nothing_to_add_to(database: str) -> None:
    state = State.connect(database)
    state.migrate()
    assert "there is no group yet\nhint: headwater.create_group" in refused(state, "add_table", source_table="t")
    assert "there is no table 'public.t' in any group" in refused(state, "pause_table", source_table="t")
    assert refused(state, "drop_group", name="x") == "there is no group 'x'\nhint: headwater.create_group makes one"
    state.close()


def test_a_table_is_known_by_its_new_name_and_by_that_of_the_config(state: State) -> None:
    renamed = TableName("app", "Bills")
    state.ensure_table("shop", 8, renamed, renamed, Configured(TableName("app", "bills"), TableOptions()))
    for name in ("app.bills", "app.Bills"):
        assert state.ask("pause_table", source_table=name)
    state.declare("/log", {"shop": ["app.bills"]})
    for name in ("app.bills", "app.Bills"):
        assert "is declared in headwater.yaml" in refused(state, "remove_table", source_table=name)


@pytest.mark.parametrize("how", ["mirrored", "added", "declared", "asked for"])
def test_a_table_that_a_group_has_is_not_added_again(how: str, state: State) -> None:
    name = {"mirrored": "public.orders"}.get(how, 'app."Events"')
    if how == "added":
        state.add_table(AddedTable("shop", name, {"table": name}, True))
    if how == "declared":
        state.declare("/log", {"shop": [name]})
    if how == "asked for":
        state.ask("add_table", source_table=name)
    assert refused(state, "add_table", source_table=name) == (
        f"table '{name}' is already in group 'shop'\nhint: headwater.resync_table copies it again"
    )


def test_a_table_that_was_removed_may_be_added_and_not_paused(state: State) -> None:
    state.record("shop", 7, Removed("it was taken out of the config"))
    assert "in any group" in refused(state, "pause_table", source_table="orders")
    assert state.ask("add_table", source_table="orders")


def test_requests_that_wait_count_as_if_they_were_done(state: State) -> None:
    state.ask("add_table", source_table="t")
    state.ask("pause_table", source_table="t")
    state.ask("remove_table", source_table="t")
    assert "in any group" in refused(state, "remove_table", source_table="t")
    state.ask("add_table", source_table="t")
    state.ask("create_group", name="other")
    state.ask("move_table", source_table="t", to_group="other")
    request = state.request(state.ask("pause_table", source_table="t"))
    assert request is not None
    assert request.group == "other"
    state.ask("drop_group", name="other")
    assert "in any group" in refused(state, "pause_table", source_table="t")


def test_what_the_config_declares_stays_in_its_group(state: State) -> None:
    state.declare("/log", {"shop": ["public.orders"]})
    state.ask("create_group", name="other")
    hint = "hint: what the file declares is ensured: take it out there"
    assert refused(state, "remove_table", source_table="orders") == (
        f"table 'public.orders' of group 'shop' is declared in headwater.yaml\n{hint}"
    )
    assert hint in refused(state, "move_table", source_table="orders", to_group="other")
    assert refused(state, "drop_group", name="shop") == f"group 'shop' is declared in headwater.yaml\n{hint}"
    for verb in ("pause_table", "resume_table", "resync_table"):
        assert state.ask(verb, source_table="orders")
    assert state.ask("disable_group", name="shop")


def test_a_table_is_moved_to_a_group_that_does_not_have_it(state: State) -> None:
    assert "there is no group 'other'" in refused(state, "move_table", source_table="orders", to_group="other")
    assert "there is no group NULL" in refused(state, "move_table", source_table="orders", to_group=None)
    assert "already in group 'shop'" in refused(state, "move_table", source_table="orders", to_group="shop")
    state.ensure_group("other", "1/db", "headwater_other", "headwater_other")
    request = state.request(state.ask("move_table", source_table="orders", to_group="other"))
    assert request is not None
    assert (request.group, request.table, request.arguments) == ("shop", "public.orders", {"to_group": "other"})


def test_a_paused_table_is_copied_again_only_after_it_was_resumed(state: State) -> None:
    state.record("shop", 7, Copied(Lsn(5)))
    state.record("shop", 7, Paused("it was asked for"))
    assert refused(state, "resync_table", source_table="orders") == (
        "table 'public.orders' of group 'shop' is PAUSED, and would not be copied\n"
        "hint: first SELECT headwater.resume_table('public.orders')"
    )
    state.ask("resume_table", source_table="orders")
    assert state.ask("resync_table", source_table="orders")


def test_a_group_is_created_with_the_settings_of_the_config(state: State) -> None:
    id_ = state.ask("create_group", name="new_1", lake="main", settings={"flush": {"interval": "5s"}})
    request = state.request(id_)
    assert request is not None
    assert (request.verb, request.group, request.table) == ("create_group", "new_1", None)
    assert request.arguments == {"settings": {"lake": "main", "flush": {"interval": "5s"}}}
    assert Group.model_validate({**request.arguments["settings"], "tables": []}).lake == "main"
    bare = state.request(state.ask("create_group", name="bare"))
    assert bare is not None
    assert bare.arguments == {"settings": {}}
    assert "there is a group 'new_1' already" in refused(state, "create_group", name="new_1")
    assert "there is a group 'shop' already" in refused(state, "create_group", name="shop")


@pytest.mark.parametrize("name", ["", "Shop", "a-b", "a" * 41, "a\n", "'; DROP SCHEMA headwater; --", None])
def test_a_group_has_a_name_that_a_slot_can_have(name: str | None, state: State) -> None:
    assert "is not the name of a group\nhint: use lower case" in refused(state, "create_group", name=name)


def test_options_are_those_of_the_config() -> None:
    names = {field.alias or name for name, field in Table.model_fields.items()}
    assert {*TABLE_OPTIONS, "table", "as", "copy"} == names
    names = {field.alias or name for name, field in Group.model_fields.items()}
    assert {*GROUP_SETTINGS, "lake", "tables"} == names


@pytest.mark.parametrize(
    ("verb", "arguments", "message"),
    [
        ("add_table", {"source_table": "t", "options": {"as": "x"}}, "the options have an unknown key 'as'"),
        ("add_table", {"source_table": "t", "options": {"mod": "x"}}, "the options have an unknown key 'mod'"),
        ("add_table", {"source_table": "t", "options": None}, "the options are not a JSON object: NULL"),
        ("add_table", {"source_table": "t", "options": "[1]"}, "the options are not a JSON object: '[1]'"),
        ("add_table", {"source_table": "t", "copy": None}, "copy is null"),
        ("add_table", {"source_table": "t", "lake_table": "a.b.c"}, "'a.b.c' is not the name of a table"),
        ("create_group", {"name": "x", "settings": {"tables": []}}, "the settings have an unknown key 'tables'"),
        ("create_group", {"name": "x", "lake": ""}, "the name of the lake is empty"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(
    verb: Verb, arguments: dict[str, Any], message: str, state: State
) -> None:
    assert refused(state, verb, **arguments).startswith(message)
    assert state.waiting() == []


def test_in_the_source_itself_only_tables_that_there_are_can_be_added(database: str) -> None:
    execute(database, 'CREATE TABLE "Odd" (id int)', "CREATE VIEW seen AS SELECT 1")
    state = State.connect(database)
    state.migrate()
    ((source,),) = state.query("SELECT system_identifier || '/' || current_database() FROM pg_control_system()")
    state.ensure_group("shop", source, "headwater_shop", "headwater_shop")
    assert "there is no table 'public.odd' in the source\nhint: write its name as PostgreSQL stores it" in (
        refused(state, "add_table", source_table="odd")
    )
    assert "there is no table 'public.seen'" in refused(state, "add_table", source_table="seen")
    assert state.ask("add_table", source_table="public.Odd")
    assert state.ask("add_table", source_table="public.*")
    state.close()


def test_additions_are_kept_until_they_are_forgotten(state: State) -> None:
    added = AddedTable("shop", "app.t", {"table": "app.t", "as": "raw.t"}, False)
    state.add_table(added)
    state.add_table(AddedTable("shop", "app.u", {"table": "app.u"}, True), by="alice")
    changed = AddedTable("shop", "app.t", {"table": "app.t"}, True)
    state.add_table(changed)
    assert [each.table for each in state.added_tables()] == ["app.t", "app.u"]
    assert state.added_tables()[0] == changed
    assert state.query("SELECT added_by FROM headwater.added_tables ORDER BY 1") == [("alice",), ("postgres",)]
    state.forget_added_table("shop", "app.t")
    assert [each.table for each in state.added_tables()] == ["app.u"]
    state.add_group("new", {"lake": "main"})
    state.add_group("new", {"lake": "far", "flush": {"rows": 5}}, by="alice")
    assert state.added_groups() == {"new": {"lake": "far", "flush": {"rows": 5}}}
    state.forget_added_group("new")
    assert state.added_groups() == {}


def test_groups_are_disabled_and_enabled_again(state: State) -> None:
    for _ in range(2):
        state.disable_group("shop")
    assert state.disabled_groups() == {"shop"}
    for _ in range(2):
        state.enable_group("shop")
    assert state.disabled_groups() == set()


def test_what_the_config_declares_is_replaced_and_written_only_if_it_is_new(state: State) -> None:
    def noted() -> list[tuple[str, ...]]:
        return state.query("SELECT group_name, table_name, xmin::text FROM headwater.declared_tables ORDER BY 1, 2")

    state.declare("/log", {"shop": ["a.b", "public.orders"], "empty": []})
    before = noted()
    assert [row[:2] for row in before] == [("shop", "a.b"), ("shop", "public.orders")]
    state.declare("/log", {"shop": ["public.orders", "a.b"]})
    assert noted() == before
    state.declare("/log", {"far": ["a.b"], "shop": ["a.b"]})
    assert [row[:2] for row in noted()] == [("far", "a.b"), ("shop", "a.b")]
    state.declare("/another", {"third": ["a.b"]})
    state.declare("/log", {})
    assert [row[:2] for row in noted()] == [("third", "a.b")]


def test_a_group_that_is_dropped_takes_everything_that_was_added_to_it_along(state: State) -> None:
    state.ensure_group("other", "1/db", "headwater_other", "headwater_other")
    for name in ("shop", "other"):
        state.add_group(name, {})
        state.add_table(AddedTable(name, "a.b", {"table": "a.b"}, True))
        state.disable_group(name)
    state.declare("/log", {"shop": ["public.orders"], "other": ["x.y"]})
    asked = state.ask("pause_table", source_table="orders"), state.ask("pause_table", source_table="x.y")
    state.drop_group("shop")
    assert state.added_groups().keys() == state.disabled_groups() == {"other"}
    assert [each.group for each in state.added_tables()] == ["other"]
    assert state.query("SELECT group_name FROM headwater.declared_tables") == [("other",)]
    assert [each.id for each in state.waiting()] == [asked[1]]
    given_up = state.request(asked[0])
    assert given_up is not None
    assert (given_up.failed, given_up.outcome) == (True, "the group was dropped")


def test_a_drop_that_was_asked_for_settles_itself_and_all_that_is_not_for_a_later_group(state: State) -> None:
    asked = [
        state.ask("pause_table", source_table="orders"),
        state.ask("drop_group", name="shop"),
        state.ask("add_table", source_table="orders", group_name="shop"),
    ]
    other = state.ask("create_group", name="other")
    state.drop_group("shop", (asked[1], "it is gone"))
    assert [each.id for each in state.waiting()] == [other]
    found = [state.request(each) for each in asked]
    assert [(each.failed, each.outcome) for each in found if each is not None] == [
        (True, "the group was dropped"),
        (False, "it is gone"),
        (True, "the group was dropped"),
    ]


def test_what_is_asked_of_a_later_group_of_that_name_waits_for_it(state: State) -> None:
    drop = state.ask("drop_group", name="shop")
    with state.transaction() as connection:
        connection.execute("INSERT INTO headwater.requests (verb, group_name) VALUES ('create_group', 'shop')")
    state.ask("add_table", source_table="orders", group_name="shop")
    state.drop_group("shop", (drop, "it is gone"))
    assert [each.verb for each in state.waiting()] == ["create_group", "add_table"]


def test_a_second_request_to_drop_a_group_does_not_wait_for_a_later_group_of_that_name(state: State) -> None:
    first, second = state.ask("drop_group", name="shop"), state.ask("drop_group", name="shop")
    state.drop_group("shop", (first, "it is gone"))
    assert state.waiting() == []
    done = state.request(second)
    assert done is not None
    assert (done.failed, done.outcome) == (False, "the group was dropped")


def test_a_request_to_drop_a_group_has_nothing_to_do_once_a_command_has_dropped_it(state: State) -> None:
    state.ask("drop_group", name="shop")
    state.drop_group("shop")
    assert state.waiting() == []


def test_what_was_so_before_a_service_began_with_a_request_is_noted_once(state: State) -> None:
    id_ = state.ask("drop_group", name="shop")
    assert [each.begun for each in state.waiting()] == [None]
    state.begin_request(id_, disabled=False)
    state.begin_request(id_, disabled=True)
    assert [each.begun for each in state.waiting()] == [{"disabled": False}]


def test_a_listener_hears_of_a_request_at_once_and_who_asked_of_its_end(state: State) -> None:
    with Listener(state.url) as service, Listener(state.url, "headwater_done") as client:
        assert service.wait(5)  # a new connection: there may be requests already
        assert client.wait(5)
        assert not service.wait(0)
        id_ = state.ask("pause_table", source_table="orders")
        assert service.wait(5)
        assert not service.wait(0.3)
        assert not client.wait(0)
        state.settle(id_, "paused")
        assert client.wait(5)


def test_a_request_that_is_rolled_back_is_not_heard_of(state: State) -> None:
    with Listener(state.url) as service, psycopg.connect(state.url) as connection:
        assert service.wait(5)
        connection.execute("SELECT headwater.pause_table('orders')")
        connection.rollback()
        assert not service.wait(0.5)
    assert state.waiting() == []


def test_a_listener_whose_connection_was_ended_connects_again(state: State) -> None:
    with Listener(state.url) as service:
        assert service.wait(5)
        ended = state.query(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND application_name = 'headwater listener headwater'"
        )
        assert ended == [(True,)]
        state.ask("pause_table", source_table="orders")  # perhaps lost, so a new connection counts
        assert service.wait(10)
        state.ask("resume_table", source_table="orders")
        assert service.wait(5)


def test_a_listener_survives_a_restart_of_the_server(own_postgres: EmbeddedPostgres) -> None:
    with Listener(own_postgres.url()) as service:
        assert service.wait(5)
        own_postgres.stop()
        assert not service.wait(0.5)
        own_postgres.start()
        assert service.wait(10)
        execute(own_postgres.url(), "NOTIFY headwater, '1'")
        assert service.wait(5)


def test_a_listener_ends_when_it_is_stopped_and_leaves_no_connection(state: State) -> None:
    stop, heard = threading.Event(), list[bool]()
    service = Listener(state.url, stop=stop)
    assert service.wait(5)
    thread = threading.Thread(target=lambda: heard.append(service.wait(60)))
    thread.start()
    stop.set()
    thread.join(5)
    assert heard == [False]
    service.close()
    service.close()
    until(
        lambda: (
            not state.query(
                "SELECT FROM pg_stat_activity"
                " WHERE datname = current_database() AND application_name LIKE 'headwater listener%%'"
            )
        )
    )
