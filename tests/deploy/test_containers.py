"""The image and the Compose file of the demo. Nothing here builds or starts a container: what they say is checked."""

from __future__ import annotations

import fnmatch
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from headwater.commands.run import run
from headwater.config import Config
from headwater.supervise.running import CAPTURE_GRACE, DELIVERY_GRACE
from headwater.testing.postgres import EmbeddedPostgres

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
IMAGE = re.compile(r"^[a-z][a-z-]*(/[a-z][a-z-]*)?(:[\w.-]+)?$")  # a name, and no host in front of it
KEYS = {  # of a service of the Compose specification, as far as ours are
    *("image", "build", "command", "entrypoint", "environment", "volumes", "ports", "healthcheck", "depends_on"),
    *("restart", "read_only", "tmpfs", "cap_drop", "security_opt", "mem_limit", "stop_grace_period"),
}
HEALTH = {"test", "interval", "timeout", "retries", "start_period"}
CONDITIONS = {"service_started", "service_healthy", "service_completed_successfully"}
VARIABLE = re.compile(r"\$\{(\w+)(:-[^}]*)?\}")


def instructions() -> list[tuple[str, str]]:
    text = re.sub(r"^#.*\n", "", (DEPLOY / "Dockerfile").read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    lines = [line.split(None, 1) for line in text.splitlines() if line.strip()]
    return [(name, rest) for name, rest in lines]


def stages() -> list[list[tuple[str, str]]]:
    """The instructions of each stage, beginning with its FROM."""
    found: list[list[tuple[str, str]]] = []
    for name, rest in instructions():
        if name == "FROM":
            found.append([])
        found[-1].append((name, rest))
    return found


def ignored(path: str) -> bool:
    """Whether the .dockerignore keeps it from the build: the last line that matches it, or a folder above, says so."""
    answer = False
    for line in (ROOT / ".dockerignore").read_text().splitlines():
        pattern = line.removeprefix("!").removeprefix("**/")
        above = [path, *map(str, Path(path).parents)]
        if line and not line.startswith("#") and any(fnmatch.fnmatch(each, pattern) for each in above):
            answer = not line.startswith("!")
    return answer


def test_everything_that_the_image_copies_is_there() -> None:
    sources = [
        each for name, rest in instructions() if name == "COPY" and "--from" not in rest for each in rest.split()[:-1]
    ]
    assert "src" in sources
    assert [each for each in sources if not (ROOT / each).exists() or ignored(each)] == []
    assert ignored(".git")
    assert ignored("tests/deploy")


def test_the_image_is_built_from_names_of_images_and_from_its_own_stages() -> None:
    known: set[str] = set()
    for name, rest in instructions():
        if name == "FROM":
            image, *stage = rest.split(" AS ")
            assert image in known or IMAGE.match(image), image
            known |= set(stage)
    assert re.findall(r"https?://(?!127\.0\.0\.1)", (DEPLOY / "Dockerfile").read_text()) == []


def test_the_image_runs_headwater_as_a_user_of_its_own() -> None:
    runtime, image = stages()[1], dict(stages()[-1])
    user = next(rest for name, rest in runtime if name == "USER")
    assert re.fullmatch(r"[1-9]\d+:[1-9]\d+", user)  # by number: Kubernetes cannot see that a name is not root's
    assert f"--uid {user.split(':')[0]}" in next(rest for name, rest in runtime if name == "RUN")
    assert json.loads(image["ENTRYPOINT"])[-1] == "headwater"
    command, *arguments = json.loads(image["CMD"])
    assert command == "run"
    assert run.make_context("run", arguments, parent=None)


def test_the_image_asks_the_page_how_it_is() -> None:
    image = dict(stages()[-1])
    program, option, code = json.loads(image["HEALTHCHECK"].partition("CMD ")[2])
    assert (program, option) == ("python", "-c")
    compile(code, "HEALTHCHECK", "exec")
    assert f"127.0.0.1:{image['EXPOSE']}/healthz" in code


def test_the_image_has_what_the_lock_pins_and_nothing_that_only_development_needs(tmp_path: Path) -> None:
    """pip itself resolves what the Dockerfile installs, from what is installed here: without a network."""
    installs = [rest for name, rest in stages()[0] if name == "RUN" and "dist/*.whl" in rest]
    assert "--constraint requirements.lock dist/*.whl" in installs[0]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    report = tmp_path / "report.json"
    wanted = [sys.executable, "-m", "pip", "install", "--dry-run", "--quiet", "--no-index", "--no-build-isolation"]
    wanted += ["--constraint", str(ROOT / "requirements.lock"), "--report", str(report), *project["dependencies"]]
    done = subprocess.run(wanted, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(report.read_text())["install"] == []  # all of it is here, in the versions of the lock


def compose() -> dict[str, Any]:
    found = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    assert isinstance(found, dict)
    return found


SERVICES: dict[str, dict[str, Any]] = compose()["services"]
services = pytest.mark.parametrize("name", SERVICES)


@services
def test_a_service_of_the_demo_has_only_keys_of_the_specification(name: str) -> None:
    service = SERVICES[name]
    assert compose().keys() == {"name", "services", "volumes"}
    assert service.keys() <= KEYS
    assert IMAGE.match(service["image"])
    assert service.get("healthcheck", {}).keys() <= HEALTH
    for other, how in service.get("depends_on", {}).items():
        assert how["condition"] in CONDITIONS
        assert how["condition"] != "service_healthy" or "healthcheck" in SERVICES[other]


@services
def test_what_a_service_of_the_demo_mounts_is_there(name: str) -> None:
    for volume in SERVICES[name].get("volumes", ()):
        source, _, _ = volume.partition(":")
        assert (DEPLOY / source).is_file() if source.startswith(".") else source in compose()["volumes"]


@services
def test_the_demo_is_reached_from_this_machine_only_and_its_passwords_can_be_set(name: str) -> None:
    service = SERVICES[name]
    assert all(each.startswith("127.0.0.1:") for each in service.get("ports", ()))
    for key, value in service.get("environment", {}).items():
        secret = re.search("PASSWORD|SECRET|TOKEN|MC_HOST", key)
        assert not secret or VARIABLE.search(value), key
        assert all(default for _, default in VARIABLE.findall(value)), f"{key} needs a default"


def test_the_config_of_the_demo_finds_everything_in_its_environment() -> None:
    given = {key: VARIABLE.sub(_default, value) for key, value in SERVICES["headwater"]["environment"].items()}
    config = Config.load(DEPLOY / "compose" / "headwater.yaml", given)
    assert config.server is not None
    assert config.server.token.get_secret_value() == _default(
        VARIABLE.match(SERVICES["headwater"]["environment"]["HEADWATER_TOKEN"])
    )
    assert SERVICES["headwater"]["ports"] == [f"127.0.0.1:{config.server.port}:{config.server.port}"]
    bucket = SERVICES["bucket"]["entrypoint"][-1].split("/")[1]
    assert config.log.path.startswith(f"s3://{bucket}/")
    assert config.ducklakes["main"].data_path.startswith(f"s3://{bucket}/")


def _default(variable: re.Match[str] | None) -> str:
    assert variable is not None
    return str(variable[2]).removeprefix(":-")


def test_the_demo_runs_a_command_that_there_is_and_lets_it_drain() -> None:
    option, file, command, *arguments = SERVICES["headwater"]["command"]
    assert (option, command) == ("-c", "run")
    assert f"./compose/headwater.yaml:{file}:ro" in SERVICES["headwater"]["volumes"]
    assert run.make_context("run", arguments, parent=None)
    assert int(SERVICES["headwater"]["stop_grace_period"].removesuffix("s")) >= CAPTURE_GRACE + DELIVERY_GRACE + 15


def test_the_shop_of_the_demo_is_sql_that_postgres_runs(postgres: EmbeddedPostgres, database: str) -> None:
    created = (DEPLOY / "compose" / "shop.sql").read_text().partition("\\connect shop")[2]
    once = (DEPLOY / "compose" / "shoppers.sql").read_text().replace("\\watch 1", ";")
    psql = [
        str(postgres.program("psql")),
        database,
        "--quiet",
        "--no-psqlrc",
        "--set",
        "ON_ERROR_STOP=1",
        "--tuples-only",
    ]
    for script in (created, once, "SELECT count(*) FROM orders"):
        done = subprocess.run(psql, input=script, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    assert int(done.stdout) == 20_020


@pytest.mark.skipif(shutil.which("docker") is None, reason="docker is not installed")
def test_docker_understands_the_compose_file() -> None:
    docker = ["docker", "compose"]
    if subprocess.run([*docker, "version"], capture_output=True, check=False).returncode:
        pytest.skip("docker has no compose")
    asked = [*docker, "--file", str(DEPLOY / "compose.yaml"), "config", "--quiet"]
    checked = subprocess.run(asked, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr


def test_an_executor_on_kubernetes_starts_as_spark_says(tmp_path: Path) -> None:
    """With a program in place of Java that prints what it was given."""
    java = tmp_path / "java"
    java.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    java.chmod(0o755)
    options = {f"SPARK_JAVA_OPT_{number}": f"-Doption={number} of many" for number in range(11)}
    wanted = {
        "SPARK_EXECUTOR_MEMORY": "1g",
        "SPARK_HOME": "/opt/spark",
        "SPARK_DRIVER_URL": "spark://driver",
        "SPARK_EXECUTOR_ID": "7",
        "SPARK_EXECUTOR_CORES": "4",
        "SPARK_APPLICATION_ID": "spark-1",
        "SPARK_EXECUTOR_POD_IP": "10.0.0.1",
        "SPARK_RESOURCE_PROFILE_ID": "0",
        "SPARK_EXECUTOR_POD_NAME": "exec-7",
    }
    said = subprocess.run(
        ["/bin/sh", str(DEPLOY / "spark-executor"), "executor"],
        env=wanted | options | {"PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    assert said[:11] == list(options.values())
    assert said[11:15] == ["-Xms1g", "-Xmx1g", "-cp", "/opt/spark/conf:/opt/spark/jars/*"]
    backend = shlex.split(
        "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend --driver-url spark://driver --executor-id 7"
        " --cores 4 --app-id spark-1 --hostname 10.0.0.1 --resourceProfileId 0 --podName exec-7"
    )
    assert said[15:] == backend
