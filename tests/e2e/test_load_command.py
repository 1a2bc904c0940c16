"""`make load` without a running service: one is started, loaded, and stopped again."""

import os
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from support import plain_http
from support.processes import RunningService
from turnscore_load.machine import free_port

pytestmark = pytest.mark.e2e

RUN = Path(__file__).parents[2] / "loadtests" / "run.py"
BUDGET = """
[steady.flood]
p50_ms = 60000
p95_ms = 60000
p99_ms = 60000
max_failed_share = 0
max_refused_share = 0
max_expired_share = 0
min_answered_per_second = 0.1
"""


def test_the_service_that_was_started_for_a_load_is_stopped_after_it(tmp_path: Path):
    (tmp_path / "budgets.toml").write_text(BUDGET)
    done = subprocess.run(
        [
            sys.executable, RUN, "steady", "--port", str(free_port()),
            "--bentoml", Path(sys.executable).parent / "bentoml", "--reports", tmp_path / "reports",
            "--budgets", tmp_path / "budgets.toml", "--seconds", "3", "--mix", "flood=1", "--scorers", "engagement",
        ],
        capture_output=True, text=True, check=False,
        env={**os.environ, "BENTOML_HOME": str(tmp_path / "bentoml"), "TURNSCORE_MODELS": "engagement"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    url, _, rest = done.stdout.partition(", ")
    assert rest.startswith("started for this: engagement:")
    with pytest.raises(httpx.ConnectError):
        plain_http.get(f"{url}/livez")


def test_five_streams_at_once_are_answered_by_the_real_service_and_leave_nothing(
    service: RunningService, tmp_path: Path
):
    done = subprocess.run(
        [
            sys.executable, RUN, "streams", "--port", service.url.rpartition(":")[2],
            "--grpc-port", service.grpc_target.rpartition(":")[2], "--reports", tmp_path, "--streams", "5",
            "--connections", "5", "--seconds", "4", "--pace", "30", "--settle-seconds", "0.5",
        ],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    kept = {}
    for line in (tmp_path / "streams.md").read_text().splitlines():
        if line.endswith((" yes |", " NO |")):
            claim, _, verdict = line.strip("| ").split(" | ")
            kept[claim] = verdict == "yes"
    assert len(kept) == 8, done.stdout + done.stderr
    # A few streams are no measurement of one stream's memory, nor is a busy machine one of how soon scores come.
    measured = {claim for claim in kept if any(word in claim for word in ("takes at most", "more rounds", "p99"))}
    assert len(measured) == 3
    assert all(is_kept for claim, is_kept in kept.items() if claim not in measured), done.stdout
    assert done.returncode == (0 if all(kept.values()) else 1)
