"""Where the staged log is, how large it may become, and how long it keeps what every reader has passed."""

from __future__ import annotations

from datetime import timedelta

from pydantic import Field, GetJsonSchemaHandler, ValidationInfo
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from headwater.config.base import Model
from headwater.config.file import shown
from headwater.config.values import Bytes, Duration, Place, place

__all__ = ["StagedLog", "staged_log"]


class StagedLog(Model):
    """The log of all groups; `max_bytes` is for each of them."""

    path: Place
    max_bytes: Bytes | None = None  # None: as large as the disk allows
    retention: Duration = Field(default=timedelta(hours=1), json_schema_extra={"default": "1h"})

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"anyOf": [{"type": "string"}, handler.resolve_ref_schema(handler(core))]}


def staged_log(value: object, info: ValidationInfo) -> object:
    """A path alone stands for a log with the defaults."""
    if isinstance(value, str):
        return {"path": place(value, info)}  # here, so that an error names the key that the file has
    if not isinstance(value, dict | StagedLog):
        raise ValueError(f"expected a folder, an s3:// place, or a mapping with `path`, found {shown(value)}")
    return value
