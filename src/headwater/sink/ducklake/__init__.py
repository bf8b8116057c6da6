"""A DuckLake as a sink: tables, files, deletes and positions land in one snapshot."""

from headwater.sink.ducklake.sink import DuckLakeSink

__all__ = ["DuckLakeSink"]
