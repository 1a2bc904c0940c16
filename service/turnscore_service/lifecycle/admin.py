"""Lets the operator of this machine switch models through one Unix socket per worker.

Whoever can open a socket decides what is served, so it answers only the process's own user and root: the folder is
theirs, the socket has mode 0600, and the kernel says who has connected. It carries no text of a dialogue.
"""

import asyncio
import logging
import os
import socket
import stat
import struct
from contextlib import suppress
from pathlib import Path

from pydantic import ValidationError
from turnscore_models.admin import FOLDER_VARIABLE, MOST_BYTES, SOCKET_SUFFIX, AdminOrder, AdminReport
from turnscore_wire import describe_refusal

from turnscore_service.lifecycle.model_switch import ModelSwitch, SwitchRefusedError

_MOST_PATH_BYTES = 107  # of a Unix socket's path (unix(7), without the byte that ends it)


class UnusableFolderError(Exception):
    """The sockets cannot lie in the folder; the message says why, and what to do."""


def prepare_folder(folder: Path) -> None:
    """Makes the folder where it is missing. Raises UnusableFolderError as `check_folder` does."""
    check_folder(folder)
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise UnusableFolderError(f"cannot create {folder} ({error.strerror}): choose another path") from error
    check_folder(folder)  # another may have made it meanwhile


def check_folder(folder: Path) -> None:
    """Makes nothing. Raises UnusableFolderError where a process of this user cannot have its sockets in the folder.

    One that is missing has to have a parent in which it can be made.
    """
    longest = os.fsencode(path_in(folder, worker=9999, pid=9_999_999))
    if len(longest) > _MOST_PATH_BYTES:
        raise UnusableFolderError(
            f"{folder} is too long for the path of a socket ({len(longest)} bytes, {_MOST_PATH_BYTES} at most): choose "
            "a shorter path"
        )
    try:
        found = folder.stat()
    except FileNotFoundError:
        _check_parent(folder)
        return
    except OSError as error:
        raise UnusableFolderError(f"cannot read {folder} ({error.strerror}): choose another path") from error
    if not stat.S_ISDIR(found.st_mode):
        raise UnusableFolderError(f"{folder} is not a directory: choose another path, or remove it")
    if found.st_uid != os.geteuid():
        raise UnusableFolderError(
            f"{folder} belongs to user {found.st_uid}, and this process runs as user {os.geteuid()}: change its owner "
            "(chown), or run as that user"
        )
    if found.st_mode & 0o077:
        raise UnusableFolderError(f"{folder} is open to other users (mode {stat.S_IMODE(found.st_mode):o}): chmod 700")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UnusableFolderError(
            f"cannot create files in {folder} (mode {stat.S_IMODE(found.st_mode):o}): chmod 700, or mount it writable"
        )


def unusable(error: UnusableFolderError) -> str:
    """The sentence that ends a start."""
    return f"{FOLDER_VARIABLE}: {error}"


def path_in(folder: Path, *, worker: int, pid: int) -> Path:
    return folder / f"worker-{worker}-{pid}{SOCKET_SUFFIX}"


def _check_parent(folder: Path) -> None:
    parent = folder.parent
    if not parent.is_dir():
        raise UnusableFolderError(f"cannot create {folder}: {parent} is not a directory; create it first")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise UnusableFolderError(
            f"cannot create {folder}: this user cannot write in {parent}; create it with this user as its owner and "
            "mode 700"
        )


_ORDER_SECONDS = 10.0  # how long an order may take to arrive
_CREDENTIALS = struct.Struct("3i")  # struct ucred: process, user, group (unix(7), SO_PEERCRED)


_LOGGER = logging.getLogger("turnscore.admin")


class AdminSocket:
    """One worker's socket, from start to stop."""

    def __init__(self, folder: Path, worker: int, switch: ModelSwitch) -> None:
        self._folder = folder
        self._worker = worker
        self._switch = switch
        self.path = path_in(folder, worker=worker, pid=os.getpid())
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Listens. Raises UnusableFolderError where the system refuses it."""
        try:
            prepare_folder(self._folder)
            for left_behind in self._folder.glob(f"*{SOCKET_SUFFIX}"):
                _remove_if_dead(left_behind)
            self._server = await asyncio.start_unix_server(self._answer, sock=_listen_at(self.path), limit=MOST_BYTES)
        except OSError as error:
            raise UnusableFolderError(f"{self.path}: {error.strerror}") from error
        _LOGGER.info("admin socket open", extra={"path": str(self.path)})

    async def stop(self) -> None:
        """Takes no more orders, and removes the socket."""
        if self._server is not None:
            self._server.close()
            self.path.unlink(missing_ok=True)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            writer.write((await self._obey(reader, writer)).model_dump_json().encode() + b"\n")
            await writer.drain()
        except ConnectionError:
            pass  # whoever asked has left; the log has what was done
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    async def _obey(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> AdminReport:
        try:
            async with asyncio.timeout(_ORDER_SECONDS):
                # Read from anybody: what is closed unread may be a reset to the caller, in the place of the answer.
                line = await reader.readuntil(b"\n")
            if (user := _user_of(writer)) not in (0, os.geteuid()):
                _LOGGER.warning("refused an order from another user", extra={"user": user})
                return self._refuse("only the service's own user and root may give orders")
            order = AdminOrder.model_validate_json(line)
        except TimeoutError:
            return self._refuse(f"no order arrived within {_ORDER_SECONDS:g} s")
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            return self._refuse(f"an order is one line of at most {MOST_BYTES} bytes")
        except ValidationError as error:
            return self._refuse(": ".join(describe_refusal(error, "order")))
        return await self._follow(order)

    async def _follow(self, order: AdminOrder) -> AdminReport:
        served = self._switch.report(self._worker, os.getpid())
        try:
            if order.action == "status":
                return served
            done = await (self._switch.reload() if order.reference is None else self._switch.serve(order.reference))
        except SwitchRefusedError as error:
            return self._refuse(str(error))
        return self._switch.report(self._worker, os.getpid()).model_copy(
            update={"outcome": "switched" if done.replaced else "unchanged", **vars(done)}
        )

    def _refuse(self, reason: str) -> AdminReport:
        served = self._switch.report(self._worker, os.getpid())
        return served.model_copy(update={"outcome": "refused", "reason": reason})


def _listen_at(path: Path) -> socket.socket:
    """A socket has its name once it listens: before, another starting worker would take it for a dead one's."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # Of a socket that does not listen yet; no longer than its own suffix, as paths of sockets are bounded.
    nameless = path.with_suffix(".bind")
    try:
        nameless.unlink(missing_ok=True)
        os.fchmod(listener.fileno(), 0o600)  # before bind, so that the file never has another mode
        listener.bind(str(nameless))
        nameless.chmod(0o600)  # where the system takes no notice of that
        listener.listen()
        nameless.rename(path)
    except OSError:
        listener.close()
        raise
    return listener


def _remove_if_dead(path: Path) -> None:
    """Removes a socket that no process listens on: its worker was killed."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as attempt:
        attempt.settimeout(1.0)
        try:
            attempt.connect(str(path))
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
        except OSError:
            return  # it lives and is busy, or is no socket


def _user_of(writer: asyncio.StreamWriter) -> int:
    peer: socket.socket = writer.get_extra_info("socket")
    found = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(found)[1])
