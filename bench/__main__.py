"""`python -m bench`: measure, and print the table."""

from __future__ import annotations

import json
import tempfile
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import click
from rich.console import Console

from bench.report import as_json, machine, print_rows
from bench.rig import Rig
from bench.scenarios import FULL, NAMES, ON_REQUEST, QUICK, measure

__all__ = ["main"]


@click.command()
@click.option("--quick", is_flag=True, help="So little that the numbers mean nothing: does everything still run?")
@click.option(
    "--only",
    multiple=True,
    type=click.Choice(NAMES),
    help="This row only; may be given several times. Without it, all but huge-table.",
)
@click.option("--repeat", type=click.IntRange(1), help="Runs of each side; their median counts. Default: 3.")
@click.option("--json", "json_", is_flag=True, help="One JSON document.")
@click.option("--dir", "folder", type=click.Path(file_okay=False, path_type=Path), help="Where the data goes.")
def main(quick: bool, only: tuple[str, ...], repeat: int | None, json_: bool, folder: Path | None) -> None:
    """Measure the speed table of the design on this machine."""
    scale = QUICK if quick else FULL
    scale = replace(scale, repeats=repeat or scale.repeats)
    progress = Console(stderr=True)
    rows = []
    with (
        tempfile.TemporaryDirectory(prefix="headwater-bench-", dir=folder, ignore_cleanup_errors=True) as place,
        closing(Rig(Path(place))) as rig,
    ):
        for row in measure(rig, scale, only or [name for name in NAMES if name not in ON_REQUEST]):
            rows.append(row)
            rival = "" if row.rival is None else f" against {row.rival:.2f}"
            progress.print(f"{row.name}: {row.measured:.2f} {row.unit}{rival}", highlight=False)
        facts = machine(rig.server_version)
    if json_:
        click.echo(json.dumps(as_json(rows, facts), indent=2))
    else:
        console = Console()
        print_rows(rows, facts, console if console.is_terminal else Console(width=180))


if __name__ == "__main__":
    main(prog_name="python -m bench")
