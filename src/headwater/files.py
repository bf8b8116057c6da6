"""Files of a log or a lake, on local disk or in S3, through pyarrow."""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import pyarrow as pa
from pyarrow import fs

from headwater.errors import ConfigError, Unreachable

__all__ = [
    "S3",
    "absolute",
    "check_could_write",
    "check_scheme",
    "check_writable",
    "durable",
    "filesystem",
    "folder",
    "inside",
    "is_local",
    "make_folder",
    "sync",
]

_S3 = ("s3://", "s3a://", "s3n://")  # some catalogs spell it otherwise
_SCHEME = re.compile(r"^(s3[an]?://|file:(//)?(?=/))")


@dataclass(frozen=True, slots=True)
class S3:
    """How to reach a bucket. With a custom endpoint, buckets are addressed by path."""

    key: str | None = None
    secret: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    region: str = "us-east-1"
    endpoint: str | None = None

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> S3:
        return cls(
            key=environment.get("AWS_ACCESS_KEY_ID"),
            secret=environment.get("AWS_SECRET_ACCESS_KEY"),
            token=environment.get("AWS_SESSION_TOKEN"),
            region=environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION") or "us-east-1",
            endpoint=environment.get("AWS_ENDPOINT_URL_S3") or environment.get("AWS_ENDPOINT_URL"),
        )

    @property
    def scheme(self) -> str:
        return "http" if (self.endpoint or "").startswith("http://") else "https"

    @property
    def host(self) -> str | None:
        """The endpoint without its scheme."""
        return self.endpoint.split("://")[-1].rstrip("/") if self.endpoint else None


def is_local(path: str) -> bool:
    """Whether the path is on a disk of this machine."""
    return not path.startswith(_S3)


def check_scheme(path: str) -> None:
    """ConfigError if it is neither on a disk of this machine nor in S3."""
    scheme, separator, _ = path.partition("://")
    if separator and scheme != "file" and not path.startswith(_S3):
        raise ConfigError(
            f"cannot reach {path!r}: Headwater writes to local disks and to s3://",
            hint="choose a folder or an s3:// place for the lake's files",
        )


def absolute(path: str) -> str:
    """The canonical spelling of a data path: absolute, ending in one `/`."""
    where = os.path.abspath(inside(path)) if is_local(path) else path
    return where.rstrip("/") + "/"


def inside(path: str) -> str:
    """A path as its filesystem wants it: without the `s3://` or `file://`."""
    return _SCHEME.sub("", path)


def filesystem(path: str, s3: S3 | None = None) -> fs.FileSystem:
    """The filesystem that holds `path`. Without `s3`, the AWS_* variables of this process apply."""
    check_scheme(path)
    if is_local(path):
        return fs.LocalFileSystem()
    # Arrow knows AWS_ENDPOINT_URL too, but then looks for http://bucket.endpoint/.
    s3 = s3 or S3.from_environment(os.environ)
    return fs.S3FileSystem(
        access_key=s3.key,
        secret_key=s3.secret,
        session_token=s3.token,
        region=s3.region,
        endpoint_override=s3.host,
        scheme=s3.scheme,
        connect_timeout=10,
        request_timeout=60,
        retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=3),
    )


def folder(files: fs.FileSystem, path: str) -> str:
    """Make the folder `path`, where folders exist; return the path as `files` wants it."""
    where = inside(path)
    if isinstance(files, fs.LocalFileSystem):
        make_folder(where)
    return where


def make_folder(path: str) -> None:
    """Make a folder on local disk, and those above it; they survive a loss of power."""
    path = path.rstrip("/") or "/"
    if not os.path.isdir(path):
        above = os.path.dirname(path) or "."
        make_folder(above)
        with suppress(FileExistsError):  # another process was faster, and may not have synced it yet
            os.mkdir(path)
        sync(above)


@contextmanager
def durable(files: fs.FileSystem, path: str) -> Iterator[pa.NativeFile]:
    """A new file to write to; after the block, the file and its name survive a loss of power."""
    with files.open_output_stream(path) as stream:
        yield stream
    if isinstance(files, fs.LocalFileSystem):  # an object store has it when the stream is closed
        sync(path)
        sync(os.path.dirname(path))


def sync(path: str) -> None:
    """Flush a file's content, or the names in a folder, to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def check_could_write(path: str, s3: S3 | None = None) -> None:
    """Like `check_writable`, but nothing is created on local disk, and nothing stays in an object store."""
    if not is_local(path):
        check_writable(path, s3)
        return
    where = os.path.abspath(inside(path))
    while not os.path.lexists(where):
        where = os.path.dirname(where)
    if not os.path.isdir(where):
        raise _not_writable(path, f"{where!r} is not a folder")
    if not os.access(where, os.W_OK | os.X_OK):
        raise _not_writable(path, f"{where!r} may not be written")


def _not_writable(path: str, why: object) -> ConfigError:
    return ConfigError(
        f"data_path {path!r} is not writable: {why}", hint="create it, give this user write access, or change it"
    )


def check_writable(path: str, s3: S3 | None = None) -> None:
    """Write a file below `path` and delete it again."""
    try:
        files = filesystem(path, s3)
        probe = folder(files, absolute(path)) + f".headwater-{uuid.uuid4().hex}"
        with files.open_output_stream(probe) as stream:
            stream.write(b"headwater")
        files.delete_file(probe)
    except OSError as error:
        if "NETWORK_CONNECTION" in str(error) or "curlCode" in str(error):
            raise Unreachable(f"the object store of data_path {path!r} does not answer") from error
        raise _not_writable(path, error) from error
