"""The routes of the file: a table's changes, carried on to other lakes by the value of one column."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Annotated, Any, Literal, Self
from urllib.parse import parse_qs, urlsplit

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    GetJsonSchemaHandler,
    Tag,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from headwater.change import TableName
from headwater.config.base import Model, on_or_off, or_off
from headwater.config.file import SECRET_NAME
from headwater.config.lakes import DuckLake, Iceberg, Lake
from headwater.config.values import (
    Bytes,
    ColumnNames,
    Condition,
    Count,
    Duration,
    GroupName,
    Index,
    KeyNames,
    Name,
    RoutingValue,
    RoutingValues,
    SourceTable,
    Written,
    is_rest,
)
from headwater.lake.template import LONGEST, PLACEHOLDER

__all__ = [
    "DestinationTable",
    "FromTable",
    "FromTemplate",
    "HashInstance",
    "Instance",
    "ListInstance",
    "Route",
    "RouteBatch",
    "RouteDefault",
    "RouteDestination",
    "RouteInline",
    "RouteSource",
]

_LONGEST_NAME = 63  # bytes of a name in PostgreSQL, which cuts the rest off
_OTHER_PLACEHOLDER = re.compile(r"\{(?!value\})\w*\}")


class RouteSource(Model):
    """A table of a lake, or of a group: then its changes come from the log."""

    lake: Name | None = None
    group: GroupName | None = None
    table: SourceTable

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.lake is None) == (self.group is None):
            raise ValueError("name either a `lake` or a `group`")
        return self


class RouteDestination(Model):
    """Where the rows with one value go."""

    value: RoutingValue
    lake: Name
    renamed: SourceTable | None = Field(default=None, alias="as")


class RouteDefault(Model):
    """Where the rows go whose value has no destination, or is NULL."""

    lake: Name
    renamed: SourceTable | None = Field(default=None, alias="as")


class DestinationTable(Model):
    """A table that lists destinations, in the source's PostgreSQL or in a lake."""

    lake: Name | None = None  # None: in the source
    table: SourceTable

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"anyOf": [{"type": "string"}, handler.resolve_ref_schema(handler(core))]}


def _destination_table(value: object) -> object:
    return {"table": value} if isinstance(value, str) else value


class FromTable(Model):
    """Destinations that a table lists, which is read again and again."""

    table: Annotated[DestinationTable, BeforeValidator(_destination_table)] = Field(alias="from_table")
    every: Duration = Field(default=timedelta(seconds=30), json_schema_extra={"default": "30s"})


class FromTemplate(Model):
    """A destination for each allowed value, made when the value is first seen. `{value}` stands for the value."""

    lake: Lake = Field(alias="lake_template")
    renamed: SourceTable | None = Field(default=None, alias="as")
    allow: RoutingValues
    limit: Count = 1000

    @model_validator(mode="after")
    def _one_place_for_each_value(self) -> Self:
        if isinstance(self.lake, DuckLake):
            _check_lengths(self.lake.catalog)
        texts = [*_catalog(self.lake), *_place(self.lake), *(self.renamed or ())]
        if any(_OTHER_PLACEHOLDER.search(each) for each in texts):
            raise ValueError(f"there is no other placeholder than {PLACEHOLDER}")
        own_lake, own_place, own_table = (
            any(PLACEHOLDER in each for each in part)
            for part in (_catalog(self.lake), _place(self.lake), self.renamed or ())
        )
        if not own_lake and not own_table:
            raise ValueError(f"all values would share one table: put {PLACEHOLDER} into the catalog, or into `as:`")
        if own_lake != own_place and any(_place(self.lake)):
            name = "data_path" if isinstance(self.lake, DuckLake) else "warehouse"
            raise ValueError(
                f"`{name}` must have {PLACEHOLDER}, as the catalog has: each lake keeps its files in its own place"
                if own_lake
                else f"`{name}` has {PLACEHOLDER}, and the catalog has not: one lake has one place for its files"
            )
        return self


def _catalog(lake: DuckLake | Iceberg) -> list[str]:
    """What says which catalog it is; a REST catalog's warehouse is one of its catalogs."""
    if isinstance(lake, DuckLake):
        return [lake.catalog]
    named = {name: text for name, text in lake.properties.items() if not SECRET_NAME.search(name)}
    return [text for name, text in named.items() if name != "warehouse" or is_rest(lake.properties)]


def _place(lake: DuckLake | Iceberg) -> list[str]:
    """Where its files are, if that is not the catalog's business."""
    if isinstance(lake, DuckLake):
        return [lake.data_path]
    return [] if is_rest(lake.properties) else [lake.properties.get("warehouse", "")]


def _check_lengths(catalog: str) -> None:
    if not catalog.startswith("postgres"):
        return
    parts = urlsplit(catalog)
    names = {"schema": parse_qs(parts.query).get("schema", [""])[0], "database": parts.path.removeprefix("/")}
    for kind, name in names.items():
        longest = len(name.replace(PLACEHOLDER, "x" * LONGEST).encode())
        if PLACEHOLDER in name and longest > _LONGEST_NAME:
            raise ValueError(
                f"the {kind}'s name has up to {longest} bytes with a value in it, of which PostgreSQL keeps"
                f" {_LONGEST_NAME}: shorten what is around {PLACEHOLDER} by {longest - _LONGEST_NAME}"
            )


def _some(destinations: tuple[RouteDestination, ...]) -> tuple[RouteDestination, ...]:
    if not destinations:
        raise ValueError("lists no destination")
    return destinations


def _kind_of_destinations(value: Any) -> str | None:
    if isinstance(value, list | tuple):
        return "array"
    keys = {"from_table": "FromTable", "lake_template": "FromTemplate"}
    found = [kind for key, kind in keys.items() if isinstance(value, dict) and key in value]
    return (
        found[0] if len(found) == 1 else type(value).__name__ if isinstance(value, FromTable | FromTemplate) else None
    )


Destinations = Annotated[
    Annotated[tuple[RouteDestination, ...], AfterValidator(_some), Tag("array")]
    | Annotated[FromTable, Tag("FromTable")]
    | Annotated[FromTemplate, Tag("FromTemplate")],
    Discriminator(
        _kind_of_destinations,
        custom_error_type="destinations",
        custom_error_message="expected a list of destinations, or either `from_table` or `lake_template`",
    ),
]


class RouteBatch(Model):
    """How much of a backlog is read at once; at least one snapshot is."""

    rows: Count = 500_000
    bytes: Bytes = Field(default=256_000_000, json_schema_extra={"default": "256MB"})


class RouteInline(Model):
    """Small shares are rows in the catalogs of their destinations, until one has so many there."""

    rows: Count = 10_000

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return or_off(core, handler)


class Route(Model):
    """A table's changes, carried on to other lakes by the value of one column."""

    source: RouteSource = Field(alias="from")
    by: Written
    keys: KeyNames = ()  # none: the source's key
    seed: Literal["scan", "latest", "earliest"] = "scan"
    mode: Literal["mirror", "append"] = "mirror"
    columns: ColumnNames | None = None
    exclude: ColumnNames = ()
    where: Condition | None = None
    default: RouteDefault | None = None
    poll: Duration = Field(default=timedelta(seconds=2), json_schema_extra={"default": "2s"})
    batch: RouteBatch = RouteBatch()
    inline: Annotated[RouteInline | None, BeforeValidator(on_or_off)] = Field(
        default=RouteInline(), json_schema_extra={"default": True}
    )
    to: Destinations

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if self.columns is not None and self.exclude:
            raise ValueError("name either the `columns` to carry or those to `exclude`, not both")
        if self.mode == "append" and self.keys:
            raise ValueError("`mode: append` only adds rows, and has no use for `keys` (leave them out)")
        lost = [each for each in self.keys if each in self.exclude or each not in (self.columns or self.keys)]
        if lost:
            raise ValueError(f"`keys` names {lost[0]!r}, a column that is not carried (a destination needs its key)")
        return self

    def target(self, renamed: TableName | None) -> TableName:
        """The table's name in a destination that has this `as:`, or none."""
        return renamed or self.source.table

    def listed(self) -> Iterator[tuple[str, RouteDestination | RouteDefault]]:
        """The destinations that the file itself names, each with its place in the route."""
        if isinstance(self.to, tuple):
            yield from ((f"to[{index}]", each) for index, each in enumerate(self.to))
        if self.default is not None:
            yield "default", self.default


class HashInstance(Model):
    """One of `total` processes: it has the destinations whose values hash to its ordinal."""

    partition: Literal["hash"]
    total: Count
    ordinal: Index

    @model_validator(mode="after")
    def _one_of_them(self) -> Self:
        if self.ordinal >= self.total:
            raise ValueError(f"`ordinal` is {self.ordinal} of {self.total}: it counts from 0 to {self.total - 1}")
        return self


class ListInstance(Model):
    """A process that has the destinations of these values."""

    partition: Literal["list"]
    values: RoutingValues


def _kind_of_instance(value: Any) -> str | None:
    kinds = {"hash": "HashInstance", "list": "ListInstance"}
    partition = value.get("partition") if isinstance(value, dict) else getattr(value, "partition", None)
    return kinds.get(partition) if isinstance(partition, str) else None


Instance = Annotated[
    Annotated[HashInstance, Tag("HashInstance")] | Annotated[ListInstance, Tag("ListInstance")],
    Discriminator(
        _kind_of_instance,
        custom_error_type="instance",
        custom_error_message="expected `partition: hash`, `total` and `ordinal`, or `partition: list` and `values`",
    ),
]
