"""The page in a real browser, with the real server, a real source and a real log."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from headwater.change import TableName
from headwater.config import Config
from headwater.state.routes import RouteId, destination_id
from headwater.state.transitions import CaughtUp
from headwater.supervise.requests import requested
from headwater.testing.postgres import EmbeddedPostgres
from tests.conftest import new_database
from tests.serving import handled
from tests.web.browser import PHONE, Visit, launched, visiting
from tests.web.served import TOKEN, Served, served
from tests.web.shop import DESTINATIONS, FAULT, FEW, SCRIPT, Shop, written_config

PATIENCE = 60_000  # milliseconds: what is sure to come; how long it takes is not the point
FLAWLESS: dict[str, list[str]] = {"faint": [], "nameless": [], "broken": [], "small": []}
ACCESSIBLE = Path(__file__).with_name("accessible.js").read_text()
QUICK = Path(__file__).with_name("quick.js").read_text()
OPEN = f"#token={TOKEN}"
ICEBERG = '{iceberg: {type: sql, uri: "sqlite:///ice.sqlite", warehouse: ./ice}}'

expect.set_options(timeout=PATIENCE)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with launched() as found:
        yield found


@pytest.fixture(scope="module")
def shop(browser: Browser, postgres: EmbeddedPostgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    del browser  # without it nothing is started
    folder = tmp_path_factory.mktemp("shop")
    with new_database(postgres) as url, Shop.opened(url, folder) as found:
        found.change()
        found.deliver()
        yield found


@pytest.fixture(scope="module")
def service(shop: Shop) -> Iterator[Served]:
    """With a token."""
    with served(written_config(shop.folder, shop.database, f"{{port: 0, token: {TOKEN}}}")) as found:
        yield found


@pytest.fixture
def site(service: Served) -> Served:
    """The same, which has looked just now."""
    service.look()
    return service


@pytest.fixture
def open_site(shop: Shop, tmp_path: Path) -> Iterator[Served]:
    """The same without a token: anyone on this machine may look."""
    with served(written_config(tmp_path, shop.database, "{port: 0}")) as found:
        found.look()
        yield found


@pytest.fixture
def visit(browser: Browser, site: Served) -> Iterator[Visit]:
    """A visitor who has the token; nothing may be said on the console, and nothing asked of another host."""
    with visiting(browser, site.address) as found:
        found.open(OPEN)
        expect(found.page.locator("#sentence")).to_contain_text(FAULT)
        yield found
        assert found.said == []
        assert [each for each in found.asked if not each.startswith(site.address)] == []


def row(page: Page, table: str) -> Locator:
    return page.locator(".group tbody").filter(has=page.get_by_role("link", name=table, exact=True))


def test_what_is_wrong_is_said_in_words_with_the_next_move(visit: Visit) -> None:
    page = visit.page
    expect(page.locator("#sign")).to_have_text("Needs attention")
    expect(page.locator("#next")).to_have_text("What to do: copy it again: headwater table resync public.payments")
    first = page.locator(".problem").first
    expect(first).to_contain_text(f"table public.payments: {FAULT}")
    expect(first).to_contain_text("Next: copy it again")
    assert page.title() == "Needs attention: Headwater"
    expect(page.locator("#announcement")).to_have_text(re.compile(r"Needs attention; \d problems"))  # is read out


def test_each_table_is_there_with_its_state_and_numbers(visit: Visit) -> None:
    page = visit.page
    expect(row(page, "public.payments")).to_contain_text("ERRORED")
    expect(row(page, "public.payments")).to_contain_text(FAULT)
    expect(row(page, "public.sessions")).to_contain_text("PAUSED")
    expect(row(page, "public.reviews")).to_contain_text("copied 410\u202f000 of about 980\u202f000 rows (41 %)")
    expect(row(page, "public.audit").locator(".rows")).to_have_text("7\u202f714\u202f265")
    expect(row(page, "public.products").locator(".quarantined")).to_have_text("3")
    expect(page.locator(".group tbody").first).to_contain_text("public.payments")  # what needs attention comes first


def test_the_path_of_a_row_is_shown_with_its_positions(visit: Visit, shop: Shop) -> None:
    stages = visit.page.locator(".stage")
    row = shop.state.group("shop")
    assert row is not None
    expect(stages.nth(0)).to_contain_text("WAL kept")
    expect(stages.nth(1)).to_contain_text("RUNNING")
    expect(stages.nth(2)).to_contain_text("of 1.9 GB")
    expect(stages.nth(3)).to_contain_text(f"Snapshot {row.snapshot_id:,}".replace(",", "\u202f"))
    expect(stages.nth(3)).to_contain_text(f"LSN {row.delivered_lsn}")


def test_what_changes_is_seen_without_a_reload(visit: Visit, site: Served, shop: Shop) -> None:
    page = visit.page
    rows, deliveries = row(page, "public.orders").locator(".rows"), page.locator(".deliveries li .what")
    before = rows.inner_text()
    loaded = visit.number("performance.timeOrigin")
    shop.change()
    shop.deliver()
    site.look()
    expect(rows).not_to_have_text(before)
    (newest, *_) = shop.state.deliveries("shop")
    expect(deliveries.first).to_contain_text(
        f"{newest.position} → snapshot {newest.snapshot_id:,}".replace(",", "\u202f")
    )
    assert visit.number("performance.timeOrigin") == loaded


def test_an_lsn_is_not_shown_as_a_snapshot_where_the_lake_has_none(
    browser: Browser, shop: Shop, tmp_path: Path
) -> None:
    file = written_config(tmp_path, shop.database, f"{{port: 0, token: {TOKEN}}}", ICEBERG)
    with served(file) as site, visiting(browser, site.address) as visit:
        site.look()
        (newest, *_) = site.get("/api/v1/deliveries").json["deliveries"]
        (group,) = site.get("/api/v1/overview").json["groups"]
        assert [newest["snapshot_id"], group["deliveries"][0]["snapshot_id"], group["snapshot_id"]] == [None] * 3
        page = visit.open(OPEN)
        what = page.locator(".deliveries li .what").first
        expect(what).to_have_text(re.compile(rf"· {newest['position']}$"))
        visit.open("#/table/shop/public.orders")
        expect(page.locator("#panel").get_by_role("columnheader", name="LSN", exact=True)).to_be_visible()
        expect(page.locator("#panel").get_by_role("cell", name=newest["position"], exact=True)).to_be_visible()


def test_the_phases_of_a_delivery_are_said_in_numbers(visit: Visit, shop: Shop) -> None:
    page = visit.page
    (newest, *_) = shop.state.deliveries("shop")
    assert newest.phases.wait in (0.9, 1.2, 0.6, 1.4)
    label = page.locator(".deliveries .phases").first.get_attribute("aria-label")
    assert label is not None
    assert re.fullmatch(r"wait \d\.\d s, fold [\d.]+ m?s, locate [\d.]+ m?s, write [\d.]+ m?s, commit \d+ ms", label)
    expect(page.locator(".legend")).to_contain_text("wait")


def test_a_failing_table_is_found_within_two_clicks(visit: Visit) -> None:
    page = visit.page
    page.get_by_role("link", name="Show public.payments").click()
    panel = page.get_by_role("dialog", name="public.payments")
    expect(panel.locator(".trouble")).to_contain_text(FAULT)
    expect(panel.locator(".trouble")).to_contain_text("Next: copy it again")


def test_a_panel_has_an_address_and_the_back_button_closes_it(visit: Visit, site: Served) -> None:
    page = visit.page
    page.get_by_role("link", name="public.orders", exact=True).click()
    expect(page.get_by_role("dialog", name="public.orders")).to_be_visible()
    assert page.url == f"{site.address}#/table/shop/public.orders"
    page.go_back()
    expect(page.locator("#panel")).to_be_hidden()
    assert page.url == site.address
    visit.open("#/table/shop/public.orders")
    expect(page.get_by_role("dialog", name="public.orders")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#panel")).to_be_hidden()
    assert page.url == site.address


def test_a_table_that_is_named_like_a_script_is_shown_as_text(visit: Visit) -> None:
    page, name = visit.page, str(TableName("public", SCRIPT))
    page.get_by_role("link", name=name, exact=True).click()
    expect(page.locator("#panel-title")).to_have_text(name)
    assert visit.number("document.querySelectorAll('main script, dialog script').length") == 0


def test_tables_are_searched_sorted_and_filtered_by_state(visit: Visit) -> None:
    page = visit.page
    names = page.locator(".group tbody a.name")
    page.get_by_role("searchbox", name="Search tables").fill("order")
    expect(names).to_have_text(["public.order_items", "public.orders"])
    page.get_by_role("searchbox", name="Search tables").fill("")
    page.locator(".group .chip", has_text="PAUSED").click()
    expect(names).to_have_text(["public.sessions"])
    page.locator(".group .chip", has_text="PAUSED").click()
    page.locator(".group th.rows button").click()
    expect(names.first).to_have_text("public.audit")
    assert page.locator(".group th.rows").get_attribute("aria-sort") == "descending"


def test_one_of_a_thousand_destinations_is_found_by_the_service_and_not_by_the_page(visit: Visit) -> None:
    page = visit.page
    page.locator("#routes").scroll_into_view_if_needed()
    rows = page.locator(".route tbody tr")
    expect(rows).to_have_count(25)
    expect(page.locator(".pager")).to_contain_text(f"1\u201325 of {DESTINATIONS:,} destinations".replace(",", "\u202f"))
    expect(rows.first).to_contain_text("initech")  # it has failed
    page.get_by_role("searchbox", name="Search destinations").fill("company-0777")
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text("company-0777")
    assert any("search=company-0777" in each for each in visit.asked)
    page.get_by_role("searchbox", name="Search destinations").fill("")
    page.get_by_role("button", name="Next").click()
    expect(page.locator(".pager")).to_contain_text("26\u201350 of")
    page.locator(".route .chip", has_text="paused").click()
    expect(rows).to_have_count(4)


def test_a_failed_destination_is_shown_with_its_reason(visit: Visit) -> None:
    page = visit.page
    page.get_by_role("button", name="Show by_company").click()
    rows = page.locator(".route tbody tr")
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text("the catalog does not answer")
    rows.get_by_role("button", name="initech").click()
    expect(rows.get_by_role("button", name="Resume")).to_be_enabled()


def test_a_table_is_paused_after_it_was_confirmed(visit: Visit, site: Served, shop: Shop) -> None:
    page, config = visit.page, Config.load(shop.folder / "headwater.yaml", {})
    page.get_by_role("link", name="public.carts", exact=True).click()
    page.get_by_role("button", name="Pause", exact=True).click()
    page.locator("#confirmation-no").click()
    assert shop.state.waiting() == []
    page.get_by_role("button", name="Pause", exact=True).click()
    expect(page.get_by_role("dialog", name="Pause public.carts?")).to_be_visible()
    page.locator("#confirmation-yes").click()
    expect(page.locator(".activity-note")).to_contain_text("asked")
    (request,) = handled(config, shop.state)
    assert (request.verb, request.table) == ("pause_table", "public.carts")
    expect(page.locator(".activity-note[data-kind=good]")).to_contain_text(str(request.outcome))
    site.look()
    expect(page.locator("#panel .pill").first).to_have_text("PAUSED")
    # And let go on, as the other tests know it.
    page.get_by_role("button", name="Resume", exact=True).click()
    page.locator("#confirmation-yes").click()
    expect(page.locator(".activity-note").first).to_contain_text("asked")
    (request,) = handled(config, shop.state)
    assert (request.verb, request.failed) == ("resume_table", False)
    shop.state.record("shop", shop.oids[TableName("public", "carts")], CaughtUp())
    site.look()
    expect(page.locator("#panel .pill").first).to_have_text("STREAMING")


def test_a_destination_is_paused(visit: Visit, shop: Shop) -> None:
    page = visit.page
    page.locator("#routes").scroll_into_view_if_needed()
    page.get_by_role("searchbox", name="Search destinations").fill("company-0500")
    expect(page.locator(".route tbody tr")).to_have_count(1)
    page.get_by_role("button", name="company-0500").click()
    page.locator(".more-of").get_by_role("button", name="Pause").click()
    page.locator("#confirmation-yes").click()
    expect(page.locator(".activity-note")).to_contain_text("done")
    assert [each.state for each in shop.state.destinations("by_company") if str(each) == "company-0500"] == ["PAUSED"]
    config = Config.load(shop.folder / "headwater.yaml", {})
    assert requested(config, "resume", "by_company", ["company-0500"]).changed  # as the other tests know it


def test_a_destination_is_seeded_again_after_it_was_confirmed(visit: Visit, shop: Shop, site: Served) -> None:
    page, name = visit.page, "company-0600"
    page.locator("#routes").scroll_into_view_if_needed()
    page.get_by_role("searchbox", name="Search destinations").fill(name)
    rows = page.locator(".route tbody tr")
    expect(rows).to_have_count(1)
    page.get_by_role("button", name=name).click()
    rows.get_by_role("button", name="Seed again").click()
    expect(page.get_by_role("dialog", name=f"Seed again {name}?")).to_contain_text("filled again from the whole source")
    page.locator("#confirmation-no").click()
    assert seeds(shop) == {}
    rows.get_by_role("button", name="Seed again").click()
    page.locator("#confirmation-yes").click()
    expect(page.locator(".activity-note")).to_contain_text("done")
    assert seeds(shop) == {name: "it was asked for"}
    site.look()
    expect(rows).to_contain_text("to be filled: it was asked for")
    (found,) = site.get(f"/api/v1/routes/by_company/destinations?search={name}").json["destinations"]
    assert found["seed"] == "it was asked for"
    # And seeded, as the other tests know it.
    shop.state.note_seeded(RouteId("by_company", "all"), shop.group.log.end().value, {destination_id(name): 4240})
    site.look()


def seeds(shop: Shop) -> dict[str, str]:
    """Why destinations are to be seeded."""
    return {str(each): each.reseed for each in shop.state.destinations("by_company") if each.reseed}


def test_a_verification_of_everything_is_asked_for_once_more(visit: Visit, site: Served) -> None:
    page = visit.page  # one that is begun is in test_panel.py, where there is a lake
    page.get_by_role("button", name="Verify now").click()
    expect(page.get_by_role("dialog", name="Verify all tables?")).to_contain_text("compared by content at one LSN")
    page.locator("#confirmation-no").click()
    expect(page.locator("#confirmation")).to_be_hidden()
    assert site.get("/api/v1/verifications/1").status == 404
    assert page.locator(".activity-note").count() == 0


def test_a_thousand_destinations_are_searched_and_sorted_about_as_quickly_as_ten(
    browser: Browser, shop: Shop, tmp_path: Path
) -> None:
    file = written_config(tmp_path, shop.database, f"{{port: 0, token: {TOKEN}}}", few=True)
    with served(file) as site, visiting(browser, site.address) as visit:
        site.look()
        page = visit.open(OPEN)
        for name, shown in (("by_company", 25), ("by_few", FEW)):
            page.locator(f"section[aria-labelledby=route-{name}]").scroll_into_view_if_needed()
            expect(page.locator(f"section[aria-labelledby=route-{name}] tbody tr")).to_have_count(shown)
        for what in ("sorted", "searched"):
            many, few = (statistics.median(each) for each in zip(*visit.found(f"({QUICK})('{what}')"), strict=True))
            assert many < 10 * few, what


def test_without_a_token_in_the_config_one_may_look_and_change_nothing(browser: Browser, open_site: Served) -> None:
    with visiting(browser, open_site.address) as visit:
        page = visit.open("#/table/shop/public.orders")
        expect(page.locator("#panel-title")).to_have_text("public.orders")
        for name in ("Pause", "Resync", "Verify now"):
            button = page.locator("#panel").get_by_role("button", name=name)
            expect(button).to_be_disabled()
            assert "set server.token" in (button.get_attribute("title") or "")
        page.keyboard.press("Escape")
        expect(page.locator("#read-only")).to_contain_text("You can look at everything here.")
        status = visit.number("fetch('api/v1/verify', {method: 'POST'}).then((answer) => answer.status)")
        assert status == 403


def test_nothing_is_shown_before_the_token_is_entered(browser: Browser, site: Served) -> None:
    with visiting(browser, site.address) as visit:
        page = visit.open()
        dialog = page.get_by_role("dialog", name="Enter the token")
        expect(dialog).to_be_visible()
        assert visit.page.locator(".group").count() == 0
        page.get_by_label("Token", exact=True).fill("a wrong one")
        page.keyboard.press("Enter")
        expect(page.get_by_role("alert").filter(has_text="this is not the token")).to_be_visible()
        page.get_by_label("Token", exact=True).fill(TOKEN)
        page.keyboard.press("Enter")
        expect(dialog).to_be_hidden()
        expect(page.locator(".group h2")).to_contain_text("shop")
        expect(page.locator("#verify")).to_be_enabled()


def test_a_token_in_the_address_is_taken_from_it(visit: Visit, site: Served) -> None:
    assert visit.page.url == site.address
    assert TOKEN not in "".join(visit.asked)


@pytest.mark.parametrize("written", ["3q2+7w/AbC==", "3q2%2B7w%2FAbC%3D%3D"])
def test_a_token_in_base64_can_be_in_the_address(browser: Browser, shop: Shop, tmp_path: Path, written: str) -> None:
    with (
        served(written_config(tmp_path, shop.database, '{port: 0, token: "3q2+7w/AbC=="}')) as site,
        visiting(browser, site.address) as visit,
    ):
        site.look()
        page = visit.open(f"#token={written}")
        expect(page.locator(".group")).to_have_count(1)
        expect(page.locator("#token-dialog")).to_be_hidden()
        assert page.url == site.address


def test_the_page_says_when_the_service_is_gone_and_how_old_its_facts_are(
    browser: Browser, shop: Shop, tmp_path: Path
) -> None:
    with visiting(browser, "about:blank") as visit:
        with served(written_config(tmp_path, shop.database, "{port: 0}")) as site:
            site.look()
            visit.address = site.address
            visit.open()
            expect(visit.page.locator("#connection-state")).to_have_text("live")
            expect(visit.page.locator(".group")).to_have_count(1)
        expect(visit.page.locator("#connection-state")).to_have_text("the service does not answer; trying again")
        expect(visit.page.locator("#connection-age")).to_have_text(re.compile(r"what you see is \d+ s old"))
        expect(visit.page.locator(".group")).to_have_count(1)  # what was known last stays


def test_a_stream_that_breaks_is_taken_up_again(visit: Visit) -> None:
    page = visit.page
    expect(page.locator("#connection-state")).to_have_text("live")
    page.context.set_offline(True)
    page.evaluate("dispatchEvent(new Event('online'))")  # it tries at once, in vain
    expect(page.locator("#connection-state")).to_have_text("the service does not answer; trying again")
    page.context.set_offline(False)
    expect(page.locator("#connection-state")).to_have_text("live")
    visit.said.clear()  # a browser reports each attempt that fails


def test_a_chart_is_read_by_keyboard(visit: Visit) -> None:
    page = visit.page
    reading = page.get_by_role("slider", name="Lag of group shop: value at a time")
    expect(reading).to_have_attribute("aria-valuetext", re.compile(r"now \d.* · most \d"))
    reading.focus()
    page.keyboard.press("Home")
    expect(reading).to_have_attribute("aria-valuetext", re.compile(r"\d\d:\d\d:\d\d: "))
    assert page.locator(".chart desc").first.text_content()


def test_everything_is_reached_by_keyboard(visit: Visit) -> None:
    page = visit.page
    page.keyboard.press("Tab")
    assert visit.page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.keyboard.press("Enter")
    assert visit.page.evaluate("document.activeElement.id") == "main"
    page.get_by_role("link", name="public.orders", exact=True).focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog", name="public.orders")).to_be_visible()
    for _ in range(12):
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.matches('body, #panel, #panel *')")
    page.keyboard.press("Escape")
    expect(page.locator("#panel")).to_be_hidden()
    assert page.evaluate("document.activeElement.textContent") == "public.orders"


def test_focus_is_seen_wherever_it_is(visit: Visit) -> None:
    page = visit.page
    for _ in range(25):
        page.keyboard.press("Tab")
        style = page.evaluate(
            "(() => { const each = document.activeElement, own = getComputedStyle(each), plot = each.closest('.plot');"
            " return plot ? getComputedStyle(plot).outlineStyle : own.outlineStyle })()"
        )
        assert style != "none", page.evaluate("document.activeElement.outerHTML.slice(0, 200)")


TABLES = [f"#/table/shop/public.{name}" for name in ("payments", "orders", "products")]


@pytest.mark.parametrize("colours", ["light", "dark"])
def test_contrast_and_names_are_as_they_should_be(
    browser: Browser, site: Served, colours: Literal["light", "dark"]
) -> None:
    with visiting(browser, site.address, colours=colours) as visit:
        page = visit.open(OPEN)
        expect(page.locator(".group")).to_have_count(1)
        page.locator("#glossary summary").click()
        page.locator("#routes").scroll_into_view_if_needed()
        expect(page.locator(".route tbody tr").first).to_be_visible()
        page.locator(".route tbody button").first.click()  # its details are shown
        assert page.evaluate(ACCESSIBLE) == FLAWLESS
        for fragment in TABLES:
            page.evaluate("(fragment) => { location.hash = fragment }", fragment)
            expect(page.locator("#panel .inside:not([aria-busy])")).to_be_visible()
            expect(page.locator("#panel .pill")).to_be_visible()
            assert page.evaluate(ACCESSIBLE) == FLAWLESS, fragment
        page.locator("#panel .term").click()
        assert page.evaluate(ACCESSIBLE) == FLAWLESS
        page.locator("#panel").get_by_role("button", name="Verify now").click()
        expect(page.locator("#confirmation")).to_be_visible()
        assert page.evaluate(ACCESSIBLE) == FLAWLESS


@pytest.mark.parametrize("colours", ["light", "dark"])
def test_the_question_for_the_token_has_contrast_and_names(
    browser: Browser, site: Served, colours: Literal["light", "dark"]
) -> None:
    with visiting(browser, site.address, colours=colours) as visit:
        page = visit.open()
        page.get_by_label("Token", exact=True).fill("a wrong one")
        page.keyboard.press("Enter")
        expect(page.locator("#token-error")).to_contain_text("this is not the token")
        assert page.evaluate(ACCESSIBLE) == FLAWLESS


def test_the_colours_can_be_switched_and_stay_so(visit: Visit) -> None:
    page, ground = visit.page, "getComputedStyle(document.body).backgroundColor"
    before = page.evaluate(ground)
    page.get_by_role("button", name="Dark colours").click()
    dark = page.evaluate(ground)
    assert dark != before
    page.reload()
    assert page.evaluate(ground) == dark


@pytest.mark.parametrize("fragment", ["", "#/table/shop/public.payments", "#/table/shop/public.orders"])
def test_a_phone_shows_it_without_scrolling_sideways(browser: Browser, site: Served, fragment: str) -> None:
    with visiting(browser, site.address, size=PHONE) as visit:
        page = visit.open(OPEN)
        expect(page.locator(".group")).to_have_count(1)
        page.locator("#routes").scroll_into_view_if_needed()
        page.evaluate("(fragment) => { location.hash = fragment }", fragment)
        if fragment:
            expect(page.locator("#panel[open] .inside:not([aria-busy])")).to_be_visible()
        assert visit.number("document.documentElement.scrollWidth") <= PHONE["width"]
        assert visit.number("document.querySelector('#panel').scrollWidth") <= PHONE["width"]


NUMBERS = [
    ("duration(0.034)", "34 ms"),
    ("duration(1.24)", "1.2 s"),
    ("duration(200)", "3 min 20 s"),
    ("duration(7500)", "2 h 5 min"),
    ("duration(273600)", "3 d 4 h"),
    ("duration(null)", "\u2013"),
    ("size(512)", "512 B"),
    ("size(3565158)", "3.4 MB"),
    ("size(734003200)", "700 MB"),
    ("count(12345)", "12\u202f345"),
    ("counted(1, 'table')", "1 table"),
    ("rate(0.42)", "0.4/s"),
    ("rate(1234.5)", "1\u202f235/s"),
    ("lsnDistance('0/FFFFFFFF', '1/0')", 1),
    ("withHint('it failed\\nhint: try it').join('|')", "it failed|try it"),
]


def test_numbers_are_written_for_people(visit: Visit) -> None:
    asked = ", ".join(f"words.{each}" for each, _ in NUMBERS)
    assert visit.found(f"import('./static/words.js').then((words) => [{asked}])") == [wanted for _, wanted in NUMBERS]
