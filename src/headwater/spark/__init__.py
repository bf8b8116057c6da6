"""Spark: the session, jobs on it, and whose fault a failed one is."""

from headwater.spark.isolate import Survived, surviving
from headwater.spark.session import session, warm_up
from headwater.spark.tasks import JobDied, collected, deal, on_partitions, on_tasks, run_tasks

__all__ = [
    "JobDied",
    "Survived",
    "collected",
    "deal",
    "on_partitions",
    "on_tasks",
    "run_tasks",
    "session",
    "surviving",
    "warm_up",
]
