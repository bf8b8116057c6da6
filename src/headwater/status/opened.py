"""One table, looked at closely: its columns, and the lines that read its mirror."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headwater.change import Column
from headwater.config import Config, Iceberg
from headwater.log.versions import Versions
from headwater.sink.addresses import lake_addresses
from headwater.state import State, TableRow
from headwater.values.types import lake_type

__all__ = ["TableColumn", "columns_of", "lines_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableColumn:
    name: str
    source_type: str
    lake_type: str
    key: bool


def columns_of(config: Config, state: State, row: TableRow) -> list[TableColumn]:
    """The columns that are mirrored, of the newest version of the table that the log knows; none if it knows none."""
    found = Versions(state, row.group).newest(row.oid)
    if found is None:
        return []
    calendar_only = isinstance(config.lakes[config.groups[row.group].lake], Iceberg)
    options = row.options
    kept = [
        each
        for each in found[1].columns
        if each.name not in options.exclude and (options.columns is None or each.name in options.columns or each.key)
    ]
    return [_column(each, options.types.get(each.name), calendar_only=calendar_only) for each in kept]


def _column(column: Column, asked: str | None, *, calendar_only: bool) -> TableColumn:
    kind = lake_type(column, asked, calendar_only=calendar_only)
    spelled = column.base.name if column.base is not None and column.base.name else kind.pg
    return TableColumn(name=column.name, source_type=spelled, lake_type=str(kind), key=column.key)


def lines_of(config: Config, env: Mapping[str, str], row: TableRow) -> list[str]:
    """What to type into DuckDB to read its mirror; nothing if there is none yet."""
    lake = config.groups[row.group].lake
    return lake_addresses(config, env, [lake])[lake].lines(lake, row.lake)
