"""Whether an answer is what the OpenAPI document says: no more, no less."""

from __future__ import annotations

from typing import Any

import jsonschema

from headwater.web.openapi import document
from tests.web.served import Answer

__all__ = ["check", "check_answer"]


def check_answer(found: Answer, method: str, path: str) -> None:
    """Of one endpoint; the path is as the document has it, with or without `/api/v1`."""
    whole = path if path in document()["paths"] else f"/api/v1{path}"
    described = document()["paths"][whole][method]["responses"][str(found.status)]
    check(found.json, described["content"]["application/json"]["schema"])


def check(value: Any, schema: dict[str, Any]) -> None:
    """The value has what the schema says, and nothing else."""
    components = document()["components"]["schemas"]
    inner = {name: {key: _closed(each, components) for key, each in of.items()} for name, of in components.items()}
    jsonschema.validate(value, _closed(schema, components) | {"components": {"schemas": inner}})


def _closed(schema: Any, components: dict[str, Any]) -> Any:
    """The schema, without room for properties that it does not name."""
    match schema:
        case list():
            return [_closed(each, components) for each in schema]
        case {"$ref": str(name)}:
            named = "properties" in components[name.rpartition("/")[2]]
        case {"allOf": _}:
            return schema | {"unevaluatedProperties": False}
        case dict():
            named, schema = "properties" in schema, {key: _closed(each, components) for key, each in schema.items()}
        case _:
            return schema
    return schema | {"unevaluatedProperties": False} if named else schema
