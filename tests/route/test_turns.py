"""One table, many lakes: each destination has exactly its rows, whatever happens to the source."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from tests.route.routebench import RouteBench

from headwater.flow.lakesource import EXPIRED
from headwater.flow.routesource import RouteRules

ROWS = "INSERT INTO orders SELECT i, ['a', 'b', 'c'][1 + i % 3], i, 'note ' || i FROM range({}, {}) r(i)"


def test_every_destination_gets_its_rows_and_no_other_rows(route: RouteBench) -> None:
    route.sql(ROWS.format(0, 30))
    route.turns()
    route.check()
    route.sql("UPDATE orders SET amount = -1 WHERE id < 9", "DELETE FROM orders WHERE id % 7 = 0", ROWS.format(30, 40))
    route.turns()
    route.check()
    route.check_no_leak()


def test_updates_keep_their_row_ids_so_that_they_are_updates_in_the_destinations_own_feed(route: RouteBench) -> None:
    route.sql(ROWS.format(0, 3))
    route.turns()
    before = route.snapshots("a")[-1]
    route.sql("UPDATE orders SET amount = 7 WHERE tenant = 'a'")
    route.turns()
    after = route.snapshots("a")[-1]
    found = route.ask("a", f"SELECT change_type, amount FROM lake.table_changes('orders', {before + 1}, {after})")
    assert sorted(found) == [("update_postimage", 7), ("update_preimage", 0)]


def test_a_small_share_is_rows_in_the_destinations_catalog(route: RouteBench) -> None:
    route.sql(ROWS.format(0, 30))
    route.turns()
    route.sql(ROWS.format(30, 40), "UPDATE orders SET amount = -1 WHERE id < 9", "DELETE FROM orders WHERE id % 7 = 0")
    route.turns()
    route.sql("UPDATE orders SET amount = -2 WHERE id < 6 OR id = 31", "DELETE FROM orders WHERE id IN (8, 32)")
    route.turns()
    route.check()
    assert {tenant: route.files(tenant) for tenant in "abc"} == dict.fromkeys("abc", 1), "that of the seed"
    assert all(route.inlined(tenant) for tenant in "abc")


def test_a_share_goes_into_a_file_if_the_catalog_has_enough_rows_or_it_is_large(
    new_route: Callable[..., RouteBench],
) -> None:
    route = new_route(inline_rows=12)
    route.sql(ROWS.format(0, 3))
    route.turns()
    route.sql("INSERT INTO orders SELECT i, 'a', i, 'small' FROM range(10, 20) r(i)")
    route.sql("INSERT INTO orders SELECT i, 'b', i, 'large' FROM range(20, 1500) r(i)")
    route.turns()
    assert [(route.files(tenant), route.inlined(tenant)) for tenant in "ab"] == [(1, 10), (2, 0)]
    route.sql("UPDATE orders SET amount = -1 WHERE id IN (0, 11, 12)", "DELETE FROM orders WHERE id = 13")
    route.turns()
    assert (route.files("a"), route.inlined("a")) == (2, 10), "four changes do not fit in any more"
    route.check()
    route.check_no_leak()


def test_a_row_that_moves_to_another_tenant_is_deleted_there_and_inserted_here(route: RouteBench) -> None:
    route.sql("INSERT INTO orders VALUES (1, 'a', 1, 'x'), (2, 'b', 2, 'y')")
    route.turns()
    route.sql("UPDATE orders SET tenant = 'b' WHERE id = 1")
    route.turns()
    assert (route.shown("a"), route.shown("b")) == (Counter(), route.wanted("b"))
    route.check_no_leak()


def test_destinations_that_were_all_seeded_again_are_not_called_caught_up_before_they_are(route: RouteBench) -> None:
    route.sql(ROWS.format(0, 9))
    route.turns()
    route.sql(ROWS.format(9, 12))
    route.state.request_seed(route.id.name, ["=a", "=b", "=c"], "for a test")
    route.turn()  # they are further than the route now
    route.sql(ROWS.format(12, 15))
    route.turns()
    route.check()


def test_a_row_that_goes_there_and_back_within_one_read_stays(route: RouteBench) -> None:
    route.sql("INSERT INTO orders VALUES (1, 'a', 1, 'x')")
    route.turns()
    route.sql("UPDATE orders SET tenant = 'b' WHERE id = 1", "UPDATE orders SET tenant = 'a', amount = 5 WHERE id = 1")
    route.turns()
    route.check()
    assert route.shown("a") == Counter([(1, "a", 5, "x")])


def test_a_row_that_goes_there_and_back_across_two_reads_stays(route: RouteBench) -> None:
    route.sql("INSERT INTO orders VALUES (1, 'a', 1, 'x')")
    route.turns()
    for tenant in ("b", "a"):
        route.sql(f"UPDATE orders SET tenant = '{tenant}' WHERE id = 1")
        route.turns()
        route.check()


def test_a_key_that_changes_leaves_nothing_under_the_old_one(route: RouteBench) -> None:
    route.sql("INSERT INTO orders VALUES (1, 'a', 1, 'x')")
    route.turns()
    route.sql("UPDATE orders SET id = 9 WHERE id = 1")
    route.turns()
    assert route.shown("a") == Counter([(9, "a", 1, "x")])


def test_row_ids_that_are_used_again_do_no_harm(route: RouteBench) -> None:
    route.sql("INSERT INTO orders VALUES (1, 'a', 1, 'x')")
    route.turns()
    # The same key three times within one read: the last one counts, whatever row ids the source gave them.
    route.sql("DELETE FROM orders WHERE id = 1", "INSERT INTO orders VALUES (1, 'a', 2, 'y')")
    route.together("DELETE FROM orders WHERE id = 1", "INSERT INTO orders VALUES (1, 'a', 3, 'z')")
    route.turns()
    assert route.shown("a") == Counter([(1, "a", 3, "z")])


def test_a_row_that_is_inserted_and_deleted_in_one_transaction_is_nowhere(route: RouteBench) -> None:
    route.turns()
    route.together("INSERT INTO orders VALUES (1, 'a', 1, 'x'), (2, 'a', 2, 'y')", "DELETE FROM orders WHERE id = 1")
    route.turns()
    assert route.shown("a") == Counter([(2, "a", 2, "y")])


def test_null_in_a_key_is_a_value_like_any_other(new_route: Callable[..., RouteBench]) -> None:
    route = new_route(rules=RouteRules("tenant", ("amount", "note")))
    route.sql("INSERT INTO orders VALUES (1, 'a', NULL, 'x'), (2, 'a', NULL, NULL), (3, 'a', 3, NULL)")
    route.turns()
    route.check()
    route.sql("UPDATE orders SET id = 10 * id", "DELETE FROM orders WHERE amount IS NULL AND note = 'x'")
    route.turns()
    assert route.shown("a") == Counter([(20, "a", None, None), (30, "a", 3, None)])


def test_rows_of_no_tenant_are_counted(route: RouteBench) -> None:
    route.turns()
    route.sql("INSERT INTO orders VALUES (1, 'z', 1, 'x'), (2, 'z', 2, 'y'), (3, NULL, 3, 'z'), (4, 'a', 4, 'w')")
    turn = route.turn()
    row = route.state.route(route.id)
    assert row is not None
    assert (dict(turn.unknown), row.unknown_rows, row.null_rows) == ({"z": 2}, 2, 1)


def test_rows_of_no_tenant_go_to_the_default(new_route: Callable[..., RouteBench]) -> None:
    route = new_route(default=True)
    route.sql("INSERT INTO orders VALUES (1, 'z', 1, 'x'), (2, NULL, 2, 'y'), (3, 'a', 3, 'z')")
    route.turns()
    route.sql("UPDATE orders SET tenant = 'a' WHERE id = 1", "UPDATE orders SET tenant = NULL WHERE id = 3")
    route.turns()
    route.check()


def test_a_condition_is_judged_by_each_image_of_a_row(new_route: Callable[..., RouteBench]) -> None:
    route = new_route(rules=RouteRules("tenant", ("id",), where="amount > 10 AND note LIKE 'n%'"))
    route.sql(ROWS.format(0, 30))
    route.turns()
    assert sum(route.shown("a", "id").values()) == len([i for i in range(30) if i % 3 == 0 and i > 10])
    route.sql("UPDATE orders SET amount = 5 WHERE id = 12", "UPDATE orders SET amount = 50 WHERE id = 3")
    route.turns()
    ids = {each for (each,) in route.shown("a", "id")}
    assert 12 not in ids
    assert 3 in ids


def test_columns_may_be_left_out_the_routing_column_too(new_route: Callable[..., RouteBench]) -> None:
    route = new_route(rules=RouteRules("tenant", ("id",), exclude=("tenant", "note")))
    route.sql(ROWS.format(0, 6))
    route.turns()
    route.sql("UPDATE orders SET amount = 9, tenant = 'b' WHERE id = 0")
    route.turns()
    assert route.shown("b") == route.wanted("b", columns="id, amount")


def test_an_append_only_route_adds_rows_and_refuses_a_delete(new_route: Callable[..., RouteBench]) -> None:
    route = new_route(rules=RouteRules("tenant", append=True), tenants=("a", "b"))
    route.sql("INSERT INTO orders VALUES (1, 'a', 1, 'x')")
    route.turns()
    route.sql("INSERT INTO orders VALUES (1, 'a', 1, 'x'), (2, 'b', 1, 'x')")
    route.turns()
    route.check()
    route.sql("DELETE FROM orders WHERE tenant = 'a'", "INSERT INTO orders VALUES (3, 'b', 3, 'x')")
    turn = route.turn()
    assert list(turn.failed) == ["=a"]
    assert "updated or deleted" in turn.failed["=a"]
    assert route.shown("b") == route.wanted("b")


@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE orders ADD COLUMN extra INTEGER DEFAULT 42",
        "ALTER TABLE orders DROP COLUMN note",
        "ALTER TABLE orders RENAME COLUMN note TO remark",
        "ALTER TABLE orders ALTER COLUMN amount SET TYPE BIGINT",
    ],
)
def test_schema_changes_of_the_source_reach_the_destinations(route: RouteBench, change: str) -> None:
    route.sql(ROWS.format(0, 9))
    route.turns()
    route.sql("UPDATE orders SET amount = 5 WHERE id = 3", change, "DELETE FROM orders WHERE id = 6")
    route.sql("INSERT INTO orders (id, tenant, amount) VALUES (100, 'a', 100)")
    route.turns()
    route.check()
    assert route.ask("a", "SELECT count(*) FROM orders") == [(3,)]


def test_a_table_without_changes_moves_no_snapshot_of_a_destination(route: RouteBench) -> None:
    route.sql(ROWS.format(0, 9))
    route.turns()
    before = {tenant: route.snapshots(tenant) for tenant in route.tenants}
    route.sql("CREATE TABLE other (i INTEGER)", "INSERT INTO other VALUES (1)")
    route.sql("UPDATE orders SET amount = 1 WHERE id = 0")
    route.turns()
    after = {tenant: route.snapshots(tenant) for tenant in route.tenants}
    assert len(after["a"]) == len(before["a"]) + 1
    assert (after["b"], after["c"]) == (before["b"], before["c"])


def test_a_destination_that_had_no_changes_for_a_while_goes_on_with_the_next(
    route: RouteBench, caplog: pytest.LogCaptureFixture
) -> None:
    route.turns()
    for id_, tenant in ((100, "a"), (101, "b"), (102, "b"), (103, "a"), (104, "c"), (105, "a")):
        route.sql(f"INSERT INTO orders VALUES ({id_}, '{tenant}', 1, 'x')")
        turn = route.turn()
        assert (list(turn.landed), turn.failed) == ([f"={tenant}"], {})
    route.check()
    assert "went back" not in caplog.text


def test_compaction_of_the_source_moves_nothing(route: RouteBench) -> None:
    for first in range(0, 30, 10):
        route.sql(ROWS.format(first, first + 10))
    route.turns()
    before = {tenant: route.snapshots(tenant) for tenant in route.tenants}
    route.sql("DELETE FROM orders WHERE id IN (3, 4, 5)")
    route.turns()
    moved = {tenant: route.snapshots(tenant) for tenant in route.tenants}
    route.sql("CALL ducklake_merge_adjacent_files('source')", "CALL ducklake_flush_inlined_data('source')")
    route.sql("CALL ducklake_rewrite_data_files('source', delete_threshold => 0)")
    route.turns()
    assert {tenant: route.snapshots(tenant) for tenant in route.tenants} == moved != before
    route.check()


def test_a_truncate_of_the_source_empties_the_destinations(route: RouteBench) -> None:
    route.sql(ROWS.format(0, 9))
    route.turns()
    route.sql("DELETE FROM orders", "INSERT INTO orders VALUES (1, 'a', 1, 'new')")
    route.turns()
    route.check()


def test_snapshots_that_expired_before_they_were_read_cause_a_new_seed(route: RouteBench) -> None:
    route.sql(ROWS.format(0, 9))
    route.turns()
    route.sql("DELETE FROM orders WHERE id < 3", ROWS.format(9, 12))
    route.sql("CALL ducklake_expire_snapshots('source', older_than => now() + INTERVAL 1 hour)")
    route.sql("CALL ducklake_cleanup_old_files('source', cleanup_all => true)")
    route.turn()
    assert route.row("a").reseed == EXPIRED
    route.turns()
    assert route.row("a").reseed is None
    route.check()


def test_a_source_table_that_was_made_anew_seeds_all_destinations_again(route: RouteBench) -> None:
    route.sql(ROWS.format(0, 9))
    route.turns()
    route.sql("DROP TABLE orders", "CREATE TABLE orders (id INTEGER, tenant VARCHAR, other VARCHAR)")
    route.sql("INSERT INTO orders VALUES (1, 'a', 'x'), (2, 'b', 'y')")
    route.turns()
    route.check()


def test_a_key_that_is_not_unique_is_refused_before_anything_is_visible(route: RouteBench) -> None:
    route.sql("INSERT INTO orders VALUES (1, 'a', 1, 'x'), (1, 'a', 2, 'y'), (2, 'b', 3, 'z')")
    turn = route.turn()
    assert "several rows of main.orders have the same key: id = 1" in turn.failed["=a"]
    assert route.ask("a", "SELECT count(*) FROM duckdb_tables() WHERE table_name = 'orders'") == [(0,)]
    assert route.shown("b") == route.wanted("b")
    route.sql("DELETE FROM orders WHERE amount = 2")
    route.retry()
    route.turns()
    route.check()


def test_one_key_in_two_tenants_is_two_rows(route: RouteBench) -> None:
    route.sql("INSERT INTO orders VALUES (1, 'a', 1, 'x'), (1, 'b', 2, 'y')")
    route.turns()
    route.sql("UPDATE orders SET amount = 10 WHERE tenant = 'a'", "DELETE FROM orders WHERE tenant = 'b'")
    route.turns()
    route.check()


def test_a_long_backlog_is_read_in_bounded_pieces(new_route: Callable[..., RouteBench]) -> None:
    from headwater.feed.source import Bound

    route = new_route(most=Bound(25, 1 << 30))
    route.turns()
    for first in range(0, 100, 10):
        route.sql(ROWS.format(first, first + 10))
    turn = route.turn()
    assert not turn.caught_up
    assert sum(each.inserted for each in turn.landed.values()) <= 25
    route.turns()
    route.check()


def test_seeding_from_the_latest_snapshot_carries_only_what_changes_then(new_route: Callable[..., RouteBench]) -> None:
    route = new_route(seed="latest")
    route.sql(ROWS.format(0, 9))
    route.turns()
    assert not route.shown("a")
    route.sql(ROWS.format(9, 12))
    route.turns()
    assert route.shown("a", "id") == Counter([(9,)])


def test_seeding_from_the_earliest_snapshot_replays_those_since(new_route: Callable[..., RouteBench]) -> None:
    route = new_route(seed="earliest")
    for first in range(0, 9, 3):
        route.sql(ROWS.format(first, first + 3))
    route.turns()
    route.check()
    assert route.row("a").seeded == 0
    assert route.row("a").inserted == 3


def test_the_destinations_key_is_that_of_the_mirror_that_is_carried_on(new_route: Callable[..., RouteBench]) -> None:
    first = new_route(tenants=("a",))
    first.sql(ROWS.format(0, 9))
    first.turns()
    source = first.address("a").find("x", first.route.source.stream)
    assert source is not None
    from headwater.ducklake.finding import find_lake
    from headwater.feed.source import SourceTable

    lake = find_lake(first.address("a").catalog, first.address("a").data_path)  # type: ignore[attr-defined]
    assert lake is not None
    table = SourceTable(lake, first.table)
    assert table.key(table.newest()) == ("id",)


def test_a_destination_whose_name_is_taken_by_a_table_of_others_is_refused(route: RouteBench) -> None:
    from headwater.ducklake.extension import attach, connect
    from headwater.ducklake.opening import open_lake
    from headwater.ducklake.url import parse_lake_url

    address = route.address("a")
    open_lake(address.catalog, address.data_path).close()  # type: ignore[attr-defined]
    with connect() as con:
        attach(con, parse_lake_url(address.catalog), "theirs")  # type: ignore[attr-defined]
        con.execute("CREATE TABLE theirs.main.orders AS SELECT 1 AS precious")
    route.sql(ROWS.format(0, 9))
    turn = route.turn()
    assert "another table or view" in turn.failed["=a"]
    assert route.ask("a", "SELECT precious FROM orders") == [(1,)]
    assert route.shown("b") == route.wanted("b")
