"""The command line. Commands hold no logic: they read the config, ask one function, and render its answer."""

from __future__ import annotations

import json
import os
import select
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

import click

from headwater import __version__
from headwater.commands import render
from headwater.config import DEFAULT_FILE, Config
from headwater.config.values import duration
from headwater.errors import CheckFailed, ConfigError, HeadwaterError
from headwater.logs import configure, redact
from headwater.supervise import crash

__all__ = ["cli", "main"]

_WORST_FIRST = (4, 3, 2, 1)
_INTERRUPTED = 130
_NO_READER = 141  # as if SIGPIPE had ended us


@dataclass
class Session:
    """What the options before the command said."""

    file: Path | None
    log_format: Literal["text", "json"]
    secrets: set[str] = field(default_factory=set)

    def config(self) -> Config:
        """Read the config; from here on nothing shows its secrets."""
        config = Config.load(self.file or DEFAULT_FILE, os.environ)
        self.secrets |= config.secrets()
        configure(self.log_format, self.secrets)
        return config


class _Group(click.Group):
    """Turns our errors into messages and exit codes, several at once included."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            result = self._invoke(ctx)
            sys.stdout.flush()
            return result
        except BrokenPipeError:  # the reader of our output has seen enough, as in `headwater query … | head -1`
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes once more when it ends
            return ctx.exit(_NO_READER)

    def _invoke(self, ctx: click.Context) -> Any:
        problems: list[HeadwaterError]
        try:
            return super().invoke(ctx)
        except HeadwaterError as error:
            problems = [error]
        except ExceptionGroup as group:
            ours, others = group.split(HeadwaterError)
            if ours is None or others is not None:
                return self._bug(ctx, group)
            problems = list(_leaves(ours))
        except KeyboardInterrupt:
            return ctx.exit(_INTERRUPTED)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except Exception as error:
            if isinstance(error, BrokenPipeError) and _reader_gone():
                raise
            return self._bug(ctx, error)
        for problem in problems:
            click.echo(f"error: {redact(str(problem), _secrets(ctx))}", err=True)
        codes = {problem.exit_code for problem in problems}
        return ctx.exit(next(code for code in _WORST_FIRST if code in codes))

    def _bug(self, ctx: click.Context, error: Exception) -> Any:
        click.echo(crash.report(error, _secrets(ctx)), err=True)
        return ctx.exit(crash.BUG)


def _reader_gone() -> bool:
    """Whether standard output is a pipe that nobody reads any more; other pipes and sockets can break, too."""
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    return any(event & select.POLLERR for _, event in poll.poll(0))


def _secrets(ctx: click.Context) -> Iterable[str]:
    return ctx.obj.secrets if isinstance(ctx.obj, Session) else ()


def _leaves(group: ExceptionGroup[HeadwaterError]) -> Iterable[HeadwaterError]:
    for each in group.exceptions:
        if isinstance(each, ExceptionGroup):
            yield from _leaves(each)
        else:
            yield each


class _Duration(click.ParamType[timedelta]):
    name = "duration"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        try:
            return duration(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(
    "-c",
    "--config",
    "file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The config file.  [default: headwater.yaml]",
)
@click.option("--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.version_option(__version__, prog_name="headwater")
@click.pass_context
def cli(ctx: click.Context, file: Path | None, log_format: Literal["text", "json"]) -> None:
    """Mirror PostgreSQL into lakehouse tables, continuously and exactly once.

    \b
    See it at work, with nothing to prepare:
      headwater demo
    \b
    Then with a database of your own, described in headwater.yaml:
      headwater doctor                        is this machine ready?
      headwater config schema                 what may the file say?
      headwater check                         can it run? every problem at once
      headwater run                           mirror until Ctrl-C, or --until-caught-up
      headwater status --watch                how far it is
      headwater verify                        is the lake what the source is?
      headwater group list                    which groups there are; drop one
      headwater query 'SELECT count(*) FROM public.orders' --fresh
    \b
    Exit codes: 0 well; 1 a check failed; 2 usage or config; 3 something is unreachable, trying
    again later may help; 4 an operator must act; 70 a bug in Headwater.
    """
    configure(log_format)
    ctx.obj = Session(file, log_format)


@cli.command()
@click.option("--seconds", type=click.FloatRange(min=1), help="Stop by itself after so long.  [default: on Ctrl-C]")
@click.option(
    "--dir",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("headwater-demo"),
    show_default=True,
    help="Where everything is kept; run again there, it goes on.",
)
def demo(seconds: float | None, folder: Path) -> None:
    """Watch a live PostgreSQL being mirrored into a lake.

    Starts a PostgreSQL of its own, lets a small web shop write to it, and mirrors it into a DuckLake on SQLite. At the
    end, or on Ctrl-C, it drains, verifies that nothing is missing, and says how to query the lake.

    \b
      headwater demo --seconds 20 --dir shop
    """
    from headwater.commands.demo import demo as show

    show(seconds, folder)


@cli.command()
@click.option("--json", "as_json", is_flag=True, help="An array of objects.")
@click.pass_obj
def doctor(session: Session, as_json: bool) -> None:
    """Check this machine: Python, Java, libraries, memory, disk, and the config if there is one."""
    from headwater.commands.doctor import diagnose

    file = session.file or (DEFAULT_FILE if DEFAULT_FILE.exists() else None)
    checks = diagnose(os.environ, file)
    columns = ("check", "result", "found", "next move")
    rows = [(c.name, "ok" if c.ok else "problem", c.found, "" if c.ok else c.hint) for c in checks]
    if as_json:
        click.echo(json.dumps([asdict(check) for check in checks], indent=2))
    else:
        render.print_table(columns, rows)
    if bad := [check.name for check in checks if not check.ok]:
        raise CheckFailed(f"this machine is not ready: {', '.join(bad)}")


@cli.command()
@click.option(
    "--sql", is_flag=True, help="Only print the script that a DBA runs: role, grants, publication, event triggers."
)
@click.pass_obj
def check(session: Session, sql: bool) -> None:
    """Check that `run` can start: source, state, log, lakes. Reports every problem, and what to do about it.

    `run` makes publication and event triggers if its role may. If it may only read, a DBA makes them:

    \b
      headwater check --sql | psql 'postgresql://postgres@db/shop'
    """
    from headwater.checks import check as find
    from headwater.checks.dba import dba_script
    from headwater.checks.schema import schema_changes

    config = session.config()
    if sql:
        click.echo(dba_script(config), nl=False)
        return
    if problems := find(config, os.environ):
        raise ExceptionGroup("the config cannot run", problems)
    click.echo(schema_changes(config))
    click.echo("check: OK")


@cli.command()
@click.option("--until-caught-up", is_flag=True, help="End when all that is committed now is in the lakes.")
@click.option("--recopy", is_flag=True, help="Copy tables again that the lake has lost: all of them, if it is new.")
@click.pass_obj
def run(session: Session, until_caught_up: bool, recopy: bool) -> None:
    """Mirror the config's groups.

    Creates what is missing (publication, slot, lake, tables), copies each table once, then follows its changes. Stops
    on Ctrl-C or SIGTERM: drains what is staged, at most 30 s; the next run goes on from there.

    \b
      headwater run
      headwater -c shop.yaml --log-format json run --until-caught-up
    """
    from headwater.checks import check as find
    from headwater.supervise.running import Asked
    from headwater.supervise.running import run as supervise

    config = session.config()
    if problems := find(config, os.environ, recopy=recopy):
        raise ExceptionGroup("the config cannot run", problems)
    file = (session.file or DEFAULT_FILE).resolve()
    sys.exit(supervise(config, os.environ, Asked(file, session.log_format, until_caught_up, recopy)))


@cli.command("_capture", hidden=True)
@click.argument("group")
@click.pass_obj
def _capture(session: Session, group: str) -> None:
    """Capture one group: started by `run`."""
    from headwater.supervise.running import capture_child

    sys.exit(capture_child(session.config(), group))


@cli.command("_deliver", hidden=True)
@click.option("--all-needed", is_flag=True)
@click.pass_obj
def _deliver(session: Session, all_needed: bool) -> None:
    """Deliver all groups: started by `run`."""
    from headwater.supervise.running import deliver_child

    sys.exit(deliver_child(session.config(), os.environ, all_needed=all_needed))


@cli.command()
@click.option("--watch", is_flag=True, help="Again every second, until Ctrl-C.")
@click.option("--json", "as_json", is_flag=True, help="One object; with --watch, one a line.")
@click.option("--check", "checked", is_flag=True, help="Exit 1 unless all is well, 3 if the source is unreachable.")
@click.option(
    "--max-lag", type=_Duration(), metavar="DURATION", help="With --check: exit 1 also if a lake is further behind."
)
@click.pass_obj
def status(session: Session, watch: bool, as_json: bool, checked: bool, max_lag: timedelta | None) -> None:
    """Show every group and table: what runs, how far it is, and what keeps it.

    Exits 0 if that could be shown. For monitoring there is --check: all is well if every group is RUNNING, without an
    error, and no table is ERRORED.

    \b
      headwater status --watch
      headwater status --check --max-lag 30s
    """
    from headwater.commands.statusview import show
    from headwater.status import open_status

    if max_lag is not None and not checked:
        raise click.UsageError("--max-lag needs --check")
    with open_status(session.config()) as ask:
        found = show(ask, as_json=as_json, watch=watch)
    if checked:
        found.check(max_lag)


@cli.command()
@click.argument("tables", nargs=-1, metavar="[TABLE]...")
@click.option("--json", "as_json", is_flag=True, help="An array of objects.")
@click.option(
    "--timeout", type=click.FloatRange(min=1), default=300, show_default=True, help="Seconds to wait for the lake."
)
@click.pass_obj
def verify(session: Session, tables: tuple[str, ...], as_json: bool, timeout: float) -> None:
    """Prove that the lake is what the source is: row counts and content, at one and the same LSN, while writes go on.

    Compares all tables, or the named ones. On a difference it shows the first differing keys and exits 1; so it does
    if a table of the config cannot be compared, and says why.

    \b
      headwater verify
      headwater verify public.orders public.customers --json
    """
    from headwater.verify.command import verify_all
    from headwater.verify.view import show

    verdicts = verify_all(session.config(), os.environ, tables, timeout)
    show(verdicts, as_json=as_json)
    if not all(each.ok for each in verdicts):
        sys.exit(1)


@cli.command()
@click.argument("sql")
@click.option("--fresh", is_flag=True, help="First wait until all that is committed now is in the lake.")
@click.option(
    "--timeout", type=click.FloatRange(min=1), default=60, show_default=True, help="Seconds to wait for --fresh."
)
@click.option("--json", "as_json", is_flag=True, help="An array of objects.")
@click.pass_obj
def query(session: Session, sql: str, fresh: bool, timeout: float, as_json: bool) -> None:
    """Ask the lakes in DuckDB's SQL, for reading only.

    Every DuckLake is there under its name; names without one are looked up in the first group's lake.

    \b
      headwater query 'SELECT status, count(*) FROM public.orders GROUP BY ALL' --fresh
      headwater query 'SELECT * FROM main.public.orders AT (VERSION => 3) LIMIT 5'
      headwater query 'SELECT * FROM main.snapshots()' --json
    """
    from headwater.query import query as ask
    from headwater.status.fresh import wait_until_fresh

    config = session.config()
    if fresh:
        wait_until_fresh(config, timeout)
    answer = ask(config, sql, os.environ, as_text=not as_json)
    if as_json:
        click.echo(render.as_json(answer.columns, answer.rows))
    else:
        render.print_table(*answer)


@cli.group()
def group() -> None:
    """List the groups, or drop one."""


@group.command("list")
@click.option("--json", "as_json", is_flag=True, help="An array of objects.")
@click.pass_obj
def group_list(session: Session, as_json: bool) -> None:
    """List the groups of the config, and those that ran with it and have left it."""
    from headwater.supervise.groups import list_groups

    found = list_groups(session.config())
    if as_json:
        click.echo(json.dumps([asdict(each) for each in found], indent=2))
        return
    rows = [(each.name, each.lake, each.tables, each.slot, "yes" if each.configured else "no") for each in found]
    render.print_table(("group", "lake", "tables", "slot", "in the config"), rows)


@group.command("drop")
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.pass_obj
def group_drop(session: Session, name: str, yes: bool) -> None:
    """Forget a group: drop its slot, its publication, its staged changes and its state.

    Its tables in the lake stay as they are. If the config still has the group, the next `headwater run` copies its
    tables anew, in place of their old mirrors.
    """
    from headwater.supervise.groups import drop_group

    config = session.config()
    if not yes:
        if not sys.stdin.isatty():
            raise ConfigError(f"dropping group {name!r} was not confirmed", hint="add --yes")
        click.confirm(f"Drop group {name!r}, its slot and what is staged? Its tables in the lake stay.", abort=True)
    for each in drop_group(config, name):
        click.echo(f"dropped {each}")
    click.echo(f"group {name!r} is dropped")


@cli.group()
def config() -> None:
    """About the config file."""


@config.command()
def schema() -> None:
    """Print the JSON Schema of headwater.yaml, for editors and checks."""
    click.echo(
        json.dumps({"$schema": "https://json-schema.org/draft/2020-12/schema"} | Config.model_json_schema(), indent=2)
    )


def main() -> None:
    """The console script."""
    cli.main(prog_name="headwater")
    sys.exit(0)
