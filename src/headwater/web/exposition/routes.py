"""Metrics of routes: always of each as a whole, and of no more than a hundred destinations one by one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from headwater.status import DestinationStatus, RouteStatus
from headwater.status.routes import DestinationHealth
from headwater.web.exposition.metric import Metric, Sample

__all__ = ["METRICS", "SHOWN_DESTINATIONS", "samples"]

SHOWN_DESTINATIONS = (
    100  # of all routes together: a series of each of thousands would cost Prometheus more than it says
)

_ROUTE, _DESTINATION = ("route",), ("route", "destination")
_HEALTHS: tuple[DestinationHealth, ...] = DestinationHealth.__args__  # type: ignore[attr-defined]
_URGENCY: dict[DestinationHealth, int] = {"error": 0, "lagging": 1, "paused": 3}  # the others: 2


def _gauge(name: str, explanation: str, labels: tuple[str, ...] = _ROUTE) -> Metric:
    return Metric(f"headwater_{name}", "gauge", labels, explanation)


def _counter(name: str, explanation: str, *more: str) -> Metric:
    return Metric(f"headwater_{name}_total", "counter", (*_ROUTE, *more), explanation)


_RUNNING = _gauge("route_running", "1 if a process delivers the route; with several instances, one for each.")
_SOURCE_UP = _gauge("route_source_up", "1 if the route's source can be read.")
_STATUSES = _gauge("route_destinations", "Destinations in each status.", ("route", "status"))
_LAG = _gauge("route_lag_seconds", "The lag of the destination furthest behind, paused ones aside.")
_UNKNOWN_LAG = _gauge("route_unknown_lag_destinations", "Destinations whose lag is not known, paused ones aside.")
_ROWS = _gauge("route_rows", "Rows that the destinations should hold, together.")
_WAITING = _gauge("route_waiting_rows", "Rows that were read for the others and that a destination has not got.")
_TO_SEED = _gauge("route_destinations_to_seed", "Destinations that are to be seeded.")
_CIRCUITS = _gauge("route_open_circuits", "Destinations that failed three times or more and are left alone for now.")
_CHANGES = _counter("route_changes", "Changes delivered to the destinations: `insert`, `update`, `delete`.", "change")
_FAILURES = _counter("route_failed_attempts", "Deliveries to a destination that failed.")
_UNROUTED = _counter("route_unrouted_rows", "Rows that no destination got: their value has none, or is NULL.", "reason")
_INSTANCE = _gauge("route_instance_running", "1 if this instance of the route runs.", ("route", "instance"))
_POLLED = _gauge(
    "route_polled_timestamp_seconds", "When a poll of this instance last ended, in Unix time.", ("route", "instance")
)
_LEFT_OUT = _gauge(
    "route_left_out_destinations",
    f"Destinations without series of their own. No more than {SHOWN_DESTINATIONS} of all routes have them: first those"
    " that failed, then those that lag, then the others by name, paused ones last.",
)
_STATUS = _gauge("destination_status", "1 for the destination's status.", (*_DESTINATION, "status"))
_ITS_LAG = _gauge(
    "destination_lag_seconds", "The age of the oldest change that the destination does not have.", _DESTINATION
)
_ITS_SNAPSHOTS = _gauge(
    "destination_lag_snapshots", "Snapshots of the source that the destination does not include.", _DESTINATION
)
_ITS_ROWS = _gauge("destination_rows", "Rows that the destination should hold.", _DESTINATION)
_ITS_WAITING = _gauge(
    "destination_waiting_rows", "Rows that were read for the others and wait for this destination.", _DESTINATION
)
_ITS_FAILURES = _gauge(
    "destination_failures", "How many attempts in a row to deliver to the destination have failed.", _DESTINATION
)

METRICS = (
    *(_RUNNING, _SOURCE_UP, _STATUSES, _LAG, _UNKNOWN_LAG, _ROWS, _WAITING, _TO_SEED, _CIRCUITS, _CHANGES, _FAILURES),
    *(_UNROUTED, _INSTANCE, _POLLED, _LEFT_OUT, _STATUS, _ITS_LAG, _ITS_SNAPSHOTS, _ITS_ROWS, _ITS_WAITING),
    _ITS_FAILURES,
)


def samples(routes: Sequence[RouteStatus]) -> Iterator[Sample]:
    shown = sorted((each for route in routes for each in route.destinations), key=_order)[:SHOWN_DESTINATIONS]
    for route in routes:
        yield from _route(route)
        yield from _totals(route)
        left_out = len(route.destinations) - sum(each.route == route.name for each in shown)
        yield _LEFT_OUT.of(left_out, route.name)
    for each in shown:
        yield from _destination(each)


def _order(destination: DestinationStatus) -> tuple[int, str, str]:
    """Not by lag: among thousands that are well, others would have the most at every scrape, and each makes series."""
    return _URGENCY.get(destination.status, 2), destination.route, str(destination)


def _route(route: RouteStatus) -> Iterator[Sample]:
    name, all_of_it = route.name, route.destinations
    yield _RUNNING.of(route.running, name)
    yield _SOURCE_UP.of(route.source_error is None, name)
    statuses = Counter(each.status for each in all_of_it)
    yield from (_STATUSES.of(statuses[status], name, status) for status in _HEALTHS)
    followed = [each.lag_seconds for each in all_of_it if each.status != "paused"]
    yield _LAG.of(max((lag for lag in followed if lag is not None), default=None), name)
    yield _UNKNOWN_LAG.of(followed.count(None), name)
    yield _ROWS.of(sum(each.rows for each in all_of_it), name)
    yield _WAITING.of(sum(each.waiting_rows for each in all_of_it), name)
    yield _TO_SEED.of(sum(each.seed is not None for each in all_of_it), name)
    yield _CIRCUITS.of(sum(each.circuit_open for each in all_of_it), name)
    for each in route.instances:
        yield _INSTANCE.of(each.running, name, each.name)
        yield _POLLED.of(each.polled_at.timestamp() if each.polled_at else None, name, each.name)


def _totals(route: RouteStatus) -> Iterator[Sample]:
    """Totals of each destination: if one is seeded again, its own begins anew, and not the route's."""
    yield from (_CHANGES.of(0, route.name, change, part=()) for change in ("insert", "update", "delete"))
    yield _FAILURES.of(0, route.name, part=())
    for each in route.destinations:
        yield _CHANGES.of(each.inserted, route.name, "insert", part=each.value)
        yield _CHANGES.of(each.updated, route.name, "update", part=each.value)
        yield _CHANGES.of(each.deleted, route.name, "delete", part=each.value)
        yield _FAILURES.of(each.failures, route.name, part=each.value)
    yield _UNROUTED.of(route.unknown_rows, route.name, "unknown")
    yield _UNROUTED.of(route.null_rows, route.name, "null")


def _destination(destination: DestinationStatus) -> Iterator[Sample]:
    name = destination.route, str(destination)
    yield _STATUS.of(1, *name, destination.status)
    yield _ITS_LAG.of(destination.lag_seconds, *name)
    yield _ITS_SNAPSHOTS.of(destination.lag_snapshots, *name)
    yield _ITS_ROWS.of(destination.rows, *name)
    yield _ITS_WAITING.of(destination.waiting_rows, *name)
    yield _ITS_FAILURES.of(destination.failures, *name)
