"""The command line. Commands hold no logic: they read the config, ask one function, and render its answer."""

from __future__ import annotations

import sys

import click

from headwater import __version__
from headwater.commands.check import check
from headwater.commands.config import config
from headwater.commands.demo import demo
from headwater.commands.doctor import doctor
from headwater.commands.exits import Exits, open_standard_streams
from headwater.commands.group import group
from headwater.commands.init import init
from headwater.commands.maintain import maintain
from headwater.commands.options import Options, common_options
from headwater.commands.query import query
from headwater.commands.route import route
from headwater.commands.run import capture, deliver, run, serve
from headwater.commands.status import status
from headwater.commands.table import table
from headwater.commands.verify import verify
from headwater.logs import configure

__all__ = ["cli", "main"]


@click.group(cls=Exits, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@common_options
@click.version_option(__version__, prog_name="headwater")
@click.pass_obj
def cli(options: Options) -> None:
    """Mirror PostgreSQL into lakehouse tables, continuously and exactly once.

    \b
    See it at work, with nothing to prepare:
      headwater demo
    \b
    Then with a database of your own:
      headwater init postgresql://app@db/shop writes headwater.yaml, which you may edit
      headwater doctor                        is this machine ready?
      headwater config schema                 what may the file say?
      headwater check                         can it run? every problem at once
      headwater run                           mirror until Ctrl-C, or --until-caught-up
      headwater status --watch                how far behind it is
      headwater verify                        does the lake equal the source?
      headwater maintain                      merge small files of the lakes, remove what is old
      headwater table list                    the tables and their states; pause, resume, resync one
      headwater group list                    which groups there are; `group drop` ends one
      headwater route list                    where tables are carried on to; `route pause` stops one
      headwater query 'SELECT count(*) FROM public.orders' --fresh
    \b
    Exit codes: 0 success; 1 a check failed; 2 usage or config; 3 something is unreachable, trying
    again later may help; 4 an operator must act; 70 a bug in Headwater.
    """
    configure(options.log_format)


for each in (
    demo,
    init,
    doctor,
    check,
    run,
    capture,
    deliver,
    serve,
    status,
    verify,
    query,
    maintain,
    table,
    group,
    route,
    config,
):
    cli.add_command(each)


def main() -> None:
    """The console script."""
    open_standard_streams()
    cli.main(prog_name="headwater")
    sys.exit(0)
