"""Counters that only rise, made of totals that may fall and of events that are seen again and again."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator

from headwater.web.exposition.metric import Event, Metric, Sample

__all__ = ["Totals"]

_Series = tuple[Metric, tuple[str, ...]]


class Totals:
    """Counts from the first look on, as a counter of a program counts from its start.

    The state's totals begin anew when a table is copied again, and outlive the program. So neither a fall nor what was
    there at the first look may count: rate() would take the one for a restart, and the other for something new.
    """

    def __init__(self) -> None:
        self._counted: dict[_Series, float] = {}
        self._last: dict[tuple[_Series, Hashable], float] = {}
        self._shown: dict[_Series, None] = {}  # in order
        self._events: set[Hashable] | None = None

    def take(self, totals: Iterable[Sample], events: Iterable[Event]) -> None:
        """Count what has been added since the last look; only counters that this look names are shown."""
        before, self._last, self._shown = self._last, {}, {}
        for each in totals:
            if each.value is not None:
                series = each.metric, each.labels
                self._last[series, each.part] = each.value
                self._shown[series] = None
                self.add(*series, max(each.value - before.get((series, each.part), each.value), 0.0))
        self._happened(list(events))

    def add(self, metric: Metric, labels: tuple[str, ...], amount: float) -> None:
        series = metric, labels
        self._counted[series] = self._counted.get(series, 0.0) + amount

    def samples(self) -> Iterator[Sample]:
        for metric, labels in self._shown:
            yield Sample(metric, labels, self._counted.get((metric, labels), 0.0))

    def _happened(self, events: list[Event]) -> None:
        before, self._events = self._events, {(each.metric, each.identity) for each in events}
        for each in events:
            if before is not None and (each.metric, each.identity) not in before:
                self.add(each.metric, each.labels, each.amount)
