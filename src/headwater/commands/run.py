"""`headwater run`, and the processes that it starts."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path
from typing import Literal

import click

from headwater.commands.options import Options, common_options
from headwater.commands.runoutput import shown
from headwater.config import DEFAULT_FILE

__all__ = ["capture", "deliver", "run", "serve"]

logger = logging.getLogger(__name__)


@click.command()
@click.option("--until-caught-up", is_flag=True, help="Stop when everything committed so far is in the lakes.")
@click.option(
    "--recopy", is_flag=True, help="Copy again the tables that the lake has lost: all of them if the lake is new."
)
@click.option(
    "--standby", is_flag=True, help="Wait while another run has the groups, and take over within seconds of its end."
)
@click.option("--role", type=click.Choice(["capture", "deliver"]), help="Only this part; the other one runs elsewhere.")
@click.option(
    "--log-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Where the log goes.  [default: on a terminal headwater.log beside the config, else standard error]",
)
@common_options
@click.pass_obj
def run(
    options: Options,
    until_caught_up: bool,
    recopy: bool,
    standby: bool,
    role: Literal["capture", "deliver"] | None,
    log_file: Path | None,
) -> None:
    """Mirror the groups of the config.

    Creates what is missing (publication, slot, lake, tables), copies each table once, then follows its changes. On
    Ctrl-C or SIGTERM it delivers what is staged, for at most 30 s, and stops; the next run goes on from there.

    On a terminal it shows what happens, and the log goes to a file; with --log-format the log is on the terminal.

    \b
      headwater run
      headwater run -c shop.yaml --log-format json --until-caught-up
      headwater run --standby                 on a second machine
      headwater run --role deliver            on as many machines as you like: they share the groups
    """
    if role == "deliver" and (standby or recopy):
        given = "--standby" if standby else "--recopy"
        raise click.UsageError(f"{given} does not go with --role deliver: the run that captures makes the groups ready")
    config, file = options.config(), (options.file or DEFAULT_FILE).resolve()
    with shown(options, config, log_file) as ended:
        logger.info("checking the source and the lakes, then starting Spark, which takes some seconds")
        from headwater.checks import check as find  # only now: it takes a second
        from headwater.supervise.running import RunOptions
        from headwater.supervise.running import run as supervise

        if problems := find(config, os.environ, recopy=recopy):
            raise ExceptionGroup("the config cannot run", problems)
        wanted = RunOptions(file, options.log_format, until_caught_up, recopy, role, standby)
        ended.code = supervise(config, os.environ, wanted)
    sys.exit(ended.code)


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
@click.option("--wait", is_flag=True)
@common_options
@click.pass_obj
def deliver(options: Options, all_needed: bool, wait: bool) -> None:
    """Deliver all groups: started by `run`."""
    from headwater.supervise.running import deliver_child

    file = (options.file or DEFAULT_FILE).resolve()
    traces = os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT")
    sys.exit(deliver_child(options.config(), os.environ, file, all_needed=all_needed, wait=wait, traces=traces))


@click.command("_serve", hidden=True)
@click.option("--wait", is_flag=True)
@common_options
@click.pass_obj
def serve(options: Options, wait: bool) -> None:
    """Serve the page: started by `run`."""
    from headwater.supervise.serverprocess import server_child
    from headwater.web.serve import serve as serve_page

    config, file = options.config(), (options.file or DEFAULT_FILE).resolve()
    sys.exit(server_child(lambda stop, leads: serve_page(config, os.environ, file, stop, leads), wait=wait))
