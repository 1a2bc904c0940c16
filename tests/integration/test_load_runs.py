"""The load tests as they are run: Locust in its own process, against a server of known behaviour."""

import asyncio
import csv
import json
import subprocess
import sys
from pathlib import Path

from support.plain_http import SCORED, plain_server_in_a_thread
from turnscore_load.traffic import Traffic, TrafficSettings
from turnscore_wire import ErrorCode, ErrorDetail, ErrorReply, Limits, ModelDescription, ModelsReply

MODEL = ModelDescription(
    scorer="fed", model="fed:1.0.0", digest="0", graph="fp32", max_text_tokens=128, max_turn_tokens=384
)
MODELS = (200, {}, ModelsReply(request_id="a", models=[MODEL], limits=Limits()).model_dump_json().encode())


def refusal(status, code, retry_after_ms=None):
    error = ErrorDetail(code=code, message="", retry_after_ms=retry_after_ms)
    return (status, {}, ErrorReply(error=error, request_id="a").model_dump_json().encode())


REFUSED, EXPIRED = refusal(429, ErrorCode.OVERLOADED, 100), refusal(504, ErrorCode.DEADLINE_EXCEEDED)


def serve(score):
    async def behave(path, body):
        await asyncio.sleep(0.01)
        return MODELS if path == "/v1/models" else score(json.loads(body))

    return behave


LOADTESTS = Path(__file__).parents[2] / "loadtests"
BUDGET = """
[steady.{kind}]
p50_ms = 10000
p95_ms = 60000
p99_ms = 60000
max_failed_share = 0
max_refused_share = 1
max_expired_share = 1
min_answered_per_second = 0.01
"""


def run_command(folder, *arguments):
    """Runs a Python program of these words to its end."""
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)


def test_a_run_within_its_budgets_ends_with_0_and_leaves_its_reports(tmp_path):
    came = []
    flood = Traffic(TrafficSettings(repeat_share=0.5, scorers=("fed",), deadline_ms=700), "flood 1")
    asked_first = [flood.next_ask().item["response"] for _ in range(3)]
    answered_first = iter([SCORED, EXPIRED, REFUSED])

    def score(body):
        came.append(body)
        if "items" in body:
            return (200, {}, b'{"request_id": "a", "results": [%s]}' % b", ".join([SCORED[2]] * len(body["items"])))
        return next(answered_first, SCORED) if body["response"] in asked_first else SCORED

    out, budgets = tmp_path / "out", tmp_path / "budgets.toml"
    kinds = ("conversation", "flood", "batch", "grpc", "stream")
    budgets.write_text("".join(BUDGET.format(kind=kind) for kind in kinds))
    with plain_server_in_a_thread(serve(score)) as port:
        done = run_command(
            tmp_path, LOADTESTS / "run.py", "steady", "--port", port, "--reports", out, "--budgets", budgets,
            "--seconds", 3, "--pace", 30, "--mix", "conversation=6,flood=1,batch=1", "--scorers", "fed",
            "--deadline-ms", 700, "--repeat-share", 0.5,
        )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    rows = {line.split(" | ")[0].strip("| "): line for line in done.stdout.splitlines() if line.startswith("| ")}
    assert {"conversation", "flood", "batch"} <= rows.keys()
    refused_and_expired = [int(rows["flood"].split(" | ")[place]) for place in (2, 3)]
    assert refused_and_expired == [1, 1]
    singles = [body for body in came if "items" not in body]
    assert {tuple(body["scorers"]) for body in singles} == {("fed",)}
    assert {body["deadline_ms"] for body in singles} <= {*range(500, 701)}
    assert {len(body["items"]) for body in came if "items" in body} == {16}
    assert len({json.dumps(body) for body in singles}) < len(singles), "half of them are repeats"
    named = {row["Name"] for row in csv.DictReader((out / "steady_stats.csv").read_text().splitlines())}
    assert {"conversation", "flood", "flood refused", "flood expired", "batch"} <= named
    assert "</html>" in (out / "steady.html").read_text()


def test_locust_alone_sends_no_load_to_another_machine(tmp_path):
    words = ["-f", LOADTESTS / "locustfile.py", "--host", "http://example.org:3000"]
    done = run_command(tmp_path, "-m", "locust", "--headless", *words)
    assert done.returncode != 0
    assert "load goes to http://127.0.0.1:PORT only" in done.stderr
