"""Serves the page's files at / and below /page/, each with the headers that restrict it to this service."""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.abc import Traversable
from importlib.resources import files

from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException
from turnscore_core.errors import ScoringError

from turnscore_service.api.boundary import refuse
from turnscore_service.api.http.exchange import check_page, request_id_of, send_answer
from turnscore_service.settings.service import Settings

FIRST = "index.html"
"""What stands at `/`; everything else is at `/page/` and its name."""
_MEDIA_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


@dataclass(frozen=True)
class PageFile:
    """One file; `tag` differs whenever its content does."""

    content: bytes
    media_type: str
    tag: str


def read_page() -> Mapping[str, PageFile]:
    """Every file of the page, by its name below `static/`, such as `turnscore/client.js`."""
    return dict(_walk(files(__name__).joinpath("static"), ""))


def _walk(folder: Traversable, above: str) -> Iterator[tuple[str, PageFile]]:
    for each in folder.iterdir():
        name = above + each.name
        if each.is_dir():
            yield from _walk(each, f"{name}/")
        elif media_type := _MEDIA_TYPES.get(f".{each.name.rpartition('.')[2]}"):
            content = each.read_bytes()
            yield name, PageFile(content, media_type, f'"{hashlib.sha256(content).hexdigest()[:32]}"')


_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-cache",
}


def add_page(app: FastAPI, settings: Settings) -> None:
    """Adds the page, unless the settings turn it off."""
    if not settings.page.enabled:
        return
    page = read_page()

    @app.head("/", include_in_schema=False)
    @app.get("/", include_in_schema=False)
    async def first(request: Request) -> Response:
        return _send(request, settings, page[FIRST])

    @app.head("/page/{name:path}", include_in_schema=False)
    @app.get("/page/{name:path}", include_in_schema=False)
    async def file(request: Request, name: str) -> Response:
        return _send(request, settings, _find(page, name))


def _find(page: Mapping[str, PageFile], name: str) -> PageFile:
    if name not in page or name == FIRST:
        raise HTTPException(404)
    return page[name]


def _send(request: Request, settings: Settings, file: PageFile) -> Response:
    try:
        check_page(request.headers, settings.http)
    except ScoringError as error:
        return send_answer(refuse(error, request_id_of(request.scope)), request_id_of(request.scope))
    headers = {**_HEADERS, "ETag": file.tag}
    if request.headers.get("if-none-match") == file.tag:
        return Response(status_code=304, headers=headers)
    return Response(file.content, media_type=file.media_type, headers=headers)
