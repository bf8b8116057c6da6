"""Verdicts are told to people and to programs alike."""

from __future__ import annotations

import json

import pytest

from headwater.verify import Difference, Verified
from headwater.verify.view import show

OK = Verified("g", "public.t", "public.t", ok=True, position="0/1", snapshot_id=3, source_rows=5, lake_rows=5)
LEFT_OUT = Verified("g", "public.h", "raw.h", ok=True, reason="its history has no key to tell rows apart by")
BAG = Verified(
    *("g", "public.b", "public.b"),
    ok=False,
    position="0/1",
    snapshot_id=3,
    source_rows=2,
    lake_rows=1,
    differences=(Difference("", '{"a":"1"}', None, 2, 0), Difference('{"id":"1"}', '{"v":"1"}', '{"v":"2"}', 1, 1)),
)


def test_what_is_not_compared_is_told_apart_from_what_differs(capsys: pytest.CaptureFixture[str]) -> None:
    show([OK, LEFT_OUT], as_json=False)
    assert capsys.readouterr().out.splitlines() == [
        "public.t: OK, 5 rows at 0/1, snapshot 3",
        "public.h → raw.h: not compared: its history has no key to tell rows apart by",
        "verify: OK (1 tables, 5 rows; 1 not compared)",
    ]


def test_a_row_without_a_key_is_shown_with_its_number(capsys: pytest.CaptureFixture[str]) -> None:
    show([OK, BAG], as_json=False)
    assert capsys.readouterr().out.splitlines()[1:] == [
        "public.b: DIFFERS at 0/1, snapshot 3: 2 rows in the source, 1 in the lake",
        "  a row",
        '    source  {"a":"1"} (2 times)',
        "    lake    (missing)",
        '  key {"id":"1"}',
        '    source  {"v":"1"}',
        '    lake    {"v":"2"}',
        "verify: 1 of 2 tables differ",
    ]
    show([BAG], as_json=True)
    assert json.loads(capsys.readouterr().out)[0]["differences"][0]["source_count"] == 2
