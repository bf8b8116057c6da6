"""The single values of a config: how each is written in the file, and what it becomes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit, urlunsplit

import psycopg
from psycopg.conninfo import conninfo_to_dict
from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainSerializer,
    PlainValidator,
    StringConstraints,
    ValidationInfo,
    WithJsonSchema,
)

from headwater.change import TableName
from headwater.config.file import shown
from headwater.config.globs import WITH_WILDCARD, WITHOUT_WILDCARD, TablePattern, has_wildcard, lake_schema
from headwater.lake.partitioning import PartitionBy

__all__ = [
    "Bytes",
    "CatalogUrl",
    "ColumnNames",
    "Condition",
    "Count",
    "Duration",
    "DurationOrOff",
    "GraceOrOff",
    "GroupName",
    "IcebergProperties",
    "Index",
    "KeyNames",
    "LakeSchema",
    "LakeTypeName",
    "Name",
    "PartitionTexts",
    "Place",
    "Port",
    "PostgresUrl",
    "Rate",
    "RoutingValue",
    "RoutingValues",
    "SourceTable",
    "SourceTables",
    "Switch",
    "TablePatterns",
    "Text",
    "Written",
    "duration",
    "duration_or_off",
    "iceberg_secrets",
    "is_rest",
    "place",
    "postgres_url",
    "url_secrets",
    "without_schema",
]

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)")
_BYTES = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]i?)?b", re.IGNORECASE)
_LAKE_TYPE = re.compile(r"(varchar|double|json|decimal\(\d+(,\d+)?\))(\[\])*")
_CATALOGS = ("sql", "rest", "glue", "hive", "dynamodb", "bigquery")
_STORES = ("s3", "s3a", "s3n")
SHORTEST_GRACE = timedelta(minutes=10)
_UNITS = {"ms": "milliseconds", "s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def duration(value: object) -> timedelta:
    """A length of time as people write it; ValueError if it is none."""
    if isinstance(value, timedelta):
        return value
    match = _DURATION.fullmatch(str(value).strip())
    if match is None:
        raise ValueError(f"not a duration: {shown(value)} (write 500ms, 2s, 1m or 7d)")
    length = timedelta(**{_UNITS[match[2]]: float(match[1])})
    if not length:
        raise ValueError(f"a duration must be longer than 0: {shown(value)}")
    return length


def _bytes(value: object) -> int:
    """A size as people write it: MB are millions, MiB are powers of two."""
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    match = _BYTES.fullmatch(str(value).strip())
    if match is None:
        raise ValueError(f"not a size: {shown(value)} (write 256MB, 1GB or 512KiB)")
    unit = (match[2] or "").lower()
    size = int(float(match[1]) * (1024 if unit.endswith("i") else 1000) ** " kmgt".index(unit[:1] or " "))
    if not size:
        raise ValueError(f"a size must be greater than 0: {shown(value)}")
    return size


def _rate(value: object) -> int:
    """Bytes a second, as people write it."""
    try:
        return _bytes(value.strip().removesuffix("/s") if isinstance(value, str) else value)
    except ValueError:
        raise ValueError(f"not a rate: {shown(value)} (write 50MB/s)") from None


def _switch(value: object) -> object:
    """YAML reads on and off as true and false; from a variable they come as text."""
    return {"on": True, "off": False}.get(value, value) if isinstance(value, str) else value


def duration_or_off(value: object) -> timedelta | None:
    """A length of time, or None for `off`; ValueError if it is neither."""
    if value is None or _switch(value) is False:
        return None
    if isinstance(value, bool):
        raise ValueError("expected off, or a duration like 7d")
    return duration(value)


def _grace(value: timedelta | None) -> timedelta | None:
    if value is not None and value < SHORTEST_GRACE:
        raise ValueError("shorter than 10m: files that a delivery is about to commit would be taken for orphans")
    return value


def postgres_url(url: str) -> str:
    """The URL as it is; ValueError if libpq would not take it, or would take it for another one."""
    # Nothing of a URL that is not understood is shown: any part of it may be a password.
    if not url.startswith(("postgresql://", "postgres://")):
        raise ValueError("not a PostgreSQL URL (write postgresql://user@host/database)")
    if not _well_formed(url):
        raise ValueError(
            "not a libpq URL (write postgresql://user@host:5432/database; in a user or password, percent-encode all but"
            " letters and digits, or let ${NAME} fill it in)"
        )
    return url


def _well_formed(url: str) -> bool:
    """Whether libpq and Python read it alike: an odd character of a password would move what follows elsewhere."""
    rest = url.partition("://")[2]
    if re.search(r"[\s\x00-\x1f\x7f#]", url) or "@" in rest.partition("@")[2] or "@" in rest[_authority(rest) :]:
        return False
    try:
        urlsplit(url)
        parts = conninfo_to_dict(url)
    except (ValueError, psycopg.Error):
        return False
    return re.fullmatch(r"[0-9,]*", str(parts.get("port", ""))) is not None


def _authority(rest: str) -> int:
    """Where user, password, host and port end."""
    found = re.search("[/?]", rest)
    return found.start() if found else len(rest)


def _catalog_url(url: str, info: ValidationInfo) -> str:
    if url.startswith("sqlite:///"):
        # What the file writes may be percent-encoded, as in any URL; the folder it is relative to is not yet.
        return f"sqlite:///{quote(str(_folder(info))) / Path(_named(url, url.removeprefix('sqlite:///')))}"
    if url.startswith(("postgresql://", "postgres://")):
        try:
            known = without_schema(url)
        except ValueError:
            known = url  # not well formed
        postgres_url(known)
        return url
    raise ValueError("not a DuckLake catalog (write sqlite:///file or postgresql://host/database?schema=name)")


def place(text: str, info: ValidationInfo) -> str:
    """A folder made absolute, or an s3:// URL as it is."""
    scheme, separator, rest = text.partition("://")
    if not separator:
        return str(_folder(info) / Path(_named(text, text)).expanduser())
    if scheme != "s3" or not rest.strip("/"):
        raise ValueError(f"neither a folder nor an s3:// place: {shown(text)} (write ./folder or s3://bucket/prefix)")
    return text.rstrip("/")


def _iceberg(properties: dict[str, Any], info: ValidationInfo) -> dict[str, str]:
    plain = {name: _text(value) for name, value in properties.items()}
    if "type" in plain and plain["type"].lower() not in _CATALOGS:
        raise ValueError(f"unknown catalog type {shown(plain['type'])} (one of {', '.join(_CATALOGS)})")
    if uri := plain.get("uri"):
        plain["uri"] = _iceberg_uri(uri, info)
    if plain.get("type") == "sql" and not plain.get("warehouse"):
        raise ValueError(
            "a SQL catalog needs a `warehouse`, where its tables' files are (a folder or s3://bucket/prefix)"
        )
    if "warehouse" in plain and not is_rest(plain):
        plain["warehouse"] = _warehouse(plain["warehouse"], info)
    return plain


def is_rest(properties: Mapping[str, str]) -> bool:
    """A REST catalog has its own name for a warehouse, which need not be a path."""
    kind, uri = properties.get("type", "").lower(), properties.get("uri", "")
    return kind == "rest" or uri.startswith(("http://", "https://"))


def _iceberg_uri(uri: str, info: ValidationInfo) -> str:
    if uri.startswith("sqlite:///"):
        path = str(_folder(info) / Path(_named(uri, uri.removeprefix("sqlite:///"))).expanduser())
        if "?" in path:  # which begins the parameters of SQLAlchemy's URLs, and cannot be encoded there
            raise ValueError(f"a catalog's file cannot have '?' in its path: {shown(path)}")
        return f"sqlite:///{path}"
    if uri.startswith("postgres"):
        postgres_url(_libpq(uri))
    elif uri.startswith("http") and (re.search(r"[\s\x00-\x1f\x7f#]", uri) or _malformed(uri)):
        raise ValueError("uri is not a URL (in a user or password, percent-encode all but letters and digits)")
    return uri


def _libpq(uri: str) -> str:
    """The URL without the name of SQLAlchemy's driver."""
    return re.sub(r"^(postgres(?:ql)?)\+\w+:", r"\1:", uri)


def _malformed(uri: str) -> bool:
    try:
        parts = urlsplit(uri)
        return parts.port == 0 or "@" in f"{parts.path}{parts.query}"
    except ValueError:
        return True


def _warehouse(text: str, info: ValidationInfo) -> str:
    """A folder made absolute, or a place in S3 as it is."""
    scheme, separator, rest = text.partition("://")
    if separator and scheme == "file":
        return _named(text, rest.removeprefix("localhost"))
    if separator and scheme not in _STORES:
        raise ValueError(f"neither a folder nor an s3:// place: {shown(text)} (write ./folder or s3://bucket/prefix)")
    return text if separator else str(_folder(info) / Path(_named(text, text)).expanduser())


def _text(value: object) -> str:
    """A scalar as Spark and PyIceberg want it spelled: YAML's true is `true`."""
    if isinstance(value, dict | list) or value is None:
        raise ValueError(f"expected a single value, found {shown(value)}")
    return str(value).lower() if isinstance(value, bool) else str(value)


def _written(value: object) -> str:
    """Text as the file has it: `Document` keeps that of some places, from which YAML would make another value."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict | list) or value is None:
        raise ValueError(f"expected a single value, found {shown(value)}")
    raise ValueError(f"YAML makes {shown(value)} of it, which may not be what you wrote: put it in quotes")


def _routing_value(value: object) -> str:
    if value is None:
        raise ValueError('expected a value, found nothing (write "" for empty text; NULLs go to `default:`)')
    return _written(value)


def _condition(text: str) -> str:
    if not text.strip():
        raise ValueError("expected a condition in SQL, found nothing (leave it out to carry every row)")
    return text


def _table_name(value: object) -> TableName:
    if isinstance(value, TableName):
        return value
    if not isinstance(value, str):
        raise ValueError(f"not a table name: {shown(value)} (write schema.table)")
    if has_wildcard(value):
        raise ValueError(
            f"names one table, and cannot be a pattern: {shown(value)} (only `tables:` of a group has them)"
        )
    return TableName.parse(value)


def _table_pattern(value: object) -> TablePattern:
    if not isinstance(value, str):
        raise ValueError(f"not a pattern of tables: {shown(value)} (write schema.*)")
    return TablePattern.parse(value)


def _table_patterns(values: object) -> tuple[TablePattern, ...]:
    """Each with its schema: `tmp_*` alone would mean tables of `public`, and leave none of `app.*` out."""
    if not isinstance(values, list | tuple) or not values:
        raise ValueError("expected a list of patterns of tables to leave out, like [app.tmp_*]")
    found = tuple(map(_table_pattern, values))
    for each in found:
        if "." not in each.text:
            raise ValueError(f"name the schema too: {each.text!r} (write schema.{each.text})")
    return found


def _lake_schema(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"not a schema for the tables of a pattern: {shown(value)} (write raw.*)")
    return lake_schema(value)


def _partitions(texts: tuple[str, ...]) -> tuple[str, ...]:
    """Each as `PartitionBy` spells it, so that only another meaning makes another text."""
    found = [str(PartitionBy.parse(text)) for text in texts]
    if double := next((each for each in found if found.count(each) > 1), None):
        raise ValueError(f"{double!r} is listed twice")
    return tuple(found)


def _column_names(names: tuple[str, ...]) -> tuple[str, ...]:
    if not names:
        raise ValueError("names no column (leave it out to mirror them all)")
    return _key_names(names)


def _key_names(names: tuple[str, ...]) -> tuple[str, ...]:
    twice = sorted(name for name in set(names) if names.count(name) > 1)
    if twice:
        raise ValueError(f"names column {twice[0]!r} twice")
    return names


def _routing_values(values: tuple[str, ...]) -> tuple[str, ...]:
    if not values:
        raise ValueError("names no value")
    if twice := sorted(each for each in set(values) if values.count(each) > 1):
        raise ValueError(f"names {twice[0]!r} twice")
    return values


def _lake_type(text: str) -> str:
    spelled = re.sub(r"\s+", "", text.lower())
    if not _LAKE_TYPE.fullmatch(spelled):
        raise ValueError(f"not a type for the lake: {shown(text)} (write varchar, decimal(20,4), double or json)")
    return spelled


def _no_bool(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError(f"expected a number, found {str(value).lower()}")
    return value


def _folder(info: ValidationInfo) -> Path:
    return Path(info.context["folder"]) if info.context else Path.cwd()


def _named(whole: str, path: str) -> str:
    if not path.strip():
        raise ValueError(f"names no file or folder: {shown(whole)}")
    return path


def without_schema(url: str) -> str:
    """The URL as libpq knows it: `schema` is a parameter of ours."""
    parts = urlsplit(url)
    kept = [pair for pair in parse_qsl(parts.query, keep_blank_values=True) if pair[0] != "schema"]
    return urlunsplit(parts._replace(query=urlencode(kept)))


def url_secrets(url: str) -> set[str]:
    """The passwords in a PostgreSQL URL: as libpq reads them, and as the URL spells them."""
    known = conninfo_to_dict(without_schema(url))
    # A variable with both, `postgresql://${CREDENTIALS}@db/shop`, is read as a user with a colon in its name.
    both = str(known.get("user", ""))
    user = {both, both.partition(":")[2]} if ":" in both else set[str]()
    passwords = {str(known.get("password", "")), str(known.get("sslpassword", "")), urlsplit(url).password or ""}
    return (user | passwords) - {""}


def iceberg_secrets(uri: str) -> set[str]:
    """The passwords in a catalog's URL."""
    if uri.startswith("postgres"):
        return url_secrets(_libpq(uri))
    password = urlsplit(uri).password or ""
    return {password, unquote(password)} - {""}


def _named_so(regex: str) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", "pattern": regex})


_SCALAR = {"type": ["string", "number", "boolean"]}
_ICEBERG_SCHEMA = {
    "type": "object",
    "description": "Properties of an Iceberg catalog, as PyIceberg names them; it ignores those that it does not know",
    "properties": {
        "type": {"enum": list(_CATALOGS), "description": "The kind of catalog; without it, `uri` says"},
        "uri": {
            "type": "string",
            "examples": ["sqlite:///data/ice.sqlite", "postgresql://lake@db/ice", "https://host"],
        },
        "warehouse": {
            "type": "string",
            "description": "Where the tables' files are, or the name that a REST catalog has for it",
            "examples": ["./data/ice", "s3://bucket/prefix"],
        },
        "name": {"type": "string", "default": "default", "description": "Under which a SQL catalog keeps its tables"},
        **dict.fromkeys(("token", "credential", "scope", "oauth2-server-uri"), _SCALAR),
        **{f"s3.{name}": _SCALAR for name in ("access-key-id", "secret-access-key", "session-token", "region")},
        "s3.endpoint": {"type": "string", "examples": ["http://localhost:9000"]},
    },
    "additionalProperties": _SCALAR,
}
Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_-]{0,62}$")]
GroupName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9_]{1,40}$")]  # it is part of the slot's name
Duration = Annotated[
    timedelta,
    PlainValidator(duration),
    PlainSerializer(lambda duration: f"{duration.total_seconds():g}s"),
    WithJsonSchema({"type": "string", "examples": ["500ms", "2s", "1m", "7d"]}),
]
DurationOrOff = Annotated[
    timedelta | None,
    PlainValidator(duration_or_off),
    PlainSerializer(lambda duration: f"{duration.total_seconds():g}s" if duration else False),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"const": False}], "examples": ["7d", "off"]}),
]
GraceOrOff = Annotated[DurationOrOff, AfterValidator(_grace)]
Switch = Annotated[bool, BeforeValidator(_switch)]
Count = Annotated[int, Field(ge=1), BeforeValidator(_no_bool)]
Index = Annotated[int, Field(ge=0), BeforeValidator(_no_bool)]
Bytes = Annotated[
    int,
    PlainValidator(_bytes),
    WithJsonSchema({"type": ["string", "integer"], "examples": ["256MB", "1GB", "512KiB"]}),
]
Rate = Annotated[
    int,
    PlainValidator(_rate),
    PlainSerializer(lambda rate: f"{rate}B/s"),
    WithJsonSchema({"type": ["string", "integer"], "examples": ["50MB/s", "1GB/s"]}),
]
Place = Annotated[str, AfterValidator(place)]
SourceTable = Annotated[TableName, PlainValidator(_table_name), _named_so(WITHOUT_WILDCARD)]
SourceTables = Annotated[TablePattern, PlainValidator(_table_pattern), _named_so(WITH_WILDCARD)]
TablePatterns = Annotated[
    tuple[TablePattern, ...],
    PlainValidator(_table_patterns),
    WithJsonSchema({"type": "array", "items": {"type": "string"}, "minItems": 1, "examples": [["app.tmp_*"]]}),
]
LakeSchema = Annotated[str, PlainValidator(_lake_schema), WithJsonSchema({"type": "string", "examples": ["raw.*"]})]
Text = Annotated[str, BeforeValidator(_text)]
Written = Annotated[str, BeforeValidator(_written), WithJsonSchema(_SCALAR)]
RoutingValue = Annotated[str, BeforeValidator(_routing_value), WithJsonSchema(_SCALAR)]
RoutingValues = Annotated[tuple[RoutingValue, ...], AfterValidator(_routing_values)]
Condition = Annotated[Written, AfterValidator(_condition)]
KeyNames = Annotated[tuple[Written, ...], AfterValidator(_key_names)]
ColumnNames = Annotated[tuple[Text, ...], AfterValidator(_column_names)]
LakeTypeName = Annotated[str, AfterValidator(_lake_type)]
PartitionTexts = Annotated[tuple[Text, ...], AfterValidator(_partitions)]
Port = Annotated[int, Field(ge=0, le=65535), BeforeValidator(_no_bool)]
PostgresUrl = Annotated[str, AfterValidator(postgres_url)]
CatalogUrl = Annotated[str, AfterValidator(_catalog_url)]
IcebergProperties = Annotated[dict[str, Any], AfterValidator(_iceberg), WithJsonSchema(_ICEBERG_SCHEMA)]
