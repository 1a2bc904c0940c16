"""Locks: one run at a time writes into a folder. A killed run leaves nothing that another has to remove.

On a local file system the operating system holds the lock, and releases it with the process. An object store has no
locks: there the owner writes a heartbeat, and the next run watches whether it goes on. Blocks are committed whole
either way, so two runs that met all the same would write the same files.
"""

import fcntl
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from uuid import uuid4

from turnscore_corpus.errors import BusyOutputError
from turnscore_corpus.outputs.stores import LocalStore, Store

LOCK_FILE = "lock.json"
BEAT_SECONDS = 5.0
"""Seconds between two heartbeats. Chosen: a put every five seconds costs little."""
BEATS_WATCHED = 3
"""Heartbeats missed before a silent owner counts as dead. Chosen."""

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


@contextmanager
def hold_folder(place: str, store: Store, wait: Wait = time.sleep) -> Iterator[None]:
    """Holds the folder. Raises BusyOutputError, naming the owner, where another run holds it."""
    if isinstance(store, LocalStore):
        with _hold_local(place, store):
            yield
    else:
        with _hold_remote(place, store, wait):
            yield


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
        wait(BEATS_WATCHED * BEAT_SECONDS)
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
