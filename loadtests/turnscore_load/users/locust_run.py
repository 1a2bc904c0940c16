"""Locust run: Locust in a process of its own, so that its patched sockets stay there. Knows its command line."""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from turnscore_load.users.mix import DEFAULT_MIX
from turnscore_load.users.shapes import ShapeName

LOCUSTFILE = Path(__file__).parents[2] / "locustfile.py"
DoorName = Literal["http", "grpc"]
BUDGETS = LOCUSTFILE.with_name("budgets.toml")


@dataclass(frozen=True, slots=True, kw_only=True)
class LocustRun:
    """One run and where its reports go: `<reports>/<shape>.html`, `.json` and `_stats.csv` among others."""

    url: str
    shape: ShapeName
    seconds: float
    reports: Path
    mix: str = DEFAULT_MIX
    pace: float = 1.0
    repeat_share: float = 0.0
    scorers: str = ""
    deadline_ms: int = 5000
    seed: int = 1
    budgets: Path = BUDGETS
    grpc_port: int = 50_051
    door: DoorName = "http"

    def run(self) -> int:
        """Locust's exit code, 0 where every budget was kept; its table goes to standard output.

        Locust does not outlive the caller: where waiting is interrupted, it is stopped.
        """
        self.reports.mkdir(parents=True, exist_ok=True)
        prefix = str(self.reports / self.shape)
        options: dict[str, object] = {
            "locustfile": LOCUSTFILE, "host": self.url, "shape": self.shape, "seconds": self.seconds, "mix": self.mix,
            "pace": self.pace, "repeat-share": self.repeat_share, "scorers": self.scorers,
            "deadline-ms": self.deadline_ms, "seed": self.seed, "budgets": self.budgets, "csv": prefix,
            "grpc-port": self.grpc_port, "door": self.door,
            "html": f"{prefix}.html", "json-file": prefix, "loglevel": "WARNING", "stop-timeout": 30,
        }  # fmt: skip
        arguments = [f"--{name}={value}" for name, value in options.items()]
        command = [sys.executable, "-m", "locust", "--headless", "--only-summary", *arguments]
        process = subprocess.Popen(command)
        try:
            return process.wait()
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait()
