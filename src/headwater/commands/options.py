"""The options that every command takes, before its name or after it, and the config that they name."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

import click

from headwater.config import DEFAULT_FILE, Config
from headwater.logs import configure

__all__ = ["Options", "common_options"]

LogFormat = Literal["text", "json"]
Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Options:
    """What `-c` and `--log-format` say; None: not given."""

    file: Path | None = None
    given_format: LogFormat | None = None
    secrets: set[str] = field(
        default_factory=set
    )  # filled when the config is read, to be hidden in what is printed afterwards

    @property
    def log_format(self) -> LogFormat:
        return self.given_format or "text"

    @property
    def path(self) -> Path:
        """Where the config is, for processes that go on using it.

        Links stay links: Kubernetes renews a config by leading them elsewhere, and removes what they led to.
        """
        return (self.file or DEFAULT_FILE).absolute()

    def config(self) -> Config:
        """Read the config; from here on nothing shows its secrets."""
        config = Config.load(self.file or DEFAULT_FILE, os.environ)
        self.secrets.update(config.secrets())
        configure(self.log_format, self.secrets)
        return config


def _merge(ctx: click.Context, parameter: click.Parameter, value: Any) -> None:
    """Note an option in the context; it may be given before and after the command, but only with one value."""
    known = ctx.obj or Options()
    before = getattr(known, str(parameter.name))
    if value is not None and before not in (None, value):
        raise click.UsageError(
            f"{parameter.opts[-1]} is {str(before)!r} before the command, and {str(value)!r} after it"
        )
    ctx.obj = known if value is None else replace(known, **{str(parameter.name): value})


def common_options(command: Command) -> Command:
    """Give a command `-c` and `--log-format`; `click.pass_obj` passes what they say."""
    file = click.option(
        "-c",
        "--config",
        "file",
        type=click.Path(path_type=Path),
        metavar="FILE",
        callback=_merge,
        expose_value=False,
        help="The config file, before or after the command.  [default: headwater.yaml]",
    )
    log_format = click.option(
        "--log-format",
        "given_format",
        type=click.Choice(["text", "json"]),
        callback=_merge,
        expose_value=False,
        help="Log lines for people, or each a JSON object.  [default: text]",
    )
    return file(log_format(command))
