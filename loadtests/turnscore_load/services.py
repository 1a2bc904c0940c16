"""The turnscore services that are loaded: one that runs already, or one started for it; and what their metrics say."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from urllib.error import URLError
from urllib.request import urlopen

import psutil
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample as MetricSample
from pydantic import ValidationError
from turnscore_wire import ModelsReply

from turnscore_load.machine import LOOPBACK, free_port
from turnscore_load.processes import Process, wait_until

NO_SETTINGS: Mapping[str, str] = MappingProxyType({})
SERVE = Path(".venv/bin/turnscore")
ONE_BATCH_AT_A_TIME = {"TURNSCORE_RUNTIME__THREADS": "1", "TURNSCORE_RUNTIME__CONCURRENT_BATCHES": "1"}


def service_process(
    program: Path, folder: Path, settings: Mapping[str, str] = NO_SETTINGS, *, clean: bool = False
) -> Process:
    """A service on free ports, by `bentoml serve` or by `turnscore serve`, whichever `program` is.

    `settings` are variables of the environment; with `clean` the caller's own settings of turnscore do not count.
    """
    port = free_port()
    own = {
        "BENTOML_DO_NOT_TRACK": "True",
        "BENTOML_HOME": str(folder.absolute() / "bentoml"),
        "TURNSCORE_HTTP__PORT": str(port),
        "TURNSCORE_GRPC__PORT": str(free_port()),
        **settings,
    }
    command: list[object] = [program, "serve"]
    if program.name == "bentoml":
        command += ["turnscore_service.bento:TurnScore", "--host", LOOPBACK, "--port", port]
    return Process(command, folder, port=port, environment=own, ready="/readyz", clean=clean)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedService:
    """A ready service. `process` is the one that was started for it, or None."""

    port: int
    models: tuple[str, ...]
    grpc_port: int
    process: Process | None = None

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.port}"

    def rss_bytes(self) -> int:
        """Memory of all its processes together."""
        return sum(each.memory_info().rss for each in self.processes())

    def processes(self) -> list[psutil.Process]:
        """All processes of the service: those that listen on the port, and their children."""
        listening = {
            each.pid
            for each in psutil.net_connections(kind="tcp4")
            if each.pid and each.status == psutil.CONN_LISTEN and each.laddr.port == self.port
        }
        if self.process is not None:
            listening.add(self.process.process.pid)
        found: dict[int, psutil.Process] = {}
        for pid in listening:
            try:
                process = psutil.Process(pid)
                found.update({each.pid: each for each in (process, *process.children(recursive=True))})
            except psutil.NoSuchProcess:
                continue
        return list(found.values())


def wait_for_workers(process: Process, workers: int) -> None:
    """Returns when every worker of the service is ready: the service is when one of them is. Raises StartError."""

    def are_ready() -> bool:
        listening = [each for each in psutil.net_connections(kind="tcp") if each.status == psutil.CONN_LISTEN]
        own = {each.pid for each in listening if each.laddr.port == process.grpc_port}  # by any number of sockets
        return len(own) == workers and metric(process.port, "turnscore_ready") == 1

    if workers > 1:
        wait_until(are_ready, f"every worker of the service ({process.log})")


def models_at(port: int) -> tuple[str, ...]:
    """The bundles of the turnscore service on that port; none where nothing, or something else, is there."""
    try:
        with urlopen(f"http://{LOOPBACK}:{port}/v1/models", timeout=5) as reply:
            return tuple(each.model for each in ModelsReply.model_validate_json(reply.read()).models)
    except (URLError, OSError, ValidationError, ValueError):
        return ()


def read_metrics(port: int) -> list[MetricSample]:
    """Every sample of the service's page /metrics."""
    with urlopen(f"http://{LOOPBACK}:{port}/metrics", timeout=30) as reply:
        return [each for family in text_string_to_metric_families(reply.read().decode()) for each in family.samples]


def metric(port: int, *names: str, **labels: str) -> float:
    """The sum of these series over all labels that are not given."""
    return sum(
        each.value for each in read_metrics(port) if each.name in names and labels.items() <= each.labels.items()
    )
