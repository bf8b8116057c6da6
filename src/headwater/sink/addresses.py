"""From a lake of the config to its address, by its kind."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from headwater.config import Config, DuckLake, Iceberg
from headwater.config.file import SECRET_NAME
from headwater.ducklake import evolution
from headwater.files import S3, is_local
from headwater.lake.address import LakeAddress
from headwater.lake.template import filled
from headwater.sink.ducklake.address import DuckLakeAddress

__all__ = ["group_lake", "lake_addresses", "reserved_columns", "row_address", "template_address"]


def group_lake(config: Config, env: Mapping[str, str], group: str) -> LakeAddress:
    """Where a group lands; S3 takes its keys from the AWS_* variables in `env`."""
    return lake_addresses(config, env, [config.groups[group].lake])[config.groups[group].lake]


def lake_addresses(
    config: Config, env: Mapping[str, str], names: Iterable[str] | None = None
) -> dict[str, LakeAddress]:
    """The lakes with these names, or every lake of the config."""
    wanted, secrets = config.lakes if names is None else names, config.secrets()
    return {name: _address(config.lakes[name], env, secrets) for name in wanted}


def template_address(
    template: DuckLake | Iceberg, value: str, env: Mapping[str, str], secrets: frozenset[str]
) -> LakeAddress:
    """The lake that a route's template makes of a value, in which nothing of the value is unescaped."""
    if isinstance(template, DuckLake):
        catalog, data_path = filled(template.catalog, value), filled(template.data_path, value)
        return _address(template.model_copy(update={"catalog": catalog, "data_path": data_path}), env, secrets)
    properties = {
        name: text if SECRET_NAME.search(name) else filled(text, value) for name, text in template.properties.items()
    }
    return _address(template.model_copy(update={"properties": properties}), env, secrets)


def row_address(ducklake: str, data_path: str, env: Mapping[str, str]) -> LakeAddress:
    """The lake that a row of a route's `from_table` names; ConfigError, without a password, if it names none."""
    return _address(DuckLake.found(ducklake, data_path), env, frozenset())


def reserved_columns(kind: type[DuckLake] | type[Iceberg]) -> frozenset[str]:
    """Names that a lake of this kind keeps for itself, in lower case: no column can have them."""
    if issubclass(kind, Iceberg):
        from headwater.sink.iceberg.columns import RESERVED  # PyIceberg takes a second to load

        return RESERVED
    return evolution.RESERVED


def _address(lake: DuckLake | Iceberg, env: Mapping[str, str], secrets: frozenset[str]) -> LakeAddress:
    if isinstance(lake, Iceberg):
        from headwater.sink.iceberg.address import IcebergAddress  # PyIceberg takes a second to load

        keys = {env.get("AWS_SECRET_ACCESS_KEY", ""), env.get("AWS_SESSION_TOKEN", "")} - {""}
        return IcebergAddress(_with_keys(lake.properties, env), secrets | keys)
    s3 = None if is_local(lake.data_path) else S3.from_environment(env)
    return DuckLakeAddress(lake.catalog, lake.data_path, s3)


def _with_keys(properties: Mapping[str, str], env: Mapping[str, str]) -> dict[str, str]:
    """The properties, with what they do not say about S3 from the environment."""
    if is_local(properties.get("warehouse", "")):
        return dict(properties)
    s3 = S3.from_environment(env)
    found = {
        "s3.access-key-id": s3.key,
        "s3.secret-access-key": s3.secret,
        "s3.session-token": s3.token,
        "s3.region": s3.region,
        "s3.endpoint": s3.endpoint,
    }
    return {name: value for name, value in found.items() if value} | dict(properties)
