"""Rows of a large file are found by an index of its keys, which is kept beside the log."""

from __future__ import annotations

from dataclasses import replace

from tests.mirror import Mirror

UPDATES = (
    "UPDATE big SET v = v + 1 WHERE n % 1000 = 0",
    "UPDATE big SET v = v + 1, id = md5(id::text)::uuid WHERE n % 3000 = 7",
    "DELETE FROM big WHERE n % 50 = 11 AND n < 100 * (SELECT max(v) FROM big)",
)


def test_rows_of_a_large_table_are_replaced_with_the_help_of_an_index(mirror: Mirror) -> None:
    mirror.execute(
        "CREATE TABLE big (id uuid PRIMARY KEY, n int, v int)",
        "INSERT INTO big SELECT md5(i::text)::uuid, i, 0 FROM generate_series(1, 12000) i",
    )
    mirror.start("public.big")
    assert mirror.m.indexes is not None
    mirror.m = replace(
        mirror.m, indexes=replace(mirror.m.indexes, least_rows=1000)
    )  # as if files were large from there
    index = mirror.folder / "log" / "index"
    assert not index.exists()  # it is made when rows are looked for
    for _ in range(2):
        mirror.execute(*UPDATES)
        mirror.sync()
        mirror.assert_equal("big")
    assert any(each.is_file() for each in index.rglob("*.keys"))
