"""`headwater group`."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

import click

from headwater.commands import render
from headwater.commands.asking import nested, say
from headwater.commands.options import Options, common_options
from headwater.errors import ConfigError

__all__ = ["group"]


@click.group()
@common_options
def group() -> None:
    """List the groups; create, disable, enable or drop one.

    A group has a slot and a publication of its own. `headwater run` need not be restarted: it acts within a second.
    """


@group.command("list")
@click.option("--json", "as_json", is_flag=True, help="A JSON array of objects.")
@common_options
@click.pass_obj
def group_list(options: Options, as_json: bool) -> None:
    """List the groups of the config, those that ran with it and have left it, and what was asked for and waits."""
    from headwater.supervise.groups import list_groups

    found = list_groups(options.config())
    if as_json:
        click.echo(json.dumps([asdict(each) for each in found], indent=2))
        return
    rows = [
        (each.name, each.lake, each.tables, each.slot, each.origin, "no" if each.disabled else "") for each in found
    ]
    render.print_table(("group", "lake", "tables", "slot", "from", "enabled"), rows)
    for each in found:
        for verb in each.waiting:
            click.echo(f"group {each.name!r}: {verb} waits for a `headwater run` that handles it")


@group.command("create")
@click.argument("name")
@click.option("--lake", metavar="NAME", help="A lake of the config; may be left out if there is only one.")
@click.option(
    "--option", "given", multiple=True, metavar="KEY=VALUE", help="As in the config: --option flush.interval=10s"
)
@common_options
@click.pass_obj
def group_create(options: Options, name: str, lake: str | None, given: tuple[str, ...]) -> None:
    """Create an empty group; add tables with `headwater table add --group NAME`. It stays until it is dropped.

    \b
      headwater group create slow --lake main --option flush.interval=1m
    """
    say(options, "create_group", name=name, lake=lake, settings=nested(given))


@group.command("disable")
@click.argument("name")
@common_options
@click.pass_obj
def group_disable(options: Options, name: str) -> None:
    """Stop a group, capture and delivery, until `enable`. Its slot retains the source's WAL meanwhile."""
    say(options, "disable_group", name=name)


@group.command("enable")
@click.argument("name")
@common_options
@click.pass_obj
def group_enable(options: Options, name: str) -> None:
    """Let a group go on that was disabled, from where it was."""
    say(options, "enable_group", name=name)


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
    from headwater.supervise.groups import drop_group, is_served

    config = options.config()
    if not yes:
        if not sys.stdin.isatty():
            raise ConfigError(f"dropping group {name!r} was not confirmed", hint="add --yes")
        click.confirm(f"Drop group {name!r}, its slot and what is staged? Its tables in the lake stay.", abort=True)
    if name not in config.groups and is_served(config, name):
        say(options, "drop_group", name=name)
        return
    for each in drop_group(config, name):
        click.echo(f"dropped {each}")
    click.echo(f"group {name!r} is dropped")
