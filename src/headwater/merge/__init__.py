"""Segments → one net change per key, with the place of the row it replaces."""

from headwater.merge.batch import Batch, Mirror, MirrorColumn, Segment
from headwater.merge.keys import row_keys
from headwater.merge.plan import Merged, merge
from headwater.merge.rows import unfit_key
from headwater.merge.scratch import Scratch

__all__ = ["Batch", "Merged", "Mirror", "MirrorColumn", "Scratch", "Segment", "merge", "row_keys", "unfit_key"]
