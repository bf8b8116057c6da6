"""The manifests for Kubernetes: they fit the schemas, and say what the program needs."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from tools.manifests import FOLDER, documents, faults

from headwater.commands.cli import cli
from headwater.commands.run import run
from headwater.config import Config
from headwater.master import is_cluster
from headwater.supervise.running import CAPTURE_GRACE, DELIVERY_GRACE

Object = dict[str, Any]
OBJECTS = [(path.relative_to(FOLDER), each) for path, each in documents()]
KUBECTL = shutil.which("kubectl")


def of_kind(*kinds: str, folder: str = "base") -> list[Object]:
    return [each for path, each in OBJECTS if path.parts[0] == folder and each["kind"] in kinds]


WORKLOADS = of_kind("StatefulSet", "Deployment")


def pod(workload: Object) -> Object:
    spec: Object = workload["spec"]["template"]["spec"]
    return spec


def container(workload: Object) -> Object:
    (found,) = pod(workload)["containers"]
    assert isinstance(found, dict)
    return found


def role(workload: Object) -> str:
    component: str = workload["metadata"]["labels"]["app.kubernetes.io/component"]
    return component


workloads = pytest.mark.parametrize("workload", WORKLOADS, ids=role)


def test_every_manifest_fits_its_schema() -> None:
    assert list(faults()) == []


def faulty(folder: Path, name: str, old: str, new: str) -> list[str]:
    for path in (FOLDER / "base").iterdir():
        text = path.read_text()
        if path.name == name:
            assert old in text
            text = text.replace(old, new)
        (folder / path.name).write_text(text)
    return list(faults(folder))


@pytest.mark.parametrize(
    ("name", "old", "new", "expected"),
    [
        ("capture.yaml", "replicas: 2", "replicas: one", "capture.yaml: StatefulSet: spec.replicas: 'one' is not of"),
        ("deliver.yaml", "emptyDir:", "emptydir:", "deliver.yaml: Deployment: spec.template.spec.volumes.1"),
        ("deliver.yaml", "policy/v1", "policy/v1beta1", "Couldn't find schema for kind PodDisruptionBudget"),
        ("monitor.yaml", "interval: 15s", "interval: 15", "monitor.yaml: ServiceMonitor: $.spec.endpoints[0].interval"),
        ("monitor.yaml", "selector:", "selectors:", "monitor.yaml: ServiceMonitor: $.spec: Additional properties"),
        ("kustomization.yaml", "network.yaml", "networks.yaml", "kustomization.yaml: Kustomization: no networks.yaml"),
    ],
)
def test_a_fault_in_a_manifest_is_named_with_its_place(
    tmp_path: Path, name: str, old: str, new: str, expected: str
) -> None:
    assert any(expected in each for each in faulty(tmp_path, name, old, new))


def test_make_check_looks_at_the_manifests() -> None:
    assert "python -m tools.manifests" in (FOLDER.parents[1] / "Makefile").read_text()


@pytest.mark.parametrize("folder", ["base", "spark"])
def test_the_config_in_the_manifests_is_one_that_headwater_reads(folder: str, tmp_path: Path) -> None:
    (config_map,) = of_kind("ConfigMap", folder=folder)
    (secret,) = of_kind("Secret")
    file = tmp_path / "headwater.yaml"
    file.write_text(config_map["data"]["headwater.yaml"])
    config = Config.load(file, secret["stringData"])  # every variable without a default is in the Secret
    assert config.server is not None
    assert config.server.host == "0.0.0.0"
    assert config.server.port == container(WORKLOADS[0])["ports"][0]["containerPort"]
    assert config.server.token.get_secret_value() == "change-me"
    assert is_cluster(config.spark.master) == (folder == "spark")
    assert config.log.path.startswith("s3://")  # the pods that capture and those that deliver share no disk


def test_the_secret_has_no_value_that_nothing_reads() -> None:
    (secret,), (config_map,) = of_kind("Secret"), of_kind("ConfigMap")
    names = {name for name in secret["stringData"] if not name.startswith("AWS_")}
    assert {name for name in names if f"${{{name}}}" not in config_map["data"]["headwater.yaml"]} == set()
    assert set(secret["stringData"].values()) <= {"change-me", "eu-central-1"}


@workloads
def test_a_pod_runs_a_command_that_there_is(workload: Object) -> None:
    arguments = container(workload)["args"]
    context = run.make_context("run", arguments[arguments.index("run") + 1 :], parent=None)
    assert context.params["role"] == role(workload)
    assert CliRunner().invoke(cli, [*arguments, "--help"]).exit_code == 0
    assert container(workload)["volumeMounts"][0]["mountPath"] == str(Path(arguments[1]).parent)


@workloads
def test_a_pod_may_drain_before_it_is_killed(workload: Object) -> None:
    assert pod(workload)["terminationGracePeriodSeconds"] >= CAPTURE_GRACE + DELIVERY_GRACE + 15


@workloads
def test_a_pod_can_do_no_more_than_it_needs(workload: Object) -> None:
    inside = container(workload)["securityContext"]
    assert pod(workload)["securityContext"]["runAsNonRoot"]
    assert pod(workload)["automountServiceAccountToken"] is False
    assert inside["readOnlyRootFilesystem"]
    assert inside["allowPrivilegeEscalation"] is False
    assert inside["capabilities"] == {"drop": ["ALL"]}
    (scratch,) = (each["name"] for each in pod(workload)["volumes"] if "emptyDir" in each)
    assert {"name": scratch, "mountPath": "/tmp"} in container(workload)["volumeMounts"]


@workloads
def test_a_pod_says_whether_it_lives_and_whether_it_keeps_up(workload: Object) -> None:
    probes = {name: container(workload)[f"{name}Probe"]["httpGet"]["path"] for name in ("startup", "liveness")}
    assert probes == {"startup": "/healthz", "liveness": "/healthz"}
    # A pod that captures does not wait for those that deliver, and a standby is never ready.
    ready = {"capture": "/healthz", "deliver": "/readyz"}[role(workload)]
    assert container(workload)["readinessProbe"]["httpGet"]["path"] == ready


def test_a_pod_that_does_not_get_ready_is_replaced_by_the_next_version() -> None:
    (capture,) = of_kind("StatefulSet")
    assert capture["spec"]["podManagementPolicy"] == "Parallel"


@workloads
def test_a_node_is_drained_whatever_the_number_of_replicas_and_another_pod_goes_on(workload: Object) -> None:
    labels = workload["spec"]["template"]["metadata"]["labels"].items()
    budgets = [each["spec"] for each in of_kind("PodDisruptionBudget")]
    (budget,) = (each for each in budgets if each["selector"]["matchLabels"].items() <= labels)
    assert (budget["maxUnavailable"], budget["unhealthyPodEvictionPolicy"]) == (1, "AlwaysAllow")
    assert workload["spec"]["replicas"] > 1
    (spread,) = pod(workload)["topologySpreadConstraints"]
    assert (spread["labelSelector"]["matchLabels"].items(), spread["topologyKey"]) == (labels, "kubernetes.io/hostname")


def built(folder: str) -> dict[str, Object]:
    """Objects by kind and name: those of the base, and what the overlay's patches say instead."""
    found: dict[str, Object] = {}
    for path, each in OBJECTS:
        if path.parts[0] in {"base", folder}:
            name = f"{each['kind']} {each['metadata']['name']}" if "metadata" in each else str(path)
            found[name] = merged(found.get(name, {}), each)
    return found


def merged(base: Object, patch: Object) -> Object:
    """As kustomize does, as far as our patches need it."""
    both = {key: merged(base[key], patch[key]) for key in base.keys() & patch.keys() if isinstance(base[key], dict)}
    (mine,), (theirs,) = (each.get("containers", [{}]) for each in (base, patch))
    return base | patch | both | ({"containers": [merged(mine, theirs)]} if mine and theirs else {})


@pytest.mark.parametrize("folder", ["base", "spark"])
def test_the_page_is_that_of_pods_that_can_verify(folder: str) -> None:
    """A verification is a process beside what runs in the pod that was asked, and starts a Spark of its own."""
    objects = built(folder)
    page, pods = objects["Service headwater"]["spec"], objects["Deployment headwater-deliver"]["spec"]["template"]
    assert page["selector"].items() <= pods["metadata"]["labels"].items()
    assert page["sessionAffinity"] == "ClientIP"
    (inside,) = pods["spec"]["containers"]
    config = yaml.safe_load(objects["ConfigMap headwater"]["data"]["headwater.yaml"])["spark"]
    local = not is_cluster(config["master"])
    heap = 1.2 * gib(config["conf"].get("spark.driver.memory", "2g"))
    workers = 0.5 * int(inside["resources"]["limits"]["cpu"]) if local else 0.0
    assert gib(inside["resources"]["limits"]["memory"]) >= 2 * (heap + workers) + 0.8
    assert inside["resources"]["requests"]["memory"] == inside["resources"]["limits"]["memory"]
    if not local:
        assert {each["name"] for each in inside["env"]} == {"POD_IP", "POD_NAME"}
        assert pods["spec"]["automountServiceAccountToken"]


def gib(size: str) -> float:
    return float(size.rstrip("gGi"))


def test_executors_reach_every_application_of_a_pod_that_delivers() -> None:
    """The second driver in a pod has other ports: those of the config are taken."""
    (policy,) = of_kind("NetworkPolicy", folder="spark")
    executors = {"app.kubernetes.io/component": "executor"}
    rules = policy["spec"]["ingress"]
    (rule,) = (each for each in rules if {"podSelector": {"matchLabels": executors}} in each["from"])
    assert "ports" not in rule
    (config_map,) = of_kind("ConfigMap", folder="spark")
    assert yaml.safe_load(config_map["data"]["executor.yaml"])["metadata"]["labels"] == executors


def test_what_is_selected_is_there() -> None:
    pods = [each["spec"]["template"]["metadata"]["labels"] for each in WORKLOADS]
    selectors = [each["spec"]["selector"] for each in of_kind("Service")]
    selectors += [each["spec"]["selector"]["matchLabels"] for each in [*WORKLOADS, *of_kind("PodDisruptionBudget")]]
    assert all(any(selector.items() <= labels.items() for labels in pods) for selector in selectors)
    (monitor,), services = of_kind("ServiceMonitor"), of_kind("Service")
    wanted = monitor["spec"]["selector"]["matchLabels"].items()
    assert [each["metadata"]["name"] for each in services if wanted <= each["metadata"].get("labels", {}).items()] == [
        "headwater-pods"
    ]


@pytest.mark.skipif(KUBECTL is None, reason="kubectl is not installed")
@pytest.mark.parametrize("folder", ["base", "spark"])
def test_kustomize_builds_what_fits_the_schemas(folder: str, tmp_path: Path) -> None:
    built = subprocess.run(
        [str(KUBECTL), "kustomize", str(FOLDER / folder)], capture_output=True, text=True, check=True
    )
    (tmp_path / "built.yaml").write_text(built.stdout)
    assert list(faults(tmp_path)) == []
    images = [container(each)["image"] for each in yaml.safe_load_all(built.stdout) if each["kind"] == "Deployment"]
    assert images == ["headwater:0.1.0"]


@pytest.mark.skipif(KUBECTL is None, reason="kubectl is not installed")
def test_the_overlay_of_the_documentation_changes_the_config_and_the_image(tmp_path: Path) -> None:
    shutil.copytree(FOLDER, tmp_path / "deploy" / "kubernetes")
    overlay = tmp_path / "my-overlay"
    overlay.mkdir()
    page = (FOLDER.parents[1] / "docs" / "deployment.md").read_text()
    (overlay / "kustomization.yaml").write_text(
        page.split("```yaml\n# my-overlay/kustomization.yaml\n")[1].split("```")[0]
    )
    config = (FOLDER / "base" / "config.yaml").read_text()
    (overlay / "config.yaml").write_text(config.replace("source-db", "mine"))
    done = subprocess.run([str(KUBECTL), "kustomize", str(overlay)], capture_output=True, text=True, check=True)
    found = {each["kind"]: each for each in yaml.safe_load_all(done.stdout)}
    assert "@mine:5432" in found["ConfigMap"]["data"]["headwater.yaml"]
    assert container(found["Deployment"])["image"] == "registry.example.com/headwater:0.1.0"
    assert container(found["StatefulSet"])["image"] == "registry.example.com/headwater:0.1.0"
