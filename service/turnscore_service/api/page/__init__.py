"""Serves the page's files at / and below /page/, each with the headers that restrict it to this service."""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from starlette.responses import Response

from turnscore_service.api.http.exchange import HttpExchange, check_page
from turnscore_service.api.http.schema import DocumentedEndpoint
from turnscore_service.settings.api import HttpSettings
from turnscore_service.settings.service import Settings

# The JavaScript client in a checkout; in a wheel it lies in `static/turnscore/` (hatch_build.py).
_CLIENT = Path(__file__).parents[4] / "clients/javascript/src"
FIRST = "index.html"  # what stands at `/`; everything else is at `/page/` and its name
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
    page = dict(_walk(files(__name__).joinpath("static"), ""))
    return page if "turnscore/client.js" in page else {**page, **dict(_walk(_CLIENT, "turnscore/"))}


def _walk(folder: Traversable | Path, above: str) -> Iterator[tuple[str, PageFile]]:
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


def page_endpoints(settings: Settings) -> list[DocumentedEndpoint]:
    """An endpoint for each file; none where the settings turn the page off."""
    if not settings.page.enabled:
        return []
    return [
        DocumentedEndpoint(
            path="/" if name == FIRST else f"/page/{name}",
            serve=partial(_send, settings.http, file),
            methods=("GET", "HEAD"),
        )
        for name, file in read_page().items()
    ]


async def _send(settings: HttpSettings, file: PageFile, exchange: HttpExchange) -> Response:
    check_page(exchange.headers, settings)
    headers = {**_HEADERS, "ETag": file.tag}
    if exchange.headers.get("if-none-match") == file.tag:
        return Response(status_code=304, headers=headers)
    return Response(file.content, media_type=file.media_type, headers=headers)
