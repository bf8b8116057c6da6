"""Panels as Grafana reads them, placed in rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

__all__ = ["SOURCE", "Panel", "placed", "variable"]

SOURCE = {"type": "prometheus", "uid": "${datasource}"}
WIDTH = 24  # Grafana's columns
GREEN_RED = {"mode": "absolute", "steps": [{"color": "green", "value": None}, {"color": "red", "value": 1}]}
RED_GREEN = {"mode": "absolute", "steps": [{"color": "red", "value": None}, {"color": "green", "value": 1}]}
YES_NO = {"0": {"text": "no", "color": "red"}, "1": {"text": "yes", "color": "green"}}

Kind = Literal["stat", "timeseries", "table", "state"]


@dataclass(frozen=True, slots=True)
class Panel:
    """A panel: its expressions with what each is called, its unit, and for the reader what it is about."""

    title: str
    about: str
    queries: Sequence[tuple[str, str]]
    unit: str = "short"
    kind: Kind = "timeseries"
    width: int = 8
    stacked: bool = False
    bad: Literal["above 0", "0", ""] = ""  # of a stat: when it is red


OF_SCRAPES = (
    "instance",
    "job",
    "pod",
    "namespace",
    "service",
    "endpoint",
    "container",
)  # labels of Prometheus' operator
HEIGHTS: dict[Kind, int] = {"stat": 4, "timeseries": 8, "state": 8, "table": 8}


def variable(name: str, label: str, query: str) -> dict[str, Any]:
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": SOURCE,
        "definition": query,
        "query": {"query": query, "refId": name},
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


def placed(rows: Mapping[str, Sequence[Panel]]) -> Iterator[dict[str, Any]]:
    """Panels side by side as far as there is room, below the heading of their row."""
    number, y = 0, 0
    for title, panels in rows.items():
        number += 1
        yield {"id": number, "type": "row", "title": title, "gridPos": _place(0, y, WIDTH, 1), "panels": []}
        x, y, height = 0, y + 1, 0
        for each in panels:
            if x + each.width > WIDTH:
                x, y, height = 0, y + height, 0
            number, height = number + 1, max(height, HEIGHTS[each.kind])
            yield _panel(each, number) | {"gridPos": _place(x, y, each.width, HEIGHTS[each.kind])}
            x += each.width
        y += height


def _place(x: int, y: int, width: int, height: int) -> dict[str, int]:
    return {"x": x, "y": y, "w": width, "h": height}


def _panel(panel: Panel, number: int) -> dict[str, Any]:
    instant = panel.kind in ("stat", "table")
    targets = [
        {
            "refId": chr(ord("A") + place),
            "datasource": SOURCE,
            "expr": query,
            "legendFormat": name,
            "instant": instant,
            "range": not instant,
            **({"format": "table"} if panel.kind == "table" else {}),
        }
        for place, (query, name) in enumerate(panel.queries)
    ]
    drawn: dict[Kind, Callable[[Panel], dict[str, Any]]] = {
        "stat": _drawn_stat,
        "timeseries": _drawn_series,
        "table": _drawn_table,
        "state": _drawn_state,
    }
    common = {"id": number, "title": panel.title, "description": panel.about, "datasource": SOURCE, "targets": targets}
    return common | drawn[panel.kind](panel)


def _drawn_stat(panel: Panel) -> dict[str, Any]:
    defaults: dict[str, Any] = {"unit": panel.unit, "noValue": "0" if panel.bad == "above 0" else "-"}
    if panel.bad:
        defaults["thresholds"] = RED_GREEN if panel.bad == "0" else GREEN_RED
    if panel.bad == "0":
        defaults["mappings"] = [{"type": "value", "options": YES_NO}]
    options = {
        "colorMode": "background" if panel.bad else "value",
        "graphMode": "none",
        "reduceOptions": {"calcs": ["lastNotNull"]},
    }
    return {"type": "stat", "fieldConfig": {"defaults": defaults, "overrides": []}, "options": options}


def _drawn_series(panel: Panel) -> dict[str, Any]:
    custom: dict[str, Any] = {"fillOpacity": 10, "lineWidth": 1, "showPoints": "never"}
    if panel.stacked:
        custom |= {"stacking": {"mode": "normal"}, "fillOpacity": 40}
    options = {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi", "sort": "desc"}}
    defaults = {"unit": panel.unit, "min": 0, "custom": custom}
    return {"type": "timeseries", "fieldConfig": {"defaults": defaults, "overrides": []}, "options": options}


def _drawn_state(panel: Panel) -> dict[str, Any]:  # noqa: ARG001
    defaults = {
        "thresholds": RED_GREEN,
        "mappings": [{"type": "value", "options": YES_NO}],
        "custom": {"fillOpacity": 80},
    }
    options = {"mergeValues": True, "showValue": "never", "legend": {"showLegend": False}}
    return {"type": "state-timeline", "fieldConfig": {"defaults": defaults, "overrides": []}, "options": options}


def _drawn_table(panel: Panel) -> dict[str, Any]:
    """The queries become the columns beside the labels."""
    hidden = dict.fromkeys(["Time", "__name__", *OF_SCRAPES], True)
    columns = {f"Value #{chr(ord('A') + place)}": name for place, (_, name) in enumerate(panel.queries)}
    size = {"matcher": {"id": "byName", "options": "Bytes"}, "properties": [{"id": "unit", "value": "bytes"}]}
    return {
        "type": "table",
        "transformations": [
            {"id": "merge", "options": {}},
            {"id": "organize", "options": {"excludeByName": hidden, "renameByName": columns}},
        ],
        "fieldConfig": {"defaults": {"custom": {"filterable": True}}, "overrides": [size]},
        "options": {"showHeader": True},
    }
