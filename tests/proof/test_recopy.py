"""`headwater run` with tables that fail and lakes that are gone: it tries, says why, and copies again when asked."""

from __future__ import annotations

import pytest

from tests.mirror import Mirror
from tests.proof.processes import headwater


def caught_up(mirror: Mirror, *options: str) -> tuple[int, str]:
    return headwater(mirror.file, "run", "--until-caught-up", *options)


def assert_caught_up(mirror: Mirror, *options: str) -> None:
    code, said = caught_up(mirror, *options)
    assert code == 0, said
    with mirror.attached() as lake:
        ours = lake.execute("SELECT * FROM lake.public.orders ORDER BY id").fetchall()
    assert ours == mirror.rows_of("SELECT * FROM orders ORDER BY id")


@pytest.fixture
def orders(mirror: Mirror) -> Mirror:
    """The table orders, mirrored by runs that end when all is caught up."""
    mirror.execute("CREATE TABLE orders (id int PRIMARY KEY, item text)", "INSERT INTO orders VALUES (1, 'one')")
    mirror.config = mirror.configure("public.orders")
    assert_caught_up(mirror)
    return mirror


@pytest.mark.long
def test_each_run_tries_a_table_that_failed_and_says_why_it_failed_again(orders: Mirror) -> None:
    orders.drop_in_lake("orders")
    orders.execute("INSERT INTO orders VALUES (2, 'two')")
    for failures in (1, 2):
        code, said = caught_up(orders)
        assert code == 1, said
        assert "\nerror: table 'public.orders' of group 'g' is ERRORED: the lake has no table public.orders any" in said
        assert orders.rows_of("SELECT failures FROM headwater.tables") == [(failures,)]
    assert_caught_up(orders, "--recopy")


@pytest.mark.long
def test_a_lake_that_was_deleted_stops_a_run_and_is_copied_again_when_asked(orders: Mirror) -> None:
    for file in orders.folder.glob(f"{orders.catalog_file.name}*"):
        file.unlink()
    for command in ("check", "run"):
        code, said = headwater(orders.file, command)
        assert code == 4, said
        assert "error: lake 'main' of group 'g' is not the one it was" in said
        assert "and now there is no lake\nhint: restore it; or give it up: `headwater run --recopy`" in said
    assert list(orders.folder.glob(f"{orders.catalog_file.name}*")) == []
    assert_caught_up(orders, "--recopy")
    assert headwater(orders.file, "check")[0] == 0
