"""A table of a lake, opened to be read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager

from headwater.change import TableName
from headwater.config import DuckLake
from headwater.ducklake.finding import find_lake
from headwater.ducklake.url import parse_lake_url
from headwater.errors import Unreachable
from headwater.feed.source import SourceTable
from headwater.files import S3, is_local

__all__ = ["opened_table"]


@contextmanager
def opened_table(lake: DuckLake, env: Mapping[str, str], name: TableName) -> Iterator[SourceTable]:
    """A table of a lake of the config. An encrypted or newer lake is refused; nothing is changed.

    S3 takes its keys from the AWS_* variables in `env`.
    """
    s3 = None if is_local(lake.data_path) else S3.from_environment(env)
    found = find_lake(lake.catalog, lake.data_path, s3=s3)
    if found is None:
        raise Unreachable(
            f"there is no lake in {parse_lake_url(lake.catalog)} yet",
            hint="create it; a group's lake is made by its run",
        )
    with closing(found):
        yield SourceTable(found, name)
