"""Traces of deliveries: what a collector gets."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tests.collector import Collector

from headwater.change import Lsn
from headwater.flow import Delivered
from headwater.lake.counts import Counts
from headwater.state import Phases, Work
from headwater.supervise.tracing import trace, tracing

PHASES = Phases(wait=1.5, fold=0.25, locate=0.0, write=0.5, commit=0.125)
COUNTS = Counts(inserted=5, updated=3, deleted=1)
DONE = Delivered(Lsn(0x1A2B), 42, work=Work(12, 4096, datetime.now(UTC), PHASES, COUNTS, (7, 8)))


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector().running() as found:
        yield found


def test_the_phases_of_a_delivery_follow_each_other_inside_its_span() -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace(provider.get_tracer("test"), "shop", DONE)
    *phases, whole = exporter.get_finished_spans()
    assert [each.name for each in phases] == ["wait", "fold", "locate", "write", "commit"]
    assert whole.name == "headwater.delivery"
    assert dict(whole.attributes or {}) == {
        "headwater.group": "shop",
        "headwater.position": "0/1A2B",
        "headwater.snapshot": 42,
        "headwater.rows": 9,
        "headwater.tables": 2,
    }
    at = whole.start_time
    for each, seconds in zip(phases, (1.5, 0.25, 0.0, 0.5, 0.125), strict=True):
        assert each.parent is not None
        assert whole.context is not None
        assert each.parent.span_id == whole.context.span_id
        assert (each.start_time, (each.end_time or 0) - (at or 0)) == (at, seconds * 1e9)
        at = each.end_time
    assert whole.end_time == at
    provider.shutdown()


def test_a_delivery_that_changed_nothing_leaves_no_trace() -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace(provider.get_tracer("test"), "shop", Delivered(Lsn(9), 3))
    assert exporter.get_finished_spans() == ()
    provider.shutdown()


def test_a_collector_has_everything_when_the_process_ends(collector: Collector) -> None:
    with tracing(collector.url) as observe:
        observe("shop", DONE)
        observe("app", DONE)
    assert set(collector.paths) == {"/v1/traces"}
    assert collector.names() == sorted(["headwater.delivery", "wait", "fold", "locate", "write", "commit"] * 2)
    (service,) = {
        each.value.string_value
        for request in collector.requests
        for one in request.resource_spans
        for each in one.resource.attributes
        if each.key == "service.name"
    }
    assert service == "headwater"


def test_the_name_of_the_service_is_what_the_operator_says(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "mirror-of-the-shop")
    with tracing(collector.url + "/") as observe:
        observe("shop", DONE)
    attributes = [each for one in collector.requests[0].resource_spans for each in one.resource.attributes]
    assert {"mirror-of-the-shop"} == {each.value.string_value for each in attributes if each.key == "service.name"}
    assert collector.paths == ["/v1/traces"]


def test_a_collector_that_refuses_disturbs_no_delivery(collector: Collector, caplog: pytest.LogCaptureFixture) -> None:
    collector.status = 400
    with tracing(collector.url) as observe:
        observe("shop", DONE)
    assert len(collector.requests) == 1
    assert "400" in caplog.text


def test_without_an_address_opentelemetry_is_not_even_imported() -> None:
    program = (
        "import sys\nfrom headwater.supervise.tracing import tracing\n"
        "with tracing(None): print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_without_the_package_a_warning_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)  # as if it were not installed
    with caplog.at_level(logging.WARNING), tracing("http://127.0.0.1:4318") as observe:
        observe("shop", DONE)
    assert "no traces are sent to http://127.0.0.1:4318" in caplog.text
    assert "pip install 'headwater[tracing]'" in caplog.text
