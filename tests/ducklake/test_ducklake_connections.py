"""Thousands of lakes in one PostgreSQL database need a handful of connections, and each transaction its own schema."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from urllib.parse import quote

import psycopg
import pytest

from headwater.ducklake import connections
from headwater.ducklake.catalog import Catalog, open_catalog
from headwater.ducklake.url import parse_lake_url
from headwater.errors import OperatorMustAct, TimedOut


@pytest.fixture
def catalog(database: str) -> Callable[[str], Catalog]:
    """The catalog in a schema that is created here, with a table `name` whose columns differ from schema to schema."""

    def of_schema(schema: str) -> Catalog:
        quoted = schema.replace('"', '""')
        with psycopg.connect(database, autocommit=True) as admin:
            admin.execute(f'CREATE SCHEMA "{quoted}"'.encode())
            admin.execute(f'CREATE TABLE "{quoted}".name ({"number int," * (len(schema) % 2)} name text)'.encode())
            admin.execute(f'INSERT INTO "{quoted}".name(name) VALUES ($q${schema}$q$)'.encode())
        return open_catalog(parse_lake_url(f"{database}&schema={quote(schema)}"))

    return of_schema


def sessions(database: str) -> int:
    """How many connections of ours there are."""
    with psycopg.connect(database) as admin:
        found = admin.execute(
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE datname = current_database() AND application_name = 'headwater'"
        ).fetchone()
    assert found is not None
    return int(found[0])


def test_many_lakes_of_a_database_share_one_connection(catalog: Callable[[str], Catalog], database: str) -> None:
    schemas = [*(f"s{i}" for i in range(8, 13)), 'odd "name', "with space", "{braces} %s", "ü"]
    catalogs = {schema: catalog(schema) for schema in schemas}
    for _ in range(7):  # psycopg would by now have prepared the statement, and its result has other columns elsewhere
        for schema, each in catalogs.items():
            with each.transaction() as tx:
                assert [row[-1] for row in tx.rows("SELECT * FROM name WHERE %s", True)] == [schema]
            with each.transaction(write=True) as tx:
                assert tx.execute("UPDATE name SET name = %s", schema) == 1
    assert sessions(database) == 1


def test_transactions_at_the_same_time_have_connections_of_their_own_and_a_few_stay(
    catalog: Callable[[str], Catalog], database: str
) -> None:
    each, failures = catalog("one"), list[BaseException]()
    together = threading.Barrier(9)

    def work() -> None:
        try:
            with each.transaction() as tx:
                together.wait(30)
                assert tx.rows("SELECT name FROM name") == [("one",)]
                together.wait(30)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    together.wait(30)
    assert sessions(database) == 8
    together.wait(30)
    for thread in threads:
        thread.join()
    assert failures == []
    assert eventually(lambda: sessions(database) == 4)


def test_connections_that_stay_idle_are_closed(
    catalog: Callable[[str], Catalog], database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "_KEPT_SECONDS", 0.2)
    each = catalog("one")
    for _ in range(2):
        with each.transaction(), each.transaction() as tx:
            assert tx.rows("SELECT name FROM name") == [("one",)]
        assert eventually(lambda: sessions(database) == 0)


def test_after_a_failed_transaction_its_connection_goes_on(catalog: Callable[[str], Catalog], database: str) -> None:
    each = catalog("one")
    with pytest.raises(OperatorMustAct, match="no longer the lake"), each.transaction(write=True) as tx:
        tx.execute("WITH gone AS (DELETE FROM name) SELECT * FROM nowhere")
    with each.transaction() as tx:
        assert tx.rows("SELECT name FROM name") == [("one",)]
    assert sessions(database) == 1


def test_what_is_not_awaited_happens_in_order(catalog: Callable[[str], Catalog]) -> None:
    each = catalog("one")
    with each.transaction(write=True) as tx:
        tx.send("CREATE TABLE n (id bigint PRIMARY KEY, s text)")
        tx.insert("n", "id, s", [(1, "it's %s; \\"), (2, None)])
        tx.insert("n", "id, s", ((id_, f"{id_}") for id_ in range(3, 1003)))  # by COPY
        tx.insert("n", "id, s", [])
        tx.send("DELETE FROM n WHERE id > %s", 3)
        assert tx.execute_many("UPDATE n SET s = s || %s WHERE id = %s", [("!", 1), ("!", 3), ("!", 4)]) == 2
        tx.send("UPDATE n SET s = 'last' WHERE id = 2")
    with each.transaction() as tx:
        assert tx.rows("SELECT * FROM n ORDER BY id") == [(1, "it's %s; \\!"), (2, "last"), (3, "3!")]


def test_an_error_that_was_not_awaited_ends_the_transaction(catalog: Callable[[str], Catalog]) -> None:
    each = catalog("one")
    with pytest.raises(OperatorMustAct, match="no longer the lake"), each.transaction(write=True) as tx:
        tx.send("WITH gone AS (DELETE FROM name) SELECT * FROM nowhere")
    with each.transaction() as tx:
        assert tx.rows("SELECT name FROM name") == [("one",)]


@pytest.mark.filterwarnings("ignore:.*use of fork")
def test_a_forked_process_leaves_its_parents_connections_alone(catalog: Callable[[str], Catalog]) -> None:
    each = catalog("one")
    with each.transaction() as tx:
        ((mine,),) = tx.rows("SELECT pg_backend_pid()")
    child = os.fork()
    if child == 0:
        with each.transaction() as tx:
            os._exit(int(tx.rows("SELECT pg_backend_pid()") == [(mine,)]))
    assert os.waitpid(child, 0)[1] == 0
    with each.transaction() as tx:
        assert tx.rows("SELECT pg_backend_pid()") == [(mine,)]


def test_a_server_that_stops_answering_is_given_up_and_not_asked_again_for_a_moment(
    catalog: Callable[[str], Catalog], database: str
) -> None:
    catalog("one")
    each = open_catalog(parse_lake_url(f"{database}&schema=one", 1))
    with each.transaction() as tx:
        ((backend,),) = tx.rows("SELECT pg_backend_pid()")
    os.kill(backend, signal.SIGSTOP)  # it holds its connection open, and does not read what is sent
    try:
        for _ in range(2):
            with pytest.raises(TimedOut, match="does not answer: no answer for 1 seconds"), each.transaction():
                pass
    finally:
        os.kill(backend, signal.SIGCONT)

    def answers() -> bool:
        try:
            with each.transaction() as tx:
                return tx.rows("SELECT name FROM name") == [("one",)]
        except TimedOut:
            return False

    assert eventually(answers)


def eventually(true: Callable[[], bool]) -> bool:
    until = time.monotonic() + 10
    while not true() and time.monotonic() < until:
        time.sleep(0.02)
    return true()


def test_questions_that_are_asked_at_once_are_answered_each_by_itself(catalog: Callable[[str], Catalog]) -> None:
    with catalog("asked").transaction(write=True) as tx:
        tx.send("UPDATE name SET name = %s", "of before")  # its outcome is none of the answers
        found = tx.answers(
            ("SELECT name FROM name", ()),
            ("SELECT 1 WHERE false", ()),
            ("SELECT number FROM generate_series(1, %s) AS number WHERE number {among}", (3, tx.ids([1, 3]))),
        )
        assert found == [[("of before",)], [], [(1,), (3,)]]
        assert tx.rows("SELECT %s::int", 7) == [(7,)]
