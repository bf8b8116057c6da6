"""`headwater.yaml`, parsed once into a frozen tree."""

from headwater.config.groups import Flush, Group, Inline, MatchedTable, Pattern, Table
from headwater.config.lakes import DuckLake, Iceberg
from headwater.config.log import StagedLog
from headwater.config.maintenance import Expire, Maintenance, Window
from headwater.config.model import DEFAULT_FILE, Config, Spark
from headwater.config.patterns import expanded
from headwater.config.routes import (
    DestinationTable,
    FromTable,
    FromTemplate,
    HashInstance,
    ListInstance,
    Route,
    RouteBatch,
    RouteDefault,
    RouteDestination,
    RouteSource,
)
from headwater.config.server import Server, Tls, is_loopback

__all__ = [
    "DEFAULT_FILE",
    "Config",
    "DestinationTable",
    "DuckLake",
    "Expire",
    "Flush",
    "FromTable",
    "FromTemplate",
    "Group",
    "HashInstance",
    "Iceberg",
    "Inline",
    "ListInstance",
    "Maintenance",
    "MatchedTable",
    "Pattern",
    "Route",
    "RouteBatch",
    "RouteDefault",
    "RouteDestination",
    "RouteSource",
    "Server",
    "Spark",
    "StagedLog",
    "Table",
    "Tls",
    "Window",
    "expanded",
    "is_loopback",
]
