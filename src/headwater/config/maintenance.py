"""What the file says about the maintenance of the lakes."""

from __future__ import annotations

import re
from datetime import UTC, datetime, time, timedelta
from typing import Annotated, NamedTuple
from zoneinfo import ZoneInfo

from pydantic import BeforeValidator, Field, GetJsonSchemaHandler, PlainSerializer, PlainValidator, WithJsonSchema
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from headwater.config.base import Model, or_off
from headwater.config.file import shown
from headwater.config.values import Count, Duration, GraceOrOff, Switch, duration_or_off

__all__ = ["Expire", "Maintenance", "Window"]

_WINDOW = re.compile(r"(\d\d?:\d\d)\s*-\s*(\d\d?:\d\d)(?:\s+(\S+))?")


class Window(NamedTuple):
    """A time of the day, from one clock time to another; it may include midnight."""

    begin: time
    end: time
    zone: str = "UTC"

    def includes(self, moment: datetime) -> bool:
        now = moment.astimezone(ZoneInfo(self.zone)).time()
        if self.begin <= self.end:
            return self.begin <= now < self.end
        return now >= self.begin or now < self.end

    def __str__(self) -> str:
        return f"{self.begin:%H:%M}-{self.end:%H:%M} {self.zone}"


def _window(value: object) -> Window | None:
    if value is None or isinstance(value, Window):
        return value
    found = _WINDOW.fullmatch(str(value).strip())
    try:
        if found is None:
            raise ValueError
        begin, end = (datetime.strptime(each, "%H:%M").replace(tzinfo=UTC).time() for each in found.groups()[:2])
    except ValueError:
        raise ValueError(
            f"not a window: {shown(value)} (write '01:00-05:00', or '01:00-05:00 Europe/Berlin')"
        ) from None
    zone = found[3] or "UTC"
    try:
        ZoneInfo(zone)
    except (KeyError, OSError, ValueError):
        raise ValueError(f"not a time zone: {shown(zone)} (write one like Europe/Berlin)") from None
    if begin == end:
        raise ValueError(f"a window must be longer than 0: {shown(value)}")
    return Window(begin, end, zone)


class Expire(Model):
    """Snapshots go when they were replaced so long ago; at least so many of the newest stay."""

    age: Duration
    keep: Count = 1


def _expire(value: object) -> object:
    if isinstance(value, dict | Expire):
        return value
    age = duration_or_off(value)
    return None if age is None else {"age": age}


class Maintenance(Model):
    """Of the lakes: what `run` does by itself, and `maintain`. The `window` is for `run`."""

    merge: Switch = True
    expire: Annotated[
        Expire | None,
        BeforeValidator(_expire),
        WithJsonSchema(
            {
                "anyOf": [
                    {"type": "string"},
                    {"const": False},
                    {
                        "type": "object",
                        "properties": {"age": {"type": "string"}, "keep": {"type": "integer", "minimum": 1}},
                        "required": ["age"],
                        "additionalProperties": False,
                    },
                ],
                "examples": ["7d", "off"],
            }
        ),
    ] = Field(default=None, json_schema_extra={"default": False})
    orphans: GraceOrOff = Field(default=timedelta(days=1), json_schema_extra={"default": "1d"})
    window: Annotated[
        Window | None,
        PlainValidator(_window),
        PlainSerializer(lambda window: window and str(window)),
        WithJsonSchema({"type": "string", "examples": ["01:00-05:00", "01:00-05:00 Europe/Berlin"]}),
    ] = None

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return or_off(core, handler)
