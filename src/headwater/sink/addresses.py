"""From a lake of the config to its address, by its kind."""

from __future__ import annotations

from collections.abc import Mapping

from headwater.config import Config, DuckLake
from headwater.errors import ConfigError
from headwater.files import S3
from headwater.lake.address import LakeAddress
from headwater.sink.ducklake.address import DuckLakeAddress

__all__ = ["group_lake"]


def group_lake(config: Config, env: Mapping[str, str], group: str) -> LakeAddress:
    """Where a group lands; S3 takes its keys from the AWS_* variables in `env`."""
    name = config.groups[group].lake
    lake = config.lakes[name]
    if not isinstance(lake, DuckLake):
        raise ConfigError(f"lake {name!r} is not a DuckLake", hint=f"let groups.{group}.lake name one that is")
    s3 = S3.from_environment(env) if lake.data_path.startswith("s3://") else None
    return DuckLakeAddress(lake.catalog, lake.data_path, s3)
