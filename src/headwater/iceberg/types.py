"""Iceberg's names for the types of columns."""

from __future__ import annotations

from headwater.values.types import LakeType

__all__ = ["iceberg_type"]

_NAMES = {
    "int16": "int",
    "int32": "int",
    "int64": "long",
    "uint32": "long",
    "uint64": "decimal(20,0)",  # Iceberg has no unsigned integers
    "float32": "float",
    "float64": "double",
    "json": "string",
}


def iceberg_type(kind: LakeType) -> str:
    """The type as Iceberg spells it."""
    if kind.element is not None:
        return f"list<{iceberg_type(kind.element)}>"
    return _NAMES.get(kind.logical, str(kind))
