"""From what `headwater init` is given to what its file says: URLs without passwords, a lake's catalog and its files."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from urllib.parse import unquote

from psycopg.conninfo import conninfo_to_dict

from headwater.config.values import postgres_url, without_schema
from headwater.errors import ConfigError

__all__ = ["GivenLake", "GivenSource", "group_name", "place_of_lake", "source_of"]

_DATA = "./data/lake"
_CATALOG = "sqlite:///data/lake.sqlite"
_IN_FRONT = re.compile(r"(?<=://)([^/?#@:]*):[^/?#@]+(?=@)")
_PARAMETER = re.compile(r"(?<=[?&])(password|sslpassword)=[^&]+")


@dataclass(frozen=True, slots=True)
class GivenSource:
    """A URL with `${NAME}` where a password was, and what these variables must be."""

    url: str
    variables: dict[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class GivenLake:
    catalog: str
    data_path: str
    variables: dict[str, str] = field(default_factory=dict, repr=False)


def source_of(url: str) -> GivenSource:
    """The source as the file names it; ConfigError if it is not a PostgreSQL URL."""
    return _without_passwords(url, url, "PG")


def place_of_lake(text: str | None) -> GivenLake:
    """A lake's catalog and the place of its files, of which one is given, or none."""
    if text is None:
        return GivenLake(_CATALOG, _DATA)
    if text.startswith(("postgresql://", "postgres://")):
        given = _without_passwords(text, without_schema(text), "LAKE_")
        return GivenLake(given.url, _DATA, given.variables)
    if text.startswith("sqlite:///"):
        return GivenLake(text, _beside(unquote(text.removeprefix("sqlite:///"))))
    return GivenLake(_CATALOG, text)


def group_name(database: str) -> str:
    """The database's name as that of a group, which is part of a slot's name."""
    return re.sub(r"[^a-z0-9_]+", "_", database.lower())[:40].strip("_") or "mirror"


def _beside(catalog: str) -> str:
    """The folder for the data files: the catalog's own path without its ending."""
    path = PurePosixPath(catalog)
    folder = path.with_suffix("") if path.suffix else path.with_name(f"{path.name}.files") if path.name else path
    return str(folder) if folder.is_absolute() else f"./{folder}"


def _without_passwords(url: str, for_libpq: str, prefix: str) -> GivenSource:
    try:
        values = conninfo_to_dict(postgres_url(for_libpq))
    except ValueError as error:
        raise ConfigError(str(error)) from None  # not chained: it may quote the URL, with its password
    password, sslpassword = f"{prefix}PASSWORD", f"{prefix}SSLPASSWORD"
    names = {"password": password, "sslpassword": sslpassword}
    hidden = _IN_FRONT.sub(rf"\1:${{{password}}}", url)
    hidden = _PARAMETER.sub(lambda found: f"{found[1]}=${{{names[found[1]]}}}", hidden)
    return GivenSource(hidden, {name: str(values[key]) for key, name in names.items() if f"${{{name}}}" in hidden})
