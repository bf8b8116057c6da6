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
    bad = sum(not each.ok for each in verdicts)
    rows = sum(each.source_rows or 0 for each in verdicts)
    click.echo(
        f"verify: {bad} of {len(verdicts)} tables differ"
        if bad
        else f"verify: OK ({len(verdicts)} tables, {rows} rows)"
    )


def _lines(each: Verified) -> list[str]:
    name = each.table if each.table == each.lake_table else f"{each.table} → {each.lake_table}"
    if each.reason:
        return [f"{name}: not compared: {each.reason}"]
    at = f"at {each.position}, snapshot {each.snapshot_id}"
    if each.ok:
        return [f"{name}: OK, {each.source_rows} rows {at}"]
    found = [f"{name}: DIFFERS {at}: {each.source_rows} rows in the source, {each.lake_rows} in the lake"]
    for difference in each.differences:
        found.append(f"  key {difference.key}")
        found.append(f"    source  {difference.source or '(missing)'}")
        found.append(f"    lake    {difference.lake or '(missing)'}")
    return found
