"""`headwater table`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TypeVar

import click

from headwater.commands import render
from headwater.commands.options import Options, common_options
from headwater.errors import ConfigError
from headwater.words import counted

if TYPE_CHECKING:
    from headwater.supervise.tablerequests import TableRequest

__all__ = ["table"]

Command = TypeVar("Command", bound=Callable[..., Any])


@click.group()
@common_options
def table() -> None:
    """List the mirrored tables, or pause, resume and copy them again.

    `headwater run` need not be restarted: it acts on a request within a second or two. Without one, the request waits.
    """


@table.command("list")
@click.option("--group", metavar="NAME", help="Of this group only.")
@click.option("--json", "as_json", is_flag=True, help="A JSON array of objects.")
@common_options
@click.pass_obj
def table_list(options: Options, group: str | None, as_json: bool) -> None:
    """List the tables of all groups, or of one."""
    from headwater.supervise.tablerequests import list_tables

    found = list_tables(options.config(), group)
    if as_json:
        click.echo(json.dumps([asdict(each) for each in found], indent=2, ensure_ascii=False))
        return
    rows = [
        (each.group, each.table, each.lake_table, each.state, each.position or "", each.resync or each.error or "")
        for each in found
    ]
    render.print_table(("group", "table", "in the lake", "state", "position", "why"), rows)
    for name in dict.fromkeys(each.group for each in found if not each.running):
        click.echo(f"group {name!r} is not running: what was asked of its tables waits for `headwater run`")


def _on_tables(command: Command) -> Command:
    names = click.argument("names", nargs=-1, required=True, metavar="TABLE...")
    group = click.option("--group", metavar="NAME", help="If a table is in more than one group.")
    return names(group(common_options(click.pass_obj(command))))  # type: ignore[return-value]


@table.command("pause")
@_on_tables
def table_pause(options: Options, names: tuple[str, ...], group: str | None) -> None:
    """Leave the mirrors of these tables as they are, until `resume`.

    The log is kept for them, so that they go on from where they are without a copy: its size grows as long as a table
    is paused. A delivery or a copy that is under way may still land.

    \b
      headwater table pause public.orders
    """
    _ask(options, "pause", names, group)


@table.command("resume")
@_on_tables
def table_resume(options: Options, names: tuple[str, ...], group: str | None) -> None:
    """Let tables go on that are paused, and try those at once that wait after a failure.

    \b
      headwater table resume public.orders public.items
    """
    _ask(options, "resume", names, group)


@table.command("resync")
@click.option("--yes", is_flag=True, help="Do not ask.")
@_on_tables
def table_resync(options: Options, names: tuple[str, ...], group: str | None, yes: bool) -> None:
    """Copy tables again, each in place of its mirror.

    Readers see the old rows until the new ones are there, in one snapshot. A history starts over.

    \b
      headwater table resync public.orders
    """
    if not yes:
        what = counted(len(names), "table")
        if not sys.stdin.isatty():
            raise ConfigError(f"copying {what} again was not confirmed", hint="add --yes")
        click.confirm(f"Copy {what} again? Readers see the old rows until the new ones are there.", abort=True)
    _ask(options, "resync", names, group)


_SAID = {"pause": "paused", "resume": "resumed", "resync": "to be copied again"}


def _ask(options: Options, request: TableRequest, names: tuple[str, ...], group: str | None) -> None:
    from headwater.supervise.tablerequests import request_of_tables

    for each in request_of_tables(options.config(), request, names, group):
        waits = "" if each.running else "; nothing delivers group {!r} now: `headwater run` does the rest"
        said = f"is {_SAID[request]}" if each.changed else "needs no change"
        click.echo(f"{each.table} {said}: it is {each.now}{waits.format(each.group)}")
