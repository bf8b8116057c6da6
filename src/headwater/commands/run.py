"""`headwater run`, and the processes that it starts."""

from __future__ import annotations

import logging
import os
import sys

import click

from headwater.commands.options import Options, common_options
from headwater.config import DEFAULT_FILE

__all__ = ["capture", "deliver", "run"]

logger = logging.getLogger(__name__)


@click.command()
@click.option("--until-caught-up", is_flag=True, help="Stop when everything committed so far is in the lakes.")
@click.option(
    "--recopy", is_flag=True, help="Copy again the tables that the lake has lost: all of them if the lake is new."
)
@common_options
@click.pass_obj
def run(options: Options, until_caught_up: bool, recopy: bool) -> None:
    """Mirror the groups of the config.

    Creates what is missing (publication, slot, lake, tables), copies each table once, then follows its changes. On
    Ctrl-C or SIGTERM it delivers what is staged, for at most 30 s, and stops; the next run goes on from there.

    \b
      headwater run
      headwater run -c shop.yaml --log-format json --until-caught-up
    """
    config = options.config()
    logger.info("checking the source and the lakes, then starting Spark, which takes some seconds")
    from headwater.checks import check as find  # only now: it takes a second
    from headwater.supervise.running import RunOptions
    from headwater.supervise.running import run as supervise

    if problems := find(config, os.environ, recopy=recopy):
        raise ExceptionGroup("the config cannot run", problems)
    file = (options.file or DEFAULT_FILE).resolve()
    sys.exit(supervise(config, os.environ, RunOptions(file, options.log_format, until_caught_up, recopy)))


@click.command("_capture", hidden=True)
@click.argument("group")
@common_options
@click.pass_obj
def capture(options: Options, group: str) -> None:
    """Capture one group: started by `run`."""
    from headwater.supervise.running import capture_child

    sys.exit(capture_child(options.config(), group))


@click.command("_deliver", hidden=True)
@click.option("--all-needed", is_flag=True)
@common_options
@click.pass_obj
def deliver(options: Options, all_needed: bool) -> None:
    """Deliver all groups: started by `run`."""
    from headwater.supervise.running import deliver_child

    file = (options.file or DEFAULT_FILE).resolve()
    sys.exit(deliver_child(options.config(), os.environ, file, all_needed=all_needed))
