"""The load tests as they are run: Locust in its own process, against a server of known behaviour."""

import asyncio
import csv
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from support.conditions import wait_until
from support.load_commands import LOADTESTS, run_command, write_budgets
from support.plain_server import REFUSED, SCORED, Behaviour, Reply, plain_server_in_a_thread
from turnscore_load.traffic import Traffic, TrafficSettings
from turnscore_wire import Limits, ModelDescription, ModelsReply

MODEL = ModelDescription(scorer="fed", model="fed:1.0.0", digest="0", graph="fp32", token_limit=128)
EXPIRED: Reply = (504, {}, b"{}")
MODELS: Reply = (200, {}, ModelsReply(request_id="a", models=[MODEL], limits=Limits()).model_dump_json().encode())


def serve(score: Callable[[object], Reply]) -> Behaviour:
    async def behave(path: str, body: bytes) -> Reply:
        await asyncio.sleep(0.01)
        return MODELS if path == "/v1/models" else score(json.loads(body))

    return behave


def load(port: int, folder: Path, budgets: Path, *more: str) -> "subprocess.CompletedProcess[str]":
    return run_command(
        LOADTESTS / "run.py", "load", "--port", port, "--reports", folder, "--budgets", budgets, "--seconds", 3,
        "--pace", 30, *more,
    )  # fmt: skip


def test_a_run_within_its_budgets_ends_with_0_and_leaves_its_reports(tmp_path: Path):
    came: list[dict] = []
    flood = Traffic(TrafficSettings(repeat_share=0.5, scorers=("fed",), deadline_ms=700), "flood 1")
    asked_first = [flood.next_ask().item for _ in range(3)]
    answered_first = iter([SCORED, EXPIRED, REFUSED])

    def score(body: object) -> Reply:
        assert isinstance(body, dict)
        came.append(body)
        if "items" in body:
            return (200, {}, b'{"results": [%s]}' % SCORED[2])
        return next(answered_first, SCORED) if body in asked_first else SCORED

    with plain_server_in_a_thread(serve(score)) as port:
        done = load(
            port, tmp_path / "out", write_budgets(tmp_path / "b.toml"), "--mix", "conversation=6,flood=1,batch=1",
            "--scorers", "fed", "--deadline-ms", "700", "--repeat-share", "0.5",
        )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    rows = {line.split(" | ")[0].strip("| "): line for line in done.stdout.splitlines() if line.startswith("| ")}
    assert {"conversation", "flood", "batch"} <= rows.keys()
    refused_and_expired = [int(rows["flood"].split(" | ")[place]) for place in (2, 3)]
    assert refused_and_expired == [1, 1]
    singles = [body for body in came if "items" not in body]
    assert {(tuple(body["scorers"]), body["deadline_ms"]) for body in singles} == {(("fed",), 700)}
    assert {len(body["items"]) for body in came if "items" in body} == {16}
    assert len({json.dumps(body) for body in singles}) < len(singles), "half of them are repeats"
    named = {row["Name"] for row in csv.DictReader((tmp_path / "out" / "steady_stats.csv").read_text().splitlines())}
    assert {"conversation", "flood", "flood refused", "flood expired", "batch"} <= named
    assert "</html>" in (tmp_path / "out" / "steady.html").read_text()


def test_failures_and_slow_answers_break_their_budgets_by_name(tmp_path: Path):
    numbers = iter(range(1_000_000))
    with plain_server_in_a_thread(serve(lambda _: None if next(numbers) % 20 == 3 else SCORED)) as port:
        done = load(port, tmp_path, write_budgets(tmp_path / "b.toml", p50_ms=1), "--mix", "flood=2")
    assert done.returncode == 1
    assert "BROKEN flood: p50 was" in done.stdout
    assert "of the calls failed, the budget is 0 %" in done.stdout
    errors = list(csv.DictReader((tmp_path / "steady_failures.csv").read_text().splitlines()))
    assert {row["Name"] for row in errors} == {"flood failed"}
    assert "no reply" in errors[0]["Error"]


def test_a_soak_watches_the_service_and_tells_growth(tmp_path: Path):
    """The server lives in this very process, whose file handles grow steadily, whenever the first call may come."""
    kept: list[object] = []
    ended = threading.Event()

    def leak() -> None:
        while not ended.wait(0.2):
            kept.append(Path("/dev/null").open())  # noqa: SIM115 - that is the leak

    leaking = threading.Thread(target=leak)
    budgets = write_budgets(tmp_path / "b.toml", shape="soak")
    with plain_server_in_a_thread(serve(lambda _: SCORED)) as port:
        leaking.start()
        done = run_command(
            LOADTESTS / "run.py", "soak", "--port", port, "--reports", tmp_path, "--budgets", budgets,
            "--minutes", 0.2, "--mix", "conversation=1", "--pace", 100,
        )  # fmt: skip
    ended.set()
    leaking.join()
    for each in kept:
        each.close()  # type: ignore[attr-defined]
    assert done.returncode == 1, done.stdout + done.stderr
    assert "- BROKEN file handles:" in done.stdout
    assert len((tmp_path / "soak_samples.csv").read_text().splitlines()) > 5
    assert (tmp_path / "soak.png").exists()


@pytest.mark.parametrize("host", [("--host", "http://example.org:3000"), ()])
def test_locust_alone_sends_no_load_to_another_machine(host: tuple[str, ...]):
    done = run_command("-m", "locust", "--headless", "-f", LOADTESTS / "locustfile.py", *host)
    assert done.returncode != 0
    assert "load goes to http://127.0.0.1:PORT only" in done.stderr


def test_a_port_without_a_service_and_no_way_to_start_one_is_told(tmp_path: Path):
    with plain_server_in_a_thread(serve(lambda _: SCORED)) as port:
        pass
    done = run_command(
        LOADTESTS / "run.py", "load", "--port", port, "--reports", tmp_path, "--bentoml", tmp_path / "none"
    )
    assert done.returncode != 0
    assert "cannot be started" in done.stderr


_FAKE_BENTOML = """#!{python}
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self):
        body = {models!r} if self.path == "/v1/models" else {scored!r}
        self.rfile.read(int(self.headers.get("content-length", 0)))
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        if self.command == "POST":
            Path({loaded!r}).touch()

    do_GET = do_POST = answer

ThreadingHTTPServer(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])), Handler).serve_forever()
"""


def test_a_load_that_is_stopped_stops_what_it_started(tmp_path: Path):
    loaded = tmp_path / "loaded"
    assert MODELS is not None
    assert SCORED is not None
    bentoml = tmp_path / "bentoml"
    bentoml.write_text(
        _FAKE_BENTOML.format(python=sys.executable, models=MODELS[2], scored=SCORED[2], loaded=str(loaded))
    )
    bentoml.chmod(0o700)
    command = [
        sys.executable, str(LOADTESTS / "run.py"), "load", "--port", "1", "--reports", str(tmp_path / "out"),
        "--bentoml", str(bentoml), "--mix", "flood=1", "--seconds", "600",
    ]  # fmt: skip
    with subprocess.Popen(command, start_new_session=True) as process:
        wait_until(lambda: loaded.exists() or process.poll() is not None)
        assert process.poll() is None
        started = psutil.Process(process.pid).children(recursive=True)
        assert len(started) == 2, "Locust and the service"
        process.terminate()
        assert process.wait(120) == 128 + signal.SIGTERM
    assert psutil.wait_procs(started, timeout=120)[1] == []
