"""`headwater doctor`."""

from __future__ import annotations

import json
import os
from dataclasses import asdict

import click

from headwater.commands import render
from headwater.commands.options import Options, common_options
from headwater.config import DEFAULT_FILE
from headwater.errors import CheckFailed

__all__ = ["doctor"]


@click.command()
@click.option("--json", "as_json", is_flag=True, help="A JSON array of objects.")
@common_options
@click.pass_obj
def doctor(options: Options, as_json: bool) -> None:
    """Check this machine: Python, Java, libraries, memory, disk, and the config if there is one.

    Nothing is connected to and nothing is changed; `headwater check` looks at the source and the lakes."""
    from headwater.commands.machine import diagnose

    file = options.file or (DEFAULT_FILE if DEFAULT_FILE.exists() else None)
    checks = diagnose(os.environ, file)
    columns = ("check", "result", "found", "what to do")
    rows = [(c.name, "ok" if c.ok else "problem", c.found, "" if c.ok else c.hint) for c in checks]
    if as_json:
        click.echo(json.dumps([asdict(check) for check in checks], indent=2))
    else:
        render.print_table(columns, rows)
    if bad := [check.name for check in checks if not check.ok]:
        raise CheckFailed(f"this machine is not ready: {', '.join(bad)}")
