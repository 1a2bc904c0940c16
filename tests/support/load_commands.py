"""The load tests' commands, and budgets for a test."""

import subprocess
import sys
from pathlib import Path

LOADTESTS = Path(__file__).parents[2] / "loadtests"
BUDGET = """
[{shape}.{kind}]
p50_ms = {p50_ms}
p95_ms = 60000
p99_ms = 60000
max_failed_share = {failed}
max_refused_share = 1
max_expired_share = 1
min_answered_per_second = 0.01
"""


def run_command(*arguments: object) -> "subprocess.CompletedProcess[str]":
    """Runs a Python program of these words to its end."""
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def write_budgets(file: Path, shape: str = "steady", p50_ms: float = 10_000, failed: float = 0.0) -> Path:
    """The same budget for every kind of user."""
    kinds = ("conversation", "flood", "batch", "grpc", "stream")
    file.write_text("".join(BUDGET.format(shape=shape, kind=kind, p50_ms=p50_ms, failed=failed) for kind in kinds))
    return file
