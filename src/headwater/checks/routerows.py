"""What a route says about rows: does the table have the columns, do its types have the values?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from headwater.config import Config, FromTemplate, ListInstance
from headwater.errors import ConfigError, HeadwaterError
from headwater.flow.routesource import Columns, RouteRules, SourceAt
from headwater.lake.casting import plain
from headwater.route.condition import Condition
from headwater.route.values import canonical, canonical_column, canonical_patterns

__all__ = ["of_route", "row_problems", "value_problems"]


def of_route(name: str, problem: HeadwaterError) -> HeadwaterError:
    """The problem, with the name of the route that has it."""
    return type(problem)(f"route {name!r}: {problem.message}", hint=problem.hint)


def row_problems(at: SourceAt, rules: RouteRules) -> Iterator[HeadwaterError]:
    """What the route needs, and the table does not have: columns, a type that can route, what `where` names."""
    yield from Columns.problems(at, rules)
    try:
        if rules.by in at.readable:
            canonical_column(pa.array([], plain(at.schema.field(rules.by).type)))
        if rules.where is not None:
            Condition(rules.where, at.schema).check()
    except HeadwaterError as problem:
        yield problem


def value_problems(config: Config, name: str, values: Iterable[str], type_: pa.DataType) -> Iterator[HeadwaterError]:
    """Values that a column of this type cannot have, and those that are one."""
    route, seen = config.routes[name], dict[str, str]()
    for spelling in values:
        try:
            first = seen.setdefault(canonical(spelling, type_), spelling)
        except ConfigError as problem:
            yield problem
            continue
        if first is not spelling:
            yield ConfigError(
                f"{first!r} and {spelling!r} are one value of the routing column",
                hint="remove one of the two destinations",
            )
    allowed = route.to.allow if isinstance(route.to, FromTemplate) else ()
    ours = config.instance.values if isinstance(config.instance, ListInstance) else ()
    for each in (*allowed, *ours):
        try:
            canonical_patterns([each], type_)
        except ConfigError as problem:
            yield problem
