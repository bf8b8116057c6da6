"""`headwater verify`."""

from __future__ import annotations

import os
import sys

import click

from headwater.commands.options import Options, common_options

__all__ = ["verify"]


@click.command()
@click.argument("tables", nargs=-1, metavar="[TABLE]...")
@click.option("--json", "as_json", is_flag=True, help="A JSON array of objects.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=1),
    default=300,
    show_default=True,
    help="Seconds to wait until the lake is at the LSN.",
)
@common_options
@click.pass_obj
def verify(options: Options, tables: tuple[str, ...], as_json: bool, timeout: float) -> None:
    """Prove that the lake equals the source: row counts and content, at the same LSN, while writes go on.

    Compares all tables, or the named ones. On a difference it shows the first differing keys and exits 1. It also
    exits 1 if a table of the config cannot be compared, and says why.

    \b
      headwater verify
      headwater verify public.orders public.customers --json
    """
    from headwater.commands.verifyview import show
    from headwater.verify.groups import verify_all

    verdicts = verify_all(options.config(), os.environ, tables, timeout)
    show(verdicts, as_json=as_json)
    if not all(each.ok for each in verdicts):
        sys.exit(1)
