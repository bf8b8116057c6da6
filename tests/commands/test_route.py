"""`headwater route`: destinations are listed, seeded again, paused and resumed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.routed import RoutedShop


@pytest.fixture
def shop(database: str, tmp_path: Path) -> Iterator[RoutedShop]:
    with closing(RoutedShop(database, tmp_path)) as made:
        yield made


def states(shop: RoutedShop) -> dict[str, tuple[str, str | None]]:
    return {str(row): (row.state, row.reseed) for row in shop.state.destinations("by_company")}


def test_the_list_has_every_destination_for_people_and_for_programs(shop: RoutedShop) -> None:
    shop.seeded()
    text = shop.cli("route", "list").output
    assert text.startswith("route by_company ← main.orders of lake shop: STOPPED, at 1\n  3 destinations healthy\n")
    assert {line.split()[0] for line in text.splitlines()[5:]} == {"acme", "globex", "default"}
    found = json.loads(shop.cli("route", "list", "by_company", "--json").stdout)
    assert [(each["route"], each["value"], each["status"]) for each in found] == [
        ("by_company", None, "healthy"),
        ("by_company", "acme", "healthy"),
        ("by_company", "globex", "healthy"),
    ]


def test_destinations_pause_and_go_on(shop: RoutedShop) -> None:
    shop.seeded()
    done = shop.cli("route", "pause", "by_company", "acme", "default")
    assert done.output == (
        "route 'by_company': 2 destinations paused\n"
        "no process delivers the route now: the next `headwater run` acts on it\n"
    )
    assert {name: state for name, (state, _) in states(shop).items()} == {
        "acme": "PAUSED",
        "default": "PAUSED",
        "globex": "ACTIVE",
    }
    with shop.state.lock(shop.owner):
        assert shop.cli("route", "pause", "by_company").output == (
            "route 'by_company': 1 destination paused (2 paused before)\n"
        )
        shop.state.resume_destinations("by_company", ["=acme"])
        shop.state.note_failed("by_company", "=acme", "disk full", 1, datetime.now(UTC))
        assert shop.cli("route", "resume", "by_company").output == "route 'by_company': 3 destinations resumed\n"
        assert {state for state, _ in states(shop).values()} == {"ACTIVE"}
        assert shop.cli("route", "resume", "by_company", "acme").output == (
            "route 'by_company': 0 destinations resumed (1 neither paused nor waiting after a failure)\n"
        )


def test_destinations_are_seeded_again_only_when_that_is_confirmed(shop: RoutedShop) -> None:
    shop.seeded()
    asked = shop.cli("route", "seed", "by_company", "acme")
    assert asked.exit_code == 2
    assert "error: seeding 1 destination of route 'by_company' again was not confirmed\nhint: add --yes" in asked.stderr
    assert {reason for _, reason in states(shop).values()} == {None}

    shop.state.pause_destinations("by_company", ["=globex"])
    done = shop.cli("route", "seed", "by_company", "--yes")
    assert done.output.splitlines()[:2] == [
        "route 'by_company': 3 destinations to be seeded",
        "1 of them paused: seeded after `headwater route resume by_company`",
    ]
    assert {reason for _, reason in states(shop).values()} == {"it was asked for"}


def test_a_value_that_is_the_word_default_is_not_the_default_destination(shop: RoutedShop) -> None:
    shop.seeded(values=["default", "=x", "-1", None])
    for name in ("=default", "==x", "default"):
        assert "1 destination paused" in shop.cli("route", "pause", "by_company", name).output
    assert "1 destination paused" in shop.cli("route", "pause", "by_company", "--", "-1").output
    assert {row.id: row.state for row in shop.state.destinations("by_company")} == dict.fromkeys(
        ["=default", "==x", "=-1", "*"], "PAUSED"
    )
    listed = json.loads(shop.cli("route", "list", "--json").stdout)
    assert {each["value"] for each in listed} == {"default", "=x", "-1", None}
    assert {"=default", "==x", "default", "-1"} <= set(shop.cli("route", "list").output.split())


@pytest.mark.parametrize(
    ("arguments", "message", "hint"),
    [
        (["list", "by_compani"], "there is no route 'by_compani' in the config", "did you mean 'by_company'?"),
        (["pause", "x"], "there is no route 'x' in the config", "known routes: by_company"),
        (["seed", "by_company", "acne", "--yes"], "route 'by_company' has no destination 'acne'", "mean 'acme'?"),
        (["resume", "by_company", "zzz"], "has no destination 'zzz'", "see `headwater route list`"),
        (["pause", "by_company", "=acme"], "has no destination '=acme'", "did you mean 'acme'?"),
    ],
)
def test_a_name_that_is_not_there_is_refused_with_one_that_is(
    shop: RoutedShop, arguments: list[str], message: str, hint: str
) -> None:
    shop.seeded()
    done = shop.cli("route", *arguments)
    assert done.exit_code == 2
    assert message in done.stderr
    assert hint in done.stderr


def test_before_the_first_run_there_is_nothing_to_ask_for(shop: RoutedShop) -> None:
    done = shop.cli("route", "pause", "by_company")
    assert done.exit_code == 2
    assert "route 'by_company' has no destination yet" in done.stderr
