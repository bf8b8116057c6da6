"""The first stage: changes of the source, in commit order, handed to the log."""

from headwater.capture.check import problems
from headwater.capture.export import Exported, exported_snapshot
from headwater.capture.run import prepare, run_capture
from headwater.capture.source import Source, describe, object_name

__all__ = [
    "Exported",
    "Source",
    "describe",
    "exported_snapshot",
    "object_name",
    "prepare",
    "problems",
    "run_capture",
]
