"""The demo from start to end: a PostgreSQL, a shop that writes, a mirror, a view, and the comparison at the end."""

from __future__ import annotations

import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event

import psycopg
from rich.console import Console

from headwater.commands import render
from headwater.commands.demo.address import reserved
from headwater.commands.demo.folder import claimed, write_config
from headwater.commands.demo.lake import DemoLake
from headwater.commands.demo.observer import Observer
from headwater.commands.demo.process import MirrorProcess, headwater
from headwater.commands.demo.shop import Shop
from headwater.commands.demo.view import View
from headwater.commands.demo.workload import COMPANIES, TABLES, create
from headwater.config import Config
from headwater.errors import CheckFailed, Unreachable
from headwater.query import query
from headwater.testing.postgres import EmbeddedPostgres
from headwater.words import counted

__all__ = ["show"]

_RATE = 300.0  # row changes a second
_REFRESH = 0.5
_DRAIN = 300.0


def show(seconds: float | None, folder: Path, lake: DemoLake) -> None:
    """The whole demo; see `headwater demo --help`."""
    console = Console()
    with ExitStack() as stack:
        home = stack.enter_context(claimed(folder, lake))
        stop = stack.enter_context(_stopped_by_signals())
        page = stack.enter_context(reserved())
        print(f"page {page}", flush=True)
        print(f"starting PostgreSQL in {home / 'pg'}; the page answers as soon as the mirror runs", flush=True)
        url = stack.enter_context(_postgres(home))
        create(url, routes_the_log=lake.routes_the_log)
        path = write_config(home, url, lake, page)
        config = Config.load(path, {})
        mirror = MirrorProcess(path)
        stack.callback(mirror.stop)
        shop = stack.enter_context(Shop(url, stop, _RATE))
        observer = Observer(config, shop.tally)
        stack.callback(observer.close)
        print(f"mirroring into {home / 'lake.sqlite'}; its log is {mirror.log}", flush=True)
        with View(console) as view:
            _mirror(observer, mirror, shop, view, stop, seconds)
            _drain(observer, mirror, shop, view)
        _verify(path)
        print(f"verify: OK\n{_summary(config)}\n\n{_how_to_go_on(home, lake)}", flush=True)


def _mirror(
    observer: Observer, mirror: MirrorProcess, shop: Shop, view: View, stop: Event, seconds: float | None
) -> None:
    """Show what happens until `stop` is set; the seconds count from the first delivery."""
    first: float | None = None
    while not stop.is_set() and (first is None or seconds is None or time.monotonic() < first + seconds):
        mirror.look()
        shop.look()
        look, frame = observer.frame(_headline(first is not None, mirror))
        view.show(frame)
        if first is None and observer.delivers(look):
            first = time.monotonic()
        stop.wait(_REFRESH)


def _headline(streaming: bool, mirror: MirrorProcess) -> str:
    if not streaming:
        return "starting Spark"
    again = f", restarted {counted(mirror.restarts, 'time')}" if mirror.restarts else ""
    return f"mirroring (pid {mirror.pid}{again})"


def _drain(observer: Observer, mirror: MirrorProcess, shop: Shop, view: View) -> None:
    """Wait until the lake has all that was written, and the companies' lakes have it from there."""
    shop.finish()
    target = observer.source_lsn()
    shop.one_more()  # a quiet source need not move the lake's position: this does, past the target
    deadline = time.monotonic() + _DRAIN
    while time.monotonic() < deadline:
        mirror.look()
        look, frame = observer.frame("draining")
        view.show(frame)
        if look.covers(target):
            return
        time.sleep(_REFRESH)
    raise CheckFailed(f"the lakes did not reach {target} within {_DRAIN:.0f} s", hint=f"see {mirror.log}")


def _verify(path: Path) -> None:
    """Let `headwater verify` compare source and lakes, in its own process, as a user would."""
    print("verifying the lakes against the source", flush=True)
    run = subprocess.run(headwater(path, "verify"), capture_output=True, text=True, check=False)
    if run.returncode != 0:
        said = f"{run.stdout}\n{run.stderr}".strip()
        raise CheckFailed(
            f"verify ended with {run.returncode}:\n{said}", hint=f"compare with {path.parent}/headwater.log"
        )


def _summary(config: Config) -> str:
    shown = [("main", table) for table in TABLES]
    shown += [(company, "orders") for company in COMPANIES]
    counts = " UNION ALL ".join(
        f"SELECT '{lake}', '{table}', count(*) FROM {lake}.public.{table}" for lake, table in shown
    )
    return render.as_text(("lake", "table", "rows"), query(config, counts, {}).rows)


def _how_to_go_on(home: Path, lake: DemoLake) -> str:
    parts = ["\n".join([f"in {where}:", *(f"  {line}" for line in lines)]) for where, lines in lake.lines(home).items()]
    ways = "\nor ".join(parts)
    config = home / "headwater.yaml"
    program = "headwater" if shutil.which("headwater") else shlex.join([sys.executable, "-m", "headwater"])
    ask = f"{program} query -c {shlex.quote(str(config))} 'FROM public.products LIMIT 5'"
    return (
        f"Query the lake {ways}\nor with\n  {ask}\n\n"
        "Run the demo again, and it goes on where it stopped.\n"
        "While it runs, kill -9 the mirror, and see that nothing is missing."
    )


@contextmanager
def _stopped_by_signals() -> Iterator[Event]:
    """An event that Ctrl-C and SIGTERM set; a second Ctrl-C interrupts at once."""
    stop = Event()
    kinds = (signal.SIGINT, signal.SIGTERM)
    before = {kind: signal.getsignal(kind) for kind in kinds}

    def note(*_: object) -> None:
        stop.set()
        signal.signal(signal.SIGINT, signal.default_int_handler)

    for kind in kinds:
        signal.signal(kind, note)
    try:
        yield stop
    finally:
        for kind in kinds:
            signal.signal(kind, before[kind])


@contextmanager
def _postgres(home: Path) -> Iterator[str]:
    """The URL of the shop's database, on a server that runs while we are here."""
    try:
        server = EmbeddedPostgres(home / "pg").start()
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:
        raise Unreachable(
            f"PostgreSQL does not start in {str(home / 'pg')!r}: {error}", hint="see the log there"
        ) from error
    try:
        with psycopg.connect(server.url(), autocommit=True) as admin:
            if admin.execute("SELECT 1 FROM pg_database WHERE datname = 'shop'").fetchone() is None:
                admin.execute("CREATE DATABASE shop")
        yield server.url("shop")
    finally:
        server.stop()
