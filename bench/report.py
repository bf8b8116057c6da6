"""What was measured, and how it is shown: one row for each promise about speed."""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyspark
from rich.console import Console
from rich.table import Table

__all__ = ["Row", "as_json", "machine", "print_rows"]


@dataclass(frozen=True, slots=True)
class Row:
    """One promise: medians of alternating runs. Without a rival, the aim is a limit in the unit itself.

    A limit is an upper one, unless `at_least`.
    """

    name: str
    what: str
    runs: tuple[float, ...]
    aim: float
    against: str = ""
    rival_runs: tuple[float, ...] = ()
    unit: str = "s"
    note: str = ""
    at_least: bool = False

    @property
    def measured(self) -> float:
        return statistics.median(self.runs)

    @property
    def rival(self) -> float | None:
        return statistics.median(self.rival_runs) if self.rival_runs else None

    @property
    def ratio(self) -> float | None:
        return None if self.rival is None else self.measured / self.rival

    @property
    def met(self) -> bool:
        value = self.measured if self.ratio is None else self.ratio
        return value >= self.aim if self.at_least else value <= self.aim


def machine(server: str) -> dict[str, str]:
    """What the numbers were measured on."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "cpu": f"{len(os.sched_getaffinity(0))} x {_cpu()}",
        "memory": f"{memory:.0f} GiB",
        "load": " ".join(f"{load:.1f}" for load in os.getloadavg()),
        "system": f"{platform.system()} {platform.release()}",
        "postgresql": f"{server}, fsync off, unix socket",
        "spark": f"{pyspark.__version__}, local[2]",
        "pyarrow": pa.__version__,
        "python": platform.python_version(),
    }


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    names = [line.split(":", 1)[1].strip() for line in info.read_text().splitlines() if line.startswith("model name")]
    return names[0] if names else platform.machine()


def as_json(rows: Iterable[Row], facts: dict[str, str]) -> dict[str, Any]:
    return {
        "machine": facts,
        "rows": [
            {
                "name": row.name,
                "what": row.what,
                "measured": row.measured,
                "unit": row.unit,
                "runs": row.runs,
                "against": row.against,
                "rival": row.rival,
                "rival_runs": row.rival_runs,
                "ratio": row.ratio,
                "aim": row.aim,
                "at_least": row.at_least,
                "met": row.met,
                "note": row.note,
            }
            for row in rows
        ],
    }


def print_rows(rows: Sequence[Row], facts: dict[str, str], console: Console) -> None:
    for name, fact in facts.items():
        console.print(f"{name:>10}  {fact}", highlight=False)
    table = Table("what", "measured", "against", "its measure", "ratio", "aim", "met", "note")
    for row in rows:
        ratio, rival = row.ratio, row.rival
        table.add_row(
            row.what,
            _measure(row.measured, row),
            row.against,
            "" if rival is None else _measure(rival, row),
            "" if ratio is None else f"{ratio:.2f} x",
            f"{'≥' if row.at_least else '≤'} {row.aim:g} " + (row.unit if ratio is None else "x"),
            "yes" if row.met else "NO",
            row.note,
        )
    console.print(table)
    console.print(
        "Medians; both sides of a ratio in turn, in this run. After each, lake and source held the same rows."
    )


def _measure(value: float, row: Row) -> str:
    return f"{value:.2f} {row.unit}" if row.unit in ("s", "ms") else f"{value:.0f} {row.unit}"
