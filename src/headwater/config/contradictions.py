"""What well-formed parts of the file say against each other."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headwater.change import TableName
from headwater.config.clusters import out_of_reach
from headwater.config.file import Document
from headwater.config.groups import Group, MatchedTable, Table
from headwater.config.lakes import DuckLake, Iceberg
from headwater.config.routes import FromTemplate, Route, RouteDestination
from headwater.errors import ConfigError
from headwater.lake.template import LONGEST, PLACEHOLDER, allowed

__all__ = ["Parts", "contradictions", "crowded_out"]

_NAMED: dict[str, tuple[tuple[str, ...], ...]] = {
    "lake": (
        ("groups", "*", "lake"),
        ("routes", "*", "from", "lake"),
        ("routes", "*", "to", "*", "lake"),
        ("routes", "*", "default", "lake"),
    ),
    "group": (("routes", "*", "from", "group"),),
}


@dataclass(frozen=True, slots=True)
class Parts:
    """The well-formed parts: their contradictions are reported even when other parts are malformed."""

    lakes: Mapping[str, DuckLake | Iceberg]
    groups: Mapping[str, Group]
    routes: Mapping[str, Route]


def contradictions(document: Document, parts: Parts) -> Iterator[ConfigError]:
    """Every one of them, with its place."""
    yield from _unknown_names(document)
    catalogs: dict[str, str] = {}
    for where, catalog in document.find("lakes", "*", "ducklake"):
        if (first := catalogs.setdefault(str(catalog), where)) != where:
            yield document.problem(where, f"the same lake as {first}", "use one name for one lake")
    yield from _listed_twice(document, parts)
    yield from _sources(document, parts)
    yield from _shared(document, parts)
    yield from _circles(document, parts.routes)
    yield from out_of_reach(document)


def _unknown_names(document: Document) -> Iterator[ConfigError]:
    for kind, patterns in _NAMED.items():
        known = document.tree.get(f"{kind}s")
        for where, name in (each for pattern in patterns for each in document.find(*pattern)):
            if isinstance(known, dict) and isinstance(name, str) and name not in known:
                yield document.problem(where, f"no {kind} {name!r}", f"known {kind}s: {', '.join(map(str, known))}")


def _listed_twice(document: Document, parts: Parts) -> Iterator[ConfigError]:
    for name, group in parts.groups.items():
        where = f"groups.{name}.tables"
        for index, first in _repeated([str(each.table) for each in group.entries]):
            message = f"{str(group.entries[index].table)!r} is already listed at {where}[{first}]"
            yield document.problem(f"{where}[{index}]", message, "remove one of them")
    for name, route in parts.routes.items():
        where, destinations = f"routes.{name}.to", route.to if isinstance(route.to, tuple) else ()
        for index, first in _repeated([each.value for each in destinations]):
            message = f"{destinations[index].value!r} has a destination already, at {where}[{first}]"
            yield document.problem(f"{where}[{index}].value", message, "remove one of them")


def _repeated(items: Sequence[Hashable]) -> Iterator[tuple[int, int]]:
    """The indexes of items that are there already, with those of the first."""
    seen: dict[Hashable, int] = {}
    return ((index, seen[each]) for index, each in enumerate(items) if seen.setdefault(each, index) != index)


def _sources(document: Document, parts: Parts) -> Iterator[ConfigError]:
    for name, route in parts.routes.items():
        where, group = f"routes.{name}.from", parts.groups.get(route.source.group or "")
        if group is not None and _mirrored(route, group) is None:
            tables = ", ".join(str(each.table) for each in group.entries) or "none"
            message = f"group {route.source.group!r} has no table {str(route.source.table)!r}"
            yield document.problem(f"{where}.table", message, f"its tables: {tables}")
        if route.source.group is not None and document.tree.get("instance") is not None:
            message = "with `instance`, several processes share a route; a group is delivered by one"
            yield document.problem(
                f"{where}.group", message, "route from the lake of the group: from: {lake: …, table: …}"
            )
        if isinstance(parts.lakes.get(route.source.lake or ""), Iceberg):
            message = f"lake {route.source.lake!r} is an Iceberg lake, and routes read DuckLakes"
            yield document.problem(f"{where}.lake", message, "if a group mirrors the table: from: {group: …, table: …}")


def _mirrored(route: Route, group: Group) -> TableName | None:
    """The lake's table that the group makes of the route's source."""
    listed = (each for each in group.tables if each.table == route.source.table)
    table = next(listed, None) or group.matched(route.source.table)
    return None if table is None else table.target


# One table for two ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Landing:
    """Rows that land in a table of a lake. An `address` is a text, one for each table whatever its name's case."""

    where: str
    what: str
    address: str
    route: str = ""
    template: FromTemplate | None = None

    @property
    def hint(self) -> str:
        if self.template is None:
            return "give it another name in the lake with `as:`"
        return f"put something before {PLACEHOLDER}, allow fewer values, or give it another name with `as:`"

    def could_be(self, address: str) -> bool:
        """Whether the rows of some value that is allowed would land there."""
        if self.template is None or self.address == address:
            return self.address == address
        match = _pattern(self.address).fullmatch(address)
        return match is not None and allowed(match["value"], self.template.allow)

    def first_in(self, taken: Mapping[str, str]) -> str | None:
        """Who has the table already; `taken` has the others by their addresses."""
        if self.template is None or self.address in taken:
            return taken.get(self.address)
        return next((where for address, where in taken.items() if self.could_be(address)), None)


def _shared(document: Document, parts: Parts) -> Iterator[ConfigError]:
    read = {name: _source_address(parts, route) for name, route in parts.routes.items()}
    taken: dict[str, str] = {}
    for landing in _landings(parts):
        if landing.route and landing.could_be(read[landing.route]):
            yield document.problem(landing.where, f"{landing.what}, which the route reads", landing.hint)
        elif first := landing.first_in(taken):
            yield document.problem(landing.where, f"{landing.what}, as {first} does", landing.hint)
        else:
            taken[landing.address] = landing.where


def crowded_out(parts: Parts) -> Iterator[tuple[str, MatchedTable, str]]:
    """Tables of patterns, by group, that would land where something else does, with what that is."""
    taken: dict[str, str] = {}
    templates = list[_Landing]()
    for landing in _landings(parts):
        if landing.template is None:
            taken.setdefault(landing.address, landing.where)
        else:
            templates.append(landing)
    for name, group in parts.groups.items():
        for table in group.tables:
            if isinstance(table, MatchedTable):
                address = _address(parts.lakes.get(group.lake, group.lake), table.target)
                possible = (each.where for each in templates if each.could_be(address))
                if first := taken.get(address) or next(possible, None):
                    yield name, table, first
                else:
                    taken[address] = f"{table.table} of group {name!r}"


def _landings(parts: Parts) -> Iterator[_Landing]:
    """Templates come last: each is compared with what has no placeholder."""
    for name, group in parts.groups.items():
        seen: set[TableName] = set()
        for index, table in enumerate(group.entries):
            # Where the tables of a pattern land is known with the source: see `crowded_out`.
            if isinstance(table, Table) and not isinstance(table, MatchedTable) and table.table not in seen:
                what = f"{str(table.table)!r} lands in {str(table.target)!r} of lake {group.lake!r}"
                address = _address(parts.lakes.get(group.lake, group.lake), table.target)
                yield _Landing(f"groups.{name}.tables[{index}]", what, address)
                seen.add(table.table)
    for name, route in parts.routes.items():
        for where, each in route.listed():
            target = route.target(each.renamed)
            rows = f"value {each.value!r}" if isinstance(each, RouteDestination) else "the rest"
            what = f"{rows} lands in {str(target)!r} of lake {each.lake!r}"
            address = _address(parts.lakes.get(each.lake, each.lake), target)
            yield _Landing(f"routes.{name}.{where}", what, address, name)
    for name, route in parts.routes.items():
        if isinstance(template := route.to, FromTemplate):
            target = route.target(template.renamed)
            what = f"a value could land in {str(target)!r} of the lake"
            yield _Landing(f"routes.{name}.to", what, _address(template.lake, target), name, template)


def _source_address(parts: Parts, route: Route) -> str:
    group = parts.groups.get(route.source.group or "")
    lake = route.source.lake if group is None else group.lake
    table = route.source.table if group is None else _mirrored(route, group) or route.source.table
    return _address(parts.lakes.get(lake or "", lake or ""), table)


def _address(lake: DuckLake | Iceberg | str, table: TableName) -> str:
    # A malformed lake has only a name. To a lake, names that differ in case only are the same.
    catalog: Any = lake
    if isinstance(lake, DuckLake):
        catalog = lake.catalog
    elif isinstance(lake, Iceberg):
        catalog = sorted(lake.properties.items())
    return "\n".join((str(catalog), *_folded(table)))


def _pattern(template: str) -> re.Pattern[str]:
    """What the template can become; the same value everywhere."""
    first, *rest = template.split(PLACEHOLDER)
    parts = [re.escape(first), *(f"(?P=value){re.escape(each)}" for each in rest)]
    return re.compile("".join(parts).replace("(?P=value)", f"(?P<value>[a-z0-9_]{{1,{LONGEST}}})", 1))


def _circles(document: Document, routes: Mapping[str, Route]) -> Iterator[ConfigError]:
    """Routes whose rows would come back to the table that they read, by way of other routes."""
    next_ = {name: _fed(route, routes) - {name} for name, route in routes.items()}
    for name in routes:
        reached = set(next_[name])
        while more := {each for there in reached for each in next_[there]} - reached:
            reached |= more
        if name in reached:
            message = "its rows come back to the table that it reads, by way of other routes"
            yield document.problem(f"routes.{name}", message, "let one of these routes land elsewhere")


def _fed(route: Route, routes: Mapping[str, Route]) -> set[str]:
    """The routes that read what this one writes."""
    tables = {(each.lake, _folded(route.target(each.renamed))) for _, each in route.listed()}
    return {name for name, each in routes.items() if (each.source.lake, _folded(each.source.table)) in tables}


def _folded(table: TableName) -> tuple[str, str]:
    return table.schema.lower(), table.name.lower()
