"""Stores: whole files under names; a name holds a whole file or none.

On a local file system that is a temporary file, synchronised and renamed. Elsewhere the object store itself promises
it.
"""

import os
from pathlib import Path
from typing import Any, Protocol
from uuid import uuid4

from pyarrow import fs

from turnscore_corpus.errors import BadOutputError
from turnscore_corpus.filesystems import is_local, open_place

TEMPORARY = ".tmp"


class Store(Protocol):
    """The files of an output folder, under names with slashes."""

    def put(self, name: str, content: bytes) -> None:
        """Writes a file, replacing one of that name; it is on the disk on return."""

    def get(self, name: str) -> bytes | None:
        """The file's content; None where there is none."""

    def sizes(self, folder: str) -> dict[str, int]:
        """The files in a folder, by their names with the folder's, and their sizes; `""` is the output's own folder.

        Nothing where there is no such folder.
        """

    def remove(self, name: str) -> None:
        """Removes a file that is there."""


class LocalStore:
    """A folder of this machine or of a shared file system."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)

    @property
    def folder(self) -> Path:
        return self._folder

    def put(self, name: str, content: bytes) -> None:
        """Raises OSError where the disk is full or may not be written."""
        path = self._folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.{uuid4().hex}{TEMPORARY}")
        with temporary.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)  # noqa: PTH105
        _synchronise_folder(path.parent)

    def get(self, name: str) -> bytes | None:
        try:
            return (self._folder / name).read_bytes()
        except FileNotFoundError:
            return None

    def sizes(self, folder: str) -> dict[str, int]:
        inside = self._folder / folder
        if not inside.is_dir():
            return {}
        return {_join(folder, each.name): each.stat().st_size for each in inside.iterdir() if each.is_file()}

    def remove(self, name: str) -> None:
        (self._folder / name).unlink()


class RemoteStore:
    """Any other file system of pyarrow or fsspec."""

    def __init__(self, filesystem: Any, path: str) -> None:
        self._filesystem = filesystem
        self._path = path.rstrip("/")

    def put(self, name: str, content: bytes) -> None:
        """Raises OSError as the file system does."""
        path = f"{self._path}/{name}"
        self._filesystem.create_dir(path.rpartition("/")[0], recursive=True)
        with self._filesystem.open_output_stream(path) as stream:
            stream.write(content)

    def get(self, name: str) -> bytes | None:
        try:
            with self._filesystem.open_input_stream(f"{self._path}/{name}") as stream:
                return bytes(stream.read())
        except FileNotFoundError:
            return None

    def sizes(self, folder: str) -> dict[str, int]:
        selector = fs.FileSelector(f"{self._path}/{folder}".rstrip("/"), allow_not_found=True)
        found = self._filesystem.get_file_info(selector)
        return {_join(folder, each.base_name): int(each.size) for each in found if each.type == fs.FileType.File}

    def remove(self, name: str) -> None:
        self._filesystem.delete_file(f"{self._path}/{name}")


def open_store(place: str) -> Store:
    """The store at a place. Raises BadOutputError where a file is there."""
    filesystem, path = open_place(place)
    if filesystem.get_file_info(path).type == fs.FileType.File:
        raise BadOutputError(f"{place} is a file; the output is a folder")
    return LocalStore(path) if is_local(filesystem) else RemoteStore(filesystem, path)


def _join(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name


def _synchronise_folder(folder: Path) -> None:
    """Puts the name itself on the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
