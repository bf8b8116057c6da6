"""DuckLake's names for the types of columns."""

from __future__ import annotations

from headwater.values.types import LakeType

__all__ = ["ducklake_type"]

_NAMES = {"string": "varchar", "binary": "blob"}


def ducklake_type(kind: LakeType) -> str:
    """The type as DuckLake spells it; a list is just `list`, since its element is a column of its own."""
    if kind.nested:
        return kind.logical
    return _NAMES.get(kind.logical, str(kind))
