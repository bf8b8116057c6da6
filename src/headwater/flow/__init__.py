"""START HERE. The path of a row: `capture` brings the source's changes into the log, `copy` and `deliver` to the lake.

This package is the only one that sees every stage. Each function takes one step and returns what it did; `supervise`
decides when to take the next one, and what to do when a step fails.
"""

from headwater.flow.capture import capture
from headwater.flow.copy import Pace, collect_copies, copy
from headwater.flow.deliver import deliver
from headwater.flow.gaps import mend
from headwater.flow.maintain import maintain, merge_files
from headwater.flow.mirroring import Mirroring, retry, tidy, try_again
from headwater.flow.names import settle_names
from headwater.flow.recording import Delivered
from headwater.flow.removals import place_removals
from headwater.flow.room import LogRoom

__all__ = [
    "Delivered",
    "LogRoom",
    "Mirroring",
    "Pace",
    "capture",
    "collect_copies",
    "copy",
    "deliver",
    "maintain",
    "mend",
    "merge_files",
    "place_removals",
    "retry",
    "settle_names",
    "tidy",
    "try_again",
]
