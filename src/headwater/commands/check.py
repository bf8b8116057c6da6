"""`headwater check`."""

from __future__ import annotations

import os

import click

from headwater.commands.options import Options, common_options

__all__ = ["check"]


@click.command()
@click.option("--sql", is_flag=True, help="Only print the script that a superuser runs to install event triggers.")
@common_options
@click.pass_obj
def check(options: Options, sql: bool) -> None:
    """Check that `run` can start: source, state, log, lakes. Reports every problem, and what to do about it.

    Event triggers report schema changes as they happen. `run` installs them if its role may; if not, a superuser does:

    \b
      headwater check --sql | psql 'postgresql://postgres@db/shop'
    """
    from headwater.checks import check as find
    from headwater.checks.schema import schema_changes, trigger_script

    config = options.config()
    if sql:
        click.echo(trigger_script(config), nl=False)
        return
    if problems := find(config, os.environ):
        raise ExceptionGroup("the config cannot run", problems)
    click.echo(schema_changes(config))
    click.echo("check: OK")
