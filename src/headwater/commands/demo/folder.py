"""The demo's folder: a mark that it is the demo's, a lock so that only one demo uses it, and its config."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from headwater.commands.demo.address import PageAddress
from headwater.commands.demo.lake import DUCKLAKE, DemoLake
from headwater.commands.demo.workload import COMPANIES, TABLES
from headwater.errors import ConfigError

__all__ = ["claimed", "write_config"]

_MARK = ".headwater-demo"


@contextmanager
def claimed(folder: Path, lake: DemoLake) -> Iterator[Path]:
    """Lock the folder, a new one or a demo's; ConfigError if it holds other things or another lake, or is in use."""
    mark = folder / _MARK
    if any(letter.isspace() for letter in str(folder.resolve())):
        message = f"the embedded PostgreSQL cannot work in a path with a space: {str(folder.resolve())!r}"
        raise ConfigError(message, hint="name another folder: --dir /tmp/shop")
    try:
        if folder.exists() and not mark.exists() and any(folder.iterdir()):
            message = f"{str(folder)!r} is not empty, and not a folder of this demo"
            raise ConfigError(message, hint="name a new one with --dir")
        folder.mkdir(parents=True, exist_ok=True)
        holder = mark.open("a+")
    except OSError as error:
        hint = "name another with --dir"
        raise ConfigError(f"cannot use the folder {str(folder)!r}: {error.strerror}", hint=hint) from error
    with holder:
        try:
            fcntl.flock(holder, fcntl.LOCK_EX | fcntl.LOCK_NB)  # the kernel lets go of it even after a kill -9
        except OSError:
            message = f"another demo is running in {str(folder)!r}"
            raise ConfigError(message, hint="stop it, or name another folder with --dir") from None
        _mark(holder, folder, lake)
        yield folder.resolve()


def _mark(mark: TextIO, folder: Path, lake: DemoLake) -> None:
    """Note in a new folder which lake is in it; ConfigError if the folder has another one."""
    mark.seek(0)
    older = DUCKLAKE.name if (folder / "headwater.yaml").exists() else ""  # the mark was empty in earlier versions
    there = mark.read().strip() or older
    if there not in ("", lake.name):
        raise ConfigError(
            f"the demo in {str(folder)!r} mirrors into a lake of another kind: {there}, not {lake.name}",
            hint=f"go on there with --lake {there}, or name a new folder with --dir",
        )
    if not there:
        mark.write(lake.name)
        mark.flush()


def write_config(folder: Path, source: str, lake: DemoLake, page: PageAddress) -> Path:
    """Write the config with this lake, again at every start: the server's socket and the page may have moved."""
    path = folder / "headwater.yaml"
    tables = "".join(f"      - public.{table}\n" for table in TABLES)
    path.touch(mode=0o600)  # it has a token
    path.write_text(
        "# Written by `headwater demo` at every start.\n"
        f"source: {source!r}\n"
        "log: ./log\n"
        "lakes:\n"
        f"  main: {lake.entry('lake')}\n"
        f"{_company_lakes(lake)}"
        "groups:\n"
        "  shop:\n"
        "    lake: main\n"
        "    flush: {interval: 1s}\n"
        "    tables:\n"
        f"{tables}"
        f"{_route(lake)}"
        'spark: {master: "local[2]"}\n'
        f"server: {{port: {page.port}, token: {page.token!r}}}\n"
    )
    return path


def _company_lakes(lake: DemoLake) -> str:
    return "".join(f"  {each}: {lake.entry(each)}\n" for each in COMPANIES)


def _route(lake: DemoLake) -> str:
    """The orders of each company go on to a lake of its own."""
    return (
        "routes:\n"
        "  by_company:\n"
        f"    from: {lake.routed_from}\n"
        "    by: company\n"
        "    keys: [id]\n"
        "    poll: 1s\n"
        "    to:\n"
    ) + "".join(f"      - {{value: {each}, lake: {each}}}\n" for each in COMPANIES)
