"""`headwater check`."""

from __future__ import annotations

import os

import click

from headwater.commands.options import Options, common_options

__all__ = ["check"]


@click.command()
@click.option(
    "--sql", is_flag=True, help="Only print the script that a DBA runs: role, grants, publication, event triggers."
)
@common_options
@click.pass_obj
def check(options: Options, sql: bool) -> None:
    """Check that `run` can start: source, state, log, lakes, routes. Reports every problem, and what to do about it.

    `run` creates the publication and the event triggers if its role may. For a role that only reads, a DBA does:

    \b
      headwater check --sql | psql 'postgresql://postgres@db/shop'
    """
    from headwater.checks import check as find
    from headwater.checks.dba import dba_script
    from headwater.checks.planned import planned
    from headwater.checks.schema import schema_changes
    from headwater.checks.upkeep import upkeep
    from headwater.supervise.effective import with_state

    config = options.config()
    if sql:
        click.echo(dba_script(config), nl=False)
        return
    if problems := find(config, os.environ):
        raise ExceptionGroup("the config cannot run", problems)
    if config.groups:
        click.echo(schema_changes(config))
        click.echo(upkeep(config))
        for line in planned(with_state(config)):
            click.echo(line)
    click.echo("check: OK")
