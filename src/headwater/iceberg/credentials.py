"""How to reach an Iceberg lake's files in S3: as the properties say, or as the catalog says for each table.

Light enough for Spark's workers.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyiceberg.table import Table

from headwater.files import S3

__all__ = ["s3_of", "s3_of_table"]

_S3 = {
    "key": ("s3.access-key-id", "client.access-key-id"),
    "secret": ("s3.secret-access-key", "client.secret-access-key"),
    "token": ("s3.session-token", "client.session-token"),
    "region": ("s3.region", "client.region"),
    "endpoint": ("s3.endpoint",),
}


def s3_of(properties: Mapping[str, str]) -> S3 | None:
    """How to reach the files in S3, if the properties say so."""
    found = {name: next(filter(None, map(properties.get, keys)), None) for name, keys in _S3.items()}
    return S3(**{name: each for name, each in found.items() if each}) if found["key"] or found["endpoint"] else None


def s3_of_table(table: Table) -> S3 | None:
    """How to reach the files of one table: a REST catalog may lend credentials for it alone, and for some time."""
    return s3_of(table.io.properties)
