"""The demo's lakes: how its config names them, and what to type to read them."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb

from headwater.lake.sqltext import literal

__all__ = ["DUCKLAKE", "ICEBERG", "LAKES", "DemoLake"]

Lines = Mapping[str, Sequence[str]]  # by what they are typed into
_DUCKDB = f"DuckDB {duckdb.__version__} (its shell, or duckdb.sql() in Python)"


@dataclass(frozen=True, slots=True)
class DemoLake:
    """A kind of lake to mirror into, all of it in the demo's folder."""

    name: str
    _entry: str
    routed_from: str  # `from` of the route by company
    routes_the_log: bool  # which then has to say of which company an order was
    lines: Callable[[Path], Lines]  # that read it

    def entry(self, files: str) -> str:
        """A lake of this kind for the config, under `lakes:`; `files` is what its catalog and its folder are called."""
        return self._entry.format(files)


def _ducklake_lines(home: Path) -> Lines:
    return {
        _DUCKDB: [
            *_loading(home, "ducklake", "sqlite_scanner"),
            f"ATTACH {literal(f'ducklake:sqlite:{home}/lake.sqlite')} AS shop (READ_ONLY);",
            "SELECT status, count(*), sum(total) FROM shop.public.orders GROUP BY ALL;",
            "FROM shop.snapshots() ORDER BY snapshot_id DESC LIMIT 5;",
            f"ATTACH {literal(f'ducklake:sqlite:{home}/acme.sqlite')} AS acme (READ_ONLY);",
            "SELECT company, count(*), sum(total) FROM acme.public.orders GROUP BY ALL;",
        ]
    }


def _iceberg_lines(home: Path) -> Lines:
    """DuckDB asks the catalog, which is a SQLite database, for the newest metadata file."""
    return {
        "PyIceberg": [
            "from pyiceberg.catalog import load_catalog",
            f"shop = load_catalog(type='sql', uri={f'sqlite:///{home}/lake.sqlite'!r})",
            "shop.load_table('public.orders').scan(limit=5).to_arrow()",
            f"acme = load_catalog(type='sql', uri={f'sqlite:///{home}/acme.sqlite'!r})",
            "acme.load_table('public.orders').scan(limit=5).to_arrow()",
        ],
        _DUCKDB: [
            *_loading(home, "avro", "iceberg", "sqlite_scanner"),
            f"ATTACH {literal(f'{home}/lake.sqlite')} AS shop (TYPE sqlite, READ_ONLY);",
            "SET VARIABLE orders = (SELECT metadata_location",
            "  FROM shop.iceberg_tables WHERE table_name = 'orders');",
            "SELECT status, count(*), sum(total)",
            "  FROM iceberg_scan(getvariable('orders')) GROUP BY ALL;",
            "FROM iceberg_snapshots(getvariable('orders'))",
            "  ORDER BY sequence_number DESC LIMIT 5;",
        ],
    }


def _loading(home: Path, *names: str) -> Iterator[str]:
    """DuckDB's extensions by short names in our folder: the lines that load them should fit on a terminal."""
    for name in names:
        package = importlib.util.find_spec(f"duckdb_extension_{name}")
        assert package is not None, "a dependency of ours"
        file = f"extensions/v{duckdb.__version__}/{name}.duckdb_extension"
        link = home / f"{name}.duckdb_extension"
        link.unlink(missing_ok=True)
        link.symlink_to(next(Path(place) / file for place in package.submodule_search_locations or ()))
        yield f"LOAD {literal(str(link))};"


DUCKLAKE = DemoLake(
    "ducklake",
    '{{ducklake: "sqlite:///{0}.sqlite", data_path: ./{0}}}',
    "{lake: main, table: public.orders}",
    False,
    _ducklake_lines,
)
ICEBERG = DemoLake(
    "iceberg",
    '{{iceberg: {{type: sql, uri: "sqlite:///{0}.sqlite", warehouse: ./{0}}}}}',
    "{group: shop, table: public.orders}",
    True,
    _iceberg_lines,
)
LAKES = {lake.name: lake for lake in (DUCKLAKE, ICEBERG)}
