"""The groups of the file: tables that are mirrored together."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BeforeValidator,
    ConfigDict,
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
from headwater.config.globs import WITH_WILDCARD, WITHOUT_WILDCARD, has_wildcard
from headwater.config.values import (
    ColumnNames,
    Count,
    Duration,
    LakeSchema,
    LakeTypeName,
    Name,
    PartitionTexts,
    Rate,
    SourceTable,
    SourceTables,
    TablePatterns,
)

__all__ = ["Copy", "Flush", "Group", "Inline", "MatchedTable", "Pattern", "Table"]


class _Treatment(Model):
    """What one table may have as well as all tables of a pattern."""

    mode: Literal["mirror", "history"] = "mirror"
    schema_changes: Literal["follow", "stop"] = "follow"
    append_only: bool = False  # its rows are never updated nor deleted, so it needs no replica identity
    replaced: Literal["copy", "stop"] | None = None
    copied: bool = Field(default=True, alias="copy")  # else a mirror begins empty, with what changes from then on


class Table(_Treatment):
    """A source table and where it lands."""

    table: SourceTable
    renamed: SourceTable | None = Field(default=None, alias="as")
    partition_by: PartitionTexts = ()
    columns: ColumnNames | None = None
    exclude: ColumnNames = ()
    types: dict[str, LakeTypeName] = Field(default={})

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
        return _or_its_name(core, handler, WITHOUT_WILDCARD)

    @property
    def target(self) -> TableName:
        """The table's name in the lake."""
        return self.renamed or self.table

    @property
    def when_replaced(self) -> Literal["copy", "stop"]:
        """What to do about another table under its name: a history is not given up unless the file says so."""
        return self.replaced or ("stop" if self.mode == "history" else "copy")


class MatchedTable(Table):
    """A table of the source that a pattern has brought."""

    pattern: str  # as the file writes it


class Pattern(_Treatment):
    """All tables whose names match, also those that are created later, each treated in the same way."""

    table: SourceTables
    renamed: LakeSchema | None = Field(default=None, alias="as")
    exclude: TablePatterns = ()

    @model_validator(mode="before")
    @classmethod
    def _no_columns(cls, tree: Any) -> Any:
        for key in ("columns", "types", "partition_by"):
            if key in tree:
                raise ValueError(
                    f"`{key}` names columns of one table, and {tree['table']!r} is a pattern"
                    " (list that table on its own as well: it is then treated as its own entry says)"
                )
        return tree

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return _or_its_name(core, handler, WITH_WILDCARD)

    def matches(self, table: TableName) -> bool:
        return self.table.matches(table) and not any(each.matches(table) for each in self.exclude)

    def brings(self, target: TableName) -> bool:
        """Whether a table that it matches would land there."""
        if self.renamed is None:
            return self.matches(target)
        return target.schema == self.renamed and self.table.name.fullmatch(target.name) is not None

    def of(self, table: TableName) -> MatchedTable:
        """The entry of a table that it matches."""
        treatment = {each.alias or name: getattr(self, name) for name, each in _Treatment.model_fields.items()}
        renamed = None if self.renamed is None else TableName(self.renamed, table.name)
        return MatchedTable.model_validate({"table": table, "as": renamed, "pattern": self.table.text, **treatment})


def _or_its_name(core: CoreSchema, handler: GetJsonSchemaHandler, regex: str) -> JsonSchemaValue:
    return {"anyOf": [{"type": "string", "pattern": regex}, handler.resolve_ref_schema(handler(core))]}


def _entry(value: object) -> object:
    return {"table": value} if isinstance(value, str) else value


def _kind_of_entry(value: Any) -> str:
    name = value.get("table") if isinstance(value, dict) else None
    many = isinstance(value, Pattern) or (isinstance(name, str) and has_wildcard(name))
    return "Pattern" if many else "Table"


Entry = Annotated[
    Annotated[Table, Tag("Table")] | Annotated[Pattern, Tag("Pattern")],
    Discriminator(_kind_of_entry),
    BeforeValidator(_entry),
]


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
    entries: tuple[Entry, ...] = Field(alias="tables")

    @property
    def tables(self) -> tuple[Table, ...]:
        """The tables that are listed, and those that patterns have brought so far: see `expanded`."""
        return tuple(each for each in self.entries if isinstance(each, Table))

    @property
    def patterns(self) -> tuple[Pattern, ...]:
        return tuple(each for each in self.entries if isinstance(each, Pattern))

    def matched(self, table: TableName) -> MatchedTable | None:
        """The entry of a table that is not listed: the first pattern that matches has it."""
        return next((each.of(table) for each in self.patterns if each.matches(table)), None)
