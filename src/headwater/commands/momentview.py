"""The tables at an LSN, on a terminal and as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict

import click

from headwater.commands import render
from headwater.status import Moment

__all__ = ["show_moment"]


def show_moment(moment: Moment, *, as_json: bool) -> None:
    """Print the snapshot of each table, and the lines to read it."""
    if as_json:
        click.echo(json.dumps(asdict(moment), ensure_ascii=False, indent=2))
        return
    known = [each for each in moment.tables if each.snapshot_id is not None]
    if not known:
        return
    rows = [(each.table, each.lake, str(each.snapshot_id), each.position) for each in known]
    render.print_table(("table", "lake", "snapshot", "shows"), rows, (False, False, True, False))
    for program in dict.fromkeys(name for each in known for name in each.read_by):
        click.echo(f"\nRead them in {program}:")
        for each in known:
            if program in each.read_by:
                click.echo(f"  {each.read_by[program]}")
