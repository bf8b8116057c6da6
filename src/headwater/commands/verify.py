"""`headwater verify`."""

from __future__ import annotations

import os
import sys

import click

from headwater.commands.options import Options, common_options

__all__ = ["verify"]


@click.command()
@click.argument("names", nargs=-1, metavar="[TABLE|ROUTE|ROUTE/VALUE]...")
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
def verify(options: Options, names: tuple[str, ...], as_json: bool, timeout: float) -> None:
    """Prove that the lake equals the source: row counts and content, at the same LSN, while writes go on.

    Destinations of routes are compared with the rows of the route's source that belong to them, in the snapshot that
    they show; rows that belong to others are reported.

    Compares everything, or what is named: a table; a route, with all its destinations; or one destination, by its route
    and its value as `route list` shows it. If a route has the name of a table, write the table with its schema: a
    route's name has no dot. On a difference it shows the first differing keys and exits 1. It also exits 1 if something
    of the config cannot be compared, and says why.

    \b
      headwater verify
      headwater verify public.orders public.customers --json
      headwater verify by_company by_tenant/acme by_tenant/default
    """
    from headwater.commands.verifyview import show
    from headwater.supervise.effective import with_state
    from headwater.verify.groups import verify_all

    verdicts = verify_all(with_state(options.config(), disabled=False), os.environ, names, timeout)
    show(verdicts, as_json=as_json)
    if not all(each.ok for each in verdicts):
        sys.exit(1)
