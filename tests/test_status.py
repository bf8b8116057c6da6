"""The status tells where everything stands, in numbers that are true, and the same to people and to programs."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from headwater import flow
from headwater.change import Lsn
from headwater.errors import ConfigError
from headwater.status import Status, TableStatus, open_status
from headwater.statusview import json_of, show
from headwater.supervise.readying import make_ready
from tests.mirror import Mirror


def asked(mirror: Mirror) -> Status:
    with open_status(mirror.config) as ask:
        return ask()


def tables(status: Status) -> dict[str, TableStatus]:
    (group,) = status.groups
    return {each.table: each for each in group.tables}


@pytest.fixture
def shop(mirror: Mirror) -> Mirror:
    mirror.execute(
        "CREATE TABLE orders (id int PRIMARY KEY, placed timestamptz)",
        "CREATE TABLE quiet (id int PRIMARY KEY)",
        "INSERT INTO orders SELECT i, now() FROM generate_series(1, 100) i",
    )
    return mirror


def test_the_numbers_follow_a_table_through_its_life(shop: Mirror) -> None:
    shop.start(copy=False)
    before = asked(shop)
    assert {name: (each.state, each.rows, each.position) for name, each in tables(before).items()} == {
        "public.orders": ("PENDING", 0, None),
        "public.quiet": ("PENDING", 0, None),
    }
    (group,) = before.groups
    assert (group.name, group.lake, group.delivered_lsn, group.snapshot_id) == ("g", "main", None, None)
    assert before.healthy

    flow.copy(shop.m)
    copied = tables(asked(shop))
    orders = copied["public.orders"]
    assert (orders.state, orders.rows, orders.copied_rows, orders.inserted) == ("CATCHUP", 100, 100, 0)
    assert (orders.lake, orders.lake_table) == ("main", "public.orders")
    assert orders.position == copied["public.quiet"].position is not None

    shop.execute(
        "INSERT INTO orders SELECT i, now() FROM generate_series(101, 110) i",
        "UPDATE orders SET placed = NULL WHERE id <= 5",
        "DELETE FROM orders WHERE id BETWEEN 6 AND 8",
    )
    shop.captured()
    (group,) = asked(shop).groups
    assert group.staged_rows == 18
    assert group.staged_segments >= 1
    assert group.lag_seconds > 0
    assert group.slot_active is True

    (done,) = shop.sync()
    status = asked(shop)
    (group,) = status.groups
    orders = tables(status)["public.orders"]
    assert (orders.state, orders.rows, orders.inserted, orders.updated, orders.deleted) == ("STREAMING", 107, 10, 5, 3)
    assert (group.staged_segments, group.staged_rows, group.lag_seconds) == (0, 0, 0)
    assert (group.delivered_lsn, group.snapshot_id) == (str(done.position), done.snapshot_id)
    assert orders.position == tables(status)["public.quiet"].position == group.delivered_lsn
    assert group.captured_lsn is not None
    assert Lsn.parse(group.captured_lsn) >= done.position
    assert Lsn.parse(status.source_lsn) >= done.position
    assert group.capture_lag_bytes is not None
    assert group.capture_lag_bytes >= 0
    assert shop.ask("SELECT count(*) FROM lake.public.orders") == [(orders.rows,)]
    assert status.healthy

    shop.execute("TRUNCATE orders", "INSERT INTO orders VALUES (1, NULL)")
    shop.captured()
    (staged,) = asked(shop).groups
    assert staged.delivered_at == group.delivered_at  # what is only captured is not delivered
    shop.execute("CREATE TABLE late (id int PRIMARY KEY)")
    make_ready(shop.configure("public.orders", "public.quiet", "public.late"), shop.m.state)
    flow.copy(shop.m)
    (ahead,) = asked(shop).groups
    assert ahead.delivered_lsn == group.delivered_lsn  # one table is ahead, the others are where they were
    assert (ahead.snapshot_id, ahead.staged_rows) != (group.snapshot_id, 0)
    shop.sync()
    (done_now,) = asked(shop).groups
    orders = tables(asked(shop))["public.orders"]
    assert (orders.rows, orders.inserted, orders.deleted) == (1, 11, 110)
    assert group.delivered_at is not None
    assert done_now.delivered_at is not None
    assert done_now.delivered_at > group.delivered_at
    assert done_now.delivered_lsn == orders.position


def in_trouble(shop: Mirror) -> Status:
    """One table cannot go on, the other one can."""
    shop.start()
    shop.ask("ALTER TABLE lake.public.orders SET PARTITIONED BY (id)")
    shop.execute("INSERT INTO orders VALUES (200, now())", "INSERT INTO quiet VALUES (1), (2)")
    shop.sync()
    return asked(shop)


def test_a_table_that_cannot_go_on_is_told_with_its_reason_and_its_next_try(shop: Mirror) -> None:
    status = in_trouble(shop)
    assert not status.healthy
    orders, quiet = tables(status)["public.orders"], tables(status)["public.quiet"]
    assert orders.state == "ERRORED"
    assert "another client has partitioned" in (orders.error or "")
    assert orders.retry_at is not None
    assert orders.retry_at > datetime.now(UTC)
    assert orders.rows == 100
    assert (quiet.state, quiet.rows, quiet.error) == ("STREAMING", 2, None)


def test_values_in_quarantine_are_counted_and_a_copy_that_is_to_come_is_told(
    shop: Mirror, capsys: pytest.CaptureFixture[str]
) -> None:
    shop.execute("ALTER TABLE orders ADD total numeric", "UPDATE orders SET total = 'NaN' WHERE id = 1")
    shop.start()
    shop.execute("INSERT INTO orders VALUES (200, '294276-01-01', 'Infinity')")
    shop.sync()
    orders = tables(asked(shop))["public.orders"]
    assert (orders.state, orders.quarantined, orders.mode, orders.resync) == ("STREAMING", 3, "mirror", None)
    shop.execute("ALTER TABLE orders ALTER id TYPE text", "INSERT INTO orders VALUES ('a', NULL, 1)")
    shop.sync()
    status = asked(shop)
    orders = tables(status)["public.orders"]
    assert (orders.state, status.healthy) == ("PENDING", True)
    assert "'id' became" in (orders.resync or "")
    show(lambda: status, as_json=False, watch=False)
    assert f"copied again, because {orders.resync}" in capsys.readouterr().out
    assert json.loads(json_of(status))["groups"][0]["tables"][0]["resync"] == orders.resync
    flow.copy(shop.m)
    orders = tables(asked(shop))["public.orders"]
    assert (orders.state, orders.rows, orders.resync) == ("CATCHUP", 102, None)
    shop.execute("DELETE FROM orders WHERE id = 'a'")
    shop.sync()
    assert tables(asked(shop))["public.orders"].rows == 101


def test_the_group_tells_its_own_trouble_and_a_slot_that_is_gone(shop: Mirror) -> None:
    shop.start()
    shop.sync()
    shop.m.state.record_error("g", "delivery", "the lake does not answer")
    (group,) = asked(shop).groups
    assert group.error == "the lake does not answer"
    assert not asked(shop).healthy
    shop.stop_capture()
    (group,) = asked(shop).groups
    assert group.slot_active is False
    shop.execute("SELECT pg_drop_replication_slot('headwater_g')")
    (group,) = asked(shop).groups
    assert (group.slot_active, group.capture_lag_bytes) == (None, None)


def test_json_and_text_say_the_same(shop: Mirror, capsys: pytest.CaptureFixture[str]) -> None:
    status = in_trouble(shop)
    told = json.loads(json_of(status))
    assert told["healthy"] is False
    assert told["source_lsn"] == status.source_lsn
    (group,) = told["groups"]
    assert (group["name"], group["snapshot_id"]) == ("g", status.groups[0].snapshot_id)
    orders, quiet = group["tables"]
    assert (orders["table"], orders["state"], orders["rows"]) == ("public.orders", "ERRORED", 100)
    assert datetime.fromisoformat(orders["retry_at"]) == tables(status)["public.orders"].retry_at
    assert (quiet["table"], quiet["state"], quiet["inserted"], quiet["error"]) == ("public.quiet", "STREAMING", 2, None)
    assert "\n" not in json_of(status, indent=None)

    assert show(lambda: status, as_json=True, watch=False) is False
    assert json.loads(capsys.readouterr().out) == told
    assert show(lambda: status, as_json=False, watch=False) is False
    text = capsys.readouterr().out
    assert f"group g → lake main; snapshot {group['snapshot_id']} is the source at" in text
    (line,) = [line for line in text.splitlines() if line.startswith("public.quiet")]
    assert line.split()[:7] == ["public.quiet", "STREAMING", "2", "2", "0", "0", "0"]
    (line,) = [line for line in text.splitlines() if line.startswith("public.orders")]
    assert "another client has partitioned" in line


def test_without_a_run_there_is_nothing_to_tell(shop: Mirror) -> None:
    shop.config = shop.configure("public.orders")
    with pytest.raises(ConfigError, match="nothing has run"):
        asked(shop)
