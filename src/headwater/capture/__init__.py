"""The replication stream: changes of the source, in commit order, handed to the log."""

from headwater.capture.run import prepare, run_capture
from headwater.capture.uncaptured import Unknown, oldest_uncaptured
from headwater.capture.watch import Watch, first_look

__all__ = ["Unknown", "Watch", "first_look", "oldest_uncaptured", "prepare", "run_capture"]
