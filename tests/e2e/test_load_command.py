"""`make load` without a running service: one is started, loaded, and stopped again."""

import os
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from support import plain_http
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
            "--serving", Path(sys.executable).parent, "--reports", tmp_path / "reports",
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
