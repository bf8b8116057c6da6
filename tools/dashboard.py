"""The Grafana dashboard `deploy/grafana/headwater.json`: its panels, in rows, and nothing about coordinates.

`python -m tools.dashboard` writes it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

from tools.grafana import Panel, placed, variable

__all__ = ["FILE", "dashboard", "expressions"]

FILE = Path(__file__).parents[1] / "deploy" / "grafana" / "headwater.json"

G, T, R = '{group=~"$group"}', '{group=~"$group", table=~"$table"}', '{route=~"$route"}'
ERRORED, FAILED = f'{{{G[1:-1]}, state="ERRORED"}}', f'{{{R[1:-1]}, status="error"}}'
RATE = "[$__rate_interval]"


def _of_mirror(query: str) -> str:
    """A fact of the mirror, once: every server that Prometheus scrapes shows the whole mirror, from the same state.

    The largest, since a server that has just started has counted less. The scrape's other labels keep several
    installations apart.
    """
    return f"max without (instance, pod) ({query})"


def _rate(counter: str, labels: str = G) -> str:
    return _of_mirror(f"rate({counter}{labels}{RATE})")


def _increase(counter: str, labels: str = G) -> str:
    return _of_mirror(f"increase({counter}{labels}{RATE})")


def _quantiles(histogram: str) -> list[tuple[str, str]]:
    buckets = f"sum by (group, le) ({_rate(f'{histogram}_bucket')})"
    return [(f"histogram_quantile({each}, {buckets})", f"{{{{group}}}} p{each * 100:.0f}") for each in (0.5, 0.99)]


def _stat(title: str, about: str, query: str, unit: str = "short", bad: Literal["above 0", "0", ""] = "") -> Panel:
    return Panel(title, about, [(query, "")], unit, "stat", 3, bad=bad)


AT_A_GLANCE = [
    _stat("Ready", "Every group captures and delivers within its bounds.", "min(headwater_ready)", bad="0"),
    _stat("Healthy", "Nothing is wrong, as `headwater status --check` sees it.", "min(headwater_healthy)", bad="0"),
    _stat("Source reachable", "The source answers.", "min(headwater_source_up)", bad="0"),
    _stat("Largest lag", "Of the lake that is furthest behind.", f"max(headwater_group_lag_seconds{G})", "s"),
    _stat("Problems", "What is wrong now.", f"sum({_of_mirror('headwater_problems')})", bad="above 0"),
    _stat(
        "Tables in error",
        "Tables that cannot go on.",
        f"sum({_of_mirror(f'headwater_group_tables{ERRORED}')})",
        bad="above 0",
    ),
    _stat(
        "Destinations in error",
        "Destinations whose last attempt failed.",
        f"sum({_of_mirror(f'headwater_route_destinations{FAILED}')})",
        bad="above 0",
    ),
    _stat(
        "Age of these facts",
        "When the state was last asked, by the server that is slowest.",
        "max(time() - headwater_look_timestamp_seconds)",
        "s",
    ),
]
HEALTH = [
    Panel(
        "Problems",
        "By kind of thing. `headwater status` has a sentence for each.",
        [(_of_mirror("headwater_problems"), "{{kind}}")],
        stacked=True,
    ),
    Panel(
        "New errors",
        "Errors, and attempts that failed once more, in each interval.",
        [(f"sum by (kind) ({_increase('headwater_errors_total', '')})", "{{kind}}")],
        stacked=True,
    ),
    Panel(
        "Processes that run",
        "1: capture, or delivery, of the group runs.",
        [(_of_mirror(f"headwater_stage_running{G}"), "{{group}} {{stage}}")],
        kind="state",
    ),
]
LAG = [
    Panel(
        "Lag of the lake",
        "The age of the oldest commit that is not in the lake.",
        [(_of_mirror(f"headwater_group_lag_seconds{G}"), "{{group}}")],
        "s",
    ),
    Panel(
        "Lag by stage",
        "Capture behind the source, delivery behind the log: which of the two is slow?",
        [(_of_mirror(f"headwater_stage_lag_seconds{G}"), "{{group}} {{stage}}")],
        "s",
    ),
    Panel(
        "Commit to lake",
        "The age of the oldest commit that a delivery brings, when it is committed.",
        _quantiles("headwater_delivery_lag_seconds"),
        "s",
    ),
    Panel(
        "Lag in bytes of WAL",
        "The source's WAL that is not in the lake.",
        [(_of_mirror(f"headwater_group_lag_bytes{G}"), "{{group}}")],
        "bytes",
        width=12,
    ),
    Panel(
        "Tables furthest behind",
        "The ten with the largest lag.",
        [(f"topk(10, {_of_mirror(f'headwater_table_lag_seconds{T}')})", "{{table}}")],
        "s",
        width=12,
    ),
]
THROUGHPUT = [
    Panel(
        "WAL captured",
        "What capture has passed, in bytes per second.",
        [(_rate("headwater_group_captured_wal_bytes_total"), "{{group}}")],
        "Bps",
        width=6,
    ),
    Panel(
        "Changes captured",
        "Into the log, per second.",
        [(_rate("headwater_group_captured_changes_total"), "{{group}}")],
        "cps",
        width=6,
    ),
    Panel(
        "Changes read from the log",
        "By deliveries, per second.",
        [(_rate("headwater_delivery_read_changes_total"), "{{group}}")],
        "cps",
        width=6,
    ),
    Panel(
        "Net changes to the lake",
        "Inserts, updates and deletes, per second.",
        [(f"sum by (change) ({_rate('headwater_delivery_changes_total')})", "{{change}}")],
        "cps",
        width=6,
        stacked=True,
    ),
    Panel(
        "Files written",
        "Bytes per second; small shares go into the lake's catalog instead.",
        [(_rate("headwater_delivery_bytes_total"), "{{group}}")],
        "Bps",
    ),
    Panel(
        "Rows copied",
        "By first copies and new ones, per second.",
        [(f"sum by (group) ({_rate('headwater_table_copied_rows_total')})", "{{group}}")],
        "cps",
    ),
    Panel(
        "Copies under way",
        "Rows so far, of about how many.",
        [
            (_of_mirror(f"headwater_table_copy_rows{T}"), "{{table}}"),
            (_of_mirror(f"headwater_table_copy_expected_rows{T}"), "{{table}} expected"),
        ],
    ),
]
DELIVERIES = [
    Panel(
        "Deliveries",
        "Per second.",
        [(_rate("headwater_deliveries_total"), "{{group}}")],
        "ops",
        width=6,
    ),
    Panel(
        "Duration",
        "From a delivery's begin to its commit.",
        _quantiles("headwater_delivery_duration_seconds"),
        "s",
        width=6,
    ),
    Panel(
        "Mean time of each phase",
        "`wait`: its oldest change is in the log; then fold, locate, write, commit.",
        [
            (
                f"sum by (phase) ({_rate('headwater_delivery_phase_seconds_sum')})"
                f" / sum by (phase) ({_rate('headwater_delivery_phase_seconds_count')})",
                "{{phase}}",
            )
        ],
        "s",
        width=6,
        stacked=True,
    ),
    Panel("Changes in one delivery", "Read from the log.", _quantiles("headwater_delivery_size_changes"), width=6),
]
WAL_AND_LOG = [
    Panel(
        "WAL kept for the slots",
        "And the most that the source may keep.",
        [
            (_of_mirror(f"headwater_slot_wal_bytes{G}"), "{{group}}"),
            (_of_mirror(f"headwater_slot_wal_limit_bytes{G}"), "{{group}} limit"),
            (_of_mirror("headwater_leftover_slot_wal_bytes"), "{{slot}}, not in use"),
        ],
        "bytes",
    ),
    Panel(
        "Log",
        "The size of the segments, the part that is still needed, and the bound.",
        [
            (_of_mirror(f"headwater_log_bytes{G}"), "{{group}}"),
            (_of_mirror(f"headwater_log_needed_bytes{G}"), "{{group}} needed"),
            (_of_mirror(f"headwater_log_max_bytes{G}"), "{{group}} bound"),
        ],
        "bytes",
    ),
    Panel(
        "Changes that wait in the log",
        "Staged and not in the lake yet.",
        [(_of_mirror(f"headwater_log_staged_rows{G}"), "{{group}}")],
    ),
    Panel(
        "WAL until the slot is in danger",
        "Absent without max_slot_wal_keep_size.",
        [(_of_mirror(f"headwater_slot_wal_safe_bytes{G}"), "{{group}}")],
        "bytes",
        width=12,
    ),
    Panel(
        "Oldest change that waits",
        "Its age: of a table that is paused it keeps growing.",
        [(_of_mirror(f"headwater_log_oldest_change_age_seconds{G}"), "{{group}}")],
        "s",
        width=12,
    ),
]
TABLES = [
    Panel(
        "Tables",
        "What each is, and how far.",
        [
            (_of_mirror(f"headwater_table_rows{T}"), "Rows"),
            (_of_mirror(f"headwater_table_lag_seconds{T}"), "Lag (s)"),
            (_of_mirror(f"headwater_table_quarantine_values{T}"), "Quarantined"),
            (_of_mirror(f"headwater_table_files{T}"), "Files"),
            (_of_mirror(f"headwater_table_small_files{T}"), "Small files"),
            (_of_mirror(f"headwater_table_file_bytes{T}"), "Bytes"),
            (_of_mirror(f"headwater_table_inlined_rows{T}"), "Rows in the catalog"),
            (_of_mirror(f"headwater_table_error{T}"), "Error"),
        ],
        kind="table",
        width=24,
    ),
    Panel(
        "Tables by state",
        "",
        [(f"sum by (state) ({_of_mirror(f'headwater_group_tables{G}')})", "{{state}}")],
        stacked=True,
    ),
    Panel(
        "Tables that change most",
        "Net changes delivered, per second.",
        [(f"topk(10, sum by (table) ({_rate('headwater_table_changes_total', T)}))", "{{table}}")],
        "cps",
    ),
    Panel(
        "Values to quarantine",
        "In each interval.",
        [(f"sum by (table) ({_increase('headwater_table_quarantined_values_total', T)}) > 0", "{{table}}")],
    ),
    Panel(
        "Small files",
        "What maintenance has not merged yet.",
        [(f"topk(10, {_of_mirror(f'headwater_table_small_files{T}')})", "{{table}}")],
    ),
    Panel(
        "Maintenance: files",
        "Merged into fewer, deleted with old snapshots, deleted since no snapshot had them.",
        [
            (f"sum({_increase('headwater_maintenance_merged_files_total')})", "merged"),
            (f"sum({_increase('headwater_maintenance_expired_files_total')})", "expired"),
            (f"sum({_increase('headwater_maintenance_orphan_files_total')})", "orphans"),
        ],
    ),
    Panel(
        "Files that only old snapshots show",
        "They go when the snapshots expire.",
        [(f"sum by (group) ({_of_mirror(f'headwater_table_old_file_bytes{T}')})", "{{group}}")],
        "bytes",
    ),
]
ROUTES = [
    Panel(
        "Destinations by status",
        "All of them, however many.",
        [(f"sum by (status) ({_of_mirror(f'headwater_route_destinations{R}')})", "{{status}}")],
        stacked=True,
    ),
    Panel(
        "Lag of routes",
        "Of the destination that is furthest behind.",
        [(_of_mirror(f"headwater_route_lag_seconds{R}"), "{{route}}")],
        "s",
    ),
    Panel(
        "Changes to destinations",
        "Per second.",
        [(f"sum by (route) ({_rate('headwater_route_changes_total', R)})", "{{route}}")],
        "cps",
    ),
    Panel(
        "Failed attempts",
        "In each interval; and circuits that are open now.",
        [
            (f"sum by (route) ({_increase('headwater_route_failed_attempts_total', R)})", "{{route}}"),
            (_of_mirror(f"headwater_route_open_circuits{R}"), "{{route}} open"),
        ],
    ),
    Panel(
        "Rows that wait or find no destination",
        "",
        [
            (_of_mirror(f"headwater_route_waiting_rows{R}"), "{{route}} waiting"),
            (
                f"sum by (route, reason) ({_increase('headwater_route_unrouted_rows_total', R)})",
                "{{route}} {{reason}}",
            ),
        ],
    ),
    Panel(
        "Destinations that need attention",
        "The hundred most urgent have series of their own.",
        [
            (_of_mirror(f"headwater_destination_lag_seconds{R}"), "Lag (s)"),
            (_of_mirror(f"headwater_destination_failures{R}"), "Failures in a row"),
            (_of_mirror(f"headwater_destination_waiting_rows{R}"), "Waiting rows"),
            (_of_mirror(f"headwater_destination_rows{R}"), "Rows"),
        ],
        kind="table",
    ),
]
PROCESSES = [
    Panel(
        "Memory",
        "Resident, of the processes on each server's host: Headwater itself, Spark's JVM, Python workers.",
        [
            ("headwater_process_resident_memory_bytes", "{{instance}} {{stage}} {{group}} {{program}}"),
            ("process_resident_memory_bytes and on (instance, job) headwater_build_info", "{{instance}} server"),
        ],
        "bytes",
    ),
    Panel(
        "CPU",
        "Cores in use.",
        [
            (f"rate(headwater_process_cpu_seconds_total{RATE})", "{{instance}} {{stage}} {{group}} {{program}}"),
            (
                f"rate(process_cpu_seconds_total{RATE}) and on (instance, job) headwater_build_info",
                "{{instance}} server",
            ),
        ],
    ),
    Panel(
        "Age of heartbeats",
        "Of a healthy process, 3 s at most.",
        [(_of_mirror(f"headwater_stage_heartbeat_age_seconds{G}"), "{{group}} {{stage}}")],
        "s",
    ),
]
ROWS = {
    "At a glance": AT_A_GLANCE,
    "Health": HEALTH,
    "Lag": LAG,
    "Throughput": THROUGHPUT,
    "Deliveries": DELIVERIES,
    "WAL and log": WAL_AND_LOG,
    "Tables": TABLES,
    "Routes": ROUTES,
    "Processes": PROCESSES,
}


def dashboard() -> dict[str, Any]:
    return {
        "title": "Headwater",
        "uid": "headwater",
        "description": "PostgreSQL mirrored into lakes: health, lag, throughput, deliveries, WAL, log, tables, routes.",
        "tags": ["headwater"],
        "schemaVersion": 39,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": _variables()},
        "panels": list(placed(ROWS)),
    }


def expressions() -> list[str]:
    """Every query of the panels."""
    return [query for row in ROWS.values() for panel in row for query, _ in panel.queries]


def _variables() -> list[dict[str, Any]]:
    source = {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus", "current": {}}
    return [
        source,
        variable("group", "Group", "label_values(headwater_group_state, group)"),
        variable("table", "Table", f"label_values(headwater_table_info{G}, table)"),
        variable("route", "Route", "label_values(headwater_route_running, route)"),
    ]


if __name__ == "__main__":
    FILE.write_text(json.dumps(dashboard(), indent=2, ensure_ascii=False) + "\n")
