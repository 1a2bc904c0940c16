"""Two services of one user side by side; what a killed worker, supervisor or single process leaves behind."""

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from support import plain_http
from support.conditions import wait_until
from support.processes import RunningService, running_service
from turnscore_client import TurnScoreClient

pytestmark = pytest.mark.e2e
SMALL = {"TURNSCORE_MODELS": "engagement", "TURNSCORE_RUNTIME__THREADS": "1"}


def scored(url: str) -> float:
    """Turns that the service says it has scored for engagement."""
    text = plain_http.get(url + "/metrics").text
    found = re.findall(r"^turnscore_items_total\{(.*)\} (\S+)$", text, re.MULTILINE)
    wanted = {'outcome="scored"', 'scorer="engagement"'}
    return sum(float(count) for labels, count in found if wanted <= set(labels.split(",")))


def score(url: str, response: str) -> None:
    body = {"response": response, "scorers": ["engagement"], "cache": "bypass"}
    assert plain_http.post(url + "/v1/score", json=body).status_code == 200


def test_a_second_service_leaves_the_first_alone_and_its_killed_worker_is_replaced(service, tmp_path):
    shared = {**SMALL, "BENTOML_HOME": str(service.log.parent / "bentoml")}
    before = scored(service.url)
    score(service.url, "one")
    score(service.url, "two")
    assert scored(service.url) == before + 2

    def worker() -> psutil.Process | None:
        children = psutil.Process(second.process.pid).children()
        return next((each for each in children if "--fd" in " ".join(command_of(each))), None)

    with running_service(tmp_path, environment=shared) as second:
        score(second.url, "three")
        assert scored(second.url) == 1
        assert scored(service.url) == before + 2
        first = worker()
        first.kill()
        wait_until(lambda: (found := worker()) is not None and found.pid != first.pid)
        wait_until(lambda: plain_http.get(second.url + "/readyz").status_code == 200)
        with TurnScoreClient(second.url, timeout_seconds=60, max_retries=20) as client:
            assert client.score(response="ok").scores
        workers = psutil.Process(second.process.pid).children(recursive=True)
        second.process.send_signal(signal.SIGKILL)  # the supervisor, after which its workers end by themselves
        assert psutil.wait_procs(workers, timeout=120)[1] == []
        assert_free(second.url)
    score(service.url, "four")
    assert scored(service.url) == before + 3


def test_a_taken_address_is_one_sentence(service: RunningService, tmp_path: Path):
    again = [str(service.process.args[0]), "serve", "turnscore_service.bento:TurnScore"]  # type: ignore[index]
    again += ["--host", "127.0.0.1", "--port", service.url.rpartition(":")[2]]
    environment = {**os.environ, **SMALL, "BENTOML_HOME": str(tmp_path), "TURNSCORE_GRPC__ENABLED": "false"}
    refused = subprocess.run(again, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert refused.returncode != 0
    assert "another process is listening on its address" in refused.stderr
    assert "Traceback" not in refused.stderr
    score(service.url, "still served")


def command_of(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:  # it ended meanwhile
        return []


def assert_free(url: str) -> None:
    """Nobody listens at the address."""
    host, _, port = url.removeprefix("http://").partition(":")
    with socket.socket() as again:
        again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        again.bind((host, int(port)))


def test_turnscore_serve_is_one_process_that_leaves_nothing_when_killed(tmp_path: Path):
    with running_service(tmp_path, environment=SMALL, alone=True) as service:
        again = [str(Path(sys.executable).with_name("turnscore")), "serve"]
        port = {"TURNSCORE_HTTP__PORT": service.url.rpartition(":")[2]}
        environment = {**os.environ, **SMALL, **port}
        refused = subprocess.run(again, env=environment, capture_output=True, text=True, timeout=300)
        assert (refused.returncode, refused.stderr.count("\n")) == (1, 1)
        assert "turnscore cannot listen on 127.0.0.1" in refused.stderr
        score(service.url, "one")
        assert scored(service.url) == 1
        assert psutil.Process(service.process.pid).children() == []
        service.process.kill()
        service.process.wait(60)
        assert_free(service.url)
