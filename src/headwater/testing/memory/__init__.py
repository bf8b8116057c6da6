"""A lake in memory: the smallest thing that keeps the contract of `headwater.lake.sink`. For tests, and to be read."""

from headwater.testing.memory.lake import MemoryLake
from headwater.testing.memory.sink import MemorySink

__all__ = ["MemoryLake", "MemorySink"]
