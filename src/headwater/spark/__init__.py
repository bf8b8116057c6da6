"""Spark: the session, tasks on it, and whose fault a failed task is."""

from headwater.spark.session import session, warm_up
from headwater.spark.tasks import deal, on_tasks, spark_schema

__all__ = ["deal", "on_tasks", "session", "spark_schema", "warm_up"]
