"""`/metrics`: the newest look as Prometheus reads it, with counters and histograms of what happens from look to look.

Nothing is asked for a scrape: it costs the source and the state nothing, however often it comes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Protocol

from prometheus_client import ProcessCollector
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from headwater.state.deliveries import DeliveryRow
from headwater.status import Status
from headwater.web.exposition import deliveries, groups, overall, processes, routes, tables
from headwater.web.exposition.metric import Event, Metric, Sample, families
from headwater.web.exposition.totals import Totals
from headwater.web.facts import Look

__all__ = ["METRICS", "Known", "Metrics"]

_RENDERED = (*overall.METRICS, *groups.METRICS, *tables.METRICS, *routes.METRICS, *processes.METRICS)
_DELIVERED = deliveries.METRICS
METRICS: tuple[Metric, ...] = (*_RENDERED, *_DELIVERED, *processes.OWN_METRICS)


class Known(Protocol):
    """What the metrics come from: `Facts`, or looks that a test takes itself."""

    def newest(self) -> Look: ...

    def subscribe(self, on_deliveries: Callable[[Sequence[DeliveryRow]], None]) -> None: ...

    def watch(self, on_look: Callable[[Look], None]) -> None: ...


class Metrics(Collector):
    """What `/metrics` returns. It never fails: what is not known is absent, and `headwater_state_up` says why."""

    def __init__(self, facts: Known) -> None:
        self._facts = facts
        self._totals, self._deliveries = Totals(), deliveries.Deliveries()
        self._processes = Totals()  # which only a scrape looks at
        self._own = ProcessCollector(registry=None)
        self._one_at_a_time = threading.Lock()
        facts.subscribe(self._observe)
        facts.watch(self._count)
        self._count(facts.newest())

    def exposition(self, accept: str) -> tuple[bytes, str]:
        """The body and its content type, in the format that the client accepts."""
        encode, content_type = choose_encoder(accept)
        return encode(self), content_type

    def collect(self) -> Iterator[Family]:
        with self._one_at_a_time:
            return iter([*families((*_RENDERED, *_DELIVERED), self._samples()), *self._rest()])

    def _samples(self) -> Iterator[Sample]:
        look = self._facts.newest()
        yield from overall.look_samples(look)
        if look.status is not None:
            yield from _gauges(_of(look.status, look.disabled))
            found = list(processes.samples(look.status))
            self._processes.take(_counters(found), ())
            yield from _gauges(found)
        yield from self._totals.samples()
        yield from self._processes.samples()

    def _rest(self) -> Iterable[Family]:
        return [*self._deliveries.families(), *self._own.collect()]

    def _count(self, look: Look) -> None:
        """At each look: what comes and goes between two scrapes counts, too."""
        if look.status is not None:
            found = [*_counters(_of(look.status, look.disabled))]
            with self._one_at_a_time:
                self._totals.take(found, _events(look.status))

    def _observe(self, rows: Sequence[DeliveryRow]) -> None:
        with self._one_at_a_time:
            self._deliveries.observe(rows, self._totals)


def _of(status: Status, disabled: Collection[str]) -> Iterator[Sample]:
    yield from overall.samples(status)
    for group in status.groups:
        yield from groups.samples(group, source_up=status.source_error is None, enabled=group.name not in disabled)
        yield from tables.samples(group)
        yield from deliveries.started(group.name)
    yield from routes.samples(status.routes)


def _gauges(samples: Iterable[Sample]) -> Iterator[Sample]:
    return (each for each in samples if each.metric.kind != "counter")


def _counters(samples: Iterable[Sample]) -> Iterator[Sample]:
    return (each for each in samples if each.metric.kind == "counter")


def _events(status: Status) -> Iterator[Event]:
    yield from overall.error_events(overall.failures(status))
    for group in status.groups:
        yield from tables.maintenance_events(group)
