"""What is kept of each delivery: what it brought, and where its time went."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from tests.mirror import Mirror

from headwater import flow
from headwater.change import Lsn
from headwater.lake.counts import Counts
from headwater.state import DeliveryRow, Work
from headwater.state.transitions import Failed

MORE = 5_000  # rows: too many for the lake's catalog


@pytest.fixture
def filled(mirror: Mirror) -> Mirror:
    for name in ("orders", "items"):
        mirror.execute(f"CREATE TABLE {name} (id bigint PRIMARY KEY, note text)")
        mirror.execute(f"INSERT INTO {name} SELECT i, 'first' FROM generate_series(1, 100) i")
    mirror.start()
    mirror.sync()
    return mirror


def delivered(mirror: Mirror) -> tuple[flow.Delivered, DeliveryRow]:
    """The only delivery of everything committed so far, and what is kept of it."""
    (done,) = (each for each in mirror.sync() if each.landed)
    return done, mirror.m.state.deliveries("g")[0]


def work(done: flow.Delivered) -> Work:
    assert done.work is not None
    return done.work


def oid_of(mirror: Mirror, name: str) -> int:
    return next(row.oid for row in mirror.m.state.tables("g") if row.source.name == name)


def test_a_delivery_is_kept_with_its_counts_position_and_phases(filled: Mirror) -> None:
    filled.transaction(
        f"INSERT INTO orders SELECT i, 'second' FROM generate_series(101, {100 + MORE}) i",
        "UPDATE orders SET note = 'third' WHERE id <= 30",
        "DELETE FROM orders WHERE id > 90 AND id <= 100",
    )
    done, row = delivered(filled)
    assert (row.group, row.position, row.snapshot_id) == ("g", done.position, done.snapshot_id)
    assert (row.inserted, row.updated, row.deleted) == (MORE, 30, 10)
    assert (row.changes, row.tables, row.oids) == (MORE + 40, 1, (oid_of(filled, "orders"),))
    assert row.phases == work(done).phases
    assert min(row.phases.fold, row.phases.locate, row.phases.write, row.phases.commit) > 0
    assert row.phases.wait >= 0
    assert row.bytes > 0
    assert row.lag_seconds > 0
    spent = row.phases.wait + row.phases.fold + row.phases.locate + row.phases.write
    assert row.lag_seconds > spent  # the commit was older than what was staged of it


def test_the_wait_begins_when_the_oldest_change_is_in_the_log(filled: Mirror) -> None:
    filled.execute("INSERT INTO orders VALUES (1001, 'staged')")
    filled.captured()
    with filled.m.state.transaction() as connection:
        connection.execute("UPDATE headwater.segments SET created_at = created_at - interval '2 hours'")
    _, row = delivered(filled)
    assert 7200 < row.phases.wait < 7200 + 600
    assert row.lag_seconds < 600  # which the source's clock says


def test_a_step_without_changes_is_not_kept(filled: Mirror) -> None:
    before = filled.m.state.deliveries("g")
    filled.execute("SELECT pg_logical_emit_message(true, 'test', 'nothing')")
    filled.sync()
    assert filled.m.state.deliveries("g") == before


def test_a_table_that_only_catches_up_does_not_answer_for_what_the_others_waited(filled: Mirror) -> None:
    filled.execute("INSERT INTO items VALUES (1000, 'before it failed')")
    filled.sync()
    items = oid_of(filled, "items")
    filled.m.state.record("g", items, Failed("on purpose", datetime.now(UTC)))
    filled.execute("INSERT INTO orders VALUES (1000, 'meanwhile')")
    filled.sync()
    with filled.m.state.transaction() as connection:
        connection.execute("UPDATE headwater.segments SET first_commit_at = first_commit_at - interval '2 hours'")
    flow.try_again(filled.m.state, "g")
    filled.execute("INSERT INTO items VALUES (1001, 'after it failed')")
    filled.sync()
    row = filled.m.state.deliveries("g")[0]
    assert (row.oids, row.changes, row.lag_seconds < 600) == ((items,), 1, True)


def test_a_delivery_of_inserts_alone_searches_nothing(filled: Mirror) -> None:
    filled.execute("INSERT INTO items VALUES (1001, 'a'), (1002, 'b')")
    done, row = delivered(filled)
    assert row.phases.locate == 0
    assert row.phases.write > 0
    assert work(done).counts == Counts(inserted=2)


@pytest.mark.ducklake_only
def test_rows_that_went_into_the_catalog_are_no_bytes_of_files(filled: Mirror) -> None:
    filled.execute("UPDATE items SET note = 'changed' WHERE id < 4")
    assert delivered(filled)[1].bytes == 0


def test_a_divided_table_has_its_phases_too(filled: Mirror) -> None:
    filled.m = replace(filled.m, split_from=10)
    filled.execute("UPDATE orders SET note = 'changed'", "UPDATE items SET note = 'changed'")
    _, row = delivered(filled)
    assert (row.updated, row.tables) == (200, 2)
    assert min(row.phases.fold, row.phases.locate, row.phases.write) > 0


def test_an_iceberg_lake_tells_the_same(iceberg_mirror: Mirror) -> None:
    iceberg_mirror.execute("CREATE TABLE orders (id bigint PRIMARY KEY, note text)")
    iceberg_mirror.execute("INSERT INTO orders SELECT i, 'first' FROM generate_series(1, 100) i")
    iceberg_mirror.start()
    iceberg_mirror.sync()
    iceberg_mirror.transaction("UPDATE orders SET note = 'b' WHERE id < 10", "INSERT INTO orders VALUES (101, 'new')")
    done, row = delivered(iceberg_mirror)
    assert (row.inserted, row.updated, row.deleted, row.changes) == (1, 9, 0, 10)
    assert (row.position, row.snapshot_id) == (done.position, done.position.value)
    assert row.bytes > 0
    assert min(row.phases.fold, row.phases.locate, row.phases.write, row.phases.commit) > 0


def test_old_deliveries_go_when_the_group_is_tidied(filled: Mirror) -> None:
    with filled.m.state.transaction() as connection:
        connection.execute(
            "INSERT INTO headwater.deliveries (group_name, at, position, snapshot_id, changes, tables, inserted,"
            " updated, deleted, bytes, lag_seconds, phase_wait, phase_fold, phase_locate, phase_write, phase_commit,"
            " source_oids) SELECT 'g', now() - interval '3 hours', '0/1', 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, '{1}'"
            " FROM generate_series(1, 250)"
        )
    flow.tidy(filled.m)
    kept = filled.m.state.deliveries("g", limit=1000)
    assert len(kept) == 100
    assert kept[0].position == Lsn(1)
