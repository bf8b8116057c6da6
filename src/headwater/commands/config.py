"""`headwater config`."""

from __future__ import annotations

import json

import click

from headwater.commands.options import common_options
from headwater.config import Config

__all__ = ["config"]


@click.group()
@common_options
def config() -> None:
    """About the config file."""


@config.command()
@common_options
def schema() -> None:
    """Print the JSON Schema of headwater.yaml, for editors and checks."""
    click.echo(
        json.dumps({"$schema": "https://json-schema.org/draft/2020-12/schema"} | Config.model_json_schema(), indent=2)
    )
