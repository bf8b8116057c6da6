"""A Spark job that dies as a whole: the tables that can go on do, and the one that kills it is found.

Tasks report the errors of their tables as data where they can. What is left is a worker that is killed, for want of
memory as a rule, or a row that Spark itself cannot carry: then nothing says which of the tables it was.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Set
from dataclasses import dataclass
from typing import Generic, TypeVar

from pyspark.sql import SparkSession

from headwater.spark.tasks import JobDied
from headwater.words import counted

__all__ = ["Survived", "surviving"]

logger = logging.getLogger(__name__)

Done = TypeVar("Done")
_MEMORY = (
    "it may need more memory than there is: lower flush.rows, or give Spark more: spark.driver.memory in spark.conf for"
    " a local master, or more for its Python workers"
)


@dataclass(frozen=True, slots=True)
class Survived(Generic[Done]):
    """What a job did for these tables (None, if it died with each of them) and the tables that it died with."""

    done: Done | None
    tables: frozenset[int]
    failed: dict[int, str]


def surviving(
    spark: SparkSession, tables: Set[int], job: Callable[[frozenset[int]], Done], noun: str = "table"
) -> Survived[Done]:
    """Run the job for all of the tables, or if it dies for half of them, a quarter, …: as many as it survives.

    A table with which it dies alone, twice, has failed, and it starts again with all the others. Those that are neither
    done nor failed are left for the next delivery or copy. Messages call them what `noun` says.
    """
    part, failed, suspect = sorted(tables), dict[int, str](), set[int]()
    while part or not tables:
        try:
            return Survived(job(frozenset(part)), frozenset(part), failed)
        except JobDied as died:
            reason = f"the Spark job for this {noun} died: {died}\nhint: {_MEMORY}"
        spark.range(1).count()  # fails if it is Spark that died
        logger.warning("a Spark job for %s died: %s", counted(len(part), noun), reason)
        if len(part) > 1:
            part = part[: len(part) // 2]
        elif part[0] not in suspect:
            suspect.add(part[0])  # a worker may be killed by chance
        else:
            failed[part[0]] = reason
            part = sorted(tables - failed.keys())
    return Survived(None, frozenset(), failed)
