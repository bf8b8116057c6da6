"""The other sides of the ratios: PostgreSQL's own programs, which do the least that can be done."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

from headwater.change import Lsn

__all__ = ["copy_binary", "receive"]


def receive(program: Path, url: str, slot: str, publication: str, upto: Lsn) -> float:
    """Seconds pg_recvlogical takes to read a slot up to a position, into nothing."""
    options = ("-o", "proto_version=4", "-o", f"publication_names={publication}")
    command = [program, "-d", url, "--slot", slot, "--start", "--endpos", str(upto), "-f", "/dev/null", *options]
    return _timed([str(part) for part in command])


def copy_binary(program: Path, url: str, table: str) -> float:
    """Seconds psql takes to read a table in PostgreSQL's own binary form, into nothing."""
    return _timed([str(program), "-X", "-d", url, "-c", f"COPY {table} TO STDOUT (FORMAT binary)"])


def _timed(command: list[str]) -> float:
    begun = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - begun
