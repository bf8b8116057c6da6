"""Spark: the session, jobs on it, and whose fault a failed one is."""

from headwater.spark.isolate import Survived, surviving
from headwater.spark.session import session, warm_up
from headwater.spark.tasks import JobDied, collected, deal, on_tasks, spark_schema

__all__ = ["JobDied", "Survived", "collected", "deal", "on_tasks", "session", "spark_schema", "surviving", "warm_up"]
