"""`python -m soak`: a source is written to under `headwater run`, which is killed, starved and restarted at random.

It is the demo's web shop, or with `--carried` random statements of every sort on tables of every sort.
"""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import click
import psutil
import psycopg

from headwater.testing.postgres import EmbeddedPostgres
from soak.endurance import endure
from soak.work import Work, random_statements, web_shop

__all__ = ["main"]

CONFIG = """
source: {url}
log: ./log
lakes: {{main: {{ducklake: "sqlite:///lake.sqlite", data_path: ./lake}}}}
groups: {{shop: {{flush: {{interval: 1s, rows: {rows}}}, tables: {tables}}}}}
spark: {{master: "local[2]"}}
"""
PATIENCE = 300.0  # seconds that a quiet source may take to be in the lake, with tables that are copied again


class Soak:
    def __init__(self, folder: Path, seed: int, work: Work) -> None:
        self.chance, self.work = random.Random(seed), work
        self.server = EmbeddedPostgres(folder / "pg").start()
        self.config = folder / "headwater.yaml"
        tables = json.dumps(work.tables)  # which YAML reads too
        self.config.write_text(CONFIG.format(url=self.server.url(), tables=tables, rows=work.flush_rows))
        self.log = (folder / "headwater.log").open("ab")
        self.writing = threading.Event()
        self.writer: threading.Thread | None = None
        self.run: subprocess.Popen[bytes] | None = None

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "headwater", "-c", str(self.config), *arguments]

    def start_run(self) -> None:
        self.run = subprocess.Popen(self.command("run"), stdout=self.log, stderr=self.log, start_new_session=True)

    def start_writing(self, rate: float) -> None:
        self.writing.clear()

        def write() -> None:
            while not self.writing.is_set():
                try:
                    with psycopg.connect(self.server.url()) as connection:
                        self.work.write(connection, self.writing, rate)
                except psycopg.OperationalError:
                    time.sleep(0.5)  # the server is being restarted: that is one of the breakages

        self.writer = threading.Thread(target=write, daemon=True)
        self.writer.start()

    def stop_writing(self) -> None:
        self.writing.set()
        if self.writer is not None:
            self.writer.join()

    def children(self, word: str) -> list[psutil.Process]:
        assert self.run is not None
        found = []
        for process in psutil.Process(self.run.pid).children(recursive=True):
            with suppress(psutil.Error):  # it may just be ending
                if word in " ".join(process.cmdline()):
                    found.append(process)
        return found

    def kill(self, word: str) -> None:
        for process in self.children(word)[:1]:
            process.send_signal(signal.SIGKILL)

    def kill_everything(self) -> None:
        assert self.run is not None
        family = [psutil.Process(self.run.pid), *psutil.Process(self.run.pid).children(recursive=True)]
        for process in family:
            with suppress(psutil.Error):
                process.send_signal(signal.SIGKILL)
        self.run.wait()
        self.start_run()

    def restart_politely(self) -> None:
        assert self.run is not None
        self.run.terminate()
        self.run.wait(90)
        self.start_run()

    def breakages(self) -> dict[str, Callable[[], None]]:
        return {
            "kill -9 capture": lambda: self.kill("_capture"),
            "kill -9 delivery": lambda: self.kill("_deliver"),
            "kill -9 Spark's JVM": lambda: self.kill("org.apache.spark"),
            "kill -9 everything, start again": self.kill_everything,
            "stop and start again": self.restart_politely,
            "restart PostgreSQL": self.server.restart,
        }

    def begin(self, rate: float) -> None:
        """Tables, their first copy, then the writer and the run."""
        self.work.create(self.server.url())
        subprocess.run(self.command("run", "--until-caught-up"), stdout=self.log, stderr=self.log, check=True)
        self.start_writing(rate)
        self.start_run()

    def verified(self) -> bool:
        return subprocess.run(self.command("verify", "--timeout", "600"), check=False).returncode == 0

    def settled(self) -> bool:
        """Whether the mirror of a source that is left alone for a while comes to be right.

        What happens to one partition is only seen by looking, and a table that cannot follow is copied again: until
        then the mirror may differ.
        """
        self.stop_writing()
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            asked = subprocess.run(self.command("verify", "--json"), capture_output=True, text=True, check=False)
            if asked.returncode == 0:
                return True
            time.sleep(5)
        click.echo(asked.stdout)
        return False

    def close(self) -> None:
        self.stop_writing()
        if self.run is not None:
            self.run.terminate()
            self.run.wait(90)
        self.server.stop()
        self.log.close()


@click.command()
@click.option("--minutes", default=30.0, show_default=True, help="How long to go on breaking things.")
@click.option("--every", default=45.0, show_default=True, help="Seconds between two breakages, about.")
@click.option("--rate", default=350.0, show_default=True, help="Row changes a second in the source.")
@click.option("--seed", default=lambda: int(time.time()), help="Chooses what is broken, and with --carried written.")
@click.option("--hours", type=float, help="Break nothing for so long: files, memory and delivery times must not grow.")
@click.option("--carried", is_flag=True, help="Not the web shop: random rows and shapes; compared at quiet points.")
@click.option("--dir", "folder", type=click.Path(file_okay=False, path_type=Path), help="Where everything is kept.")
def main(
    minutes: float, every: float, rate: float, seed: int, hours: float | None, carried: bool, folder: Path | None
) -> None:
    """Run long, break things on purpose, verify after each quarter and at the end. Exits 1 if a row is missing.

    With --hours nothing is broken: four tables are written to evenly, and exit code 1 says that something grew.
    """
    place = folder or Path(tempfile.mkdtemp(prefix="headwater-soak-"))
    if hours is not None:
        ok = not endure(place, hours, rate)
        click.echo(f"soak: {'OK' if ok else 'FAILED'} (everything is in {place})")
        sys.exit(0 if ok else 1)
    click.echo(f"seed {seed}, everything is in {place}")
    soak = Soak(place, seed, random_statements(seed) if carried else web_shop())
    right = soak.settled if carried else soak.verified
    ok = True
    try:
        soak.begin(rate)
        begun = time.monotonic()
        quarter = 1
        while (elapsed := time.monotonic() - begun) < minutes * 60 and ok:
            time.sleep(soak.chance.uniform(0.5, 1.5) * every)
            name, breakage = soak.chance.choice(list(soak.breakages().items()))
            click.echo(f"{elapsed / 60:6.1f} min  {name}")
            breakage()
            if elapsed > quarter * minutes * 15:
                quarter += 1
                ok = right()
                if carried and ok:
                    soak.start_writing(rate)
        soak.stop_writing()
        ok = ok and right()
    finally:
        soak.close()
    click.echo(f"soak: {'OK' if ok else 'FAILED'} (seed {seed}, log {place / 'headwater.log'})")
    sys.exit(0 if ok else 1)


if __name__ == "__main__":
    main(prog_name="python -m soak")
