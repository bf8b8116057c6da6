"""A metric as operators know it, one sample of it, and the lines of text that samples become."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from prometheus_client.metrics_core import Metric as Family

__all__ = ["Event", "Kind", "Metric", "Sample", "families"]

Kind = Literal["gauge", "counter", "histogram", "info"]


@dataclass(frozen=True, slots=True)
class Metric:
    """What a metric is called, and what its value means; the documentation and the exposition both come from here."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    explanation: str

    def of(self, value: float | None, *labels: str, part: Hashable = None) -> Sample:
        return Sample(self, labels, value, part)

    @property
    def family(self) -> str:
        """The name without the end that its kind demands."""
        return self.name.removesuffix({"counter": "_total", "info": "_info"}.get(self.kind, ""))


class Sample(NamedTuple):
    """A value of a metric; None: it is not known, and absent.

    That of a counter is a total as the state has it, which may fall. A counter can be the sum of several, by `part`.
    """

    metric: Metric
    labels: tuple[str, ...]
    value: float | None
    part: Hashable = None


class Event(NamedTuple):
    """What happened once, by its identity, and which counter it moves."""

    metric: Metric
    labels: tuple[str, ...]
    identity: Hashable
    amount: float = 1.0


def families(metrics: Iterable[Metric], samples: Iterable[Sample]) -> Iterator[Family]:
    """The samples under their metrics, in the metrics' order; those without a sample are left out."""
    found: dict[Metric, dict[tuple[str, ...], float]] = {}
    for each in samples:
        if each.value is not None:
            # The same labels twice would make Prometheus refuse everything.
            found.setdefault(each.metric, {}).setdefault(each.labels, float(each.value))
    for metric in metrics:
        if metric in found:
            family = Family(metric.family, metric.explanation, metric.kind)
            for labels, value in found[metric].items():
                family.add_sample(metric.name, dict(zip(metric.labels, labels, strict=True)), value)
            yield family
