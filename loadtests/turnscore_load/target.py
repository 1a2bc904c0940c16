"""Target: the service that is loaded, on this machine: one that runs already, or one started here and stopped again."""

import os
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from urllib.error import URLError
from urllib.request import urlopen

import psutil
from pydantic import ValidationError
from turnscore_wire import ModelsReply

from turnscore_load.address import LOOPBACK, free_port
from turnscore_load.service_metrics import read_metrics, sum_of

_START_SECONDS = 300.0
"""How long a service may take until it is ready. Chosen; 6 s were measured with the three starter scorers, and 145
beside a dozen other jobs on 2 cores."""
_STOP_SECONDS = 60.0
NO_SETTINGS: Mapping[str, str] = MappingProxyType({})


class NoServiceError(Exception):
    """No service could be started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A ready service. `started` is the process that was started for it, or None."""

    port: int
    models: tuple[str, ...]
    grpc_port: int
    started: "subprocess.Popen[bytes] | None" = None

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.port}"

    def processes(self) -> list[psutil.Process]:
        """All processes of the service: those that listen on the port, and their children."""
        listening = {
            each.pid
            for each in psutil.net_connections(kind="tcp4")
            if each.pid and each.status == psutil.CONN_LISTEN and each.laddr.port == self.port
        }
        if self.started is not None:
            listening.add(self.started.pid)
        found: dict[int, psutil.Process] = {}
        for pid in listening:
            try:
                process = psutil.Process(pid)
                found.update({each.pid: each for each in (process, *process.children(recursive=True))})
            except psutil.NoSuchProcess:
                continue
        return list(found.values())


@contextmanager
def target(
    port: int, bentoml: Path, log: Path, settings: Mapping[str, str] = NO_SETTINGS, grpc_port: int = 50_051
) -> Iterator[Target]:
    """The service that is ready on those ports; where there is none, one started on free ports with `bentoml`.

    The started one gets the settings, which are variables of the environment, writes to `log` and is stopped at the
    end. All its workers are ready. Raises NoServiceError where it does not become so.
    """
    if models := _models_at(port):
        yield Target(port=port, models=models, grpc_port=grpc_port)
        return
    free, free_too = free_port(), free_port()
    log.parent.mkdir(parents=True, exist_ok=True)
    command = [str(bentoml), "serve", "turnscore_service.bento:TurnScore", "--host", LOOPBACK, "--port", str(free)]
    environment = {**settings, **os.environ, "TURNSCORE_GRPC__PORT": str(free_too)}
    workers = int(environment.get("TURNSCORE_WORKERS", 1))
    with log.open("wb") as output:
        try:
            process = subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT)
        except OSError as error:
            raise NoServiceError(f"{bentoml} cannot be started: {error.strerror}") from None
    try:
        models = _wait_for_models(free, process, log)
        found = Target(port=free, models=models, grpc_port=free_too, started=process)
        if workers > 1:
            _wait_for_workers(found, process, workers, log)
        yield found
    finally:
        process.terminate()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_for_models(port: int, process: "subprocess.Popen[bytes]", log: Path) -> tuple[str, ...]:
    end = time.monotonic() + _START_SECONDS
    while time.monotonic() < end and process.poll() is None:
        if models := _models_at(port):
            return models
        time.sleep(0.1)  # polling another process: there is nothing to wait on
    raise NoServiceError(f"the service did not become ready; {log} says why")


def _wait_for_workers(found: Target, process: "subprocess.Popen[bytes]", workers: int, log: Path) -> None:
    """Returns when every worker listens for gRPC, which all do on one port, and has loaded its models."""
    end = time.monotonic() + _START_SECONDS
    while time.monotonic() < end and process.poll() is None:
        if _count_listening(found.grpc_port) == workers and _is_each_ready(found.port):
            return
        time.sleep(0.1)  # polling other processes: there is nothing to wait on
    raise NoServiceError(f"not every worker became ready; {log} says why")


def _count_listening(port: int) -> int:
    """Processes that listen on the port, by whatever number of sockets."""
    found = psutil.net_connections(kind="tcp")
    return len({each.pid for each in found if each.status == psutil.CONN_LISTEN and each.laddr.port == port})


def _is_each_ready(port: int) -> bool:
    """Whether the worker that is worst off is ready, as their metrics say."""
    return sum_of(read_metrics(port), "turnscore_ready") == 1


def _models_at(port: int) -> tuple[str, ...]:
    """The bundles of the turnscore service on that port; none where nothing, or something else, is there."""
    try:
        with urlopen(f"http://{LOOPBACK}:{port}/v1/models", timeout=5) as reply:
            return tuple(each.model for each in ModelsReply.model_validate_json(reply.read()).models)
    except (URLError, OSError, ValidationError, ValueError):
        return ()
