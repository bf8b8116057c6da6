"""Metrics of the whole: whether the state and the source answer, and what is not as it should be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

import headwater
from headwater.change import Lsn
from headwater.status import STALE_SECONDS, GroupStatus, PartStatus, RouteStatus, Status
from headwater.status.slots import slot_warning
from headwater.web.exposition.metric import Event, Metric, Sample
from headwater.web.facts import Look
from headwater.web.verdict import unready

__all__ = ["KINDS", "METRICS", "Failure", "FailureKind", "error_events", "failures", "look_samples", "samples"]

FailureKind = Literal["source", "slot", "log", "capture", "delivery", "table", "route", "destination"]
KINDS: tuple[FailureKind, ...] = FailureKind.__args__  # type: ignore[attr-defined]

_BUILD = Metric("headwater_build_info", "info", ("version",), "Always 1; the label has Headwater's version.")
_LOOKED = Metric(
    "headwater_look_timestamp_seconds", "gauge", (), "When the state and the source were last asked, in Unix time."
)
_STATE_UP = Metric(
    "headwater_state_up",
    "gauge",
    (),
    "1 if the state answered when it was last asked, at most 30 s ago. At 0, everything that only the state knows is"
    " absent, and the counters stand still.",
)
_SOURCE_UP = Metric("headwater_source_up", "gauge", (), "1 if the source answered when it was last asked.")
_READY = Metric(
    "headwater_ready",
    "gauge",
    (),
    "1 if every group captures and delivers within its bounds, as `/readyz` says; else 0.",
)
_HEALTHY = Metric(
    "headwater_healthy", "gauge", (), "1 if nothing is wrong, as `headwater status --check` sees it; else 0."
)
_PROBLEMS = Metric("headwater_problems", "gauge", ("kind",), "How many things are wrong now, by kind.")
_ERRORS = Metric(
    "headwater_errors_total",
    "counter",
    ("kind",),
    "Errors that were new at a look, by kind; an attempt that fails once more is a new error.",
)
_SOURCE_LSN = Metric("headwater_source_lsn_bytes", "gauge", (), "The end of the source's WAL: an LSN as a number.")
_LEFTOVER = Metric(
    "headwater_leftover_slot_wal_bytes",
    "gauge",
    ("group", "slot"),
    "WAL that the source keeps for the slot of a group that the config no longer has.",
)
METRICS = (_BUILD, _LOOKED, _STATE_UP, _SOURCE_UP, _READY, _HEALTHY, _PROBLEMS, _ERRORS, _SOURCE_LSN, _LEFTOVER)


class Failure(NamedTuple):
    """One thing that is not as it should be; `what` differs from one failed attempt to the next."""

    kind: FailureKind
    subject: str
    what: str


def look_samples(look: Look) -> Iterator[Sample]:
    """What is known whether the state answers or not."""
    yield _BUILD.of(1, headwater.__version__)
    yield _LOOKED.of(look.at)
    yield _STATE_UP.of(look.status is not None)
    yield _READY.of(not unready(look))


def samples(status: Status) -> Iterator[Sample]:
    yield _SOURCE_UP.of(status.source_error is None)
    yield _HEALTHY.of(status.healthy)
    found = Counter(each.kind for each in failures(status))
    for kind in KINDS:
        yield _PROBLEMS.of(found[kind], kind)
        yield _ERRORS.of(0, kind)
    yield _SOURCE_LSN.of(None if status.source_lsn is None else Lsn.parse(status.source_lsn).value)
    for each in status.leftovers:
        yield _LEFTOVER.of(each.wal_bytes, each.group, each.slot)


def error_events(found: Iterable[Failure]) -> Iterator[Event]:
    for each in found:
        yield Event(_ERRORS, (each.kind,), each)


def failures(status: Status) -> Iterator[Failure]:
    """Everything of which `status.problems` has a sentence, every destination included."""
    if status.source_error:
        yield Failure("source", "", status.source_error)
    for group in status.groups:
        gone = group.slot is not None and group.slot_active is None and not status.source_error
        if gone or slot_warning(group.wal_status, group.wal_safe_bytes, group.wal_limit_bytes):
            yield Failure("slot", group.name, "gone" if gone else group.wal_status or "")
        if group.log_max_bytes is not None and group.log_needed_bytes >= group.log_max_bytes:
            yield Failure("log", group.name, "full")
        yield from _of_stage("capture", group.name, group.capture)
        yield from _of_stage("delivery", group.name, group.delivery)
        yield from _of_tables(group)
    for route in status.routes:
        yield from _of_route(route)


def _of_stage(stage: Literal["capture", "delivery"], group: str, part: PartStatus) -> Iterator[Failure]:
    hangs = part.state == "RUNNING" and (part.heartbeat_seconds or 0.0) > STALE_SECONDS
    if part.state != "RUNNING" or hangs:
        yield Failure(stage, group, "hangs" if hangs else part.state)
    if part.error:
        yield Failure(stage, group, part.error)


def _of_tables(group: GroupStatus) -> Iterator[Failure]:
    for each in group.tables:
        if each.state == "ERRORED" or (each.error and each.state not in ("PAUSED", "REMOVED")):
            yield Failure("table", f"{group.name} {each.table}", f"{each.retry_at} {each.error}")


def _of_route(route: RouteStatus) -> Iterator[Failure]:
    if route.source_error:
        yield Failure("route", route.name, route.source_error)
    for each in route.instances:
        if not each.running:
            yield Failure("route", f"{route.name} {each.name}", "STOPPED")
        if each.error:
            yield Failure("route", f"{route.name} {each.name}", each.error)
    if route.running and any(each.instance is None for each in route.destinations):
        yield Failure("route", route.name, "no instance")
    for destination in route.destinations:
        if destination.status == "error":
            what = f"{destination.failures} {destination.error}"
            yield Failure("destination", f"{route.name} {destination}", what)
