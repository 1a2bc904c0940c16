"""Puts Locust's users on a service in a steady, ramp or spike shape and compares what they saw with the budgets."""

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from typer import Option

from turnscore_load.results import Check
from turnscore_load.scenario import Found, TargetScenario
from turnscore_load.services import LoadedService
from turnscore_load.users.budgets import BUDGETS, DEFAULT_MIX, ShapeName


@dataclass(kw_only=True)
class LocustScenario(TargetScenario[Found]):
    """One that runs Locust in a process of its own, so that its patched sockets stay there."""

    mix: Annotated[str, Option(help="Users of each kind: conversation, flood, batch, grpc, stream.")] = DEFAULT_MIX
    pace: Annotated[float, Option(help="2 makes the people twice as fast as people are.")] = 1.0
    scorers: Annotated[str, Option(help="Scorers, separated by commas; empty: all that are loaded.")] = ""
    budgets: Annotated[Path, Option(help="File of the budgets.")] = BUDGETS

    def run_locust(self, service: LoadedService, shape: ShapeName, seconds: float, **more: object) -> Check:
        """Whether every budget was kept. Locust does not outlive a caller that is interrupted."""
        self.reports.mkdir(parents=True, exist_ok=True)
        prefix = str(self.reports / shape)
        options: dict[str, object] = {
            "locustfile": BUDGETS.with_name("locustfile.py"), "host": service.url, "grpc-port": service.grpc_port,
            "shape": shape, "seconds": seconds, "csv": prefix, "html": f"{prefix}.html", "json-file": prefix,
            "loglevel": "WARNING", "stop-timeout": 30, "mix": self.mix, "pace": self.pace, "scorers": self.scorers,
            "budgets": self.budgets, **more,
        }  # fmt: skip
        arguments = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
        process = subprocess.Popen([sys.executable, "-m", "locust", "--headless", "--only-summary", *arguments])
        try:
            code = process.wait()
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait()
        return Check("every budget is kept", f"exit {code}", code == 0)


@dataclass(kw_only=True)
class Steady(LocustScenario[Check]):
    """Run one shape with Locust. Its reports: SHAPE.html, SHAPE_stats.csv, ..."""

    shape: Annotated[Literal["steady", "ramp", "spike"], Option(help="Shape of the number of users.")] = "steady"
    seconds: Annotated[float, Option(help="Duration in seconds.")] = 40.0
    repeat_share: Annotated[float, Option(help="Share of the items that were asked before.")] = 0.0
    deadline_ms: Annotated[int, Option(help="Deadline of every item.")] = 5000
    api: Annotated[Literal["http", "grpc"], Option(help="The API of users that are not of gRPC anyway.")] = "http"
    seed: Annotated[int, Option(help="Seed of the traffic.")] = 1

    def measure(self) -> Check:
        own = {name: getattr(self, name) for name in ("repeat_share", "deadline_ms", "api", "seed")}
        with self.target() as service:
            return self.run_locust(service, self.shape, self.seconds, **own)

    def report(self, found: Check) -> Iterator[str]:
        yield f"Reports: {self.reports}/{self.shape}.html, {self.reports}/{self.shape}_stats.csv"

    def checks(self, found: Check) -> Iterator[Check]:
        yield found
