"""`headwater route`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from headwater.commands.options import Options, common_options
from headwater.errors import ConfigError
from headwater.words import counted

if TYPE_CHECKING:
    from headwater.supervise.requests import Request

__all__ = ["route"]

Command = TypeVar("Command", bound=Callable[..., Any])


@click.group()
@common_options
def route() -> None:
    """List the routes' destinations, or seed, pause and resume them.

    A route delivers by itself as long as `headwater run` runs, which acts on a request within a few seconds.
    """


@route.command("list")
@click.option("--json", "as_json", is_flag=True, help="A JSON array with an object for each destination.")
@click.argument("routes", nargs=-1, metavar="[ROUTE]...")
@common_options
@click.pass_obj
def route_list(options: Options, routes: tuple[str, ...], as_json: bool) -> None:
    """List the destinations of all routes, or of the named ones.

    \b
      headwater route list
      headwater route list by_company --json
    """
    from headwater.commands.routeview import show_routes
    from headwater.status import statuses_of_routes

    show_routes(statuses_of_routes(options.config(), os.environ, routes), as_json=as_json)


def _on_destinations(command: Command) -> Command:
    name = click.argument("name", metavar="ROUTE")
    values = click.argument("values", nargs=-1, metavar="[VALUE]...")
    return name(values(common_options(click.pass_obj(command))))  # type: ignore[return-value]


@route.command("seed")
@click.option("--yes", is_flag=True, help="Do not ask.")
@_on_destinations
def route_seed(options: Options, name: str, values: tuple[str, ...], yes: bool) -> None:
    """Seed destinations again: all of the route, or those of the named values.

    Each gets all its rows anew, in one snapshot. Readers see the old rows until then.

    A value is written as `route list` shows it; `default` is the destination of the rest. A value that is the word
    default, or begins with an equals sign, has one more equals sign in front: =default. What begins with a dash comes
    after --.

    \b
      headwater route seed by_company acme
      headwater route seed by_company default --yes
      headwater route seed by_number --yes -- -1
    """
    what = f"{counted(len(values), 'destination')} of route {name!r}" if values else f"every destination of {name!r}"
    if not yes:
        if not sys.stdin.isatty():
            raise ConfigError(f"seeding {what} again was not confirmed", hint="add --yes")
        click.confirm(f"Seed {what} again? Each gets all its rows anew, in one snapshot.", abort=True)
    _ask(options, "seed", name, values)


@route.command("pause")
@_on_destinations
def route_pause(options: Options, name: str, values: tuple[str, ...]) -> None:
    """Leave destinations as they are, until `resume`: all of the route, or those of the named values.

    A commit that is under way may still land. Values are written as for `route seed`.

    \b
      headwater route pause by_company acme globex
    """
    _ask(options, "pause", name, values)


@route.command("resume")
@_on_destinations
def route_resume(options: Options, name: str, values: tuple[str, ...]) -> None:
    """Let destinations go on that are paused, and try those at once that wait after a failure.

    All of the route, or those of the named values, which are written as for `route seed`. A destination goes on from
    where it is; if the source's snapshots from there on have expired, it is seeded.

    \b
      headwater route resume by_company
    """
    _ask(options, "resume", name, values)


def _ask(options: Options, request: Request, name: str, values: tuple[str, ...]) -> None:
    from headwater.commands.routeview import show_request
    from headwater.supervise.requests import requested

    show_request(request, name, requested(options.config(), request, name, values))
