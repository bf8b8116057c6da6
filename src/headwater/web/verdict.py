"""Whether all is well, in one word and one sentence, and what is not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from headwater.status import STALE_SECONDS, GroupStatus, PartStatus, RouteStatus, Status, TableStatus
from headwater.web.facts import Look
from headwater.web.history import TableKey
from headwater.words import counted, duration_text

__all__ = ["Problem", "Verdict", "allowed_lag", "problems", "unready", "verdict"]

Verdict = Literal["healthy", "behind", "trouble", "starting", "unknown"]
Severity = Literal["error", "warning"]

BEHIND_SECONDS, BEHIND_FLUSHES = 30.0, 3  # whichever is longer
_COPYING = ("PENDING", "SNAPSHOT", "CATCHUP")
_STARTS = "`headwater run` starts it; its log says what keeps it from that"


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """What is not as it should be, where, and what to do."""

    severity: Severity
    what: str
    hint: str | None = None
    group: str | None = None
    table: str | None = None
    route: str | None = None


def allowed_lag(look: Look, group: str) -> float:
    """Seconds; a group that is further behind is not within its bounds."""
    known = look.config.groups.get(group) if look.config else None
    flush = known.flush.interval.total_seconds() if known else 0.0
    return max(BEHIND_SECONDS, BEHIND_FLUSHES * flush)


def problems(look: Look) -> list[Problem]:
    """All of them, errors first."""
    return sorted(_problems(look), key=lambda each: each.severity != "error")


def verdict(look: Look) -> tuple[Verdict, str]:
    """One word, and one sentence for people."""
    if look.status is None:
        return ("unknown", f"Nothing is known: {look.error}.") if look.error else ("starting", "The first look begins.")
    found = problems(look)
    errors = [each for each in found if each.severity == "error"]
    if errors:
        more = f" And {counted(len(errors) - 1, 'more problem')}." if len(errors) > 1 else ""
        return "trouble", f"{_sentence(errors[0].what)}{more}"
    groups = _served(look, look.status)
    if any(_starts(each) for each in groups):
        return "starting", "Headwater is starting."
    late = [each for each in groups if _late(look, each)]
    if late:
        return "behind", _behind(late)
    if copying := [each for group in groups for each in group.tables if each.state in _COPYING]:
        return "starting", f"{counted(len(copying), 'table')} {'is' if len(copying) == 1 else 'are'} being copied."
    return "healthy", _mirrored(look.status, groups)


def unready(look: Look) -> list[str]:
    """Why not every group captures and delivers within its bounds. Anyone may read it: no error is quoted."""
    if look.status is None:
        return ["the status is not known"]
    found = ["the source is unreachable"] if look.status.source_error else []
    for group in look.status.groups:
        if group.name not in look.disabled:
            found += [f"group {group.name!r}: {each}" for each in _unready(look, group)]
    return found


def _unready(look: Look, group: GroupStatus) -> Iterator[str]:
    for name, part in (("capture", group.capture), ("delivery", group.delivery)):
        if part.state != "RUNNING":
            yield f"{name} is {part.state}"
        elif _stale(part):
            yield f"{name} has no heartbeat"
        if part.error:
            yield f"{name} has failed"
    if group.lag_seconds is None:
        if any(each.state != "PAUSED" for each in group.tables) or not group.captured_lsn:
            yield "its lag is not known"
    elif _late(look, group):
        yield f"it is {group.lag_seconds:.1f} s behind, {allowed_lag(look, group.name):.0f} s are allowed"


def _problems(look: Look) -> Iterator[Problem]:
    now = look.status
    if now is None:
        if look.error:
            yield Problem(severity="error", what=look.error, hint=look.hint)
        return
    if now.source_error:
        hint = "is its server up, and reachable from here? It is tried again by itself"
        yield Problem(severity="error", what=f"the source is unreachable: {now.source_error}", hint=hint)
    for group in now.groups:
        if group.name in look.disabled:
            hint = f"`headwater group enable {group.name}` lets it go on"
            what = f"group {group.name} is disabled: its slot keeps the source's WAL"
            yield Problem(severity="warning", what=what, hint=hint, group=group.name)
            continue
        yield from _of_group(group, source=now.source_error is None)
        for table in group.tables:
            unresolved = look.unresolved.get(TableKey(group.name, table.table), table.quarantined)
            yield from _of_table(table, unresolved)
    if not any(_begins(each) for each in _served(look, now)):
        yield from (each for route in now.routes for each in _of_route(route))
    for left in now.leftovers:
        yield Problem(severity="warning", what=str(left))


def _of_group(group: GroupStatus, *, source: bool) -> Iterator[Problem]:
    name = group.name
    if group.slot and group.slot_active is None and source:
        what = f"group {name}: its slot {group.slot!r} is gone"
        yield Problem(severity="error", what=what, hint="`headwater check` says what to do", group=name)
    for kind, part in (("capture", group.capture), ("delivery", group.delivery)):
        if part.error:
            what, _, hint = part.error.partition("\nhint: ")
            yield Problem(severity="error", what=f"{kind} of group {name}: {what}", hint=hint or None, group=name)
        elif part.state == "STOPPED":
            yield Problem(severity="error", what=f"{kind} of group {name} is stopped", hint=_STARTS, group=name)
        elif part.state == "RUNNING" and _stale(part):
            silent = duration_text(part.heartbeat_seconds or 0.0)
            what = f"{kind} of group {name} (pid {part.pid} on {part.host}) has had no heartbeat for {silent}"
            yield Problem(severity="error", what=what, hint="is that machine up? If it hangs, end it", group=name)
    for warning in group.warnings:
        yield Problem(severity="warning", what=f"group {name}: {warning}", group=name)
    for skipped in group.skipped:
        what = f"{skipped.table} is not mirrored: {skipped.reason}"
        yield Problem(severity="warning", what=what, hint=skipped.hint, group=name, table=skipped.table)


def _of_table(table: TableStatus, unresolved: int) -> Iterator[Problem]:
    where = {"group": table.group, "table": table.table}
    if table.state == "ERRORED" or (table.error and table.state not in ("PAUSED", "REMOVED")):
        what, _, hint = (table.error or "").partition("\nhint: ")
        severity: Severity = "error" if table.state == "ERRORED" else "warning"
        yield Problem(severity=severity, what=f"table {table.table}: {what}", hint=hint or None, **where)
    if unresolved:
        what = f"table {table.table}: {counted(unresolved, 'value')} in quarantine"
        hint = "the lake's type cannot hold them: they are NULL there, and whole in the quarantine table"
        yield Problem(severity="warning", what=what, hint=hint, **where)


def _of_route(route: RouteStatus) -> Iterator[Problem]:
    for each in route.problems:
        what, _, hint = each.partition("\nhint: ")
        yield Problem(severity="error", what=f"route {route.name}: {what}", hint=hint or None, route=route.name)


def _served(look: Look, now: Status) -> list[GroupStatus]:
    return [each for each in now.groups if each.name not in look.disabled]


def _starts(group: GroupStatus) -> bool:
    return "STARTING" in (group.capture.state, group.delivery.state)


def _begins(group: GroupStatus) -> bool:
    """Whether it starts, or makes its first copy: what routes need is not there yet, and no fault of theirs."""
    first = group.delivered_lsn is None and any(each.state in _COPYING for each in group.tables)
    return _starts(group) or (first and group.delivery.state == "RUNNING")


def _stale(part: PartStatus) -> bool:
    return (part.heartbeat_seconds or 0.0) > STALE_SECONDS


def _late(look: Look, group: GroupStatus) -> bool:
    return group.lag_seconds is not None and group.lag_seconds > allowed_lag(look, group.name)


def _behind(late: list[GroupStatus]) -> str:
    worst = max(late, key=lambda each: each.lag_seconds or 0.0)
    more = f", and {counted(len(late) - 1, 'more group')}" if len(late) > 1 else ""
    return f"Group {worst.name} is {duration_text(worst.lag_seconds or 0.0)} behind{more}."


def _mirrored(now: Status, groups: list[GroupStatus]) -> str:
    known = [each.lag_seconds for each in groups if each.lag_seconds is not None]
    paused = sum(each.state == "PAUSED" for group in groups for each in group.tables)
    also = f" {counted(paused, 'table')} {'is' if paused == 1 else 'are'} paused." if paused else ""
    if not any(group.tables for group in groups):
        return f"There is nothing to mirror yet.{also}" if not now.routes else f"The routes are delivered.{also}"
    return f"Everything is mirrored; {duration_text(max(known, default=0.0))} behind.{also}"


def _sentence(text: str) -> str:
    text = text.strip().rstrip(".")
    return f"{text[:1].upper()}{text[1:]}."
