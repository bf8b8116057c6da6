"""`headwater group`."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

import click

from headwater.commands import render
from headwater.commands.options import Options, common_options
from headwater.errors import ConfigError

__all__ = ["group"]


@click.group()
@common_options
def group() -> None:
    """List the groups, or drop one."""


@group.command("list")
@click.option("--json", "as_json", is_flag=True, help="A JSON array of objects.")
@common_options
@click.pass_obj
def group_list(options: Options, as_json: bool) -> None:
    """List the groups of the config, and those that ran with it and have left it."""
    from headwater.supervise.groups import list_groups

    found = list_groups(options.config())
    if as_json:
        click.echo(json.dumps([asdict(each) for each in found], indent=2))
        return
    rows = [(each.name, each.lake, each.tables, each.slot, "yes" if each.configured else "no") for each in found]
    render.print_table(("group", "lake", "tables", "slot", "in the config"), rows)


@group.command("drop")
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@common_options
@click.pass_obj
def group_drop(options: Options, name: str, yes: bool) -> None:
    """Forget a group: drop its slot, its publication, its staged changes and its state.

    Its tables in the lake stay as they are. If the config still has the group, the next `headwater run` copies its
    tables again, in place of their old mirrors.
    """
    from headwater.supervise.groups import drop_group

    config = options.config()
    if not yes:
        if not sys.stdin.isatty():
            raise ConfigError(f"dropping group {name!r} was not confirmed", hint="add --yes")
        click.confirm(f"Drop group {name!r}, its slot and what is staged? Its tables in the lake stay.", abort=True)
    for each in drop_group(config, name):
        click.echo(f"dropped {each}")
    click.echo(f"group {name!r} is dropped")
