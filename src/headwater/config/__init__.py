"""`headwater.yaml`, parsed once into a frozen tree."""

from headwater.config.model import (
    DEFAULT_FILE,
    Config,
    DuckLake,
    Flush,
    Group,
    Iceberg,
    Maintenance,
    Route,
    RouteDestination,
    RouteSource,
    Server,
    Spark,
    Table,
    unsupported,
)

__all__ = [
    "DEFAULT_FILE",
    "Config",
    "DuckLake",
    "Flush",
    "Group",
    "Iceberg",
    "Maintenance",
    "Route",
    "RouteDestination",
    "RouteSource",
    "Server",
    "Spark",
    "Table",
    "unsupported",
]
