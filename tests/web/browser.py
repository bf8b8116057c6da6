"""Chromium, as Debian packages it, driven by Playwright; and what it says about a page."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest
from playwright.sync_api import Browser, Page, ViewportSize, sync_playwright

__all__ = ["DESK", "PHONE", "Visit", "chromium", "launched", "visiting"]

DESK, PHONE = ViewportSize(width=1360, height=900), ViewportSize(width=360, height=740)
_ARGUMENTS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
_PATIENCE = 60_000  # milliseconds, for a machine with much else to do


def chromium() -> str:
    """The program. Where there is none the test is skipped; in CI it fails, which would else pass without it."""
    if found := shutil.which("chromium"):
        return found
    missing = "there is no Chromium: install Debian's package chromium (.ci/run does)"
    raise pytest.fail.Exception(missing) if os.environ.get("CI") == "true" else pytest.skip.Exception(missing)


@contextmanager
def launched() -> Iterator[Browser]:
    """A browser; see `chromium` for where there is none."""
    program = chromium()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=_ARGUMENTS)
        yield browser
        browser.close()


@dataclass(slots=True)
class Visit:
    """A page in a browser, and what it did beside showing itself."""

    page: Page
    address: str
    said: list[str] = field(default_factory=list)  # on the console, and errors
    asked: list[str] = field(default_factory=list)  # addresses

    def open(self, fragment: str = "") -> Page:
        self.page.goto(self.address + fragment)
        return self.page

    def number(self, script: str) -> float:
        return float(self.page.evaluate(script))

    def found(self, script: str) -> list[Any]:
        """What a script lists."""
        found = self.page.evaluate(script)
        assert isinstance(found, list)
        return found


@contextmanager
def visiting(
    browser: Browser, address: str, *, size: ViewportSize = DESK, colours: Literal["light", "dark"] = "light"
) -> Iterator[Visit]:
    """A new visitor, without cookies."""
    context = browser.new_context(viewport=size, color_scheme=colours, reduced_motion="reduce", locale="en-GB")
    context.set_default_timeout(_PATIENCE)
    page = context.new_page()
    visit = Visit(page, address)
    page.on("console", lambda message: visit.said.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: visit.said.append(str(error)))
    page.on("request", lambda request: visit.asked.append(request.url))
    yield visit
    context.close()
