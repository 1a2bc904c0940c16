"""The real service, and a redis-server with sockets that only look like one, each on a free port of 127.0.0.1."""

import asyncio
import sys
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import httpx
from redis import Redis
from turnscore_load.machine import LOOPBACK, free_port
from turnscore_load.processes import Process, answers_redis, find_program, started
from turnscore_load.services import service_process

from support.conditions import wait_until

_PROGRAMS = Path(sys.executable).parent


@contextmanager
def running_service(
    folder,
    *,
    target="turnscore_service.bento:TurnScore",
    executable=_PROGRAMS / "bentoml",
    environment=None,
    wait_for="/readyz",
    options=(),
    tls=None,
    alone=False,
):
    """Starts the service, waits until `wait_for` answers 200, and stops it afterwards. Files go below `folder`.

    `options` are further words for `bentoml serve`; with `tls` the service is asked over HTTPS. `alone`: by
    `turnscore serve`, in one process.

    Which number of threads is best is not measured, and most memory is not taken ahead: both would take longer than
    the tests of most services.
    """
    program = executable.with_name("turnscore") if alone else executable
    quickly = {"TURNSCORE_RUNTIME__THREADS": "1", "TURNSCORE_BATCHING__MAX_BATCH_TOKENS": "512"}
    service = service_process(program, folder, {**quickly, **(environment or {})})
    if not alone:
        service.command[2:] = [target, *service.command[3:], *options]
    service.ready = wait_for
    if tls is not None:
        service.scheme = "https"
        service.ready = lambda: _answers_https(f"{service.url}{wait_for}", tls)
    with started(service):
        yield service


def _answers_https(url, tls):
    try:
        return httpx.get(url, timeout=60, verify=tls).status_code == 200
    except httpx.TransportError:
        return False


@asynccontextmanager
async def behind_haproxy(folder, configuration, port, **environment):
    """The URL of a haproxy with that configuration, of which a server behind it, in this event loop, is ready."""
    words = ["haproxy", "-db", "-f", configuration]
    proxy = Process(words, folder, port=port, environment=environment, ready="/readyz")
    try:
        await asyncio.to_thread(proxy.start)
        yield proxy.url
    finally:
        await asyncio.to_thread(proxy.stop)


class RedisServer(Process):
    """One server that can be made sick. Keeps its port through every restart."""

    def __init__(self, folder, *arguments, port=None, command=()):
        """`command` replaces the options that make it a server without persistence."""
        port = port or free_port()
        self.socket = folder / f"redis-{port}.sock"
        plain = ["--unixsocket", str(self.socket), "--save", "", "--appendonly", "no"]
        words = [find_program("redis-server"), *(command or plain), "--port", port, *arguments]
        super().__init__(words, folder, port=port, ready=lambda: answers_redis(port))
        self.scheme = "redis"

    def client(self):
        """A client of this server, with a generous timeout."""
        return Redis(port=self.port, socket_timeout=60)

    def configure(self, **settings):
        """CONFIG SET."""
        with self.client() as client:
            for name, value in settings.items():
                client.config_set(name.replace("_", "-"), value)


@contextmanager
def running_redis(folder, *arguments):
    """A server that is started, and killed afterwards whatever became of it."""
    server = RedisServer(folder, *arguments)
    server.start()
    try:
        yield server
    finally:
        server.kill()


@asynccontextmanager
async def impostor(port, reply):
    """A socket in the place of a server: gives the same reply to everything, or none at all."""

    async def answer(reader, writer):
        with suppress(ConnectionError):
            while await reader.read(65_536):
                if reply is not None:
                    writer.write(reply)
                    await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, LOOPBACK, port)
    try:
        yield
    finally:
        server.close()
        await server.wait_closed()


@contextmanager
def running_cluster(folder, nodes=3):
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


def _join(servers):
    for number, server in enumerate(servers):
        first, last = (16_384 * each // len(servers) for each in (number, number + 1))
        with server.client() as client:
            client.execute_command("CLUSTER", "ADDSLOTS", *range(first, last))
            client.execute_command("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
            for other in servers[:number]:
                client.execute_command("CLUSTER", "MEET", LOOPBACK, other.port)
    for server in servers:
        with server.client() as client:
            wait_until(lambda client=client: _knows(client, len(servers)))


def _knows(client, nodes):
    told = bytes(client.execute_command("CLUSTER", "INFO")).splitlines()
    return {b"cluster_state:ok", b"cluster_slots_ok:16384", b"cluster_known_nodes:%d" % nodes} <= set(told)


@contextmanager
def running_sentinel(folder, master, service):
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
            wait_until(lambda: int(client.sentinel_master(service)["num-slaves"]) == 1)
        yield sentinel
    finally:
        sentinel.kill()
