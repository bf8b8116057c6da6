"""The staged log: raw changes in durable segments, with an index in PostgreSQL."""

from headwater.log.folder import place
from headwater.log.segment import SCHEMA, Part
from headwater.log.slices import LogSlice, SegmentRef
from headwater.log.store import Log

__all__ = ["SCHEMA", "Log", "LogSlice", "Part", "SegmentRef", "place"]
