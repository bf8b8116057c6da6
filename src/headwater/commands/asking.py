"""What commands say about requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from headwater.commands.options import Options
from headwater.errors import ConfigError

if TYPE_CHECKING:
    from headwater.state import Verb

__all__ = ["nested", "say"]


def say(context: Options, verb: Verb, /, **arguments: object) -> None:
    """Ask the running service, and say what became of it; without one the request waits."""
    from headwater.supervise.asking import ask

    answer = ask(context.config(), verb, **arguments)
    if answer.outcome is not None:
        click.echo(answer.outcome)
    elif answer.running:
        click.echo(f"request {answer.request} is still being handled: `headwater table list` shows whether it waits")
    else:
        click.echo(
            f"request {answer.request} is queued: no service runs group {answer.group!r} now;"
            " `headwater run` will handle it"
        )


def nested(given: tuple[str, ...]) -> dict[str, Any]:
    """`flush.interval=10s` as the config would have it: {"flush": {"interval": "10s"}}; values are YAML."""
    import yaml

    found: dict[str, Any] = {}
    for each in given:
        path, equals, value = each.partition("=")
        if not equals:
            raise ConfigError(f"--option {each!r} is not KEY=VALUE", hint="for example --option mode=history")
        *outer, last = path.strip().split(".")
        inside = found
        for key in outer:
            inside = inside.setdefault(key, {})
        inside[last] = yaml.safe_load(value)
    return found
