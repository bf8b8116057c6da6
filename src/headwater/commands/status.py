"""`headwater status`."""

from __future__ import annotations

import os
from datetime import timedelta

import click

from headwater.change import Lsn
from headwater.commands.options import Options, common_options
from headwater.config.values import duration

__all__ = ["status"]


class _Duration(click.ParamType[timedelta]):
    name = "duration"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        try:
            return duration(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class _Lsn(click.ParamType[Lsn]):
    name = "lsn"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Lsn:
        try:
            return Lsn.parse(str(value))
        except ValueError as error:
            self.fail(f"{error} (as `SELECT pg_current_wal_lsn()` shows one: 0/1A2B3C)", param, ctx)


@click.command()
@click.option("--watch", is_flag=True, help="Refresh every second, until Ctrl-C.")
@click.option("--json", "as_json", is_flag=True, help="A JSON object; with --watch, one per line.")
@click.option("--check", "checked", is_flag=True, help="Exit 1 if there is a problem, 3 if the source is unreachable.")
@click.option(
    "--max-lag",
    type=_Duration(),
    metavar="DURATION",
    help="With --check: exit 1 also if a lake is further behind than that, as 30s.",
)
@click.option(
    "--lsn",
    "at",
    type=_Lsn(),
    metavar="LSN",
    help="Show which snapshot of the lake has each table as it was at this LSN of the source.",
)
@common_options
@click.pass_obj
def status(
    options: Options, watch: bool, as_json: bool, checked: bool, max_lag: timedelta | None, at: Lsn | None
) -> None:
    """Show every group and table, route and destination: what runs, how far behind it is, and what stops it.

    Exits 0 if the status could be shown. For monitoring, --check exits 1 unless every group is RUNNING without an
    error, no table is ERRORED, every route is delivered, and no destination has failed.

    With --lsn, the newest snapshot of each table at or below that LSN, and the lines to read it. Exits 1 if the lake
    has not reached it yet, or has no snapshot as old.

    \b
      headwater status --watch
      headwater status --check --max-lag 30s
      headwater status --lsn 0/1A2B3C
    """
    from headwater.commands.momentview import show_moment
    from headwater.commands.statusview import show
    from headwater.status import moment, open_status
    from headwater.supervise.effective import with_state

    if max_lag is not None and not checked:
        raise click.UsageError("--max-lag needs --check")
    if at is not None:
        if watch or checked:
            raise click.UsageError("--lsn shows one moment: it goes with neither --watch nor --check")
        there = moment(with_state(options.config()), os.environ, at)
        show_moment(there, as_json=as_json)
        there.check()
        return
    with open_status(with_state(options.config()), os.environ) as ask:
        found = show(ask, as_json=as_json, watch=watch)
    if checked:
        found.check(max_lag)
