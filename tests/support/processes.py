"""The real service in a process of its own, on a free port of 127.0.0.1."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

_START_SECONDS = 90


@dataclass(frozen=True)
class RunningService:
    """A started service; `process` is BentoML's supervisor."""

    url: str
    process: "subprocess.Popen[bytes]"
    log: Path

    def stop(self) -> int:
        """Sends SIGTERM and waits for the end; the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)


@contextmanager
def running_service(
    folder: Path,
    *,
    target: str = "turnscore_service.bento:TurnScore",
    executable: Path = Path(sys.executable).parent / "bentoml",
    environment: Mapping[str, str] | None = None,
    wait_for: str = "/readyz",
) -> Iterator[RunningService]:
    """Starts the service, waits until `wait_for` answers 200, and stops it afterwards. Files go below `folder`."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "service.log"
    own = {"BENTOML_HOME": str(folder / "bentoml"), "BENTOML_DO_NOT_TRACK": "True", **(environment or {})}
    command = [str(executable), "serve", target, "--host", "127.0.0.1", "--port", str(port)]
    with log.open("wb") as output:
        process = subprocess.Popen(command, cwd=folder, env={**os.environ, **own}, stdout=output, stderr=output)
    service = RunningService(f"http://127.0.0.1:{port}", process, log)
    try:
        _wait_until_it_answers(service, wait_for)
        yield service
    finally:
        service.stop()


def _wait_until_it_answers(service: RunningService, path: str) -> None:
    end = time.monotonic() + _START_SECONDS
    while time.monotonic() < end:
        assert service.process.poll() is None, service.log.read_text()
        try:
            if httpx.get(service.url + path, timeout=5).status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.1)  # polling another process: there is nothing to wait on
    raise AssertionError(f"{path} did not answer 200 within {_START_SECONDS} s:\n{service.log.read_text()}")
