"""`python -m bench.child capture|deliver|serve FILE [GROUP]`: a process of the pipeline; it waits for a line to start.

So that a measurement begins with the work, not with Python's imports. It ends when its standard input does.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from headwater.config import Config
from headwater.logs import configure
from headwater.supervise.running import capture_child, deliver_child
from headwater.supervise.serverprocess import server_child
from headwater.web.serve import serve

__all__ = ["main"]


def main(what: str, file: str, group: str = "") -> int:
    config, path = Config.load(Path(file), os.environ), Path(file)
    configure("text")
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    os.read(0, 1)
    match what:
        case "capture":
            return capture_child(config, group)
        case "serve":
            return server_child(lambda stop, leads: serve(config, os.environ, path, stop, leads), wait=False)
        case _:
            return deliver_child(config, os.environ, path, all_needed=False, wait=False)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
