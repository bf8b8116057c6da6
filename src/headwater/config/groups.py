"""The groups of the file: tables that are mirrored together."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, ConfigDict, Field, GetJsonSchemaHandler, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from headwater.change import TableName
from headwater.config.base import Model, on_or_off, or_off
from headwater.config.values import ColumnNames, Count, Duration, LakeTypeName, Name, PartitionTexts, Rate, SourceTable

__all__ = ["Copy", "Flush", "Group", "Inline", "Table"]


class Table(Model):
    """A source table and where it lands."""

    table: SourceTable
    renamed: SourceTable | None = Field(default=None, alias="as")
    partition_by: PartitionTexts = ()
    mode: Literal["mirror", "history"] = "mirror"
    columns: ColumnNames | None = None
    exclude: ColumnNames = ()
    types: dict[str, LakeTypeName] = Field(default={})
    schema_changes: Literal["follow", "stop"] = "follow"
    append_only: bool = False  # its rows are never updated nor deleted, so it needs no replica identity
    replaced: Literal["copy", "stop"] | None = None
    copied: bool = Field(default=True, alias="copy")  # else its mirror begins empty, with what changes from then on

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if self.columns is not None and self.exclude:
            raise ValueError("name either the `columns` to mirror or those to `exclude`, not both")
        lost = sorted(name for name in self.types if name in self.exclude or name not in (self.columns or self.types))
        if lost:
            raise ValueError(f"`types` names {lost[0]!r}, a column that is not mirrored")
        return self

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"anyOf": [{"type": "string"}, handler.resolve_ref_schema(handler(core))]}

    @property
    def target(self) -> TableName:
        """The table's name in the lake."""
        return self.renamed or self.table

    @property
    def when_replaced(self) -> Literal["copy", "stop"]:
        """What to do about another table under its name: a history is not given up unless the file says so."""
        return self.replaced or ("stop" if self.mode == "history" else "copy")


def _table(value: object) -> object:
    return {"table": value} if isinstance(value, str) else value


class Inline(Model):
    """Small deliveries are rows in the lake's catalog, until a table has so many there, or the oldest is so old."""

    rows: Count = 10_000
    age: Duration = Field(default=timedelta(minutes=10), json_schema_extra={"default": "10m"})

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return or_off(core, handler)


class Flush(Model):
    """A delivery starts when `interval` or `rows` is reached; `inline` is what becomes of a small one."""

    interval: Duration = Field(default=timedelta(seconds=2), json_schema_extra={"default": "2s"})
    rows: Count = 500_000
    inline: Annotated[Inline | None, BeforeValidator(on_or_off)] = Field(
        default=Inline(), json_schema_extra={"default": True}
    )


class Copy(Model):
    """How much a copy of tables may use: so many tasks of Spark at a time, and so many bytes a second of the source."""

    tasks: Count | None = None  # None: all cores as long as nothing is delivered, then all but one
    rate: Rate | None = None  # None: as fast as it goes


class Group(Model):
    """Tables that are delivered together: one slot, one snapshot of the lake per delivery."""

    model_config = ConfigDict(json_schema_extra={"required": ["tables"]})  # the only lake is the default

    lake: Name
    flush: Flush = Flush()
    copying: Copy = Field(default=Copy(), alias="copy")
    tables: tuple[Annotated[Table, BeforeValidator(_table)], ...]
