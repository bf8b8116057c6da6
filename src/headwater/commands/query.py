"""`headwater query`."""

from __future__ import annotations

import os

import click

from headwater.commands import render
from headwater.commands.options import Options, common_options

__all__ = ["query"]


@click.command()
@click.argument("sql")
@click.option("--fresh", is_flag=True, help="First wait until everything committed so far is in the lake.")
@click.option(
    "--timeout", type=click.FloatRange(min=1), default=60, show_default=True, help="With --fresh: seconds to wait."
)
@click.option("--json", "as_json", is_flag=True, help="A JSON array of objects.")
@common_options
@click.pass_obj
def query(options: Options, sql: str, fresh: bool, timeout: float, as_json: bool) -> None:
    """Query the lakes in DuckDB's SQL, read-only.

    Every DuckLake of the config is attached under its name; a table name without a lake is looked up in the lake of the
    first group.

    \b
      headwater query 'SELECT status, count(*) FROM public.orders GROUP BY ALL' --fresh
      headwater query 'SELECT * FROM main.public.orders AT (VERSION => 3) LIMIT 5'
      headwater query 'SELECT * FROM main.snapshots()' --json
    """
    from headwater.query import query as ask
    from headwater.status.fresh import wait_until_fresh
    from headwater.supervise.effective import with_state

    config = options.config()
    if fresh:
        wait_until_fresh(with_state(config, disabled=False), timeout)
    answer = ask(config, sql, os.environ, as_text=not as_json)
    if as_json:
        click.echo(render.as_json(answer.columns, answer.rows))
    else:
        render.print_table(*answer)
