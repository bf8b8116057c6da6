"""What every mapping of the file is."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

__all__ = ["Model", "on_or_off", "or_off"]


class Model(BaseModel):
    """Frozen, and strict: an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def on_or_off(value: object) -> object:
    """For a mapping in whose place `on` stands for its defaults, and `off` for nothing."""
    if value in ("on", True):
        return {}
    return None if value in ("off", False) else value


def or_off(core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
    """The JSON schema of such a mapping."""
    return {"anyOf": [{"type": "boolean"}, handler.resolve_ref_schema(handler(core))]}
