"""Verdicts for people and for programs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

import click

from headwater.verify import Verified
from headwater.words import counted

__all__ = ["show"]


def show(verdicts: Sequence[Verified], *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps([asdict(each) for each in verdicts], indent=2))
        return
    for each in verdicts:
        click.echo("\n".join(_lines(each)))
    click.echo(_summary(verdicts))


def _summary(verdicts: Sequence[Verified]) -> str:
    equal = [each for each in verdicts if each.verdict == "equal"]
    differ = sum(each.verdict == "differs" for each in verdicts)
    left_out = len(verdicts) - len(equal) - differ
    rest = f"; {left_out:,} not compared" if left_out else ""
    if differ:
        return f"verify: {differ} of {counted(len(verdicts), 'table')} {'differs' if differ == 1 else 'differ'}{rest}"
    if failed := sum(not each.ok for each in verdicts):
        return f"verify: {failed} of {counted(len(verdicts), 'table')} could not be compared; no other table differs"
    rows = sum(each.source_rows or 0 for each in equal)
    return f"verify: OK ({counted(len(equal), 'table')}, {counted(rows, 'row')}{rest})"


def _lines(each: Verified) -> list[str]:
    name = each.table if each.table == each.lake_table else f"{each.table} → {each.lake_table}"
    if each.route is not None:
        name = f"{each.route}/{each.destination}"
    if each.verdict == "not compared":
        return [f"{name}: not compared: {each.reason}"]
    at = f"at {each.position}" + ("" if each.snapshot_id is None else f", snapshot {each.snapshot_id}")
    if each.verdict == "equal":
        return [f"{name}: OK, {counted(each.source_rows or 0, 'row')} {at}"]
    if each.reason:
        return [f"{name}: DIFFERS {at}: {each.reason}"]
    rows = counted(each.source_rows or 0, "row")
    found = [f"{name}: DIFFERS {at}: {rows} in the source, {each.lake_rows or 0:,} in the lake"]
    for difference in each.differences:
        found.append(f"  key {difference.key}" if difference.key else "  a row")
        found.append(f"    source  {_shown(difference.source, difference.source_count)}")
        found.append(f"    lake    {_shown(difference.lake, difference.lake_count)}")
    return found


def _shown(row: str | None, count: int) -> str:
    return "(missing)" if row is None else row if count == 1 else f"{row} ({count:,} times)"
