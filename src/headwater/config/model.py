"""`headwater.yaml`, parsed once at the edge into a frozen tree: strict, resolved, every problem reported at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import (
    BeforeValidator,
    Field,
    TypeAdapter,
    ValidationError,
    model_validator,
)

from headwater.config.base import Model, on_or_off
from headwater.config.contradictions import Parts, contradictions
from headwater.config.file import SECRET_NAME, Document, explain, read
from headwater.config.groups import Group
from headwater.config.lakes import DuckLake, Iceberg, Lake
from headwater.config.log import StagedLog, staged_log
from headwater.config.maintenance import Maintenance
from headwater.config.routes import FromTemplate, Instance, Route
from headwater.config.server import Server
from headwater.config.values import (
    GroupName,
    Name,
    PostgresUrl,
    Text,
    iceberg_secrets,
    url_secrets,
)
from headwater.errors import ConfigError

__all__ = ["DEFAULT_FILE", "Config", "Spark"]

DEFAULT_FILE = Path("headwater.yaml")
_T = TypeVar("_T")


def _with_default_lake(tree: dict[str, Any]) -> dict[str, Any]:
    """When there is one lake, a group need not name it."""
    lakes, groups = tree.get("lakes"), tree.get("groups")
    if not isinstance(lakes, dict) or len(lakes) != 1 or not isinstance(groups, dict):
        return tree
    filled = {n: {"lake": next(iter(lakes))} | g if isinstance(g, dict) else g for n, g in groups.items()}
    return tree | {"groups": filled}


class Spark(Model):
    master: str = "local[*]"
    conf: dict[str, Text] = Field(default={}, repr=False)


class Config(Model):
    """The whole file. Paths are absolute, names are checked against each other."""

    source: PostgresUrl = Field(repr=False)
    state: Annotated[PostgresUrl | None, BeforeValidator(lambda url: url or None)] = Field(None, repr=False)
    log: Annotated[StagedLog, BeforeValidator(staged_log)]
    lakes: dict[Name, Lake]
    groups: dict[GroupName, Group] = Field(default={})
    routes: dict[Name, Route] = Field(default={})
    instance: Instance | None = None  # None: this process has every destination
    maintenance: Annotated[Maintenance | None, BeforeValidator(on_or_off)] = Maintenance()  # None: `run` does none
    spark: Spark = Spark()
    server: Annotated[Server | None, BeforeValidator(on_or_off)] = None  # None: nothing is served

    @model_validator(mode="before")
    @classmethod
    def _default_lake(cls, tree: Any) -> Any:
        return _with_default_lake(tree)

    @classmethod
    def load(cls, path: Path, env: Mapping[str, str]) -> Config:
        """Read and check the file; an ExceptionGroup of ConfigErrors has every problem there is."""
        problems: list[ConfigError] = []
        try:
            document = read(path, env)
        except ConfigError as error:
            raise ExceptionGroup(f"{path} cannot be used", [error]) from None
        problems.extend(document.unset.values())
        context = {"folder": document.path.resolve().parent}
        try:
            config = cls.model_validate(document.tree, context=context)
        except ValidationError as error:
            problems.extend(explain(error, document, cls.model_json_schema()))
            problems.extend(contradictions(document, _usable(document, context)))
        else:
            problems.extend(contradictions(document, Parts(config.lakes, config.groups, config.routes)))
        if problems:
            raise ExceptionGroup(f"{path} cannot be used", problems) from None
        return config

    @property
    def state_url(self) -> str:
        """Where the schema `headwater` lives."""
        return self.state or self.source

    @property
    def ducklakes(self) -> dict[str, DuckLake]:
        return {name: lake for name, lake in self.lakes.items() if isinstance(lake, DuckLake)}

    def secrets(self) -> frozenset[str]:
        """Every value that must never be shown."""
        return frozenset(filter(None, self._secrets()))

    def _secrets(self) -> Iterator[str]:
        templates = [route.to.lake for route in self.routes.values() if isinstance(route.to, FromTemplate)]
        lakes = [*self.lakes.values(), *templates]
        for url in (self.source, self.state, *(lake.catalog for lake in lakes if isinstance(lake, DuckLake))):
            if url and url.startswith("postgres"):
                yield from url_secrets(url)
        if self.server:
            yield self.server.token.get_secret_value()
        icebergs = [lake.properties for lake in lakes if isinstance(lake, Iceberg)]
        for properties in (self.spark.conf, *icebergs):
            yield from (value for name, value in properties.items() if SECRET_NAME.search(name))
        for properties in icebergs:
            yield from iceberg_secrets(properties.get("uri", ""))


def _usable(document: Document, context: Mapping[str, Any]) -> Parts:
    """The well-formed parts of a file that has malformed ones."""
    tree = _with_default_lake(document.tree)
    lake: TypeAdapter[DuckLake | Iceberg] = TypeAdapter(Lake)
    return Parts(
        _well_formed(tree.get("lakes"), lake, context),
        _well_formed(tree.get("groups"), TypeAdapter(Group), context),
        _well_formed(tree.get("routes"), TypeAdapter(Route), context),
    )


def _well_formed(entries: object, kind: TypeAdapter[_T], context: Mapping[str, Any]) -> dict[str, _T]:
    found: dict[str, _T] = {}
    for name, entry in entries.items() if isinstance(entries, dict) else ():
        try:
            found[str(name)] = kind.validate_python(entry, context=dict(context))
        except ValidationError:
            continue  # already reported
    return found
