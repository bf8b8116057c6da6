"""What a session of a cluster has that a local one has not. The cluster itself is in tests/proof/test_spark_cluster.py."""

from __future__ import annotations

import pytest
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from headwater.errors import Unreachable
from headwater.master import is_cluster
from headwater.spark.cluster import hand_over_s3, reached


@pytest.mark.parametrize(
    ("master", "cluster"),
    [
        ("local", False),
        ("local[*]", False),
        ("local-cluster[2,1,1024]", False),
        ("spark://one:7077,two:7077", True),
        ("k8s://https://kubernetes.default.svc", True),
        ("yarn", True),
    ],
)
def test_a_cluster_is_known_by_its_master(master: str, cluster: bool) -> None:
    assert is_cluster(master) == cluster


def test_workers_reach_s3_as_the_driver_does_unless_the_conf_says_otherwise(spark: SparkSession) -> None:
    environment = spark.sparkContext.environment
    before = dict(environment)
    environment["AWS_REGION"] = "from the conf"
    try:
        hand_over_s3(
            spark, {"AWS_ACCESS_KEY_ID": "key", "AWS_REGION": "here", "AWS_SESSION_TOKEN": "", "HOME": "/root"}
        )
        found = {name: value for name, value in environment.items() if name not in before}
    finally:
        environment.clear()
        environment.update(before)
    assert found == {"AWS_ACCESS_KEY_ID": "key", "AWS_REGION": "from the conf"}


def test_a_master_that_does_not_answer_may_answer_later() -> None:
    with (
        pytest.raises(Unreachable, match="Spark's master 'spark://gone:7077' does not answer"),
        reached("spark://gone:7077"),
    ):
        raise Py4JError("Cannot call methods on a stopped SparkContext.")


def test_a_local_spark_that_does_not_start_is_no_server_that_is_away() -> None:
    with pytest.raises(Py4JError), reached("local[*]"):
        raise Py4JError("a bug")
