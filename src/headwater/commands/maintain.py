"""`headwater maintain`."""

from __future__ import annotations

import os
import sys

import click

from headwater.commands.options import Options, common_options

__all__ = ["maintain"]


@click.command()
@click.argument("tables", nargs=-1, metavar="[TABLE]...")
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@click.option("--explain", is_flag=True, help="Only say what the tables are made of, and what is worth doing and why.")
@click.option("--json", "as_json", is_flag=True, help="A JSON array of objects.")
@common_options
@click.pass_obj
def maintain(options: Options, tables: tuple[str, ...], dry_run: bool, explain: bool, as_json: bool) -> None:
    """Maintain the lakes' tables while deliveries go on: merge files, expire snapshots, remove orphans.

    All tables, or the named ones. `maintenance` in the config says what is done.

    \b
      headwater maintain --explain
      headwater maintain public.orders --json
    """
    from headwater.commands.maintainview import show, show_explained
    from headwater.supervise.effective import with_state
    from headwater.supervise.maintaining import maintain_all

    found = maintain_all(with_state(options.config()), os.environ, tables, dry_run=dry_run or explain)
    if explain and not as_json:
        show_explained(found)
    else:
        show(found, dry_run=dry_run or explain, as_json=as_json)
    if failed := max((each.error for each in found), default=0):
        sys.exit(failed)
