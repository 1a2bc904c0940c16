"""Measuring: one profiled service at a time, asked in each of the ways that the page has a column for."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turnscore_load.address import free_port

from turnscore_bench.harness.processes import StartError, run_quietly
from turnscore_bench.harness.traffic import LENGTH_MIXES, Traffic
from turnscore_bench.profile.profiled_service import READY, Sampled

_WARM_UP_TURNS = 200
_HTTP_CLIENT = "turnscore_bench.harness.load_client"
_GRPC_CLIENT = "turnscore_bench.harness.grpc_load_client"
_CONVERSATION_CLIENT = "turnscore_bench.profile.conversation_client"


@dataclass(frozen=True, kw_only=True)
class Way:
    """A way to ask the service: a column of the page."""

    label: str
    client: str = _HTTP_CLIENT
    path: str = "/v1/score"
    clients: int = 32
    turns_per_request: int = 1
    is_known: bool = False
    """Whether every turn is one that the cache in the process knows."""

    @property
    def is_grpc(self) -> bool:
        return self.client == _GRPC_CLIENT


WAYS = (
    Way(label="HTTP, 1 client", clients=1),
    Way(label="HTTP, 32 clients"),
    Way(label="HTTP, 16 turns per request", path="/v1/score_batch", turns_per_request=16),
    Way(label="HTTP, cached", is_known=True),
    Way(label="gRPC, 32 clients", client=_GRPC_CLIENT, path="/turnscore.v1.TurnScorer/Score"),
    Way(label="gRPC, cached", client=_GRPC_CLIENT, path="/turnscore.v1.TurnScorer/Score", is_known=True),
    Way(label="conversations, 32", client=_CONVERSATION_CLIENT, path="/v1/conversations"),
)


@dataclass(frozen=True, kw_only=True)
class Profile:
    """What one way of asking cost."""

    way: Way
    turns: int
    sampled: Sampled


class ProfiledService:
    """The process of `profiled_service`."""

    def __init__(self, python: Path, bundle: Path, folder: Path, *, at_once: bool) -> None:
        """Starts it. Raises StartError where it does not get ready."""
        folder.mkdir(parents=True, exist_ok=True)
        metrics = folder / "metrics"
        metrics.mkdir(exist_ok=True)
        self.port, self.grpc_port = free_port(), free_port()
        self._process = subprocess.Popen(
            [
                *(str(python), "-m", "turnscore_bench.profile.profiled_service", str(self.port)),
                *(["--at-once"] if at_once else []),
            ],
            env={**_environment(bundle, metrics), "TURNSCORE_GRPC__PORT": str(self.grpc_port)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=(folder / "service.log").open("wb"),
            text=True,
        )
        if self._read() != READY:
            raise StartError("the profiled service did not start: see service.log")

    def order(self, what: str) -> Any:
        """What the process answers."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{what}\n")
        self._process.stdin.flush()
        return self._read()

    def stop(self) -> None:
        """Ends it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self._process.kill()

    def _read(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise StartError(f"the profiled service ended with {self._process.wait()}")
        return json.loads(line)


def measure(service: ProfiledService, way: Way, traffic: Traffic, turns: int, folder: Path) -> Profile:
    """Asks for fresh turns, or for the same few again and again, after a warm-up of the same kind."""
    warm_up = _bodies(way, traffic, _WARM_UP_TURNS)
    _drive(service, way, warm_up, folder)
    wanted = -(-turns // way.turns_per_request)
    bodies = (warm_up * -(-wanted // len(warm_up)))[:wanted] if way.is_known else _bodies(way, traffic, turns)
    service.order("start")
    _drive(service, way, bodies, folder)
    return Profile(way=way, turns=len(bodies) * way.turns_per_request, sampled=Sampled(**service.order("stop")))


def _drive(service: ProfiledService, way: Way, bodies: Sequence[str], folder: Path) -> Mapping[str, Any]:
    job = {
        "port": service.grpc_port if way.is_grpc else service.port,
        "path": way.path,
        "bodies": bodies,
        "clients": way.clients,
        "keeps_replies": False,
    }
    file = folder / "job.json"
    file.write_text(json.dumps(job))
    done: dict[str, Any] = json.loads(run_quietly([sys.executable, "-m", way.client, str(file)]))
    if done["answered"] != len(bodies):
        raise StartError(f"{way.label}: {done['answered']} of {len(bodies)} requests were answered: {done}")
    return done


def _bodies(way: Way, traffic: Traffic, turns: int) -> list[str]:
    speaker = "SPEAKER_USER" if way.is_grpc else "user"
    size = way.turns_per_request
    requests = [
        {"context": [{"speaker": speaker, "text": turn.query}], "response": turn.reply}
        for turn in traffic.turns(LENGTH_MIXES["mixed"], -(-turns // size) * size)
    ]
    if size == 1:
        return [json.dumps(each) for each in requests]
    return [json.dumps({"items": requests[at : at + size]}) for at in range(0, len(requests), size)]


def _environment(bundle: Path, metrics: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TURNSCORE_")}
    return {
        **kept,
        "BENTOML_DO_NOT_TRACK": "True",
        "ORT_DISABLE_TELEMETRY": "1",
        "TURNSCORE_MODELS": str(bundle),
        "PROMETHEUS_MULTIPROC_DIR": str(metrics),
        "TURNSCORE_DEFAULT_DEADLINE_MS": "600000",  # a busy machine takes its time, and is profiled all the same
    }
