"""Which column of a lake's table mirrors which column of the source; kept in the lake beside the position."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from headwater.change import Column, Relation

__all__ = ["MirroredColumns"]


@dataclass(frozen=True, slots=True)
class MirroredColumns:
    """Field ids of the lake's columns by attribute number; `types` are the source's own (OID and modifier)."""

    fields: dict[int, int]
    types: dict[int, tuple[int, int]] = field(default_factory=dict)
    key: frozenset[int] = frozenset()

    def __hash__(self) -> int:
        return hash((len(self.fields), self.key))

    @classmethod
    def of(cls, relation: Relation, fields: dict[int, int]) -> MirroredColumns:
        return cls.of_columns(relation.columns, fields)

    @classmethod
    def of_columns(cls, columns: Sequence[Column], fields: dict[int, int]) -> MirroredColumns:
        types = {column.attnum: (column.type_oid, column.typmod) for column in columns}
        return cls(fields, types, frozenset(column.attnum for column in columns if column.key))

    @classmethod
    @lru_cache(maxsize=1024)  # a thousand destinations of a route have the same
    def parse(cls, text: str) -> MirroredColumns:
        kept = json.loads(text)
        types = {int(attnum): (oid, typmod) for attnum, (oid, typmod) in kept["types"].items()}
        fields = {int(attnum): id_ for attnum, id_ in kept["fields"].items()}
        return cls(fields, types, frozenset(kept["key"]))

    def __str__(self) -> str:
        return json.dumps({"fields": self.fields, "types": self.types, "key": sorted(self.key)})

    def same_key(self, relation: Relation) -> bool:
        """Whether rows are still known by the same columns; without a key, by all of them and as they were."""
        if self.key or relation.key_attnums or relation.identity != "f":
            return self.key == relation.key_attnums
        return self.types == MirroredColumns.of(relation, {}).types
