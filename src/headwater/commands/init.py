"""`headwater init`."""

from __future__ import annotations

import os
from pathlib import Path

import click

from headwater.commands.options import Options, common_options
from headwater.config import DEFAULT_FILE, Config
from headwater.errors import ConfigError

__all__ = ["init"]


@click.command()
@click.argument("url")
@click.option(
    "--lake",
    metavar="URL|PATH",
    help="The DuckLake to mirror into: its catalog (sqlite:///FILE, postgresql://...), or only the place of its data"
    " files (a folder, s3://BUCKET/PREFIX). Paths are relative to the folder of the config file."
    "  [default: sqlite:///data/lake.sqlite, with its files in ./data/lake]",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The file to write; it must not exist.  [default: the config file]",
)
@common_options
@click.pass_obj
def init(options: Options, url: str, lake: str | None, output: Path | None) -> None:
    """Look at the database at URL, and write a config that mirrors it.

    All tables that can be mirrored go into one group; the others are listed in comments, each with the reason and what
    to do about it. Nothing is changed in the database, and the password of URL is not written into the file.

    \b
      headwater init postgresql://app@db/shop
      headwater init postgresql://app@db/shop --lake s3://bucket/shop -o shop.yaml
    """
    from headwater.checks.candidates import candidates
    from headwater.commands.initview import next_steps, starter
    from headwater.config.starting import place_of_lake, source_of

    file = output or options.file or DEFAULT_FILE
    if output and options.file and output != options.file:
        raise click.UsageError(f"--output is {str(output)!r}, and --config is {str(options.file)!r}: name one file")
    source, place = source_of(url), place_of_lake(lake)
    options.secrets.update(source.variables.values(), place.variables.values())
    if file.exists():
        raise ConfigError(f"the file {str(file)!r} exists", hint="name another one with -o, or remove it first")
    found = candidates(url)
    _write(file, starter(found, source, place), source.variables | place.variables)
    click.echo(next_steps(found, file, source.variables | place.variables))


def _write(file: Path, text: str, variables: dict[str, str]) -> None:
    """Write a file that is sure to be a config."""
    try:
        with file.open("x", encoding="utf-8") as stream:
            stream.write(text)
    except OSError as error:
        hint = "name another file with -o"
        raise ConfigError(f"cannot write {str(file)!r}: {error.strerror}", hint=hint) from error
    try:
        Config.load(file, os.environ | variables)
    except ExceptionGroup:
        file.unlink()
        raise
