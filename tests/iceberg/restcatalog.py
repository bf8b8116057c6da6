"""A small Iceberg REST catalog for tests: those requests of the specification that we make, on PyIceberg's SQL catalog.

It asks for a bearer token, decides on conflicts and on locations by itself, and can be made to fail.
"""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from pyiceberg.catalog.rest import CreateTableRequest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.table import CommitTableRequest, StagedTable, Table
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.table.update import AssertCreate

__all__ = ["TOKEN", "RestCatalogServer", "rest_catalog"]

TOKEN = "a-token-that-no-message-may-show"
_STATUS = {
    NoSuchNamespaceError: 404,
    NoSuchTableError: 404,
    NamespaceAlreadyExistsError: 409,
    TableAlreadyExistsError: 409,
    CommitFailedException: 409,
    ValueError: 400,
}


class RestCatalogServer(ThreadingHTTPServer):
    """`lose_answers` commits are carried out and answered with 504: their clients cannot know that they landed.

    So many as `answered` are answered before them.

    After as many commits as are `accepted`, all others are conflicts. Everything is `refused` with this status, and
    a message that quotes the token. With `s3`, it lends these properties to whoever loads a table, and a token of each.
    """

    def __init__(self, folder: Path, warehouse: str | None = None, s3: Mapping[str, str] | None = None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.lent, self.loans = dict(s3 or {}), 0
        where = warehouse or str(folder / "warehouse")
        self.catalog = SqlCatalog("rest", uri=f"sqlite:///{folder}/rest.sqlite", warehouse=where, **self.lent)
        self.lock = threading.Lock()
        self.refused: int | None = None
        self.lose_answers = self.answered = 0
        self.unavailable = 0
        self.accepted: int | None = None

    @property
    def properties(self) -> dict[str, str]:
        return {"type": "rest", "uri": f"http://127.0.0.1:{self.server_port}", "token": TOKEN}


@contextmanager
def rest_catalog(
    folder: Path, warehouse: str | None = None, s3: Mapping[str, str] | None = None
) -> Iterator[RestCatalogServer]:
    with RestCatalogServer(folder, warehouse, s3) as server, closing(server.catalog):
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    server: RestCatalogServer

    def log_message(self, format: str, *args: Any) -> None:
        """Tests do not want to see requests."""

    def do_GET(self) -> None:
        self._answer("GET")

    def do_POST(self) -> None:
        self._answer("POST")

    def do_HEAD(self) -> None:
        self._answer("HEAD")

    def do_DELETE(self) -> None:
        self._answer("DELETE")

    def _answer(self, method: str) -> None:
        size = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(size)) if size else {}
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self._send(401, _error("NotAuthorizedException", "no valid token", 401))
            return
        if self.server.refused is not None:
            self._send(self.server.refused, _error("Refused", f"not with {TOKEN}", self.server.refused))
            return
        if self.server.unavailable:
            self.server.unavailable -= 1
            self._send(503, _error("ServiceUnavailable", "try again later", 503))
            return
        path = [unquote(part) for part in urlsplit(self.path).path.removeprefix("/v1/").split("/")]
        try:
            with self.server.lock:  # SQLite has one writer
                status, found = self._found(method, path, body)
        except tuple(_STATUS) as error:
            status = _STATUS[type(error)]
            self._send(status, _error(type(error).__name__, str(error), status))
            return
        if method == "POST" and path[2:3] == ["tables"] and len(path) == 4 and self.server.lose_answers:
            if self.server.answered:
                self.server.answered -= 1
            else:
                self.server.lose_answers -= 1
                status, found = 504, _error("GatewayTimeout", "no answer in time", 504)
        self._send(status, found)

    def _found(self, method: str, path: list[str], body: dict[str, Any]) -> tuple[int, Any]:
        catalog = self.server.catalog
        match method, path:
            case "GET", ["config"]:
                return 200, {"defaults": {}, "overrides": {}}
            case "GET", ["namespaces"]:
                return 200, {"namespaces": [list(each) for each in catalog.list_namespaces()]}
            case "POST", ["namespaces"]:
                catalog.create_namespace(tuple(body["namespace"]), body.get("properties") or {})
                return 200, body
            case "GET", ["namespaces", name]:
                return 200, {"namespace": [name], "properties": catalog.load_namespace_properties(name)}
            case "POST", ["namespaces", name, "properties"]:
                done = catalog.update_namespace_properties(
                    name, set(body.get("removals") or ()), body.get("updates") or {}
                )
                return 200, {"updated": done.updated, "removed": done.removed, "missing": done.missing}
            case "GET", ["namespaces", name, "tables"]:
                found = catalog.list_tables(name)
                return 200, {"identifiers": [{"namespace": [each[0]], "name": each[-1]} for each in found]}
            case "POST", ["namespaces", name, "tables"]:
                return 200, self._created(name, CreateTableRequest.model_validate({"location": None} | body))
            case "GET", ["namespaces", name, "tables", table]:
                return 200, self._loaded(catalog.load_table((name, table)))
            case "POST", ["namespaces", name, "tables", table]:
                return 200, self._committed((name, table), CommitTableRequest.model_validate({**body}))
            case "DELETE", ["namespaces", name, "tables", table]:
                catalog.drop_table((name, table))
                return 204, None
            case "POST", ["tables", "rename"]:
                old, new = ((*each["namespace"], each["name"]) for each in (body["source"], body["destination"]))
                catalog.rename_table(old, new)
                return 204, None
        return 404, _error("NoSuchEndpoint", f"{method} {self.path}", 404)

    def _created(self, schema: str, request: CreateTableRequest) -> Any:
        arguments = (
            (schema, request.name),
            request.table_schema,
            request.location or f"{self.server.catalog.properties['warehouse']}/{uuid.uuid4()}",
            request.partition_spec or UNPARTITIONED_PARTITION_SPEC,
            request.write_order or UNSORTED_SORT_ORDER,
            request.properties,
        )
        if request.stage_create:
            if self.server.catalog.table_exists((schema, request.name)):
                raise TableAlreadyExistsError(request.name)
            return self._loaded(self.server.catalog._create_staged_table(*arguments))
        return self._loaded(self.server.catalog.create_table(*arguments))

    def _committed(self, name: tuple[str, str], request: CommitTableRequest) -> Any:
        catalog = self.server.catalog
        if self.server.accepted is not None:
            if self.server.accepted == 0:
                raise CommitFailedException("another client was faster")
            self.server.accepted -= 1
        table: Table
        if any(isinstance(each, AssertCreate) for each in request.requirements):
            metadata = catalog._empty_table_metadata()
            table = StagedTable(name, metadata, "", catalog._load_file_io(), catalog)
        else:
            table = catalog.load_table(name)
        done = catalog.commit_table(table, request.requirements, request.updates)
        return {"metadata-location": done.metadata_location, "metadata": json.loads(done.metadata.model_dump_json())}

    def _loaded(self, table: Table) -> Any:
        config = self.server.lent
        if config:
            self.server.loans += 1
            config = {**config, "s3.session-token": f"{self.server.loans} for {table.name()[-1]}"}
        metadata = json.loads(table.metadata.model_dump_json())
        return {"metadata-location": table.metadata_location, "metadata": metadata, "config": config}

    def _send(self, status: int, body: Any) -> None:
        text = b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(text)


def _error(kind: str, message: str, code: int) -> Any:
    return {"error": {"message": message, "type": kind, "code": code}}
