"""The lakes of the file: where each is."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Discriminator, Field, Tag, ValidationError

from headwater.config.base import Model
from headwater.config.values import CatalogUrl, IcebergProperties, Place
from headwater.errors import ConfigError

__all__ = ["DuckLake", "Iceberg", "Lake"]


class DuckLake(Model):
    """A DuckLake: its catalog database, and where its files are."""

    catalog: CatalogUrl = Field(alias="ducklake", repr=False)
    data_path: Place

    @classmethod
    def found(cls, catalog: str, data_path: str) -> DuckLake:
        """A lake that a table names, not the file; ConfigError if it is none, or is relative to a folder."""
        local = "://" not in data_path and not data_path.startswith("/")
        if local or (catalog.startswith("sqlite:///") and not catalog.startswith("sqlite:////")):
            raise ConfigError(
                "a lake in a table of destinations has a relative path, and there is no folder that it is relative to",
                hint="write sqlite:////folder/file for ducklake, /folder or s3://bucket/prefix for data_path",
            )
        try:
            return cls(ducklake=catalog, data_path=data_path)
        except ValidationError as error:
            found = [f"{each['loc'][0]}: {each['ctx']['error']}" for each in error.errors() if "ctx" in each]
            raise ConfigError(
                f"a lake in a table of destinations cannot be used: {'; '.join(found)}",
                hint="correct the row of the table",
            ) from None  # not chained: it quotes the URL, with its password


class Iceberg(Model):
    """An Iceberg catalog, by its PyIceberg properties."""

    properties: IcebergProperties = Field(alias="iceberg", repr=False)


def _kind(value: Any) -> str:
    iceberg = "iceberg" in value if isinstance(value, dict) else isinstance(value, Iceberg)
    return "Iceberg" if iceberg else "DuckLake"


Lake = Annotated[
    Annotated[DuckLake, Tag("DuckLake")] | Annotated[Iceberg, Tag("Iceberg")],
    Discriminator(_kind),
]
