"""File systems: how pyarrow reaches a path or URI: on this machine, by pyarrow's own drivers, else by fsspec's."""

import os
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
from fsspec.core import url_to_fs
from pyarrow import fs

from turnscore_corpus.errors import CorpusError


def absolute(place: str | os.PathLike[str]) -> str:
    """A name of the place that is the same from every folder: a path without links, or the URI."""
    text = os.fspath(place)
    if "://" not in text:
        return str(Path(text).resolve())
    if urlsplit(text).password is not None:
        raise CorpusError("an address must not hold a password: it would stand in the output; use the environment")
    return text.rstrip("/")


@lru_cache(maxsize=256)
def open_place(place: str) -> tuple[Any, str]:
    """The file system and the path in it. Raises CorpusError for an unknown kind of address."""
    if "://" not in place:
        return fs.LocalFileSystem(), place
    try:
        return tuple(fs.FileSystem.from_uri(place))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return _open_by_fsspec(place)


def is_local(filesystem: Any) -> bool:
    """Whether files can be renamed, locked and synchronised to disk."""
    return isinstance(filesystem, fs.LocalFileSystem)


def _open_by_fsspec(place: str) -> tuple[Any, str]:
    try:
        filesystem, path = url_to_fs(place)
    except (ImportError, ValueError) as error:
        raise CorpusError(f"{place.partition('://')[0]}:// cannot be opened: {error}") from None
    return fs.PyFileSystem(fs.FSSpecHandler(filesystem)), path
