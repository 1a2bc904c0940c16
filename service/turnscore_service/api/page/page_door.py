"""The page's door: its files at / and below /page/, each with the headers that keep it to this service alone."""

from collections.abc import Mapping

from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException
from turnscore_core.errors import ScoringError

from turnscore_service.api.boundary import refuse
from turnscore_service.api.http.answers import request_id_of, send_answer
from turnscore_service.api.page import FIRST, PageFile, read_page
from turnscore_service.api.page.web_pages import check_page
from turnscore_service.settings.service import Settings

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
