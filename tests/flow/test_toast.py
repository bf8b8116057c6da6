"""Large values that an update left alone: PostgreSQL does not send them again, and they must not get lost."""

from __future__ import annotations

import pytest
from psycopg.types.string import TextLoader
from tests.mirror import Mirror

DOCS = (
    "CREATE TABLE docs (id int PRIMARY KEY, body text, note text, extra int, bin bytea, tags text[], doc jsonb,"
    " sums numeric(12,2)[])"
)
LARGE = ("bin", "tags", "doc", "sums")  # beside the body: columns that few changes touch
# not compressed: a few kilobytes are enough
EXTERNAL = "ALTER TABLE docs " + ", ".join(f"ALTER {name} SET STORAGE EXTERNAL" for name in ("body", *LARGE))
BIG = "repeat(md5(({})::text), 200)"
ALL_BIG = (
    f"SELECT i, {BIG.format('i')}, 'note ' || i, i, decode({BIG.format('i')}, 'hex'),"
    f" ARRAY[{BIG.format('i')}, NULL, '', 'a,\"b', i::text], jsonb_build_object('k', {BIG.format('i')}, 'n', 1.50),"
    " array_fill(i + 0.25, ARRAY[700]) || NULL FROM generate_series({}, {}) i"
)


def filled(mirror: Mirror, *more: str) -> Mirror:
    mirror.source.adapters.register_loader("jsonb", TextLoader)  # as DuckDB reads it
    mirror.execute(DOCS, EXTERNAL, *more, f"INSERT INTO docs {ALL_BIG.format(1, 20)}")
    mirror.start()
    return mirror


HISTORIES = {
    "from the lake": ["UPDATE docs SET note = 'changed'"],
    "from the batch": [
        f"INSERT INTO docs {ALL_BIG.format(100, 100)}",
        "UPDATE docs SET note = 'changed' WHERE id = 100",
    ],
    "some of them changed": [
        "UPDATE docs SET bin = bin || '\\x00'::bytea WHERE id % 2 = 0",
        "UPDATE docs SET tags[2] = 'new', sums[1] = NULL WHERE id % 3 = 0",
        "UPDATE docs SET doc = doc || '{\"m\": null}', note = 'n' WHERE id % 5 = 0",
    ],
    "from an update of the batch": [
        f"UPDATE docs SET body = {BIG.format(7)} WHERE id < 5",
        "UPDATE docs SET note = 'a' WHERE id < 4",
        "UPDATE docs SET note = 'b' WHERE id < 3",
    ],
    "after the key changed": ["UPDATE docs SET id = id + 1000, note = 'moved' WHERE id % 2 = 0"],
    "the key changed twice": [
        "UPDATE docs SET id = id + 1000 WHERE id = 3",
        "UPDATE docs SET note = 'x' WHERE id = 1003",
        "UPDATE docs SET id = 3 WHERE id = 1003",
    ],
    "keys that swap": [
        "UPDATE docs SET id = -1 WHERE id = 1",
        "UPDATE docs SET id = 1 WHERE id = 2",
        "UPDATE docs SET id = 2 WHERE id = -1",
    ],
    "after a delete and a new insert": [
        "DELETE FROM docs WHERE id = 4",
        f"INSERT INTO docs VALUES (4, {BIG.format(44)}, 'again', NULL)",
        "UPDATE docs SET note = 'and changed' WHERE id = 4",
    ],
    "set to null, then left alone": [
        "UPDATE docs SET body = NULL WHERE id = 5",
        "UPDATE docs SET note = 'n' WHERE id = 5",
    ],
    "after a truncate": [
        "TRUNCATE docs",
        f"INSERT INTO docs SELECT i, {BIG.format('i + 50')}, 'n', NULL FROM generate_series(1, 3) i",
        "UPDATE docs SET note = 'changed'",
    ],
    "with a column that came in between": [
        "UPDATE docs SET note = 'before'",
        "ALTER TABLE docs ADD added text DEFAULT 'given'",
        "UPDATE docs SET note = 'after' WHERE id % 2 = 0",
        "ALTER TABLE docs RENAME body TO content",
        "UPDATE docs SET added = 'changed' WHERE id % 3 = 0",
    ],
}


def histories(mirror: Mirror) -> list[list[str]]:
    """On Iceberg without the default: the table would be copied again, and with it the values that were left alone."""
    followed = mirror.kind == "ducklake"
    return [
        [each if followed else each.replace(" DEFAULT 'given'", "") for each in statements]
        for statements in HISTORIES.values()
    ]


@pytest.mark.parametrize("identity", ["DEFAULT", "FULL"])
def test_a_value_left_alone_is_still_there(mirror: Mirror, identity: str) -> None:
    filled(mirror, f"ALTER TABLE docs REPLICA IDENTITY {identity}")
    for statements in histories(mirror):
        mirror.execute(*statements)
        mirror.sync()
        mirror.assert_equal("docs")
    assert mirror.ask("SELECT min(length(content)) FROM lake.public.docs") == [(6400,)]


@pytest.mark.long
def test_each_change_in_a_delivery_of_its_own(mirror: Mirror) -> None:
    filled(mirror)
    for statements in histories(mirror):
        for statement in statements:
            mirror.execute(statement)
            if statement.startswith("ALTER"):
                mirror.looked()  # nothing is sent before there is data
            mirror.sync()
            mirror.assert_equal("docs")


@pytest.mark.parametrize("before", [[], [f"UPDATE docs SET body = {BIG.format(3)} WHERE id = 3"]])
def test_a_moved_row_finds_its_past_in_a_batch_that_is_spread_over_tasks(mirror: Mirror, before: list[str]) -> None:
    filled(mirror)
    mirror.execute(
        "INSERT INTO docs SELECT i, 'small', 'n', NULL FROM generate_series(1000, 41000) i",
        *before,
        "UPDATE docs SET id = -id WHERE id < 1000",
        "UPDATE docs SET note = 'moved' WHERE id < 0",
    )
    mirror.sync()
    mirror.assert_equal("docs")


def test_a_key_so_large_that_it_is_stored_apart(mirror: Mirror) -> None:
    mirror.execute(
        "CREATE TABLE wide (k text PRIMARY KEY, n int)",
        "ALTER TABLE wide ALTER k SET STORAGE EXTERNAL",
        "INSERT INTO wide SELECT repeat(i::text, 2500), i FROM generate_series(1, 9) i",
    )
    mirror.start()
    mirror.execute(
        "UPDATE wide SET n = n + 1", "UPDATE wide SET k = k || 'x' WHERE n = 3", "DELETE FROM wide WHERE n = 5"
    )
    mirror.sync()
    mirror.assert_equal("wide")
