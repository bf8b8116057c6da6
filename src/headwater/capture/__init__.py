"""The first stage: changes of the source, in commit order, handed to the log."""

from headwater.capture.check import problems
from headwater.capture.checktable import TableWish
from headwater.capture.dropping import drop_from_source
from headwater.capture.export import Exported, exported_snapshot
from headwater.capture.published import ALTERED, places
from headwater.capture.replaced import (
    Resolved,
    drop,
    refusal,
    resolved,
    sent_columns,
    stop,
    table_names,
)
from headwater.capture.run import prepare, run_capture
from headwater.capture.shapes import described, described_all, row_filter
from headwater.capture.source import Source, current_end, object_name
from headwater.capture.uncaptured import Unknown, oldest_uncaptured
from headwater.capture.watch import Watch, first_look

__all__ = [
    "ALTERED",
    "Exported",
    "Resolved",
    "Source",
    "TableWish",
    "Unknown",
    "Watch",
    "current_end",
    "described",
    "described_all",
    "drop",
    "drop_from_source",
    "exported_snapshot",
    "first_look",
    "object_name",
    "oldest_uncaptured",
    "places",
    "prepare",
    "problems",
    "refusal",
    "resolved",
    "row_filter",
    "run_capture",
    "sent_columns",
    "stop",
    "table_names",
]
