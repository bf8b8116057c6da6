"""Verify knows what Headwater carries in another form: quarantine, rows without a key, histories, parts of tables."""

from __future__ import annotations

import json

from tests.mirror import Mirror

from headwater import flow
from headwater.verify import Verified

# The same values, of a table with the same OID that another pipeline brings into the same lake.
OF_ANOTHER = (
    "INSERT INTO lake.headwater_quarantine SELECT * REPLACE ('x/g' AS source) FROM lake.headwater_quarantine"
    " WHERE resolved_lsn IS NULL"
)


def settled(mirror: Mirror, *statements: str) -> dict[str, Verified]:
    """The verdicts, by table, once these statements are in the lake."""
    mirror.execute(*statements)
    mirror.settle()
    return {each.table.removeprefix("public."): each for each in mirror.verify()}


def test_a_value_in_quarantine_is_no_difference_and_one_that_is_lost_is(mirror: Mirror) -> None:
    mirror.execute(
        "CREATE TABLE t (id uuid, part date, n numeric, at timestamp, l int[], PRIMARY KEY (id, part))",
        "INSERT INTO t SELECT md5(i::text)::uuid, '2026-01-01', i, NULL, '{1}' FROM generate_series(1, 20) i",
        "INSERT INTO t VALUES (md5('a')::uuid, '0044-01-01 BC', 'NaN', '294276-01-01', '{{1}}')",
    )
    mirror.start()
    found = settled(
        mirror,
        "UPDATE t SET n = 'Infinity' WHERE id = md5('1')::uuid",
        "UPDATE t SET n = 'NaN' WHERE id = md5('2')::uuid",
        "ALTER TABLE t RENAME n TO amount",
        "UPDATE t SET at = now() WHERE id = md5('3')::uuid",
    )
    assert (found["t"].ok, found["t"].source_rows, found["t"].lake_rows) == (True, 21, 21)
    mirror.ask(OF_ANOTHER)
    assert mirror.verify()[0].ok
    mirror.ask("DELETE FROM lake.headwater_quarantine WHERE value = 'Infinity'")
    mirror.ask("UPDATE lake.headwater_quarantine SET value = '{{2}}' WHERE column_name = 'l'")
    (found["t"],) = mirror.verify()
    assert not found["t"].ok
    assert {(each.source, each.lake) for each in found["t"].differences} == {
        (None, '{"quarantine":{"l":"{{2}}"}}'),
        ('{"quarantine":{"amount":"Infinity"}}', None),
        ('{"quarantine":{"l":"{{1}}"}}', None),
    }
    mirror.ask("UPDATE lake.public.t SET amount = 7 WHERE amount = 4")
    assert len(mirror.verify()[0].differences) == 4


def test_rows_without_a_key_are_compared_with_their_number(mirror: Mirror) -> None:
    mirror.execute(
        "CREATE TABLE bag (a int, b text, n numeric)",
        "ALTER TABLE bag REPLICA IDENTITY FULL",
        "INSERT INTO bag VALUES (1, 'x', 1), (1, 'x', 1), (1, 'x', 1), (2, NULL, NULL), (3, 'y', 'NaN')",
        "CREATE TABLE empty (a int)",
    )
    mirror.start()
    found = settled(mirror, "INSERT INTO bag VALUES (1, 'x', 1), (2, NULL, NULL), (4, 'z', 'NaN')")
    assert [(each.ok, each.source_rows) for each in (found["bag"], found["empty"])] == [(True, 8), (True, 0)]
    mirror.ask("INSERT INTO lake.public.bag VALUES (1, 'x', 1), (5, 'new', 0)")
    mirror.ask("DELETE FROM lake.public.bag WHERE a = 2")
    found["bag"], _ = mirror.verify()
    assert {(each.source or each.lake, each.source_count, each.lake_count) for each in found["bag"].differences} == {
        ('{"a":"1","b":"x","n":"1"}', 4, 5),
        ('{"a":"2","b":null,"n":null}', 2, 0),
        ('{"a":"5","b":"new","n":"0.000000000000000000"}', 0, 1),
    }
    assert {each.key for each in found["bag"].differences} == {""}
    mirror.ask("DELETE FROM lake.public.bag WHERE a = 5")
    mirror.ask("INSERT INTO lake.public.bag VALUES (2, NULL, NULL), (2, NULL, NULL)")
    mirror.ask("DELETE FROM lake.public.bag WHERE a = 1")  # pairs must not cancel each other out
    mirror.ask("INSERT INTO lake.public.bag SELECT 7, 'x', 1 FROM range(4)")
    found["bag"], _ = mirror.verify()
    assert [(each.source_count, each.lake_count) for each in found["bag"].differences] == [(0, 4), (4, 0)]


def test_a_history_is_compared_by_what_its_changes_come_to(mirror: Mirror) -> None:
    mirror.execute(
        "CREATE TABLE h (id int, part timestamptz, v text, PRIMARY KEY (id, part))",
        "CREATE TABLE keyless (id int)",
        "ALTER TABLE h ALTER v SET STORAGE EXTERNAL",
        "INSERT INTO h SELECT i, '2026-01-01', 'copied' FROM generate_series(1, 10) i",
    )
    mirror.start({"table": "public.h", "mode": "history"}, {"table": "public.keyless", "mode": "history"})
    default = " DEFAULT 1" if mirror.kind == "ducklake" else ""  # it would start an Iceberg table's history over
    mirror.execute(
        "UPDATE h SET v = 'changed' WHERE id = 1",
        "UPDATE h SET id = 20 WHERE id = 2",
        "DELETE FROM h WHERE id = 3",
        "INSERT INTO h VALUES (3, '2026-01-01', repeat('x', 9000)), (4, '0044-01-01 BC', NULL)",
        f"ALTER TABLE h ADD n int{default}",
        "UPDATE h SET n = 2 WHERE id = 3",  # the large value is not sent again
        "INSERT INTO keyless VALUES (1)",
    )
    mirror.sync()
    found = settled(
        mirror,
        'ALTER TABLE h RENAME id TO "i/d"',  # what was given under the old names still counts
        "ALTER TABLE h RENAME v TO w",
        "ALTER TABLE h RENAME n TO v",
        'UPDATE h SET v = 5 WHERE "i/d" = 6',
    )
    assert (found["h"].ok, found["h"].source_rows, found["h"].lake_rows) == (True, 11, 11), found
    assert (found["keyless"].verdict, found["keyless"].ok) == ("not compared", True)
    assert "no key" in found["keyless"].reason
    found = settled(mirror, "TRUNCATE h", "INSERT INTO h VALUES (1, 'infinity', 'new')")
    assert (found["h"].ok, found["h"].source_rows) == (True, 1)
    mirror.ask("DELETE FROM lake.public.h WHERE _op = 'truncate'")
    assert mirror.verify(["public.h"])[0].lake_rows == 12
    mirror.ask("INSERT INTO lake.public.h FROM lake.public.h WHERE _op IN ('copy', 'delete')")
    doubled = mirror.verify(["public.h"])[0]
    assert (doubled.verdict, "has 11 changes more than once" in doubled.reason) == ("differs", True)


def test_only_what_is_carried_is_compared(mirror: Mirror) -> None:
    mirror.execute(
        "CREATE TABLE parted (id int, secret text, v text, made text GENERATED ALWAYS AS (upper(v)) STORED,"
        " PRIMARY KEY (id)) PARTITION BY RANGE (id)",
        "CREATE TABLE low PARTITION OF parted FOR VALUES FROM (0) TO (10)",
        "CREATE TABLE high (v text, made text GENERATED ALWAYS AS (upper(v)) STORED, id int NOT NULL, secret text)",
        "ALTER TABLE parted ATTACH PARTITION high FOR VALUES FROM (10) TO (20)",
        "CREATE TABLE typed (id int PRIMARY KEY, v numeric)",
        "INSERT INTO parted SELECT i, 's', 'v' FROM generate_series(0, 19) i",
        "INSERT INTO typed SELECT i, i FROM generate_series(1, 20) i",
    )
    mirror.start(
        {"table": "public.parted", "exclude": ["secret"]}, {"table": "public.typed", "types": {"v": "decimal(5,1)"}}
    )
    mirror.add_in_lake("typed", "note")
    found = settled(
        mirror,
        "UPDATE parted SET secret = 'other', v = 'w' WHERE id = 3",
        "ALTER TABLE typed RENAME TO renamed",
        "UPDATE renamed SET v = 1.25 WHERE id = 3",
    )
    assert {name: (each.ok, each.source_rows, each.lake_table) for name, each in found.items()} == {
        "parted": (True, 20, "public.parted"),
        "renamed": (True, 20, "public.renamed"),
    }
    mirror.ask("DELETE FROM lake.public.parted WHERE id = 15")
    parted, _ = mirror.verify()
    assert [json.loads(each.key) for each in parted.differences] == [{"id": "15"}]


def test_a_table_that_was_copied_again_has_its_misfits_once(mirror: Mirror) -> None:
    mirror.execute("CREATE TABLE t (id int PRIMARY KEY, n numeric)", "INSERT INTO t VALUES (1, 'NaN'), (2, 'NaN')")
    mirror.start()
    mirror.execute("DELETE FROM t WHERE id = 2", "ALTER TABLE t ALTER id TYPE text")
    mirror.execute("INSERT INTO t VALUES ('a', 'Infinity')")
    mirror.sync()
    (waiting,) = mirror.verify()
    assert (waiting.ok, waiting.reason.split(":")[0]) == (False, "it is waiting to be copied again")
    mirror.ask(OF_ANOTHER)
    flow.copy(mirror.m)
    found = settled(mirror, "INSERT INTO t VALUES ('b', 'NaN')", "DELETE FROM t WHERE id = 'a'")
    assert found["t"].ok, found
    marked = "SELECT count(*) FROM lake.headwater_quarantine WHERE source = 'x/g' AND resolved_lsn IS NOT NULL"
    assert mirror.ask(marked) == [(0,)]
