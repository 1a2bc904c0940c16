"""The real service in a process of its own, on a free port of 127.0.0.1."""

import os
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
from turnscore_load.address import free_port

_START_SECONDS = 300
"""A machine may be slow: only what hangs takes longer."""


@dataclass(frozen=True)
class RunningService:
    """A started service; `process` is BentoML's supervisor, or the one process; `grpc_target` is for a gRPC channel."""

    url: str
    grpc_target: str
    process: "subprocess.Popen[bytes]"
    log: Path

    def stop(self) -> int:
        """Sends SIGTERM and waits for the end; the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(_START_SECONDS)


@contextmanager
def running_service(
    folder: Path,
    *,
    target: str = "turnscore_service.bento:TurnScore",
    executable: Path = Path(sys.executable).parent / "bentoml",
    environment: Mapping[str, str] | None = None,
    wait_for: str = "/readyz",
    options: Sequence[str] = (),
    tls: ssl.SSLContext | None = None,
    alone: bool = False,
) -> Iterator[RunningService]:
    """Starts the service, waits until `wait_for` answers 200, and stops it afterwards. Files go below `folder`.

    `options` are further words for `bentoml serve`; with `tls` the service is asked over HTTPS. `alone`: by
    `turnscore serve`, in one process.
    """
    port, grpc_port = free_port(), free_port()
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "service.log"
    own = {"BENTOML_HOME": str(folder / "bentoml"), "BENTOML_DO_NOT_TRACK": "True"}
    own |= {"TURNSCORE_GRPC__PORT": str(grpc_port), "TURNSCORE_HTTP__PORT": str(port), **(environment or {})}
    command = [str(executable), "serve", target, "--host", "127.0.0.1", "--port", str(port), *options]
    if alone:
        command = [str(executable.with_name("turnscore")), "serve"]
    with log.open("wb") as output:
        process = subprocess.Popen(command, cwd=folder, env={**os.environ, **own}, stdout=output, stderr=output)
    scheme = "http" if tls is None else "https"
    service = RunningService(f"{scheme}://127.0.0.1:{port}", f"127.0.0.1:{grpc_port}", process, log)
    try:
        _wait_until_it_answers(service, wait_for, tls)
        yield service
    finally:
        service.stop()


def _wait_until_it_answers(service: RunningService, path: str, tls: ssl.SSLContext | None) -> None:
    end = time.monotonic() + _START_SECONDS
    while time.monotonic() < end:
        assert service.process.poll() is None, service.log.read_text()
        try:
            if httpx.get(service.url + path, timeout=60, verify=tls or False).status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.1)  # polling another process: there is nothing to wait on
    raise AssertionError(f"{path} did not answer 200 within {_START_SECONDS} s:\n{service.log.read_text()}")
