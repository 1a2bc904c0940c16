"""Puts Locust's users on a service in a steady, ramp or spike shape and compares what they saw with the budgets."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import typer

from turnscore_load.machine import LOOPBACK, port_of
from turnscore_load.results import Check, ScenarioResult
from turnscore_load.services import BENTOML, NO_SETTINGS, LoadedService, target
from turnscore_load.users.budgets import BUDGETS, DEFAULT_MIX, ShapeName

Host = Annotated[str, typer.Option(help="Only 127.0.0.1 is taken.")]
Port = Annotated[int, typer.Option(help="Port of a running service; where there is none, one is started.")]
GrpcPort = Annotated[int, typer.Option(help="gRPC port of that service.")]
Program = Annotated[Path, typer.Option("--bentoml", help="The bentoml command that starts one.")]
Reports = Annotated[Path, typer.Option(help="Folder of the reports and logs.")]
Scorers = Annotated[str, typer.Option(help="Scorers, separated by commas; empty: all that are loaded.")]
Mix = Annotated[str, typer.Option(help="Users of each kind: conversation, flood, batch, grpc, stream.")]
Pace = Annotated[float, typer.Option(help="2 makes the people twice as fast as people are.")]
BudgetFile = Annotated[Path, typer.Option(help="File of the budgets.")]
REPORTS = Path("build/load")


@dataclass(kw_only=True)
class LocustRun:
    """Locust in a process of its own, so that its patched sockets stay there. Reports: `<reports>/<shape>.html`, ..."""

    shape: ShapeName
    seconds: float
    reports: Path
    options: dict[str, object] = field(default_factory=dict)

    def run(self, service: LoadedService) -> int:
        """Locust's exit code, 0 where every budget was kept; it does not outlive a caller that is interrupted."""
        self.reports.mkdir(parents=True, exist_ok=True)
        prefix = str(self.reports / self.shape)
        options: dict[str, object] = {
            "locustfile": BUDGETS.with_name("locustfile.py"), "host": service.url, "grpc-port": service.grpc_port,
            "shape": self.shape, "seconds": self.seconds, "csv": prefix, "html": f"{prefix}.html",
            "json-file": prefix, "loglevel": "WARNING", "stop-timeout": 30, **self.options,
        }  # fmt: skip
        arguments = [f"--{name}={value}" for name, value in options.items()]
        process = subprocess.Popen([sys.executable, "-m", "locust", "--headless", "--only-summary", *arguments])
        try:
            return process.wait()
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait()


@contextmanager
def announced_target(
    host: str,
    port: int,
    program: Path,
    reports: Path,
    grpc_port: int = 50_051,
    settings: "dict[str, str] | None" = None,
) -> Iterator[LoadedService]:
    """`services.target`, with its bundles printed. Raises StartError and ForeignHostError."""
    checked = port_of(f"http://{host}:{port}")
    with target(checked, program, reports.absolute(), settings or NO_SETTINGS, grpc_port) as found:
        typer.echo(f"{found.url}, {'started for this' if found.process else 'running'}: {', '.join(found.models)}")
        yield found


def main(
    shape: Annotated[Literal["steady", "ramp", "spike"], typer.Option(help="Shape of the number of users.")] = "steady",
    seconds: Annotated[float, typer.Option(help="Duration in seconds.")] = 40.0,
    mix: Mix = DEFAULT_MIX,
    pace: Pace = 1.0,
    repeat_share: Annotated[float, typer.Option(help="Share of the items that were asked before.")] = 0.0,
    scorers: Scorers = "",
    deadline_ms: Annotated[int, typer.Option(help="Deadline of every item.")] = 5000,
    api: Annotated[
        Literal["http", "grpc"], typer.Option(help="The API of users that are not of gRPC anyway.")
    ] = "http",
    seed: Annotated[int, typer.Option(help="Seed of the traffic.")] = 1,
    budgets: BudgetFile = BUDGETS,
    host: Host = LOOPBACK,
    port: Port = 3000,
    grpc_port: GrpcPort = 50_051,
    bentoml: Program = BENTOML,
    reports: Reports = REPORTS,
) -> ScenarioResult:
    """Run one shape with Locust."""
    options: dict[str, object] = {
        "mix": mix, "pace": pace, "repeat-share": repeat_share, "scorers": scorers, "deadline-ms": deadline_ms,
        "api": api, "seed": seed, "budgets": budgets,
    }  # fmt: skip
    with announced_target(host, port, bentoml, reports, grpc_port) as service:
        code = LocustRun(shape=shape, seconds=seconds, reports=reports, options=options).run(service)
    files = f"Reports: {reports}/{shape}.html, {reports}/{shape}_stats.csv"
    return ScenarioResult(
        scenario="steady", parts=[files], checks=[Check("every budget is kept", f"exit {code}", code == 0)]
    )
