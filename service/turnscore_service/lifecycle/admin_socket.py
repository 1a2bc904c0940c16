"""The admin socket: one Unix socket per worker, on which the operator of this machine has its models switched.

Whoever can open it decides what is served, so it answers the process's own user and root alone: its folder is theirs,
the socket has mode 0600, and the kernel says who has connected. It carries no text of a dialogue.
"""

import asyncio
import logging
import os
import socket
import struct
from contextlib import suppress
from pathlib import Path

from pydantic import ValidationError
from turnscore_models.admin import MOST_BYTES, SOCKET_SUFFIX, AdminOrder, AdminReport

from turnscore_service.lifecycle.admin_folder import UnusableFolderError, path_in, prepare_folder
from turnscore_service.lifecycle.model_switch import ModelSwitch, SwitchRefusedError

_ORDER_SECONDS = 10.0
"""How long an order may take to arrive. Chosen."""
_CREDENTIALS = struct.Struct("3i")
"""struct ucred: process, user, group (unix(7), SO_PEERCRED)."""

_UNNAMED = ".bind"
"""Of a socket that does not listen yet; no longer than its own suffix, as paths of sockets are bounded."""

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
            report = await self._obey(reader, writer)
            writer.write(report.model_dump_json().encode() + b"\n")
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
                _LOGGER.warning("an order of another user was refused", extra={"user": user})
                return self._refuse("only the service's own user and root may give orders")
            order = AdminOrder.model_validate_json(line)
        except TimeoutError:
            return self._refuse(f"no order came within {_ORDER_SECONDS:g} s")
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            return self._refuse(f"an order is one line of at most {MOST_BYTES} bytes")
        except ValidationError as error:
            wrong = error.errors(include_input=False, include_url=False)[0]
            field = ".".join(map(str, wrong["loc"])) or "the order"
            return self._refuse(f"{field}: {wrong['msg']}")
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
            update={
                "outcome": "switched" if done.replaced else "unchanged",
                "reason": done.note,
                "replaced": dict(done.replaced),
                "seconds": done.seconds,
                "memory": done.memory,
            }
        )

    def _refuse(self, reason: str) -> AdminReport:
        served = self._switch.report(self._worker, os.getpid())
        return served.model_copy(update={"outcome": "refused", "reason": reason})


def _listen_at(path: Path) -> socket.socket:
    """A socket has its name once it listens: before, a worker that starts beside would take it for a dead one's."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    nameless = path.with_suffix(_UNNAMED)
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
    """Removes a socket on which nobody listens: its worker was killed."""
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
