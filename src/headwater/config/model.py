"""`headwater.yaml`, parsed once at the edge into a frozen tree: strict, resolved, every problem reported at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    GetJsonSchemaHandler,
    SecretStr,
    Tag,
    ValidationError,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from headwater.change import TableName
from headwater.config.file import SECRET_NAME, Document, explain, read
from headwater.config.values import (
    CatalogUrl,
    ColumnNames,
    Count,
    Duration,
    DurationOrOff,
    GraceOrOff,
    GroupName,
    IcebergProperties,
    LakeTypeName,
    Name,
    PartitionTexts,
    Place,
    Port,
    PostgresUrl,
    SourceTable,
    Switch,
    Text,
    iceberg_secrets,
    url_secrets,
)
from headwater.errors import ConfigError

__all__ = [
    "DEFAULT_FILE",
    "Config",
    "DuckLake",
    "Flush",
    "Group",
    "Iceberg",
    "Maintenance",
    "Route",
    "RouteDestination",
    "RouteSource",
    "Server",
    "Spark",
    "Table",
    "unsupported",
]

DEFAULT_FILE = Path("headwater.yaml")


def _lake_kind(value: Any) -> str:
    iceberg = "iceberg" in value if isinstance(value, dict) else isinstance(value, Iceberg)
    return "Iceberg" if iceberg else "DuckLake"


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class DuckLake(_Model):
    """A DuckLake: its catalog database, and where its files are."""

    catalog: CatalogUrl = Field(alias="ducklake", repr=False)
    data_path: Place


class Iceberg(_Model):
    """An Iceberg catalog, by its PyIceberg properties."""

    properties: IcebergProperties = Field(alias="iceberg", repr=False)


Lake = Annotated[
    Annotated[DuckLake, Tag("DuckLake")] | Annotated[Iceberg, Tag("Iceberg")],
    Discriminator(_lake_kind),
]


class Table(_Model):
    """A source table and where it lands."""

    table: SourceTable
    renamed: SourceTable | None = Field(default=None, alias="as")
    partition_by: PartitionTexts = ()
    mode: Literal["mirror", "history"] = "mirror"
    columns: ColumnNames | None = None
    exclude: ColumnNames = ()
    types: dict[str, LakeTypeName] = {}
    schema_changes: Literal["follow", "stop"] = "follow"
    append_only: bool = False  # its rows are never updated nor deleted, so it needs no replica identity
    replaced: Literal["copy", "stop"] | None = None

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


def _with_default_lake(tree: dict[str, Any]) -> dict[str, Any]:
    """When there is one lake, a group need not name it."""
    lakes, groups = tree.get("lakes"), tree.get("groups")
    if not isinstance(lakes, dict) or len(lakes) != 1 or not isinstance(groups, dict):
        return tree
    filled = {n: {"lake": next(iter(lakes))} | g if isinstance(g, dict) else g for n, g in groups.items()}
    return tree | {"groups": filled}


def _table(value: object) -> object:
    return {"table": value} if isinstance(value, str) else value


class Flush(_Model):
    """A delivery starts when either is reached."""

    interval: Duration = Field(default=timedelta(seconds=2), json_schema_extra={"default": "2s"})
    rows: Count = 500_000


class Group(_Model):
    """Tables that are delivered together: one slot, one snapshot of the lake per delivery."""

    model_config = ConfigDict(json_schema_extra={"required": ["tables"]})  # the only lake is the default

    lake: Name
    flush: Flush = Flush()
    tables: tuple[Annotated[Table, BeforeValidator(_table)], ...]


class RouteSource(_Model):
    lake: Name | None = None
    group: GroupName | None = None
    table: SourceTable

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.lake is None) == (self.group is None):
            raise ValueError("name either a `lake` or a `group`")
        return self


class RouteDestination(_Model):
    value: Text
    lake: Name
    renamed: SourceTable | None = Field(default=None, alias="as")


class Route(_Model):
    """A lake table's changes, carried on to other lakes by the value of one column."""

    source: RouteSource = Field(alias="from")
    by: str
    keys: tuple[str, ...] = ()
    seed: Literal["scan", "latest", "earliest"] = "scan"
    to: tuple[RouteDestination, ...]


class Maintenance(_Model):
    """Of the lakes: what `maintain` does, and `run` by itself if the file has it."""

    merge: Switch = True
    expire: DurationOrOff = Field(default=None, json_schema_extra={"default": False})
    orphans: GraceOrOff = Field(default=timedelta(days=1), json_schema_extra={"default": "1d"})


class Spark(_Model):
    master: str = "local[*]"
    conf: dict[str, Text] = Field(default={}, repr=False)


class Server(_Model):
    host: str = "127.0.0.1"
    port: Port = 8080
    token: SecretStr = SecretStr("")


class Config(_Model):
    """The whole file. Paths are absolute, names are checked against each other."""

    source: PostgresUrl = Field(repr=False)
    state: Annotated[PostgresUrl | None, BeforeValidator(lambda url: url or None)] = Field(None, repr=False)
    log: Place
    lakes: dict[Name, Lake]
    groups: dict[GroupName, Group] = {}
    routes: dict[Name, Route] = {}
    maintenance: Maintenance | None = None  # None: `run` does none
    spark: Spark = Spark()
    server: Server | None = None

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
            problems.extend(_contradictions(document, _usable_groups(document)))
        else:
            problems.extend(_contradictions(document, config.groups))
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
        for url in (self.source, self.state, *(lake.catalog for lake in self.ducklakes.values())):
            if url and url.startswith("postgres"):
                yield from url_secrets(url)
        if self.server:
            yield self.server.token.get_secret_value()
        icebergs = [lake.properties for lake in self.lakes.values() if isinstance(lake, Iceberg)]
        for properties in (self.spark.conf, *icebergs):
            yield from (value for name, value in properties.items() if SECRET_NAME.search(name))
        for properties in icebergs:
            yield from iceberg_secrets(properties.get("uri", ""))


def unsupported(config: Config) -> list[ConfigError]:
    """What the file asks for that this version cannot do yet."""
    return [
        ConfigError(f"{where}: {what} is not available in this version", hint=f"remove it from the config: {where}")
        for where, what in _not_built(config)
    ]


def _not_built(config: Config) -> Iterator[tuple[str, str]]:
    for name, group in config.groups.items():
        if not group.tables:
            yield f"groups.{name}.tables", "a group without tables"
    yield from ((f"routes.{name}", "a route") for name in config.routes)


def _usable_groups(document: Document) -> dict[str, Group]:
    """The well-formed groups: their contradictions are reported even when other groups are malformed."""
    found: dict[str, Group] = {}
    groups = _with_default_lake(document.tree).get("groups")
    for name, entry in groups.items() if isinstance(groups, dict) else ():
        try:
            found[str(name)] = Group.model_validate(entry)
        except ValidationError:
            continue  # already reported
    return found


def _contradictions(document: Document, groups: Mapping[str, Group]) -> Iterator[ConfigError]:
    named: dict[str, list[tuple[str, ...]]] = {
        "lake": [("groups", "*", "lake"), ("routes", "*", "from", "lake"), ("routes", "*", "to", "*", "lake")],
        "group": [("routes", "*", "from", "group")],
    }
    for kind, patterns in named.items():
        known = document.tree.get(f"{kind}s")
        for where, name in (each for pattern in patterns for each in document.find(*pattern)):
            if isinstance(known, dict) and isinstance(name, str) and name not in known:
                yield document.problem(where, f"no {kind} {name!r}", f"known {kind}s: {', '.join(map(str, known))}")
    catalogs: dict[str, str] = {}
    for where, catalog in document.find("lakes", "*", "ducklake"):
        if (first := catalogs.setdefault(str(catalog), where)) != where:
            yield document.problem(where, f"the same lake as {first}", "use one name for one lake")
    yield from _doubles(document, groups)


def _doubles(document: Document, groups: Mapping[str, Group]) -> Iterator[ConfigError]:
    sources: dict[tuple[str, TableName], str] = {}
    targets: dict[tuple[str, str, str], str] = {}
    for name, group in groups.items():
        for index, table in enumerate(group.tables):
            where = f"groups.{name}.tables[{index}]"
            first = sources.setdefault((name, table.table), where)
            if first != where:
                yield document.problem(
                    where, f"{str(table.table)!r} is already listed at {first}", "remove one of them"
                )
                continue
            # To a lake, names that differ in case only are the same.
            schema, target = table.target
            first = targets.setdefault((group.lake, schema.lower(), target.lower()), where)
            if first != where:
                message = f"{str(table.table)!r} lands in {str(table.target)!r} of lake {group.lake!r}, as {first} does"
                yield document.problem(where, message, "give it another name in the lake with `as:`")
