"""What a Spark cluster cannot reach: its executors run on other machines, and read and write everything there is."""

from __future__ import annotations

from collections.abc import Iterator

from headwater.config.file import Document, shown
from headwater.config.values import is_rest
from headwater.errors import ConfigError
from headwater.files import is_local
from headwater.master import is_cluster

__all__ = ["out_of_reach"]

_LAKES = (("lakes", "*"), ("routes", "*", "to", "lake_template"))


def out_of_reach(document: Document) -> Iterator[ConfigError]:
    """Every place on this machine's disks, if the file names a cluster.

    A task would make such a folder on its own machine and write to it, and no other process would ever find the files.
    """
    masters = [master for _, master in document.find("spark", "master")]
    if not any(isinstance(master, str) and is_cluster(master) for master in masters):
        return
    for where, place in _places(document):
        if isinstance(place, str) and is_local(place):
            yield _problem(document, where, place, "write s3://bucket/prefix")
    for where, catalog in _catalogs(document):
        if isinstance(catalog, str) and catalog.startswith("sqlite:"):
            yield _problem(document, where, catalog, "keep the catalog in a PostgreSQL that they reach")


def _places(document: Document) -> Iterator[tuple[str, object]]:
    yield from document.find("log")
    yield from document.find("log", "path")
    for lake in _LAKES:
        yield from document.find(*lake, "data_path")
        for where, properties in document.find(*lake, "iceberg"):
            if isinstance(properties, dict) and not is_rest({key: str(value) for key, value in properties.items()}):
                yield f"{where}.warehouse", properties.get("warehouse")


def _catalogs(document: Document) -> Iterator[tuple[str, object]]:
    for lake in _LAKES:
        yield from document.find(*lake, "ducklake")
        yield from document.find(*lake, "iceberg", "uri")


def _problem(document: Document, where: str, value: str, hint: str) -> ConfigError:
    message = f"{shown(value)} is on a disk of this machine, and the executors of spark.master are on others"
    return document.problem(where, message, hint)
