"""Metrics of deliveries: how many, of what, and histograms of their sizes, times, phases and lag."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict

from prometheus_client import Histogram
from prometheus_client.metrics_core import Metric as Family

from headwater.state.deliveries import DeliveryRow
from headwater.web.exposition.metric import Metric, Sample
from headwater.web.exposition.totals import Totals

__all__ = ["METRICS", "Deliveries", "started"]

_GROUP = ("group",)
_SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
_ROWS = (1, 10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000)

_COUNT = Metric(
    "headwater_deliveries_total", "counter", _GROUP, "Deliveries committed; each is a snapshot of a DuckLake."
)
_READ = Metric("headwater_delivery_read_changes_total", "counter", _GROUP, "Changes that deliveries read from the log.")
_CHANGES = Metric(
    "headwater_delivery_changes_total",
    "counter",
    ("group", "change"),
    "Net changes that deliveries made in the lake: `insert`, `update`, `delete`.",
)
_BYTES = Metric("headwater_delivery_bytes_total", "counter", _GROUP, "Size of the data files that deliveries wrote.")
_DURATION = Metric(
    "headwater_delivery_duration_seconds",
    "histogram",
    _GROUP,
    "How long a delivery takes from its begin to its commit.",
)
_PHASE = Metric(
    "headwater_delivery_phase_seconds",
    "histogram",
    ("group", "phase"),
    "A delivery's phases: `wait` of its oldest change in the log, then `fold`, `locate`, `write`, `commit`.",
)
_LAG = Metric(
    "headwater_delivery_lag_seconds",
    "histogram",
    _GROUP,
    "The age of the oldest source commit that a delivery brings, when it is committed.",
)
_SIZE = Metric("headwater_delivery_size_changes", "histogram", _GROUP, "How many changes of the log a delivery reads.")

_COUNTERS, _HISTOGRAMS = (_COUNT, _READ, _CHANGES, _BYTES), (_DURATION, _PHASE, _LAG, _SIZE)
METRICS = (*_COUNTERS, *_HISTOGRAMS)


def started(group: str) -> Iterator[Sample]:
    """A group without deliveries has its counters too, at zero."""
    yield from (counter.of(0, group) for counter in (_COUNT, _READ, _BYTES))
    yield from (_CHANGES.of(0, group, change) for change in ("insert", "update", "delete"))


class Deliveries:
    """What is counted of each delivery, once."""

    def __init__(self) -> None:
        self._histograms = {
            each: Histogram(
                each.name, each.explanation, each.labels, registry=None, buckets=_ROWS if each is _SIZE else _SECONDS
            )
            for each in _HISTOGRAMS
        }

    def observe(self, rows: Sequence[DeliveryRow], totals: Totals) -> None:
        for row in rows:
            for metric, labels, value, _ in _counts(row):
                totals.add(metric, labels, value or 0.0)
            for metric, labels, value, _ in _measures(row):
                self._histograms[metric].labels(*labels).observe(value or 0.0)

    def families(self) -> Iterator[Family]:
        return (_without_created(family) for each in self._histograms.values() for family in each.collect())


def _counts(row: DeliveryRow) -> Iterable[Sample]:
    yield _COUNT.of(1, row.group)
    yield _READ.of(row.changes, row.group)
    yield _BYTES.of(row.bytes, row.group)
    for change, rows in (("insert", row.inserted), ("update", row.updated), ("delete", row.deleted)):
        yield _CHANGES.of(rows, row.group, change)


def _measures(row: DeliveryRow) -> Iterable[Sample]:
    phases: dict[str, float] = asdict(row.phases)
    yield _DURATION.of(sum(phases.values()) - phases["wait"], row.group)
    yield from (_PHASE.of(seconds, row.group, phase) for phase, seconds in phases.items())
    yield _LAG.of(row.lag_seconds, row.group)
    yield _SIZE.of(row.changes, row.group)


def _without_created(family: Family) -> Family:
    """The library adds a series with the time since when it counts to each; the process' start says the same."""
    family.samples = [each for each in family.samples if not each.name.endswith("_created")]
    return family
