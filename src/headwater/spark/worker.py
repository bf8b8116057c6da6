"""What a Python process of Spark's does for itself."""

from __future__ import annotations

import errno
import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["ending_without_memory", "freeze_imports"]

_frozen = 0  # how many modules there were


def freeze_imports() -> None:
    """Take what was imported from the garbage collector; to be called at the end of a task, or once all is warm.

    pyspark collects garbage after each task, and going through all modules every time took longer than a small task
    itself. In the driver a full collection would come in the middle of a delivery, and take half as long as it.
    """
    global _frozen
    if len(sys.modules) > _frozen:
        gc.collect()
        gc.freeze()
        _frozen = len(sys.modules)


@contextmanager
def ending_without_memory() -> Iterator[None]:
    """Inside, a worker whose memory runs out ends: what it has taken it would not give back to the next task."""
    try:
        yield
    except (MemoryError, OSError) as error:
        if isinstance(error, OSError) and error.errno != errno.ENOMEM:
            raise
        os.write(2, b"a Python worker has run out of memory, and ends\n")
        os._exit(errno.ENOMEM)
