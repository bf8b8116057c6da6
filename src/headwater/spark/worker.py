"""What a Python worker of Spark's does for itself."""

from __future__ import annotations

import gc
import sys

__all__ = ["freeze_imports"]

_frozen = 0  # how many modules there were


def freeze_imports() -> None:
    """Take what was imported from the garbage collector; to be called at the end of a task.

    pyspark collects garbage after each task. Going through all modules every time took longer than a small task itself.
    """
    global _frozen
    if len(sys.modules) > _frozen:
        gc.collect()
        gc.freeze()
        _frozen = len(sys.modules)
