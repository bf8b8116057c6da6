"""Changes → one net change per key, with the place of the row it replaces."""

from headwater.merge.batch import Batch
from headwater.merge.mirror import Mirror, MirrorColumn
from headwater.merge.outcome import Failure, Failures, Merged
from headwater.merge.plan import LakeSide, merge
from headwater.merge.rows import unfit_key
from headwater.merge.scratch import Scratch
from headwater.merge.spread import SPLIT_FROM
from headwater.merge.staged import Segment, StagedChanges

__all__ = [
    "SPLIT_FROM",
    "Batch",
    "Failure",
    "Failures",
    "LakeSide",
    "Merged",
    "Mirror",
    "MirrorColumn",
    "Scratch",
    "Segment",
    "StagedChanges",
    "merge",
    "unfit_key",
]
