"""What the API's answers are made of, as JSON schemas."""

from __future__ import annotations

from typing import Any, get_args

from headwater.status.routes import DestinationHealth
from headwater.web.verdict import Verdict

__all__ = ["SCHEMAS", "reference"]

Schema = dict[str, Any]


def reference(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _object(**properties: Schema) -> Schema:
    """All of them are always there."""
    return {"type": "object", "required": [*properties], "properties": properties}


def _listed(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def _or_null(schema: Schema) -> Schema:
    kind = schema.get("type")
    return schema | {"type": [kind, "null"]} if isinstance(kind, str) else {"anyOf": [schema, {"type": "null"}]}


def _said(schema: Schema, description: str) -> Schema:
    return schema | {"description": description}


TEXT, WHOLE, NUMBER, YES = {"type": "string"}, {"type": "integer"}, {"type": "number"}, {"type": "boolean"}
MOMENT = _said(NUMBER, "seconds since 1970, UTC")
_STATES = {"type": "string", "enum": ["RUNNING", "STARTING", "STOPPED"]}
_COUNTS = {"type": "object", "additionalProperties": WHOLE}
_SERIES = _listed(_or_null(NUMBER))
_PHASES = ("wait", "fold", "locate", "write", "commit")

SCHEMAS: dict[str, Schema] = {
    "Error": _object(error=_said(TEXT, "what failed"), hint=_said(_or_null(TEXT), "the next move")),
    "Overview": _object(
        at=MOMENT,
        version=TEXT,
        verdict={"type": "string", "enum": list(get_args(Verdict))},
        sentence=TEXT,
        problems=_listed(reference("Problem")),
        source=_object(reachable=YES, error=_or_null(TEXT), lsn=_or_null(TEXT)),
        groups=_listed(reference("Group")),
        routes=_listed(reference("Route")),
    ),
    "Problem": _object(
        severity={"type": "string", "enum": ["error", "warning"]},
        what=TEXT,
        hint=_or_null(TEXT),
        group=_or_null(TEXT),
        table=_or_null(TEXT),
        route=_or_null(TEXT),
    ),
    "Group": _object(
        name=TEXT,
        lake=TEXT,
        state=_STATES,
        disabled=YES,
        lag_seconds=_or_null(NUMBER),
        lag_bytes=_or_null(WHOLE),
        captured_lsn=_or_null(TEXT),
        delivered_lsn=_or_null(TEXT),
        snapshot_id=_or_null(WHOLE),
        delivered_at=_or_null(MOMENT),
        wal_bytes=_said(_or_null(WHOLE), "of WAL that the source keeps for the slot"),
        wal_limit_bytes=_or_null(WHOLE),
        log_bytes=WHOLE,
        log_max_bytes=_or_null(WHOLE),
        staged_rows=_said(WHOLE, "changes that wait in the log"),
        capture=reference("Part"),
        delivery=reference("Part"),
        tables=_listed(reference("Table")),
        deliveries=_listed(reference("Delivery")),
    ),
    "Part": _object(state=_STATES, error=_or_null(TEXT)),
    "Table": _object(
        table=TEXT,
        lake_table=TEXT,
        state=TEXT,
        mode=TEXT,
        rows=WHOLE,
        lag_seconds=_or_null(NUMBER),
        changes_per_second=NUMBER,
        quarantined=WHOLE,
        error=_or_null(TEXT),
        resync=_said(_or_null(TEXT), "why it is to be copied again"),
        retry_at=_or_null(MOMENT),
        copied_rows=WHOLE,
        copy_total=_or_null(WHOLE),
        copy_seconds=_or_null(NUMBER),
    ),
    "Delivery": _object(
        id=WHOLE,
        at=MOMENT,
        position=_said(TEXT, "the LSN of the source that the lake shows with it"),
        snapshot_id=_said(_or_null(WHOLE), "of a DuckLake; null: an Iceberg lake has none, only its tables do"),
        changes=WHOLE,
        tables=WHOLE,
        inserted=WHOLE,
        updated=WHOLE,
        deleted=WHOLE,
        bytes=WHOLE,
        lag_seconds=_said(NUMBER, "at its commit, the age of the oldest source commit that it brought"),
        phases=_said(_object(**dict.fromkeys(_PHASES, NUMBER)), "seconds"),
    ),
    "Deliveries": _object(deliveries=_listed({"allOf": [_object(group=TEXT), reference("Delivery")]})),
    "Route": _object(
        name=TEXT,
        source=TEXT,
        running=YES,
        counts=_said(_COUNTS, "destinations by status"),
        lag_seconds=_or_null(NUMBER),
        worst=_listed(reference("Destination")),
    ),
    "Destination": _object(
        name=_said(TEXT, "its value as commands spell it; `default` is the destination of the rest"),
        route=TEXT,
        value=_or_null(TEXT),
        instance=_or_null(TEXT),
        lake=TEXT,
        table=TEXT,
        status={"type": "string", "enum": list(get_args(DestinationHealth))},
        position=_said(_or_null(TEXT), "complete up to here"),
        rows=_said(WHOLE, "that it should hold"),
        inserted=WHOLE,
        updated=WHOLE,
        deleted=WHOLE,
        lag_snapshots=_or_null(WHOLE),
        lag_seconds=_or_null(NUMBER),
        waiting_rows=WHOLE,
        seed=_said(_or_null(TEXT), "why its table is to be filled"),
        error=_or_null(TEXT),
        failures=_said(WHOLE, "in a row"),
        circuit_open=_said(YES, "after several failures it is only probed until it answers"),
        retry_at=_or_null(TEXT),
        delivered_at=_or_null(TEXT),
    ),
    "Destinations": _object(
        total=WHOLE, matching=WHOLE, counts=_COUNTS, destinations=_listed(reference("Destination"))
    ),
    "History": _object(
        every=_said(NUMBER, "seconds between two points"),
        at=_listed(MOMENT),
        groups={
            "type": "object",
            "additionalProperties": _object(lag=_SERIES, rows_per_second=_SERIES, wal_bytes=_SERIES, log_bytes=_SERIES),
        },
    ),
    "Status": _said({"type": "object"}, "what `headwater status --json` prints"),
    "TableDetail": _object(
        status=_said({"type": "object"}, "as in the status"),
        columns=_listed(_object(name=TEXT, source_type=TEXT, lake_type=TEXT, key=YES)),
        events=_listed(_object(at=MOMENT, what=TEXT)),
        deliveries=_listed(reference("Delivery")),
        quarantine=_object(
            total=WHOLE,
            rows=_listed(
                _object(key=_or_null(TEXT), column=TEXT, value=_or_null(TEXT), at=_or_null(MOMENT), lsn=_or_null(TEXT))
            ),
            error=_or_null(TEXT),
        ),
        query=_said(_listed(TEXT), "lines for DuckDB"),
    ),
    "Accepted": _object(request=WHOLE, running=_said(YES, "a run serves the group; without one the request waits")),
    "AcceptedByRoute": _object(request={"type": "null"}, changed=WHOLE, paused=WHOLE, running=YES),
    "Request": _object(
        request=WHOLE,
        verb=TEXT,
        group=TEXT,
        table=_or_null(TEXT),
        state={"type": "string", "enum": ["waiting", "done", "refused"]},
        requested_at=TEXT,
        handled_at=_or_null(TEXT),
        outcome=_or_null(TEXT),
        hint=_or_null(TEXT),
    ),
    "Verification": _object(
        verification=WHOLE,
        state={"type": "string", "enum": ["running", "done", "failed"]},
        tables=_listed(TEXT),
        begun=TEXT,
        ended=_or_null(TEXT),
        equal=_or_null(YES),
        verdicts=_said(_listed({"type": "object"}), "as `headwater verify --json` prints them"),
        error=_or_null(TEXT),
    ),
    "VerificationBegun": _object(verification=WHOLE),
    "AddTable": {
        "type": "object",
        "required": ["table"],
        "additionalProperties": False,
        "properties": {
            "table": TEXT,
            "as": _said(TEXT, "its name in the lake, if it is another one"),
            "copy": _said(YES, "false: begin empty, with what changes from now on"),
            "options": _said({"type": "object"}, "as in the config"),
        },
    },
    "Verify": {
        "type": "object",
        "additionalProperties": False,
        "properties": {"tables": _said(_listed(TEXT), "tables, routes or destinations; without any, everything")},
    },
    "Token": _object(token=TEXT),
    "SessionBegun": _object(csrf=TEXT, may_change=YES),
    "Session": _object(needs_token=YES, may_change=YES, csrf=_or_null(TEXT)),
    "Alive": _object(alive=YES),
    "Ready": _object(ready=YES, reasons=_listed(TEXT)),
}
