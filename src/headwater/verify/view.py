"""Verdicts for people and for programs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

import click

from headwater.verify import Verified

__all__ = ["show"]


def show(verdicts: Sequence[Verified], *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps([asdict(each) for each in verdicts], indent=2))
        return
    for each in verdicts:
        click.echo("\n".join(_lines(each)))
    click.echo(_summary(verdicts))


def _summary(verdicts: Sequence[Verified]) -> str:
    bad = sum(not each.ok for each in verdicts)
    if bad:
        return f"verify: {bad} of {len(verdicts)} tables differ"
    compared = [each for each in verdicts if not each.reason]
    left_out = f"; {len(verdicts) - len(compared)} not compared" if len(compared) < len(verdicts) else ""
    return f"verify: OK ({len(compared)} tables, {sum(each.source_rows or 0 for each in compared)} rows{left_out})"


def _lines(each: Verified) -> list[str]:
    name = each.table if each.table == each.lake_table else f"{each.table} → {each.lake_table}"
    if each.reason:
        return [f"{name}: not compared: {each.reason}"]
    at = f"at {each.position}, snapshot {each.snapshot_id}"
    if each.ok:
        return [f"{name}: OK, {each.source_rows} rows {at}"]
    found = [f"{name}: DIFFERS {at}: {each.source_rows} rows in the source, {each.lake_rows} in the lake"]
    for difference in each.differences:
        found.append(f"  key {difference.key}" if difference.key else "  a row")
        found.append(f"    source  {_shown(difference.source, difference.source_count)}")
        found.append(f"    lake    {_shown(difference.lake, difference.lake_count)}")
    return found


def _shown(row: str | None, count: int) -> str:
    return "(missing)" if row is None else row if count == 1 else f"{row} ({count} times)"
