"""A delivery as an OpenTelemetry trace: a span, and below it one for each of its phases.

The spans are made when the delivery is over, from the times that it brings along. OpenTelemetry is only imported where
traces are wanted: it comes with `headwater[tracing]`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING

from headwater import __version__
from headwater.flow import Delivered
from headwater.supervise.beside import Observer, ignored

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Tracer

__all__ = ["trace", "tracing"]

logger = logging.getLogger(__name__)

EXPORT_SECONDS = 5.0  # that a collector which does not answer may hold up the end of the process


@contextmanager
def tracing(endpoint: str | None) -> Iterator[Observer]:
    """Inside, what is yielded makes traces of deliveries for the OTLP collector at this URL; without one, nothing.

    What the other OTEL_* variables say about spans, headers and certificates is up to OpenTelemetry.
    """
    provider = _provider(endpoint) if endpoint else None
    if provider is None:
        yield ignored
        return
    try:
        yield partial(trace, provider.get_tracer("headwater", __version__))
    finally:
        provider.shutdown()


def trace(tracer: Tracer, group: str, done: Delivered) -> None:
    """The trace of a delivery that has just ended; none of one that changed nothing."""
    from opentelemetry.trace import set_span_in_context

    if done.work is None:
        return
    counts = done.work.counts
    facts: dict[str, str | int] = {
        "headwater.group": group,
        "headwater.position": str(done.position),
        "headwater.snapshot": done.snapshot_id,
        "headwater.rows": counts.inserted + counts.updated + counts.deleted,
        "headwater.tables": len(done.work.oids),
    }
    phases = {name: round(seconds * 1e9) for name, seconds in asdict(done.work.phases).items()}
    end = time.time_ns()
    at = end - sum(phases.values())
    whole = tracer.start_span("headwater.delivery", start_time=at, attributes=facts)
    for name, nanoseconds in phases.items():
        tracer.start_span(name, set_span_in_context(whole), start_time=at).end(at + nanoseconds)
        at += nanoseconds
    whole.end(end)


def _provider(endpoint: str) -> TracerProvider | None:
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import OTELResourceDetector, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        logger.warning(
            "no traces are sent to %s, since %s is not installed\nhint: pip install 'headwater[tracing]'",
            endpoint,
            error.name,
        )
        return None
    ours = Resource({"service.name": "headwater", "service.version": __version__})
    provider = TracerProvider(resource=Resource.create().merge(ours).merge(OTELResourceDetector().detect()))
    exporter = OTLPSpanExporter(f"{endpoint.rstrip('/')}/v1/traces", timeout=EXPORT_SECONDS)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    logger.info("traces of deliveries are sent to %s", endpoint)
    return provider
