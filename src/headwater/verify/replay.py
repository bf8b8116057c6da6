"""What a history table says the source's rows are now, as a query for DuckDB."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headwater.change import Relation
from headwater.lake.sqltext import identifier, literal
from headwater.values.types import LakeType
from headwater.verify.spelling import spelling

__all__ = ["replayed"]

# The order of changes in one number. A copied row comes before the changes of a transaction at the copy's position;
# what an update takes away under the old key, before what it brings under the new one.
_ORDER = "CAST(_commit_lsn AS HUGEINT) * 4398046511104 + _seq * 4"
_NAMES = {"float32": "FLOAT", "float64": "DOUBLE", "string": "VARCHAR"}  # where DuckDB has another name


def replayed(place: str, relation: Relation, kinds: tuple[LakeType, ...], earlier: Mapping[str, Sequence[str]]) -> str:
    """The last change of each key since the last truncate, unless it is a delete; columns as the source calls them.

    A TOASTed value that an update did not send is the last one sent for the same key. What is found by a column's name
    may be under a name that it had `earlier`.
    """
    every = {column.name: (column.name, *earlier.get(column.name, ())) for column in relation.columns}
    key = [(relation.columns[index].name, kinds[index]) for index in relation.key]
    new = [spelling(kind).lake.replace("{}", identifier(name)) for name, kind in key]
    old = [spelling(kind).lake.replace("{}", _old(every[name], kind)) for name, kind in key]
    names = [column.name for column in relation.columns]
    sent = ", ".join(f"{_if_sent(name, every[name])} AS v{index}" for index, name in enumerate(names))
    nothing = ", ".join(f"NULL AS v{index}" for index in range(len(names)))
    keys = ", ".join(f"k{index}" for index in range(len(key)))
    moved = " OR ".join(f"{one} <> {other}" for one, other in zip(old, new, strict=True))
    last = ", ".join(f"arg_max(v{index}, nth).v AS {identifier(name)}" for index, name in enumerate(names))
    return f"""
        WITH since AS (
            SELECT * FROM {place} WHERE _op <> 'truncate' AND {_ORDER}
                > coalesce((SELECT max({_ORDER}) FROM {place} WHERE _op = 'truncate'), -1)),
        events AS (
            SELECT {_as_keys(new)}, _op, {_ORDER} + if(_op = 'copy', 0, 2) AS nth, {sent} FROM since
            UNION ALL BY NAME
            SELECT {_as_keys(old)}, 'delete' AS _op, {_ORDER} + 1 AS nth, {nothing} FROM since
            WHERE _op = 'update' AND ({moved}))
        SELECT {last} FROM events GROUP BY {keys} HAVING arg_max(_op, nth) <> 'delete'"""


def _as_keys(expressions: list[str]) -> str:
    return ", ".join(f"{each} AS k{index}" for index, each in enumerate(expressions))


def _if_sent(name: str, names: Sequence[str]) -> str:
    """A value in a box, which is there even if the value is NULL; nothing where the source did not send it again."""
    among = f"[{', '.join(map(literal, names))}]"
    unchanged = f"""coalesce(list_has_any(from_json(_unchanged, '["VARCHAR"]'), {among}), false)"""
    # A value that is there was sent, even if another column had its name when that one was not sent.
    return f"CASE WHEN {identifier(name)} IS NOT NULL OR NOT {unchanged} THEN struct_pack(v := {identifier(name)}) END"


def _old(names: Sequence[str], kind: LakeType) -> str:
    """A column of the old row, which is kept in PostgreSQL's own text."""
    pointers = ("/" + name.replace("~", "~0").replace("/", "~1") for name in names)
    text = f"coalesce({', '.join(f'json_extract_string(_old, {literal(pointer)})' for pointer in pointers)})"
    if kind.logical == "binary":
        return f"unhex({text}[3:])"
    return f"TRY_CAST({text} AS {_NAMES.get(kind.logical, str(kind))})"
