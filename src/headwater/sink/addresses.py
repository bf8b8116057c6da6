"""From a lake of the config to its address, by its kind."""

from __future__ import annotations

from collections.abc import Mapping

from headwater.config import Config, DuckLake, Iceberg
from headwater.errors import ConfigError
from headwater.files import S3, is_local
from headwater.lake.address import LakeAddress
from headwater.sink.ducklake.address import DuckLakeAddress

__all__ = ["group_lake", "lake_addresses"]


def group_lake(config: Config, env: Mapping[str, str], group: str) -> LakeAddress:
    """Where a group lands; S3 takes its keys from the AWS_* variables in `env`."""
    name = config.groups[group].lake
    address = _address(config.lakes[name], env)
    if address is None:
        raise ConfigError(f"lake {name!r} is not a DuckLake", hint=f"let groups.{group}.lake name one that is")
    return address


def lake_addresses(config: Config, env: Mapping[str, str]) -> dict[str, LakeAddress]:
    """Every lake of the config that this version can open, by its name."""
    found = {name: _address(lake, env) for name, lake in config.lakes.items()}
    return {name: address for name, address in found.items() if address is not None}


def _address(lake: DuckLake | Iceberg, env: Mapping[str, str]) -> LakeAddress | None:
    if not isinstance(lake, DuckLake):
        return None
    s3 = None if is_local(lake.data_path) else S3.from_environment(env)
    return DuckLakeAddress(lake.catalog, lake.data_path, s3)
