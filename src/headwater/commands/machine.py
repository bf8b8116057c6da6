"""Can this machine run Headwater? Each thing it needs is tried, and each problem comes with what to do."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path

import duckdb

from headwater.config import Config
from headwater.ducklake.extension import attach, connect
from headwater.ducklake.url import PostgresUrl, SqliteUrl
from headwater.errors import HeadwaterError
from headwater.files import S3, is_local
from headwater.sink.addresses import lake_addresses

__all__ = ["Check", "diagnose"]

_JAVA = 17
_DISK = 1 << 30
_MEMORY = 2 << 30
_PACKAGES = ("pyspark", "pyarrow", "duckdb", "psycopg", "adbc-driver-postgresql")
_EXTENSIONS = ("ducklake", "sqlite_scanner", "postgres_scanner", "httpfs")


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was tried: what was found, and if that is a problem, what to do."""

    name: str
    ok: bool
    found: str
    hint: str = ""


def diagnose(env: Mapping[str, str], config_file: Path | None) -> list[Check]:
    """Try everything; a config is looked at only if there is one."""
    checks = [_python(), _java(env), *_packages(), _duckdb_extensions(), _memory(), _disk("disk", Path.cwd())]
    if config_file is not None:
        checks += _config(config_file, env)
    return [replace(check, hint="") if check.ok else check for check in checks]


def _python() -> Check:
    version = ".".join(map(str, sys.version_info[:3]))
    return Check(
        "python", sys.version_info >= (3, 11), f"{version} at {sys.executable}", "install Python 3.11 or newer"
    )


def _java(env: Mapping[str, str]) -> Check:
    hint = f"install Java {_JAVA} or newer (Debian: apt install openjdk-17-jre-headless), or set JAVA_HOME"
    home = env.get("JAVA_HOME")
    program = str(Path(home, "bin", "java")) if home else shutil.which("java", path=env.get("PATH"))
    if program is None:
        return Check("java", False, "not found: neither JAVA_HOME nor PATH has it", hint)
    try:
        run = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        return Check("java", False, f"{program} does not run: {error}", hint)
    match = re.search(r'version "(?:1\.)?(\d+)([^"]*)"', run.stderr + run.stdout)
    version = match[1] + match[2] if match else "unknown version"
    return Check("java", match is not None and int(match[1]) >= _JAVA, f"{version} at {program}", hint)


def _packages() -> Iterator[Check]:
    for name in _PACKAGES:
        hint = f"pip install {name}, or `make setup` in a checkout"
        try:
            yield Check(name, True, metadata.version(name))
        except metadata.PackageNotFoundError:
            yield Check(name, False, "not installed", hint)


def _duckdb_extensions() -> Check:
    """Load them as a lake would, then ask DuckDB which it has."""
    hint = f"pip install duckdb-extension-{{ducklake,sqlite-scanner,postgres-scanner,httpfs}}=={duckdb.__version__}"
    with tempfile.TemporaryDirectory() as folder, _connected() as con:
        if con is None:
            return Check("duckdb extensions", False, "ducklake does not load", hint)
        with contextlib.suppress(duckdb.Error, HeadwaterError):
            attach(con, SqliteUrl(f"{folder}/lake.sqlite"), "trial", data_path=folder, s3=S3())
        with contextlib.suppress(
            duckdb.Error, HeadwaterError
        ):  # no server is there: loading the extension is the point
            attach(con, PostgresUrl(f"host={folder} connect_timeout=1", "public"), "nowhere", read_only=True)
        rows = con.execute("SELECT extension_name FROM duckdb_extensions() WHERE loaded").fetchall()
    missing = [name for name in _EXTENSIONS if (name,) not in rows]
    found = f"do not load: {', '.join(missing)}" if missing else ", ".join(_EXTENSIONS)
    return Check("duckdb extensions", not missing, found, hint)


@contextlib.contextmanager
def _connected() -> Iterator[duckdb.DuckDBPyConnection | None]:
    try:
        con = connect()
    except (duckdb.Error, HeadwaterError):
        yield None
        return
    with con:
        yield con


def _memory() -> Check:
    match = re.search(r"^MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE)
    available = int(match[1]) * 1024 if match else os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return Check(
        "memory", available >= _MEMORY, f"{_size(available)} available", "Spark needs 2 GB: stop another program"
    )


def _disk(name: str, folder: Path) -> Check:
    free = shutil.disk_usage(folder).free
    hint = f"free space on the disk of {str(folder)!r}: the log keeps changes until the lake has them"
    return Check(name, free >= _DISK, f"{_size(free)} free at {folder}", hint)


def _config(path: Path, env: Mapping[str, str]) -> Iterator[Check]:
    try:
        config = Config.load(path, env)
    except ExceptionGroup as group:
        yield from (
            Check("config", False, e.message, e.hint) for e in group.exceptions if isinstance(e, HeadwaterError)
        )
        return
    yield Check("config", True, str(path))
    places = {"log": config.log.path}
    for name, lake in lake_addresses(config, env).items():
        places |= {f"{what} {name}": place for what, place in lake.folders().items()}
    for what, place in places.items():
        if is_local(place):
            yield from _folder(what, Path(place))


def _folder(name: str, folder: Path) -> Iterator[Check]:
    """A folder need not exist yet; whatever of it exists must let us write."""
    existing = next(each for each in (folder, *folder.parents) if each.exists())
    writable = existing.is_dir() and os.access(existing, os.W_OK | os.X_OK)
    found = f"{folder} can be written" if writable else f"{existing} cannot be written"
    yield Check(name, writable, found, f"give this user a writable folder, or change the path in the config: {folder}")
    if writable and shutil.disk_usage(existing).free < _DISK:
        yield _disk(name, existing)


def _size(number: int) -> str:
    return f"{number / (1 << 30):.1f} GB"
