"""Stores: whole files under names; a name holds a whole file or none.

On a local file system a file is written under another name, synchronised and renamed; an object store promises it. One
run at a time writes into a folder: locally the operating system holds the lock and releases it with the process. An
object store has no locks: the owner writes a heartbeat there, which the next run watches. Two runs that met all the
same would write the same files.
"""

import fcntl
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

from pyarrow import fs

from turnscore_corpus.inputs.files import CorpusError, is_local, open_place


class BusyOutputError(CorpusError):
    """Another run writes into the folder; the message names its owner."""


class BadOutputError(CorpusError):
    """The folder, or a file in it, is not what a run writes."""


TEMPORARY = ".tmp"


class LocalStore:
    """The files of an output folder of this machine or of a shared file system, under names with slashes."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)

    def put(self, name: str, content: bytes) -> None:
        """Writes a file, replacing one of that name; it is on the disk on return. OSError where that cannot be."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.{uuid4().hex}{TEMPORARY}")
        try:
            with temporary.open("xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            temporary.unlink(missing_ok=True)  # or it would keep a full disk full
            raise OSError(error.errno, error.strerror, str(path)) from None
        os.replace(temporary, path)  # noqa: PTH105
        # Puts the name itself on the disk.
        descriptor = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def get(self, name: str) -> bytes | None:
        """The file's content; None where there is none."""
        try:
            return (self.folder / name).read_bytes()
        except FileNotFoundError:
            return None

    def sizes(self, folder: str) -> dict[str, int]:
        """The files in a folder, by their names with the folder's, and their sizes; `""` is the output's own folder.

        Nothing where there is no such folder.
        """
        inside = self.folder / folder
        if not inside.is_dir():
            return {}
        return {_join(folder, each.name): each.stat().st_size for each in inside.iterdir() if each.is_file()}

    def remove(self, name: str) -> None:
        """Removes a file that is there."""
        (self.folder / name).unlink()


class RemoteStore:
    """The same in any other file system of pyarrow or fsspec."""

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


Store = LocalStore | RemoteStore


def open_store(place: str) -> Store:
    """The store at a place. Raises BadOutputError where a file is there."""
    filesystem, path = open_place(place)
    if filesystem.get_file_info(path).type == fs.FileType.File:
        raise BadOutputError(f"{place} is a file; the output is a folder")
    return LocalStore(path) if is_local(filesystem) else RemoteStore(filesystem, path)


def _join(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name


LOCK_FILE = "lock.json"
BEAT_SECONDS = 5.0  # Seconds between two heartbeats. A put every five seconds costs little.

Wait = Callable[[float], object]


@dataclass(frozen=True, kw_only=True)
class Owner:
    """The process that holds a folder."""

    host: str = field(default_factory=socket.gethostname)
    pid: int = field(default_factory=os.getpid)
    since: str = field(default_factory=lambda: f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC")
    token: str = field(default_factory=lambda: uuid4().hex)

    def write(self, beat: int = 0) -> bytes:
        """The owner as the lock holds it."""
        return json.dumps({**self.__dict__, "beat": beat}).encode() + b"\n"


def hold_folder(place: str, store: Store, wait: Wait = time.sleep) -> AbstractContextManager[None]:
    """Holds the folder. Raises BusyOutputError, naming the owner, where another run holds it."""
    return _hold_local(place, store) if isinstance(store, LocalStore) else _hold_remote(place, store, wait)


@contextmanager
def _hold_local(place: str, store: LocalStore) -> Iterator[None]:
    store.folder.mkdir(parents=True, exist_ok=True)
    with (store.folder / LOCK_FILE).open("a+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.seek(0)
            raise BusyOutputError(_describe_owner(place, file.read())) from None
        file.truncate(0)
        file.write(Owner().write())
        file.flush()
        yield


@contextmanager
def _hold_remote(place: str, store: Store, wait: Wait) -> Iterator[None]:
    owner = Owner()
    known = store.get(LOCK_FILE)
    if known is not None:
        wait(3 * BEAT_SECONDS)  # a silent owner counts as dead after these heartbeats
        if store.get(LOCK_FILE) not in (known, None):
            raise BusyOutputError(_describe_owner(place, known))
    store.put(LOCK_FILE, owner.write())
    wait(BEAT_SECONDS)
    if (found := store.get(LOCK_FILE)) is None or owner.token.encode() not in found:
        raise BusyOutputError(_describe_owner(place, found or b""))
    ended = threading.Event()
    beating = threading.Thread(target=_beat, args=(store, owner, ended), daemon=True)
    beating.start()
    try:
        yield
    finally:
        ended.set()
        beating.join()
        with suppress(OSError):
            store.remove(LOCK_FILE)


def _beat(store: Store, owner: Owner, ended: threading.Event) -> None:
    beat = 0
    while not ended.wait(BEAT_SECONDS):
        beat += 1
        with suppress(OSError):  # the next one may get through
            store.put(LOCK_FILE, owner.write(beat))


def _describe_owner(place: str, content: bytes) -> str:
    try:
        found = json.loads(content)
        owner = f"process {found['pid']} on {found['host']}, since {found['since']}"
    except (KeyError, TypeError, ValueError):
        owner = "another run"
    return f"{place} is being written by {owner}"
