"""The tables of docs/metrics.md that explain each metric, from the list that `/metrics` is made of.

`python -m tools.metrictable` writes them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from headwater.web.exposition import deliveries, groups, overall, processes, routes, tables
from headwater.web.exposition.metric import Metric

__all__ = ["TOPICS", "metric_tables", "with_metric_tables"]

BEGIN, END = "<!-- metrics: python -m tools.metrictable writes these tables -->", "<!-- /metrics -->"
TOPICS = {
    "The whole": overall.METRICS,
    "Groups": groups.METRICS,
    "Tables": tables.METRICS,
    "Deliveries": deliveries.METRICS,
    "Routes": routes.METRICS,
    "Processes": (*processes.METRICS, *processes.OWN_METRICS),
}


def metric_tables() -> str:
    """A table for each topic, with a row for each metric."""
    return "\n\n".join(f"## {topic}\n\n{_table(metrics)}" for topic, metrics in TOPICS.items())


def _table(metrics: Iterable[Metric]) -> str:
    rows = (
        f"| `{each.name}` | {each.kind} | {', '.join(f'`{label}`' for label in each.labels)} | {each.explanation} |"
        for each in metrics
    )
    return "\n".join(["| metric | kind | labels | meaning |", "|---|---|---|---|", *rows])


def with_metric_tables(page: str) -> str:
    """The page with the tables in it as they should be."""
    before, rest = page.split(BEGIN)
    return f"{before}{BEGIN}\n\n{metric_tables()}\n\n{END}{rest.split(END)[1]}"


if __name__ == "__main__":
    for path in map(Path, sys.argv[1:] or ["docs/metrics.md"]):
        path.write_text(with_metric_tables(path.read_text()))
