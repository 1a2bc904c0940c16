"""`make bench-telemetry`: CPU per request without telemetry, at 1 % and with all of it, in alternating rounds.

Sends load to 127.0.0.1 only; a collector in this process takes what is exported and throws it away.
"""

import json
import random
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import typer
from turnscore_load.address import free_port
from turnscore_models import read_bundle, starter_bundles

from turnscore_bench.harness.processes import Server, drive
from turnscore_bench.harness.traffic import LengthMix, Traffic

_MIX = LengthMix(name="mixed", least=8, most=64, turns_factor=1.0)
_LOAD_CLIENT = "turnscore_bench.harness.load_client"
_WARM_UP = 300
_SETTLE_SECONDS = 1.5
"""The batches of spans and records leave a second after they began (OpenTelemetry's default for records)."""


def bench_telemetry(
    serving: Annotated[Path, typer.Option(help="Folder of the serving environment's bentoml.")],
    before: Annotated[Path | None, typer.Option(help="The same of another version, to compare with.")] = None,
    rounds: Annotated[int, typer.Option(min=1)] = 6,
    turns: Annotated[int, typer.Option(min=100)] = 3000,
    clients: Annotated[int, typer.Option(min=1)] = 8,
    output: Annotated[Path, typer.Option(help="Folder for logs.")] = Path("build/bench-telemetry"),
) -> None:
    """Measure, and print a row for each way with its median over the rounds' ratios to `off`."""
    output = output.resolve()
    folders = {folder.name: folder for folder in starter_bundles()}
    bundle = read_bundle(folders["engagement"])
    traffic = Traffic(bundle.path_of(bundle.manifest.tokenizer), bundle.manifest.token_limit)
    with _collector() as endpoint:
        ways = _ways(serving, before, endpoint)
        servers = {name: _start(name, *way, output) for name, way in ways.items()}
        try:
            costs = _measure(servers, traffic, output, (rounds, turns, clients))
        finally:
            for server in servers.values():
                server.stop()
    for name, own in costs.items():
        ratios = sorted(each / off for each, off in zip(own, costs["off"], strict=True))
        typer.echo(
            f"{name:24} {1000 * median(own):.3f} ms  {median(ratios):.3f}  ({ratios[0]:.3f} to {ratios[-1]:.3f})"
        )


def _ways(serving: Path, before: Path | None, endpoint: str) -> dict[str, tuple[Path, Mapping[str, str]]]:
    def recording(share: float, events: str) -> tuple[Path, Mapping[str, str]]:
        prefix = "TURNSCORE_TELEMETRY__"
        given = {"ENDPOINT": endpoint, "SAMPLE_SHARE": str(share), "EVENTS": events}
        return serving, {prefix + name: value for name, value in given.items()}

    ways: dict[str, tuple[Path, Mapping[str, str]]] = {"before": (before, {})} if before is not None else {}
    return {
        **ways,
        "off": (serving, {}),
        "off again": (serving, {}),  # what two services that are the same differ by
        "1 %, events sampled": recording(0.01, "sampled"),
        "1 %, events all": recording(0.01, "all"),
        "100 %, events all": recording(1.0, "all"),
    }


def _start(name: str, serving: Path, environment: Mapping[str, str], output: Path) -> Server:
    port, folder = free_port(), output / "".join(filter(str.isalnum, name))
    own = {
        "TURNSCORE_MODELS": "engagement",
        "TURNSCORE_GRPC__ENABLED": "false",
        "TURNSCORE_RUNTIME__THREADS": "1",
        "TURNSCORE_RUNTIME__CONCURRENT_BATCHES": "1",
        "BENTOML_HOME": str(folder / "bentoml"),
    }
    command = [str(serving / "bentoml"), "serve", "turnscore_service.bento:TurnScore", "--port", str(port)]
    server = Server(command, folder, {**own, **environment}, port)
    server.wait_until_ready("/readyz")
    server.pause()
    return server


def _measure(
    servers: Mapping[str, Server], traffic: Traffic, output: Path, amount: tuple[int, int, int]
) -> dict[str, list[float]]:
    """CPU seconds per request of each, by round; in each round the servers come in another order."""
    rounds, turns, clients = amount
    costs: dict[str, list[float]] = {name: [] for name in servers}
    for server in servers.values():
        _drive(server, traffic, output, _WARM_UP, clients)
    for number in range(rounds):
        order = list(servers)
        random.Random(number).shuffle(order)
        for name in order:
            costs[name].append(_drive(servers[name], traffic, output, turns, clients) / turns)
        print(number, {name: round(1000 * own[-1], 3) for name, own in costs.items()}, file=sys.stderr)  # noqa: T201
    return costs


def _drive(server: Server, traffic: Traffic, output: Path, turns: int, clients: int) -> float:
    bodies = [
        json.dumps({"context": [{"speaker": "user", "text": turn.query}], "response": turn.reply, "cache": "bypass"})
        for turn in traffic.turns(_MIX, turns)
    ]
    job = {"port": server.port, "path": "/v1/score", "bodies": bodies, "clients": clients, "keeps_replies": False}
    answer = drive(server, _LOAD_CLIENT, job, output, _SETTLE_SECONDS)
    if answer["answered"] != turns:
        raise SystemExit(f"{turns - answer['answered']} requests were not answered: {answer['first_error']}")
    return float(answer["cpu_seconds"])


@contextmanager
def _collector() -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


if __name__ == "__main__":
    typer.run(bench_telemetry)
