"""Named places where a test has the process die, or fail."""

from __future__ import annotations

import subprocess
import sys

import pytest

from headwater.failpoints import FAILPOINTS

HITS = """
from headwater import failpoints
from headwater.errors import Unreachable
for number in range(1, 5):
    try:
        failpoints.hit("deliver.written", "public.orders")
        print(number, "well", flush=True)
    except Unreachable as error:
        print(number, error.message, flush=True)
"""


def hits(asked: str) -> tuple[int, list[str]]:
    done = subprocess.run(
        [sys.executable, "-c", HITS], env={"HEADWATER_FAILPOINT": asked}, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout.splitlines()


def test_a_failpoint_kills_the_process_where_and_when_it_is_asked_to() -> None:
    assert hits("") == (0, ["1 well", "2 well", "3 well", "4 well"])
    assert hits("deliver.written:3") == (-9, ["1 well", "2 well"])
    assert hits("deliver.written=public.orders") == (-9, [])
    assert hits("deliver.written=public.items")[0] == 0


def test_a_failpoint_with_an_exclamation_mark_fails_once_and_the_process_goes_on() -> None:
    failed = "2 the failpoint deliver.written was asked to fail"
    assert hits("!deliver.written:2") == (0, ["1 well", failed, "3 well", "4 well"])


@pytest.mark.parametrize("asked", ["nowhere", "!nowhere"])
def test_a_failpoint_that_there_is_not_is_refused(asked: str) -> None:
    code, said = hits(asked)
    assert (code, said) == (1, [])
    assert asked.removeprefix("!") not in FAILPOINTS
