"""The page's own files: read once, served by name, so that no path leads anywhere else."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib.resources import files

from starlette.requests import Request
from starlette.responses import Response

from headwater.web.answers import Refusal

__all__ = ["PageFiles"]

_TYPES = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
    "png": "image/png",
}


@dataclass(frozen=True, slots=True)
class _File:
    content: bytes
    kind: str
    mark: str


class PageFiles:
    def __init__(self) -> None:
        found = (each for each in files("headwater.web").joinpath("static").iterdir() if each.is_file())
        self._files = {each.name: _file(each.name, each.read_bytes()) for each in found if _kind(each.name)}

    def names(self) -> list[str]:
        return sorted(self._files)

    async def index(self, request: Request) -> Response:
        return self._answer(request, "index.html")

    async def file(self, request: Request) -> Response:
        return self._answer(request, request.path_params["name"])

    def _answer(self, request: Request, name: str) -> Response:
        file = self._files.get(name)
        if file is None:
            raise Refusal(404, f"the page has no file {name!r}", "it begins at /")
        headers = {"Cache-Control": "no-cache", "ETag": file.mark}
        if request.headers.get("If-None-Match") == file.mark:
            return Response(status_code=304, headers=headers)
        return Response(file.content, headers=headers, media_type=file.kind)


def _kind(name: str) -> str | None:
    return _TYPES.get(name.rpartition(".")[2])


def _file(name: str, content: bytes) -> _File:
    return _File(content, _kind(name) or "", f'"{hashlib.sha256(content).hexdigest()[:16]}"')
