"""People and programs get the same verdicts."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from headwater.commands.verifyview import show
from headwater.verify import Difference, Verified

OK = Verified("g", "public.t", "public.t", "equal", position="0/1", snapshot_id=3, source_rows=5, lake_rows=5)
KEYLESS = Verified("g", "public.h", "raw.h", "not compared", reason="its history has no key that identifies rows")
ERRORED = Verified("g", "public.e", "public.e", "not compared", ok=False, reason="it is ERRORED: no more")
DOUBLED = Verified(
    *("g", "public.d", "public.d", "differs"),
    ok=False,
    reason="the history public.d has 2 changes more than once",
    position="0/1",
    snapshot_id=3,
)
BAG = Verified(
    *("g", "public.b", "public.b", "differs"),
    ok=False,
    position="0/1",
    snapshot_id=3,
    source_rows=2,
    lake_rows=1,
    differences=(Difference("", '{"a":"1"}', None, 2, 0), Difference('{"id":"1"}', '{"v":"1"}', '{"v":"2"}', 1, 1)),
)


@pytest.mark.parametrize(
    ("verdicts", "summary"),
    [
        ([OK], "verify: OK (1 table, 5 rows)"),
        ([OK, OK, KEYLESS], "verify: OK (2 tables, 10 rows; 1 not compared)"),
        ([OK, BAG], "verify: 1 of 2 tables differs"),
        ([BAG, BAG, DOUBLED, KEYLESS], "verify: 3 of 4 tables differ; 1 not compared"),
        ([OK, ERRORED], "verify: 1 of 2 tables could not be compared; no other table differs"),
        ([OK, ERRORED, ERRORED, KEYLESS], "verify: 2 of 4 tables could not be compared; no other table differs"),
        ([BAG, ERRORED], "verify: 1 of 2 tables differs; 1 not compared"),
        ([KEYLESS], "verify: OK (0 tables, 0 rows; 1 not compared)"),
    ],
)
def test_the_summary_tells_what_differs_from_what_could_not_be_compared(
    verdicts: list[Verified], summary: str, capsys: pytest.CaptureFixture[str]
) -> None:
    show(verdicts, as_json=False)
    assert capsys.readouterr().out.splitlines()[-1] == summary


def test_what_is_not_compared_is_reported_apart_from_what_differs(capsys: pytest.CaptureFixture[str]) -> None:
    show([OK, KEYLESS, ERRORED, DOUBLED], as_json=False)
    assert capsys.readouterr().out.splitlines()[:-1] == [
        "public.t: OK, 5 rows at 0/1, snapshot 3",
        "public.h → raw.h: not compared: its history has no key that identifies rows",
        "public.e: not compared: it is ERRORED: no more",
        "public.d: DIFFERS at 0/1, snapshot 3: the history public.d has 2 changes more than once",
    ]
    show([OK, KEYLESS, ERRORED, DOUBLED], as_json=True)
    reported = json.loads(capsys.readouterr().out)
    assert [(each["verdict"], each["ok"]) for each in reported] == [
        ("equal", True),
        ("not compared", True),
        ("not compared", False),
        ("differs", False),
    ]


def test_a_lake_whose_snapshots_are_of_single_tables_is_shown_without_a_number(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show([replace(OK, snapshot_id=None)], as_json=False)
    assert capsys.readouterr().out.startswith("public.t: OK, 5 rows at 0/1\n")


def test_a_row_without_a_key_is_shown_with_its_number(capsys: pytest.CaptureFixture[str]) -> None:
    show([OK, BAG], as_json=False)
    assert capsys.readouterr().out.splitlines()[1:-1] == [
        "public.b: DIFFERS at 0/1, snapshot 3: 2 rows in the source, 1 in the lake",
        "  a row",
        '    source  {"a":"1"} (2 times)',
        "    lake    (missing)",
        '  key {"id":"1"}',
        '    source  {"v":"1"}',
        '    lake    {"v":"2"}',
    ]
    show([BAG], as_json=True)
    assert json.loads(capsys.readouterr().out)[0]["differences"][0]["source_count"] == 2
