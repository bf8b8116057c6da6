"""The demo's lake: how its config names it, and what to type to read it."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import duckdb

from headwater.lake.sqltext import literal

__all__ = ["DUCKLAKE", "DemoLake"]


@dataclass(frozen=True, slots=True)
class DemoLake:
    """A kind of lake to mirror into, all of it in the demo's folder."""

    entry: str  # of the config, under `lakes:`
    catalog: str  # its file in the folder
    lines: Callable[[Path], list[str]]  # that read it, for DuckDB


def _ducklake_lines(home: Path) -> list[str]:
    """What to type into DuckDB to see the lake: a `duckdb` shell of this version, or Python."""
    return [
        *(f"LOAD {literal(str(extension))};" for extension in _linked_extensions(home)),
        f"ATTACH {literal(f'ducklake:sqlite:{home}/lake.sqlite')} AS shop (READ_ONLY);",
        "SELECT status, count(*), sum(total) FROM shop.public.orders GROUP BY ALL;",
        "FROM shop.snapshots() ORDER BY snapshot_id DESC LIMIT 5;",
    ]


def _linked_extensions(home: Path) -> Iterator[Path]:
    """DuckDB's extensions by short names in our folder: the lines that load them should fit on a terminal."""
    for name in ("ducklake", "sqlite_scanner"):
        package = importlib.util.find_spec(f"duckdb_extension_{name}")
        assert package is not None, "a dependency of ours"
        file = f"extensions/v{duckdb.__version__}/{name}.duckdb_extension"
        link = home / f"{name}.duckdb_extension"
        link.unlink(missing_ok=True)
        link.symlink_to(next(Path(place) / file for place in package.submodule_search_locations or ()))
        yield link


DUCKLAKE = DemoLake('{ducklake: "sqlite:///lake.sqlite", data_path: ./lake}', "lake.sqlite", _ducklake_lines)
