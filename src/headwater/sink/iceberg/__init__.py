"""An Iceberg catalog as a sink: one snapshot per table and delivery, which carries the table's position."""

from headwater.sink.iceberg.sink import IcebergSink

__all__ = ["IcebergSink"]
