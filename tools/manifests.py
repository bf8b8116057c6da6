"""The manifests of deploy/, against the schemas of Kubernetes: `python -m tools.manifests` names every fault."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import yaml

__all__ = ["VERSIONS", "documents", "faults"]

FOLDER = Path(__file__).parents[1] / "deploy" / "kubernetes"
VERSIONS = ("1.31", "1.37")  # of Kubernetes: the oldest that we mean to support, and the newest that we have schemas of
_PATCHES = "patches"  # what a kustomization has as a patch is a part of an object, and no object of its own


def _mapping(required: list[str], **properties: Any) -> dict[str, Any]:
    return {"type": "object", "required": required, "properties": properties, "additionalProperties": False}


_TEXT = {"type": "string", "minLength": 1}
_TEXTS = {"type": "object", "additionalProperties": _TEXT}
_PERIOD = {"type": "string", "pattern": "^[0-9]+(ms|s|m|h)$"}
_METADATA = _mapping(["name"], name=_TEXT, namespace=_TEXT, labels=_TEXTS, annotations=_TEXTS)
_AUTHORIZATION = _mapping(["credentials"], type=_TEXT, credentials=_mapping(["name", "key"], name=_TEXT, key=_TEXT))
_ENDPOINT = _mapping(
    ["port"],
    port=_TEXT,
    path={"type": "string", "pattern": "^/"},
    scheme={"enum": ["http", "https"]},
    interval=_PERIOD,
    scrapeTimeout=_PERIOD,
    authorization=_AUTHORIZATION,
)
_FILES = {"type": "array", "items": {"type": "string", "pattern": r"^[\w./-]+$"}}
# What Kubernetes itself does not know: by kind, and of that what ours have.
_OTHERS: dict[tuple[str, str], dict[str, Any]] = {
    ("monitoring.coreos.com/v1", "ServiceMonitor"): _mapping(
        ["apiVersion", "kind", "metadata", "spec"],
        apiVersion=_TEXT,
        kind=_TEXT,
        metadata=_METADATA,
        spec=_mapping(
            ["selector", "endpoints"],
            selector=_mapping(["matchLabels"], matchLabels=_TEXTS),
            endpoints={"type": "array", "minItems": 1, "items": _ENDPOINT},
        ),
    ),
    ("kustomize.config.k8s.io/v1beta1", "Kustomization"): _mapping(
        ["apiVersion", "kind", "resources"],
        apiVersion=_TEXT,
        kind=_TEXT,
        namespace=_TEXT,
        resources=_FILES,
        patches={"type": "array", "items": _mapping(["path"], path=_TEXT)},
        labels={"type": "array", "items": _mapping(["pairs"], pairs=_TEXTS, includeSelectors={"type": "boolean"})},
        images={"type": "array", "items": _mapping(["name", "newTag"], name=_TEXT, newTag=_TEXT)},
    ),
}


def documents(folder: Path = FOLDER) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Every object in the folders of manifests, with its file."""
    for path in sorted(folder.rglob("*.yaml")):
        for each in yaml.safe_load_all(path.read_text()):
            yield path, each


def faults(folder: Path = FOLDER) -> Iterator[str]:
    """What is wrong with the manifests: against the schemas, and files that a kustomization names in vain."""
    patches = {path.parent / each["path"] for path, object_ in documents(folder) for each in object_.get(_PATCHES, ())}
    for path, object_ in documents(folder):
        where = f"{path.relative_to(folder)}: {object_.get('kind')}"
        if (object_.get("apiVersion"), object_.get("kind")) in _OTHERS:
            yield from (f"{where}: {each}" for each in _of_others(object_))
            yield from (f"{where}: no {each}" for each in _named(object_) if not (path.parent / each).exists())
        elif path not in patches:
            yield from (f"{where}: {each}" for each in _of_kubernetes(object_))


def _of_others(object_: dict[str, Any]) -> Iterator[str]:
    schema = _OTHERS[object_["apiVersion"], object_["kind"]]
    for each in jsonschema.Draft202012Validator(schema).iter_errors(object_):
        yield f"{each.json_path}: {each.message}"


def _of_kubernetes(object_: dict[str, Any]) -> Iterator[str]:
    for version in VERSIONS:
        try:
            kubernetes_validate.validate(object_, version, strict=True)
        except kubernetes_validate.ValidationError as error:
            yield f"{'.'.join(map(str, error.path))}: {error.message} (Kubernetes {version})"
        except kubernetes_validate.SchemaNotFoundError as error:
            yield f"{error.message}"


def _named(kustomization: dict[str, Any]) -> list[str]:
    return [*kustomization.get("resources", ()), *(each["path"] for each in kustomization.get(_PATCHES, ()))]


if __name__ == "__main__":
    if found := list(faults()):
        print("\n".join(f"deploy/kubernetes/{each}" for each in found), file=sys.stderr)
        sys.exit(1)
    print(f"{sum(1 for _ in documents())} manifests fit their schemas")
