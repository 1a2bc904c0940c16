"""Measures CPU per request without telemetry, at 1 % and with all of it, in alternating rounds.

A collector in this process takes what is exported and throws it away.
"""

import random
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import typer
from typer import Option

from turnscore_load.contenders import EngagementRows
from turnscore_load.generator import Job, drive
from turnscore_load.machine import LOOPBACK
from turnscore_load.processes import Process, StartError, started
from turnscore_load.results import spread, table
from turnscore_load.scenario import Scenario
from turnscore_load.services import ONE_BATCH_AT_A_TIME, service_process
from turnscore_load.traffic import ExactTraffic, LengthMix, pack

_MIX = LengthMix(name="mixed", least=8, most=64)
_WARM_UP = 300
_SETTLE_SECONDS = 1.5  # batches of spans and records leave a second after they began (OpenTelemetry's default)


@dataclass(kw_only=True)
class Telemetry(Scenario[dict[str, list[float]]]):
    """Measure, and compare each way with `off` by the median over the rounds' ratios."""

    before: Annotated[Path | None, Option(help="--serving of another version, to compare with.")] = None
    rounds: Annotated[int, Option(min=1)] = 6
    turns: Annotated[int, Option(min=100)] = 3000
    clients: Annotated[int, Option(min=1)] = 8

    def measure(self) -> dict[str, list[float]]:
        traffic = EngagementRows().traffic
        with collector() as endpoint, ExitStack() as stack:
            servers: dict[str, Process] = {}
            for name, (programs, settings) in self._ways(endpoint).items():
                logs = self.folder / "".join(filter(str.isalnum, name))
                own = {"TURNSCORE_MODELS": "engagement", "TURNSCORE_GRPC__ENABLED": "false", **ONE_BATCH_AT_A_TIME}
                process = service_process(programs / "bentoml", logs, {**own, **settings}, clean=True)
                servers[name] = stack.enter_context(started(process))
                process.pause()
            costs: dict[str, list[float]] = {name: [] for name in servers}
            for server in servers.values():
                self._cpu_seconds(server, traffic, _WARM_UP)
            for number in range(self.rounds):
                for name in random.Random(number).sample(list(servers), len(servers)):
                    costs[name].append(1000 * self._cpu_seconds(servers[name], traffic, self.turns) / self.turns)
                typer.echo(f"{number}: { {name: round(own[-1], 3) for name, own in costs.items()} }", err=True)
        return costs

    def report(self, found: dict[str, list[float]]) -> Iterator[str]:
        rows = []
        for name, own in found.items():
            ratios = [each / off for each, off in zip(own, found["off"], strict=True)]
            rows.append([name, f"{median(own):.3f}", spread(ratios, 3)])
        yield table(["telemetry", "CPU ms per request", "over off"], rows)

    def _ways(self, endpoint: str) -> dict[str, tuple[Path, Mapping[str, str]]]:
        def recording(share: float, events: str) -> tuple[Path, Mapping[str, str]]:
            given = {"ENDPOINT": endpoint, "SAMPLE_SHARE": str(share), "EVENTS": events}
            return self.serving, {f"TURNSCORE_TELEMETRY__{name}": value for name, value in given.items()}

        return {
            **({} if self.before is None else {"before": (self.before, {})}),
            "off": (self.serving, {}),
            "off again": (self.serving, {}),  # what two services that are the same differ by
            "1 %, events sampled": recording(0.01, "sampled"),
            "1 %, events all": recording(0.01, "all"),
            "100 %, events all": recording(1.0, "all"),
        }

    def _cpu_seconds(self, server: Process, traffic: ExactTraffic, turns: int) -> float:
        bodies = pack(traffic.items(_MIX, turns), 1, cache="bypass")
        job = Job(port=server.port, path="/v1/score", bodies=bodies, clients=self.clients)
        done = drive(server, job, _SETTLE_SECONDS)
        if done["answered"] != turns:
            raise StartError(f"{turns - done['answered']} requests were not answered: {done['first_error']}")
        return float(done["cpu_seconds"])


@contextmanager
def collector() -> Iterator[str]:
    """The address of a server that answers every POST with 200."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Nothing."""

    server = ThreadingHTTPServer((LOOPBACK, 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://{LOOPBACK}:{server.server_port}"
    server.shutdown()
