"""A role that owns nothing, and may only read and replicate, is enough: a DBA runs what `check --sql` prints."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from tests.captured_group import execute
from tests.proof.processes import headwater

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]  # each runs Spark several times

CONFIG = """
source: {source}
{state}
log: ./log
lakes:
  main: {{ducklake: "sqlite:///lake.sqlite", data_path: ./lake}}
groups:
  shop: {{flush: {{interval: 200ms}}, tables: [{tables}]}}
spark: {{master: "local[2]", conf: {{spark.driver.extraJavaOptions: "-XX:TieredStopAtLevel=1"}}}}
"""
TABLES = ("public.orders", "app.events", "{table: 'app.\"Odd\"', exclude: [secret]}")
SCHEMA = (
    "CREATE TABLE public.orders (id int PRIMARY KEY, item text, twice int GENERATED ALWAYS AS (id * 2) STORED)",
    "CREATE SCHEMA app",
    'CREATE TABLE app."Odd" (id int PRIMARY KEY, a int, secret text)',
    "CREATE TABLE app.events (id int, day date, PRIMARY KEY (id, day)) PARTITION BY RANGE (day)",
    "CREATE SCHEMA cold",
    "CREATE TABLE cold.events_old PARTITION OF app.events FOR VALUES FROM ('2020-01-01') TO ('2024-01-01')",
    "CREATE TABLE app.events_new PARTITION OF app.events FOR VALUES FROM ('2024-01-01') TO ('2030-01-01')",
    "INSERT INTO orders SELECT i, 'old' FROM generate_series(1, 100) i",
    "INSERT INTO app.\"Odd\" SELECT i, i, 'secret' FROM generate_series(1, 10) i",
    "INSERT INTO app.events SELECT i, '2023-12-30'::date + i FROM generate_series(1, 10) i",
)
CHANGES = (
    "INSERT INTO orders VALUES (101, 'new')",
    "UPDATE orders SET item = 'changed' WHERE id % 10 = 0",
    "DELETE FROM orders WHERE id = 7",
    "UPDATE app.events SET id = id + 100, day = '2024-05-01' WHERE id = 1",  # into another partition
    "DELETE FROM app.events WHERE id = 2",
    'UPDATE app."Odd" SET a = a + 1',
    "ALTER TABLE orders ADD note text DEFAULT 'none'",
    "INSERT INTO orders VALUES (102, 'newer')",
)


@dataclass
class Shop:
    """A source whose tables belong to a superuser, and a config whose role is none."""

    admin: str
    role: str
    file: Path

    def written(self, *tables: str, state: str = "") -> Shop:
        source = self.admin.replace("postgres@", f"{self.role}@")
        self.file.write_text(CONFIG.format(source=source, state=state, tables=", ".join(tables)))
        return self

    def say(self, *arguments: str, code: int = 0) -> str:
        found, output = headwater(self.file, *arguments)
        assert found == code, output
        return output

    def granted(self) -> None:
        """The DBA runs the script."""
        execute(self.admin, self.say("check", "--sql"))

    def attributes(self) -> tuple[object, ...] | None:
        with psycopg.connect(self.admin) as connection:
            return connection.execute(
                "SELECT rolcanlogin, rolreplication, rolsuper, rolcreaterole, rolcreatedb, rolbypassrls,"
                " (SELECT count(*) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
                "  WHERE c.relowner = r.oid AND n.nspname NOT IN ('headwater', 'pg_toast')),"
                " has_database_privilege(r.oid, current_database(), 'CREATE')"
                " FROM pg_roles r WHERE rolname = %s",
                (self.role,),
            ).fetchone()


@pytest.fixture
def shop(database: str, tmp_path: Path) -> Iterator[Shop]:
    role = f"reader_{uuid.uuid4().hex[:8]}"
    execute(database, *SCHEMA)
    yield Shop(database, role, tmp_path / "headwater.yaml").written(*TABLES)
    execute(
        database,
        "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = current_database()",
        f"DROP OWNED BY {role} CASCADE",
        f"DROP ROLE {role}",
    )


LOGIN_REPLICATION_ONLY = (True, True, False, False, False, False, 0, False)


def test_a_role_that_only_reads_and_replicates_mirrors_what_the_script_lets_it_read(shop: Shop) -> None:
    unasked = shop.say("check", "--sql")
    assert "cannot be asked" in unasked
    execute(shop.admin, unasked)
    shop.granted()  # now that the role can connect
    assert shop.attributes() == LOGIN_REPLICATION_ONLY
    assert "check: OK" in shop.say("check")
    shop.say("run", "--until-caught-up")
    execute(shop.admin, *CHANGES)
    shop.granted()  # once more changes nothing
    reported = shop.say("run", "--until-caught-up")
    assert "copied again" not in reported
    shop.say("verify")
    carried = shop.say(
        "query", "SELECT count(*) AS n FROM public.orders WHERE twice = id * 2 AND note = 'none'", "--json"
    )
    assert '"n": 101' in carried
    assert "no publication, because its owner is 'postgres'" in shop.say("group", "drop", "shop", "--yes")
    assert shop.attributes() == LOGIN_REPLICATION_ONLY


def test_with_the_state_elsewhere_the_source_has_nothing_of_the_role(shop: Shop, other_database: str) -> None:
    shop.written(*TABLES, state=f"state: {other_database}")
    execute(shop.admin, shop.say("check", "--sql"))
    shop.granted()
    shop.say("run", "--until-caught-up")
    execute(shop.admin, *CHANGES[:6])
    shop.say("run", "--until-caught-up")
    shop.say("verify")
    with psycopg.connect(shop.admin) as connection:
        assert connection.execute("SELECT to_regclass('headwater.groups')").fetchone() == (None,)
        may_create = "SELECT has_schema_privilege(%s, 'headwater', 'CREATE')"
        assert connection.execute(may_create, (shop.role,)).fetchone() == (False,)


def test_what_the_dba_must_do_is_said_with_its_statement_and_then_the_run_goes_on(shop: Shop) -> None:
    shop.written("public.orders")
    execute(shop.admin, shop.say("check", "--sql"))
    shop.granted()
    shop.say("run", "--until-caught-up")
    execute(shop.admin, "CREATE TABLE later (id int PRIMARY KEY)", f"GRANT SELECT ON later TO {shop.role}")
    shop.written("public.orders", "public.later")
    for command in ("check", "run"):
        reported = shop.say(command, code=4)
        assert f"does not list public.later, and role '{shop.role}' may not alter it" in reported
        assert 'ALTER PUBLICATION "headwater_shop" ADD TABLE "public"."later";' in reported
    execute(shop.admin, 'ALTER PUBLICATION "headwater_shop" ADD TABLE "public"."later"')
    # A table that is replaced stops alone, until the publication lists the new one.
    execute(
        shop.admin,
        "DROP TABLE orders",
        "CREATE TABLE orders (id int PRIMARY KEY)",
        "INSERT INTO orders VALUES (1)",
        "INSERT INTO later VALUES (1)",
        f"GRANT SELECT ON orders TO {shop.role}",
    )
    add = 'ALTER PUBLICATION "headwater_shop" ADD TABLE "public"."orders";'
    reported = shop.say("run", "--until-caught-up", code=1)
    assert "table 'public.orders' is another table now" in reported
    assert add in reported
    execute(shop.admin, add)
    shop.say("run", "--until-caught-up")
    shop.say("verify")
