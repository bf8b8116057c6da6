"""`headwater table`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TypeVar

import click

from headwater.commands import render
from headwater.commands.asking import nested, say
from headwater.commands.options import Options, common_options
from headwater.errors import ConfigError
from headwater.words import counted

if TYPE_CHECKING:
    from headwater.state import Verb
    from headwater.supervise.tablerequests import ListedTable

__all__ = ["table"]

Command = TypeVar("Command", bound=Callable[..., Any])


@click.group()
@common_options
def table() -> None:
    """List the mirrored tables; add, remove, move, pause, resume one, or copy it again.

    `headwater run` need not be restarted: it acts on a request within a second. Without one, the request waits, and
    `table list` shows it. The same can be asked for in SQL: SELECT headwater.add_table('public.orders')
    """


@table.command("list")
@click.option("--group", metavar="NAME", help="Of this group only.")
@click.option("--json", "as_json", is_flag=True, help="A JSON array of objects.")
@common_options
@click.pass_obj
def table_list(options: Options, group: str | None, as_json: bool) -> None:
    """List the tables of all groups, or of one, and what was asked for and waits."""
    from headwater.supervise.tablerequests import list_tables

    found = list_tables(options.config(), group)
    if as_json:
        click.echo(json.dumps([asdict(each) for each in found], indent=2, ensure_ascii=False))
        return
    rows = [
        (
            *(each.group, each.table, each.lake_table or "", each.state or "", each.position or ""),
            "; ".join(filter(None, (*_why(each), *(f"{verb} waits" for verb in each.waiting)))),
        )
        for each in found
    ]
    render.print_table(("group", "table", "in the lake", "state", "position", "why"), rows)
    for name in dict.fromkeys(each.group for each in found if not each.running):
        click.echo(f"group {name!r} is not running: what was asked of its tables waits for `headwater run`")


def _why(table: ListedTable) -> Sequence[str]:
    """Why it does not go on, and what to do."""
    return (table.resync or table.error or "").split("\nhint: ")


def _on_tables(command: Command) -> Command:
    names = click.argument("names", nargs=-1, required=True, metavar="TABLE...")
    group = click.option("--group", metavar="NAME", help="If a table is in more than one group.")
    return names(group(common_options(click.pass_obj(command))))  # type: ignore[return-value]


@table.command("add")
@click.argument("names", nargs=-1, required=True, metavar="TABLE...")
@click.option("--group", metavar="NAME", help="The group; may be left out if there is only one.")
@click.option("--as", "lake_table", metavar="SCHEMA.TABLE", help="Its name in the lake, if it is another one.")
@click.option("--no-copy", is_flag=True, help="Begin with an empty mirror, and only what changes from now on.")
@click.option("--option", "given", multiple=True, metavar="KEY=VALUE", help="As in the config: --option mode=history")
@common_options
@click.pass_obj
def table_add(
    options: Options,
    names: tuple[str, ...],
    group: str | None,
    lake_table: str | None,
    no_copy: bool,
    given: tuple[str, ...],
) -> None:
    """Mirror more tables, while the others go on. They stay until `table remove`; the config file need not have them.

    \b
      headwater table add public.orders
      headwater table add public.audit --group shop --as raw.audit --option mode=history
    """
    if lake_table is not None and len(names) > 1:
        raise ConfigError(
            "--as names one table of the lake, but several tables are to be added", hint="add them one by one"
        )
    wanted = {"lake_table": lake_table, "copy": not no_copy, "options": nested(given)}
    for name in names:
        say(options, "add_table", source_table=name, group_name=group, **wanted)


@table.command("remove")
@click.option("--yes", is_flag=True, help="Do not ask.")
@_on_tables
def table_remove(options: Options, names: tuple[str, ...], group: str | None, yes: bool) -> None:
    """Mirror tables no longer that were added by `table add` or in SQL. Their mirrors stay as they are.

    A table that the config file has is taken out there.

    \b
      headwater table remove public.orders
    """
    _confirm(yes, f"remove {counted(len(names), 'table')}", "Its mirror stays, and is no longer brought up to date.")
    _ask(options, "remove_table", names, group)


@table.command("move")
@click.argument("names", nargs=-1, required=True, metavar="TABLE...")
@click.option("--to", "to_group", required=True, metavar="GROUP", help="The group that they go to.")
@click.option("--group", metavar="NAME", help="The group that they are in, if they are in more than one.")
@common_options
@click.pass_obj
def table_move(options: Options, names: tuple[str, ...], to_group: str, group: str | None) -> None:
    """Move tables that were added by `table add` or in SQL to a group with another lake. They are copied there.

    The mirrors in the old lake stay as they are.

    \b
      headwater table move public.events --to slow
    """
    for name in names:
        say(options, "move_table", source_table=name, to_group=to_group, group_name=group)


@table.command("pause")
@_on_tables
def table_pause(options: Options, names: tuple[str, ...], group: str | None) -> None:
    """Leave the mirrors of these tables as they are, until `resume`.

    The log is kept for them, so that they go on from where they are without a copy: its size grows as long as a table
    is paused. A delivery or a copy that is under way may still land.

    \b
      headwater table pause public.orders
    """
    _ask(options, "pause_table", names, group)


@table.command("resume")
@_on_tables
def table_resume(options: Options, names: tuple[str, ...], group: str | None) -> None:
    """Let tables go on that are paused, and try those at once that wait after a failure.

    \b
      headwater table resume public.orders public.items
    """
    _ask(options, "resume_table", names, group)


@table.command("resync")
@click.option("--yes", is_flag=True, help="Do not ask.")
@_on_tables
def table_resync(options: Options, names: tuple[str, ...], group: str | None, yes: bool) -> None:
    """Copy tables again, each in place of its mirror.

    Readers see the old rows until the new ones are there, in one snapshot. A history starts over.

    \b
      headwater table resync public.orders
    """
    _confirm(
        yes, f"copy {counted(len(names), 'table')} again", "Readers see the old rows until the new ones are there."
    )
    _ask(options, "resync_table", names, group)


def _confirm(yes: bool, what: str, more: str) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise ConfigError(f"{what!r} was not confirmed", hint="add --yes")
    click.confirm(f"{what[0].upper()}{what[1:]}? {more}", abort=True)


def _ask(options: Options, verb: Verb, names: tuple[str, ...], group: str | None) -> None:
    for name in names:
        say(options, verb, source_table=name, group_name=group)
