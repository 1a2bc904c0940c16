"""The page: its files, as a browser gets them. Knows no server, and asks the service for nothing."""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.abc import Traversable
from importlib.resources import files

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
