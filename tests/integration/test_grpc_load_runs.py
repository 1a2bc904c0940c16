"""Locust's users over gRPC, as they are run: in Locust's own process, against the real transports on a fake scorer."""

import csv
from pathlib import Path

from prometheus_client import REGISTRY
from support.fakes import FakeScorer
from support.grpc_serving import settings_with
from support.load_commands import LOADTESTS, run_command, write_budgets
from support.transports import served_transports


def load(ports: tuple[int, int], folder: Path, *more: str) -> tuple[int, str, list[dict[str, str]]]:
    """The exit code, the output, and the rows of Locust's own statistics."""
    budgets = write_budgets(folder / "budgets.toml")
    done = run_command(
        LOADTESTS / "run.py", "load", "--port", ports[0], "--grpc-port", ports[1], "--reports", folder,
        "--budgets", budgets, "--seconds", 3, "--pace", 40, *more,
    )  # fmt: skip
    rows = list(csv.DictReader((folder / "steady_stats.csv").read_text().splitlines()))
    return done.returncode, done.stdout + done.stderr, rows


def requests() -> dict[str, float]:
    """Requests over gRPC so far, by call."""
    found = {}
    for call in ("score", "score_batch", "conversation"):
        labels = {"transport": "grpc", "call": call, "code": "ok"}
        found[call] = REGISTRY.get_sample_value("turnscore_requests_total", labels) or 0.0
    return found


def test_calls_and_streams_over_grpc_stand_in_locusts_statistics(tmp_path: Path):
    before = requests()
    with served_transports(fake=FakeScorer()) as (port, grpc_port):
        code, output, rows = load(
            (port, grpc_port), tmp_path, "--mix", "grpc=2,stream=3,flood=1,batch=1", "--door", "grpc"
        )
        assert REGISTRY.get_sample_value("turnscore_open_conversations") == 0
    assert code == 0, output
    counts = {row["Name"]: int(row["Request Count"]) for row in rows if row["Type"] == "grpc"}
    assert counts.keys() == {"grpc", "stream", "flood", "batch"}
    assert min(counts.values()) > 0
    made = {call: count - before[call] for call, count in requests().items()}
    assert made["score"] >= counts["grpc"] + counts["flood"]
    assert made["score_batch"] >= counts["batch"]
    assert made["conversation"] > 3, "a stream for each dialogue, ended well"


def test_refusals_and_failures_over_grpc_are_told_by_status(tmp_path: Path):
    settings = settings_with(conversations={"max_open": 1}, limits={"max_turns": 2})
    with served_transports(settings, fake=FakeScorer()) as (port, grpc_port):
        code, output, rows = load((port, grpc_port), tmp_path, "--mix", "grpc=2,stream=3")
    assert code == 1, output
    names = {row["Name"] for row in rows if row["Type"] == "grpc"}
    assert names <= {f"{kind}{outcome}" for kind in ("grpc", "stream") for outcome in ("", " refused", " failed")}
    assert "stream refused" in names
    failures = {
        (row["Name"], row["Error"].partition("(")[2].strip("')"))
        for row in csv.DictReader((tmp_path / "steady_failures.csv").read_text().splitlines())
    }
    assert ("grpc failed", "OUT_OF_RANGE") in failures
