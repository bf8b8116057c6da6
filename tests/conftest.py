"""One PostgreSQL and one Spark for the whole run; a database and a folder of its own for every test."""

from __future__ import annotations

import os
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

import psycopg
import pytest
from pyspark.sql import SparkSession

import headwater.spark
from headwater.testing.postgres import EmbeddedPostgres, installed
from tests.captured_group import Group
from tests.mirror import JVM, IcebergMirror, Mirror


@pytest.hookimpl(tryfirst=True)  # before pytest makes its own
def pytest_configure(config: pytest.Config) -> None:
    """Give the run a folder of its own: pytest's is closed to other users whenever another run of this user starts.

    As root, the servers whose data is in it run as another user.
    """
    if config.option.basetemp is None:
        config.option.basetemp = tempfile.mkdtemp(prefix="headwater-tests-")
        config.add_cleanup(partial(_removed_if_all_passed, config))


def _removed_if_all_passed(config: pytest.Config) -> None:
    session = config.pluginmanager.get_plugin("session")
    if session is not None and session.exitstatus == pytest.ExitCode.OK:
        shutil.rmtree(config.option.basetemp, ignore_errors=True)


@pytest.hookimpl(trylast=True)  # after they were put into random order
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The long ones first: no worker should be left alone with one of them at the end. Then those that need Spark.

    Spark ends Python workers that are idle for a minute, and new ones take seconds to start.
    """
    spark = {item.path for item in items if "spark" in getattr(item, "fixturenames", ())}
    items.sort(key=lambda item: ("/proof/" not in str(item.path), item.path not in spark))
    for item in items if LAKE is not Mirror else ():
        if item.get_closest_marker("ducklake_only"):
            item.add_marker(pytest.mark.skip("it is about something that only DuckLake has"))


VERSION = int(os.environ.get("HEADWATER_POSTGRES", "18"))  # of almost all tests; `make servers` tries each there is
LAKE = {"ducklake": Mirror, "iceberg": IcebergMirror}[os.environ.get("HEADWATER_LAKE", "ducklake")]
VERSIONS = [VERSION] if "HEADWATER_POSTGRES" in os.environ else sorted(installed())  # of those that try every one
# The same where there are many: `make prove` tries the others, of which a test in each file is enough for `make test`.
MORE_VERSIONS = [pytest.param(each, marks=() if each == VERSION else pytest.mark.long) for each in VERSIONS]

FAST = {
    "fsync": "off",
    "full_page_writes": "off",
    "max_prepared_transactions": "5",
    "max_replication_slots": "60",
    "max_wal_senders": "60",
}


@pytest.fixture(scope="session")
def servers() -> Iterator[Callable[[int], EmbeddedPostgres]]:
    """A server of a version, started when it is first asked for."""
    # Not pytest's tmp_path: the server's own user must be able to reach it when we run as root.
    with tempfile.TemporaryDirectory(prefix="headwater-pg-", ignore_cleanup_errors=True) as folder:
        started: dict[int, EmbeddedPostgres] = {}

        def of_version(version: int) -> EmbeddedPostgres:
            if version not in started:
                made = EmbeddedPostgres(Path(folder) / str(version), version=version, settings=FAST)
                started[version] = made.start()
            return started[version]

        yield of_version
        for server in started.values():
            server.stop()


@pytest.fixture(scope="session")
def postgres(servers: Callable[[int], EmbeddedPostgres]) -> EmbeddedPostgres:
    return servers(VERSION)


@contextmanager
def new_database(postgres: EmbeddedPostgres) -> Iterator[str]:
    name = f"t_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(postgres.url(), autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name}")
        yield postgres.url(name)
        # With a timeout, because else it does not wait for the end: a slot that is being read cannot be dropped.
        admin.execute("SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = %s", (name,))
        admin.execute(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots"
            " WHERE database = %s AND NOT temporary",
            (name,),
        )
        admin.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def database(postgres: EmbeddedPostgres) -> Iterator[str]:
    """The URL of a new, empty database; dropped afterwards with its slots."""
    with new_database(postgres) as url:
        yield url


@pytest.fixture
def other_database(postgres: EmbeddedPostgres) -> Iterator[str]:
    """One more, for tests with two of everything."""
    with new_database(postgres) as url:
        yield url


@pytest.fixture
def group(database: str, tmp_path: Path) -> Iterator[Group]:
    group = Group.opened(database, tmp_path / "log")
    yield group
    group.state.close()


@pytest.fixture(scope="module")
def own_postgres() -> Iterator[EmbeddedPostgres]:
    """A server of the module's own, to be restarted, broken and misconfigured."""
    with tempfile.TemporaryDirectory(prefix="headwater-pg-", ignore_cleanup_errors=True) as folder:
        server = EmbeddedPostgres(Path(folder) / "pg", version=VERSION, settings={"max_replication_slots": "2"})
        yield server.start()
        server.stop()


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    conf = {"spark.driver.memory": "1g", "spark.driver.extraJavaOptions": JVM}
    session = headwater.spark.session("local[2]", conf, "headwater-tests")
    headwater.spark.warm_up(session)
    yield session
    session.stop()


@pytest.fixture
def mirror(database: str, spark: SparkSession, tmp_path: Path) -> Iterator[Mirror]:
    """A database, a lake (a DuckLake on SQLite, unless HEADWATER_LAKE says iceberg), and what lies between them."""
    with closing(LAKE(database, spark, tmp_path)) as made:
        yield made


@pytest.fixture
def iceberg_mirror(database: str, spark: SparkSession, tmp_path: Path) -> Iterator[IcebergMirror]:
    """The same with an Iceberg lake, whatever the others have."""
    with closing(IcebergMirror(database, spark, tmp_path)) as made:
        yield made
