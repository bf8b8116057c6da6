"""`python -m bench.child capture|deliver FILE [GROUP]`: a process of the pipeline; it waits for a line to start.

So that a measurement begins with the work, not with Python's imports. It ends when its standard input does.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from headwater.config import Config
from headwater.logs import configure
from headwater.supervise.running import capture_child, deliver_child

__all__ = ["main"]


def main(what: str, file: str, group: str = "") -> int:
    config = Config.load(Path(file), os.environ)
    configure("text")
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    os.read(0, 1)
    return (
        capture_child(config, group)
        if what == "capture"
        else deliver_child(config, os.environ, Path(file), all_needed=False, wait=False)
    )


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
