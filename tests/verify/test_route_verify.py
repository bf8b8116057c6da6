"""`verify` compares the destinations of routes: each with its own rows of the source, at the snapshot that it shows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.logroutes import LogRoute
from tests.mirror import Mirror
from tests.routed import RoutedShop

from headwater.commands.verifyview import show
from headwater.errors import ConfigError
from headwater.status import statuses_of_routes
from headwater.verify import Verified
from headwater.verify.groups import Asked
from headwater.verify.origins import opened_origin
from headwater.verify.routes import verify_route


@pytest.fixture
def shop(database: str, tmp_path: Path) -> Iterator[RoutedShop]:
    with closing(RoutedShop(database, tmp_path)) as made:
        yield made


def verified(shop: RoutedShop, spark: SparkSession, *ids: str) -> dict[str, Verified]:
    found = verify_route(shop.config, {}, shop.state, spark, "by_company", ids)
    return {str(each.destination): each for each in found}


def verdicts(shop: RoutedShop, spark: SparkSession) -> dict[str, tuple[str, int | None, int | None]]:
    found = verified(shop, spark).items()
    return {name: (each.reason or each.verdict, each.source_rows, each.lake_rows) for name, each in found}


ROWS = (
    "INSERT INTO shop.main.orders"
    " VALUES (1, 'acme', 1.5), (2, 'acme', NULL), (3, 'globex', 0), (4, NULL, 7), (5, 'x', 8)"
)


def test_no_snapshot_that_a_comparison_reads_expires_meanwhile(shop: RoutedShop, spark: SparkSession) -> None:
    shop.sql(ROWS)
    shop.turns(spark)
    shown, source = shop.newest, shop.state.routes()[0].source_id
    with (
        opened_origin(shop.config, {}, shop.state, spark, "by_company") as origin,
        ExitStack() as held,
    ):
        assert origin.moment(shown, held) is not None
        assert shop.state.pins(source) == {shown}
    assert shop.state.pins(source) == set()
    made = "SELECT last_value FROM headwater.pins_id_seq"
    ((before,),) = shop.state.query(made)
    verified(shop, spark)
    ((after,),) = shop.state.query(made)
    assert after - before == 1 + 3  # the source's, and those of three destinations
    assert shop.state.query("SELECT 1 FROM headwater.pins") == []


def test_destinations_equal_their_share_of_the_source_whatever_it_has_done_since(
    shop: RoutedShop, spark: SparkSession
) -> None:
    shop.sql(ROWS)
    shop.turns(spark)
    assert verdicts(shop, spark) == {"acme": ("equal", 2, 2), "globex": ("equal", 1, 1), "default": ("equal", 2, 2)}
    shop.sql(
        "UPDATE shop.main.orders SET company = 'globex' WHERE id = 1",
        "ALTER TABLE shop.main.orders RENAME total TO price",
        "ALTER TABLE shop.main.orders ADD COLUMN note VARCHAR DEFAULT 'none'",
        "INSERT INTO shop.main.orders VALUES (6, 'globex', 2, 'new')",
    )
    assert verdicts(shop, spark) == {"acme": ("equal", 2, 2), "globex": ("equal", 1, 1), "default": ("equal", 2, 2)}
    shop.turns(spark)
    found = verified(shop, spark)
    assert {name: (each.verdict, each.lake_rows) for name, each in found.items()} == {
        "acme": ("equal", 1),
        "globex": ("equal", 3),
        "default": ("equal", 2),  # which was not written to, and has the columns that it had
    }
    assert {each.position for each in found.values()} == {str(shop.newest)}
    shop.sql("DELETE FROM shop.main.orders")
    shop.turns(spark)
    assert verdicts(shop, spark) == dict.fromkeys(("acme", "globex", "default"), ("equal", 0, 0))


def test_a_difference_shows_the_keys_and_rows_of_others_are_named(
    shop: RoutedShop, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    shop.sql(ROWS)
    shop.turns(spark)
    for lake in ("acme", "globex", "rest"):
        shop.attach(lake)
    shop.sql(
        "UPDATE acme.main.orders SET total = 9 WHERE id = 1",
        "DELETE FROM acme.main.orders WHERE id = 2",
        "INSERT INTO globex.main.orders VALUES (7, 'acme', 1)",
        "INSERT INTO rest.main.orders VALUES (8, NULL, 1)",
    )
    found = verified(shop, spark)
    acme, globex, rest = found["acme"], found["globex"], found["default"]
    assert [(each.key, each.source, each.lake) for each in acme.differences] == [
        ('{"id":"1"}', '{"id":"1","company":"acme","total":"1.5"}', '{"id":"1","company":"acme","total":"9.0"}'),
        ('{"id":"2"}', '{"id":"2","company":"acme","total":null}', None),
    ]
    assert (acme.verdict, acme.ok, acme.source_rows, acme.lake_rows) == ("differs", False, 2, 1)
    assert (globex.verdict, globex.reason) == ("differs", "it holds 1 row of other values, for example of acme")
    assert [each.key for each in rest.differences] == ['{"id":"8"}']
    show([acme, globex], as_json=False)
    shown = capsys.readouterr().out
    assert "by_company/acme: DIFFERS at 2, snapshot " in shown
    assert "2 rows in the source, 1 in the lake" in shown
    assert f"by_company/globex: DIFFERS at 2, snapshot {globex.snapshot_id}: it holds 1 row of other values" in shown


def test_what_cannot_be_compared_says_why(shop: RoutedShop, spark: SparkSession) -> None:
    shop.sql(ROWS)
    shop.turns(spark)
    at = shop.newest
    shop.state.pause_destinations("by_company", ["=acme"])
    shop.state.request_seed("by_company", ["=globex"], "it was asked for")
    shop.sql("INSERT INTO shop.main.orders VALUES (9, 'x', 1)")
    shop.turn(spark)
    shop.state.request_seed("by_company", ["=globex"], "it was asked for")
    shop.sql(f"CALL ducklake_expire_snapshots('shop', versions => [{at}])")
    found = verified(shop, spark)
    assert {name: (each.verdict, each.ok, each.reason) for name, each in found.items()} == {
        "acme": ("not compared", False, f"it shows the source at {at}, of which the snapshot has expired"),
        "globex": ("not compared", False, "it waits to be seeded: it was asked for"),
        "default": ("equal", True, ""),
    }
    (shop.folder / "rest.sqlite").unlink()
    assert verified(shop, spark, "*")["default"].reason.startswith("there is no lake in sqlite")
    shop.sql("DROP TABLE shop.main.orders")
    assert "has no table 'main.orders'" in verified(shop, spark, "*")["default"].reason


@pytest.mark.long
def test_columns_conditions_and_iceberg_are_compared_as_the_route_carries_them(
    shop: RoutedShop, spark: SparkSession
) -> None:
    shop.rewrite(
        ("keys: [id]", "keys: [id]\n    exclude: [company]\n    where: total > 1"),
        ('{ducklake: "sqlite:///globex.sqlite", data_path: ./globex}',
         '{iceberg: {type: sql, uri: "sqlite:///globex.sqlite", warehouse: ./globex}}'),
    )  # fmt: skip
    shop.sql(
        "ALTER TABLE shop.main.orders ADD COLUMN since TIMESTAMPTZ",
        "ALTER TABLE shop.main.orders ADD COLUMN tags VARCHAR[]",
        "INSERT INTO shop.main.orders VALUES (1, 'globex', 2, '2024-01-01 12:00:00+00', ['a', NULL]),"
        " (2, 'globex', 1, NULL, NULL), (3, 'globex', 3, NULL, []), (4, 'acme', 4, NULL, NULL)",
    )
    shop.turns(spark)
    assert verdicts(shop, spark) == {"acme": ("equal", 1, 1), "globex": ("equal", 2, 2), "default": ("equal", 0, 0)}
    shop.attach("acme")
    shop.sql("INSERT INTO acme.main.orders VALUES (9, 5, NULL, NULL)")
    assert verdicts(shop, spark)["acme"] == ("differs", 1, 2)


def test_a_route_from_a_group_is_compared_with_the_mirror_at_the_same_lsn(mirror: Mirror) -> None:
    mirror.execute(
        "CREATE TABLE orders (id int PRIMARY KEY, tenant text, note text)",
        "ALTER TABLE orders REPLICA IDENTITY FULL",
        "INSERT INTO orders VALUES (1, 'a', 'x'), (2, 'b', NULL), (3, NULL, 'y'), (4, 'a', 'z')",
    )
    mirror.start()
    mirror.sync()
    route = LogRoute(mirror, "orders")
    route.settle()
    mirror.execute("UPDATE orders SET tenant = 'b' WHERE id = 1", "INSERT INTO orders VALUES (5, 'c', 'w')")
    route.sync()

    found = verify_route(route.config, {}, mirror.m.state, mirror.spark, "r", ())
    assert [(each.destination, each.reason or each.verdict, each.lake_rows) for each in found] == [
        ("a", "equal", 1),
        ("b", "equal", 2),
        ("c", "equal", 1),
    ]
    (status,) = statuses_of_routes(route.config, {})
    (row,) = mirror.m.state.tables("g")
    assert {each.position for each in found} == {str(row.position)} == {status.position, status.source_position}
    assert [(each.status, each.lag_seconds) for each in status.destinations] == [("healthy", 0.0)] * 3

    mirror.execute("UPDATE orders SET note = 'later' WHERE id = 1")
    mirror.sync()
    (status,) = statuses_of_routes(route.config, {})
    assert {each.status for each in status.destinations} == {"buffering"}
    assert all(each.lag_seconds for each in status.destinations)
    assert {each.verdict for each in verify_route(route.config, {}, mirror.m.state, mirror.spark, "r", ())} == {"equal"}


def test_a_name_chooses_a_route_a_destination_or_a_table(shop: RoutedShop) -> None:
    shop.seeded()
    asked = Asked.of(shop.state, shop.config, [])
    assert (asked.groups, asked.routes) == (True, {"by_company": ()})
    asked = Asked.of(shop.state, shop.config, ["by_company/acme", "by_company/default"])
    assert (asked.groups, asked.routes) == (False, {"by_company": ["=acme", "*"]})
    assert Asked.of(shop.state, shop.config, ["by_company/acme", "by_company"]).routes == {"by_company": []}
    with pytest.raises(ConfigError, match="route 'by_company' has no destination 'acne'"):
        Asked.of(shop.state, shop.config, ["by_company/acne"])
    with pytest.raises(ConfigError, match=r"table 'public\.by_company' is not mirrored"):
        Asked.of(shop.state, shop.config, ["public.by_company"])
