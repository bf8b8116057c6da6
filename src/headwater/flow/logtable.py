"""A version of a mirrored table as routes know it."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from headwater.change import Lsn, Relation
from headwater.flow.routesource import RouteRules, SourceAt
from headwater.lake.sink import Kinds
from headwater.merge import MirrorColumn
from headwater.values.types import LakeType

__all__ = ["mirror_columns", "source_at"]


def source_at(relation: Relation, kinds: Kinds, rules: RouteRules, at: Lsn) -> SourceAt:
    """The table at a position, with the columns that destinations get; `kinds` are those of all columns."""
    key = set(rules.keys) or {each.name for each in relation.columns if each.key}
    carried = tuple(replace(each, key=each.name in key) for each in relation.columns if rules.carries(each.name))
    return SourceAt(
        position=at,
        table=relation.oid,
        relation=Relation(relation.id, relation.oid, relation.table, "d", carried),
        kinds={each.name: kinds[each.name] for each in carried},
        readable={each.name: each for each in mirror_columns(relation, kinds)},
        schema=pa.schema([(name, _condition_type(kind)) for name, kind in kinds.items()]),
    )


def mirror_columns(relation: Relation, kinds: Kinds) -> tuple[MirrorColumn, ...]:
    return tuple(MirrorColumn(each.name, kinds[each.name], each.attnum, each.missing) for each in relation.columns)


def _condition_type(kind: LakeType) -> pa.DataType:
    """The type in which DuckDB knows a column's values in a condition."""
    if kind.element is not None:
        return pa.list_(_condition_type(kind.element))
    return pa.uuid() if kind.logical == "uuid" else kind.arrow
