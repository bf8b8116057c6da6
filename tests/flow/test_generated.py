"""Generated columns: what PostgreSQL sends is mirrored, from the first copy on; what it does not send is listed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.conftest import MORE_VERSIONS, VERSIONS, new_database
from tests.mirror import Mirror

from headwater.status import open_status
from headwater.testing.postgres import EmbeddedPostgres


@pytest.mark.parametrize("version", VERSIONS)
def test_generated_columns_are_mirrored_or_listed_as_not_mirrored(
    version: int, servers: Callable[[int], EmbeddedPostgres], spark: SparkSession, tmp_path: Path
) -> None:
    virtual = ", v int GENERATED ALWAYS AS (a + 1) VIRTUAL" if version >= 18 else ""
    columns = f"id int PRIMARY KEY, a int, s int GENERATED ALWAYS AS (a * 2) STORED{virtual}"
    with new_database(servers(version)) as url, closing(Mirror(url, spark, tmp_path)) as mirror:
        mirror.execute(
            f"CREATE TABLE t ({columns})",
            f"CREATE TABLE less ({columns})",
            "INSERT INTO t VALUES (1, 1), (2, 2)",
            "INSERT INTO less VALUES (1, 1)",
        )
        leave_out = [{"table": "public.less", "exclude": ["v" if virtual else "s"]}] if version >= 15 else []
        mirror.start("public.t", *leave_out)
        mirror.execute("INSERT INTO t VALUES (3, 3)", "UPDATE t SET a = 10 WHERE id = 1")
        mirror.sync()
        sent = "id, a, s" if version >= 18 else "id, a"
        assert mirror.ask("SELECT * FROM lake.public.t ORDER BY id") == mirror.rows_of(
            f"SELECT {sent} FROM t ORDER BY id"
        )
        with open_status(mirror.config, {}) as ask:
            listed = {each.table: each.not_mirrored for each in ask().groups[0].tables}
        unsent = ("v",) if version >= 18 else ("s",)
        assert listed == {"public.t": unsent} | {each["table"]: () for each in leave_out}


@pytest.mark.parametrize("version", MORE_VERSIONS)
def test_a_column_that_is_not_generated_any_more_shows_what_it_held(
    version: int, servers: Callable[[int], EmbeddedPostgres], spark: SparkSession, tmp_path: Path
) -> None:
    with new_database(servers(version)) as url, closing(Mirror(url, spark, tmp_path)) as mirror:
        mirror.execute("CREATE TABLE t (id int PRIMARY KEY, a int, s int GENERATED ALWAYS AS (a * 2) STORED)")
        mirror.execute("INSERT INTO t VALUES (1, 1), (2, 2)")
        mirror.start()
        mirror.execute("ALTER TABLE t ALTER s DROP EXPRESSION", "UPDATE t SET s = 7 WHERE id = 1")
        mirror.settle()
        mirror.assert_equal("t")
