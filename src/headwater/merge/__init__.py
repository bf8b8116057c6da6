"""Segments → one net change per key, with the place of the row it replaces."""

from headwater.merge.batch import Batch, Mirror
from headwater.merge.plan import Merged, merge

__all__ = ["Batch", "Merged", "Mirror", "merge"]
