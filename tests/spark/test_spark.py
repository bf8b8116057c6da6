"""Spark's settings reach the JVM, and no other process of the machine sees them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

STARTED = """
import json, sys
from pathlib import Path
import psutil
from headwater.spark import session

conf = json.loads(sys.stdin.read())
spark = session("local[1]", conf)
system = spark.sparkContext._jvm.java.lang.System
print(json.dumps({
    "conf": {name: spark.conf.get(name) for name in conf},
    "master": spark.sparkContext.master,
    "memory": spark.sparkContext._jvm.java.lang.Runtime.getRuntime().maxMemory(),
    "property": system.getProperty("headwater.test"),
    "commands": [each.info["cmdline"] or [] for each in psutil.process_iter(["cmdline"])],
    "files": [str(path) for path in Path(sys.argv[1]).rglob("*")],
}))
spark.stop()
"""
SECRET = "pass word='\"#%\\\u00e9!\n=:"


def test_no_value_of_spark_conf_is_on_a_command_line(tmp_path: Path) -> None:
    conf = {
        "spark.hadoop.fs.s3a.secret.key": SECRET,
        "spark.driver.memory": "777m",
        "spark.driver.extraJavaOptions": "-Dheadwater.test=yes -XX:TieredStopAtLevel=1",
        "spark.headwater.note": "plain-value-of-a-conf",
    }
    started = subprocess.run(
        [sys.executable, "-c", STARTED, str(tmp_path)],
        input=json.dumps(conf),
        env=os.environ | {"TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(started.stdout)
    assert found["conf"] == conf
    assert found["master"] == "local[1]"
    assert 700 << 20 < found["memory"] < 800 << 20
    assert found["property"] == "yes"
    words = [word for command in found["commands"] for word in command]
    assert any("SparkSubmit" in word for word in words)
    assert not [word for word in words if "plain-value-of-a-conf" in word or "pass word" in word]
    assert not [path for path in found["files"] if path.endswith(".conf")]  # it was needed for the start only
