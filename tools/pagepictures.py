"""Photograph the page at work, in light and dark and on a phone: part of `make screenshots`."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from playwright.sync_api import Browser, ViewportSize
from tests.web.browser import launched
from tests.web.served import Served, served
from tests.web.shop import PAYMENTS, Shop, written_config

from headwater.testing.postgres import EmbeddedPostgres

__all__ = ["photograph"]

_DESK, _PHONE = ViewportSize(width=1360, height=1300), ViewportSize(width=390, height=844)
_TOKEN = "a-token-for-pictures"
_LOOKS = 6  # seconds in which numbers come to move
_PAST = """
    INSERT INTO headwater.deliveries (group_name, at, position, snapshot_id, changes, tables, inserted, updated,
      deleted, bytes, lag_seconds, phase_wait, phase_fold, phase_locate, phase_write, phase_commit, source_oids)
    SELECT 'shop', now() - make_interval(secs => 5 * n), '0/1000', 3999 - n,
      1700 + 700 * sin(n / 60.0) + 300 * random(), 1 + mod(n, 5), 0, 0, 0, 90000,
      0.9 + 0.3 * sin(n / 25.0) + 0.4 * random() + CASE WHEN n BETWEEN 171 AND 176 THEN 4.5 ELSE 0 END,
      0.8, 0.1, 0.1, 0.2, 0.05, '{}' FROM generate_series(715, 1, -1) n
"""


@contextmanager
def _shop() -> Iterator[tuple[Shop, Served]]:
    """A shop at work, an hour old, and its page."""
    with tempfile.TemporaryDirectory(prefix="headwater-") as home:
        Path(home).chmod(0o755)  # the server's own user must be able to enter it
        server = EmbeddedPostgres(Path(home, "pg"), settings={"fsync": "off", "max_slot_wal_keep_size": "1GB"}).start()
        try:
            with psycopg.connect(server.url(), autocommit=True) as admin:
                admin.execute("CREATE DATABASE shop")
            database, folder = server.url("shop"), Path(home)
            with Shop.opened(database, folder, troubled=False) as shop:
                shop.state.query(f"WITH done AS ({_PAST} RETURNING id) SELECT count(*) FROM done")
                file = written_config(folder, database, f"{{port: 0, token: {_TOKEN}}}")
                with shop.working(rows=160, age=1.1), served(file) as site, _looking(site):
                    time.sleep(_LOOKS)
                    yield shop, site
        finally:
            server.stop()


@contextmanager
def _looking(site: Served) -> Iterator[None]:
    """The server looks again and again, as it does under `headwater run`."""
    thread = threading.Thread(target=site.facts.run, args=(site.site.stop,), name="facts")
    thread.start()
    yield
    site.site.stop.set()
    thread.join(60)


def _photograph(browser: Browser, site: Served, path: Path, size: ViewportSize, *, dark: bool, sharp: int = 1) -> None:
    context = browser.new_context(
        viewport=size,
        color_scheme="dark" if dark else "light",
        device_scale_factor=sharp,
        reduced_motion="reduce",
        locale="en-GB",
    )
    page = context.new_page()
    page.goto(f"{site.address}#token={_TOKEN}")
    page.locator(".chart path.line[d^=M]").first.wait_for(state="attached", timeout=60_000)
    page.wait_for_timeout(_LOOKS * 1000)
    page.screenshot(path=path)
    context.close()


def photograph(folder: Path) -> list[Path]:
    """The pictures, in this folder: one of all well, and two of a table that fails."""
    light, dark, phone = (folder / f"page-{name}.png" for name in ("light", "dark", "phone"))
    with launched() as browser, _shop() as (shop, site):
        _photograph(browser, site, light, _DESK, dark=False)
        shop.fail(PAYMENTS)
        _photograph(browser, site, dark, _DESK, dark=True)
        _photograph(browser, site, phone, _PHONE, dark=False, sharp=2)
    return [light, dark, phone]
