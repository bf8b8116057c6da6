"""The PostgreSQL of the demo and the tests, which several processes may set up at once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from headwater.testing import postgres

SET_UP = "import sys; from pathlib import Path; from headwater.testing.postgres import EmbeddedPostgres; " + (
    "print('begins', flush=True); EmbeddedPostgres(Path(sys.argv[1]))"
)


def test_servers_are_set_up_one_after_the_other_since_the_first_creates_their_user(tmp_path: Path) -> None:
    with postgres.ONE_AT_A_TIME:
        other = subprocess.Popen([sys.executable, "-c", SET_UP, str(tmp_path)], stdout=subprocess.PIPE)
        assert other.stdout is not None
        with other.stdout as said:
            assert said.readline() == b"begins\n"
        try:
            other.wait(0.5)
            waited = False
        except subprocess.TimeoutExpired:
            waited = True
    assert waited
    assert other.wait(30) == 0
