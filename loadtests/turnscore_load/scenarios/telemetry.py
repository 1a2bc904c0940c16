"""Measures CPU per request without telemetry, at 1 % and with all of it, in alternating rounds.

A collector in this process takes what is exported and throws it away.
"""

import random
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import typer

from turnscore_load.contenders import EngagementRows
from turnscore_load.generator import Job, drive
from turnscore_load.machine import LOOPBACK
from turnscore_load.processes import Process, StartError, started
from turnscore_load.results import ScenarioResult, spread, table
from turnscore_load.services import BENTOML, ONE_BATCH_AT_A_TIME, service_process
from turnscore_load.traffic import ExactTraffic, LengthMix, pack

_MIX = LengthMix(name="mixed", least=8, most=64)
_WARM_UP = 300
_SETTLE_SECONDS = 1.5
"""The batches of spans and records leave a second after they began (OpenTelemetry's default for records)."""


def main(
    serving: Annotated[Path, typer.Option(help="Folder of the serving environment's bentoml.")] = BENTOML.parent,
    before: Annotated[Path | None, typer.Option(help="The same of another version, to compare with.")] = None,
    rounds: Annotated[int, typer.Option(min=1)] = 6,
    turns: Annotated[int, typer.Option(min=100)] = 3000,
    clients: Annotated[int, typer.Option(min=1)] = 8,
    output: Annotated[Path, typer.Option(help="Folder for logs.")] = Path("build/bench-telemetry"),
) -> ScenarioResult:
    """Measure, and compare each way with `off` by the median over the rounds' ratios."""
    traffic = EngagementRows().traffic
    with collector() as endpoint, ExitStack() as stack:
        servers: dict[str, Process] = {}
        for name, (folder, settings) in _ways(serving, before, endpoint).items():
            logs = output.resolve() / "".join(filter(str.isalnum, name))
            common = {"TURNSCORE_MODELS": "engagement", "TURNSCORE_GRPC__ENABLED": "false", **ONE_BATCH_AT_A_TIME}
            process = service_process(folder / "bentoml", logs, {**common, **settings}, clean=True)
            servers[name] = stack.enter_context(started(process))
            process.pause()
        costs: dict[str, list[float]] = {name: [] for name in servers}
        for server in servers.values():
            _cpu_seconds(server, traffic, _WARM_UP, clients)
        for number in range(rounds):
            order = list(servers)
            random.Random(number).shuffle(order)
            for name in order:
                costs[name].append(1000 * _cpu_seconds(servers[name], traffic, turns, clients) / turns)
            typer.echo(f"{number}: { {name: round(own[-1], 3) for name, own in costs.items()} }", err=True)
    rows = []
    for name, own in costs.items():
        ratios = [each / off for each, off in zip(own, costs["off"], strict=True)]
        rows.append([name, f"{median(own):.3f}", spread(ratios, 3)])
    return ScenarioResult(
        scenario="telemetry", parts=[table(["telemetry", "CPU ms per request", "over off"], rows)], data=costs
    )


def _ways(serving: Path, before: Path | None, endpoint: str) -> dict[str, tuple[Path, Mapping[str, str]]]:
    def recording(share: float, events: str) -> tuple[Path, Mapping[str, str]]:
        given = {"ENDPOINT": endpoint, "SAMPLE_SHARE": str(share), "EVENTS": events}
        return serving, {f"TURNSCORE_TELEMETRY__{name}": value for name, value in given.items()}

    return {
        **({} if before is None else {"before": (before, {})}),
        "off": (serving, {}),
        "off again": (serving, {}),  # what two services that are the same differ by
        "1 %, events sampled": recording(0.01, "sampled"),
        "1 %, events all": recording(0.01, "all"),
        "100 %, events all": recording(1.0, "all"),
    }


def _cpu_seconds(server: Process, traffic: ExactTraffic, turns: int, clients: int) -> float:
    bodies = pack(traffic.items(_MIX, turns), 1, cache="bypass")
    done = drive(server, Job(port=server.port, path="/v1/score", bodies=bodies, clients=clients), _SETTLE_SECONDS)
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
