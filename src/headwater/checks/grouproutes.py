"""Routes that read a mirrored table: whether its changes say what they need to know of each row."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import replace

from headwater.change import Lsn, Relation
from headwater.checks.known import Known
from headwater.checks.routerows import of_route, row_problems, value_problems
from headwater.config import Config, Table
from headwater.control.wishes import wishes
from headwater.errors import ConfigError, HeadwaterError, OperatorMustAct
from headwater.flow.identities import identity_problem
from headwater.flow.logtable import source_at
from headwater.postgres.connect import Connection, connect, translated
from headwater.source.checktable import TableWish, partial_leaves
from headwater.source.relations import described
from headwater.source.replaced import resolved
from headwater.supervise.sources import route_rules
from headwater.values.types import lake_types

__all__ = ["group_route_problems"]

logger = logging.getLogger(__name__)


def group_route_problems(config: Config, known: Known) -> list[HeadwaterError]:
    """Why routes cannot read their tables from a group's log."""
    found = list[HeadwaterError]()
    if not any(route.source.group for route in config.routes.values()):
        return found
    _warn_of_waiting(config)
    with (
        suppress(HeadwaterError),  # the source's own check reports it
        closing(connect(config.source, application_name="headwater check")) as connection,
        translated(config.source),
    ):
        for group, wanted in wishes(config, known.tables).items():
            for entry, one in zip(config.groups[group].tables, resolved(connection, wanted), strict=True):
                for name, route in config.routes.items():
                    if route.source.group == group and route.source.table == entry.table and one.oid:
                        found += _problems(connection, config, name, entry, _sent(connection, one.wish, one.oid))
    return found


def _warn_of_waiting(config: Config) -> None:
    """A table that only a pattern could bring need not be there yet."""
    for name, route in config.routes.items():
        source, group = route.source, config.groups.get(route.source.group or "")
        if group is not None and all(each.table != source.table for each in group.tables):
            logger.warning("route %s waits until group %s can mirror a table %s", name, source.group, source.table)


def _sent(connection: Connection, wish: TableWish, oid: int) -> Relation:
    """The table with the columns that the config asks for."""
    relation = described(connection, oid, None)
    return replace(relation, columns=tuple(each for each in relation.columns if wish.carries(each.name)))


def _problems(
    connection: Connection, config: Config, name: str, entry: Table, relation: Relation
) -> Iterator[HeadwaterError]:
    route = config.routes[name]
    if entry.mode == "history":
        yield ConfigError(
            f"route {name!r}: table {str(entry.table)!r} is mirrored with mode 'history', whose rows are changes",
            hint="mirror the table in another group, without `mode: history`, and route from there",
        )
        return
    try:
        rules = route_rules(route)
        at = source_at(relation, lake_types(relation.columns, entry.types, calendar_only=False), rules, Lsn(0))
    except HeadwaterError as problem:
        yield of_route(name, problem)
        return
    if problems := list(row_problems(at, rules)):
        yield from (of_route(name, each) for each in problems)
        return
    listed = [each.value for each in route.to] if isinstance(route.to, tuple) else []
    type_ = at.schema.field(rules.by).type
    yield from (of_route(name, each) for each in value_problems(config, name, listed, type_))
    if uncovered := identity_problem(relation, rules):
        yield OperatorMustAct(f"route {name!r}: {uncovered.message}", hint=uncovered.hint)
    elif relation.identity == "f":
        for leaf in partial_leaves(connection, relation.oid):
            yield OperatorMustAct(
                f"route {name!r}: partition {str(leaf)!r} of {str(relation.table)!r} does not send whole old rows",
                hint=f"ALTER TABLE {leaf} REPLICA IDENTITY FULL;",
            )
