"""`headwater run` as a person sees it on a terminal, and as a collector of traces does, from the start to Ctrl-C."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from headwater.testing.postgres import EmbeddedPostgres
from tests.collector import Collector
from tests.conftest import new_database
from tests.proof.processes import command, wait_for
from tests.terminals import Terminal

CONFIG = """
source: {source}
log: ./log
lakes: {{main: {{ducklake: "sqlite:///lake.sqlite", data_path: ./lake}}}}
groups: {{shop: {{lake: main, flush: {{interval: 200ms}}, tables: [public.orders]}}}}
server: {{port: 0}}
spark: {{master: "local[1]", conf: {{spark.driver.extraJavaOptions: "-XX:TieredStopAtLevel=1"}}}}
"""


@dataclass(frozen=True, slots=True)
class Seen:
    """What a run left behind that was ended by Ctrl-C."""

    code: int
    raw: str  # on the terminal
    text: str
    log: str
    spans: list[str]


@pytest.fixture(scope="module")
def seen(postgres: EmbeddedPostgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    folder = tmp_path_factory.mktemp("live")
    file = folder / "headwater.yaml"
    with new_database(postgres) as url, Collector().running() as collector:
        file.write_text(CONFIG.format(source=url))
        with psycopg.connect(url, autocommit=True) as source:
            source.execute("CREATE TABLE orders (id bigint PRIMARY KEY, item text)")
            source.execute("INSERT INTO orders SELECT i, 'old' FROM generate_series(1, 1234) i")
        environment = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url}
        with closing(Terminal(command(file, "run"), environment)) as terminal:
            wait_for(lambda: "STREAMING" in terminal.text or not _runs(terminal), "it mirrors", 250)
            with psycopg.connect(url, autocommit=True) as source:
                source.execute("INSERT INTO orders SELECT i, 'new' FROM generate_series(2001, 2045) i")
            wait_for(lambda: "+45 ~0 -0" in terminal.text or not _runs(terminal), "the delivery is shown", 100)
            terminal.press(b"\x03")
            code = terminal.end(120)
        log = _log(folder)
        yield Seen(code, terminal.raw, terminal.text, log, collector.names())


def _runs(terminal: Terminal) -> bool:
    return terminal.process.poll() is None


def _log(folder: Path) -> str:
    return (folder / "headwater.log").read_text()


def test_the_first_line_says_where_the_log_is(seen: Seen) -> None:
    assert seen.text.splitlines()[0].startswith("the log of this run is ")


def test_the_page_shows_the_tables_and_what_was_delivered(seen: Seen) -> None:
    for fact in (
        "headwater · starting",
        "headwater · mirroring",
        "headwater · stopping",
        "shop → main",
        "public.orders",
        "1,279",
        "http://127.0.0.1:",
        "+45 ~0 -0",
    ):
        assert fact in seen.text, fact


def test_ctrl_c_ends_it_and_leaves_the_terminal_as_it_was(seen: Seen) -> None:
    assert seen.code == 0
    last = seen.text.rstrip("\n").splitlines()[-1]
    assert last.startswith("stopped after ")
    assert last.endswith("headwater.log")
    assert seen.raw.rfind("\x1b[?25h") > seen.raw.rfind("\x1b[?25l")  # the cursor is there again


def test_no_line_of_the_log_is_on_the_terminal_and_those_of_all_processes_are_in_the_file(seen: Seen) -> None:
    assert " INFO " not in seen.text
    for said in ("started capture shop", "started delivery", "is the source at", "stopping: capture first"):
        assert said in seen.log, said
    assert "\x1b[" not in seen.log
    assert "Traceback" not in seen.log


def test_each_delivery_is_a_trace(seen: Seen) -> None:
    assert seen.spans
    deliveries = seen.spans.count("headwater.delivery")
    assert {name: seen.spans.count(name) for name in ("wait", "fold", "locate", "write", "commit")} == dict.fromkeys(
        ("wait", "fold", "locate", "write", "commit"), deliveries
    )
