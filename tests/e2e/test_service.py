"""The real service on the starter bundles: BentoML's process, and the real client."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from support import plain_http
from support.conditions import wait_until
from support.fakes import say
from support.processes import running_service
from turnscore_client import NotReadyError, TurnScoreClient
from turnscore_load.processes import StartError
from turnscore_models.bundle import starter_bundles
from websockets.sync.client import connect

pytestmark = pytest.mark.e2e

QUESTION = [("user", "hi, what did you do today?")]
JSON = {"content-type": "application/json"}


def test_no_dialogue_text_is_logged(service, client):
    client.score(context=[("user", "xylophone secret")], response="marmalade secret")
    plain_http.post(service.url + "/v1/score", content=b'{"response": "marmalade secret", "secret": 1}', headers=JSON)
    assert "secret" not in service.log.read_text()


def test_metrics_of_the_real_process_are_scraped(service, client):
    client.score(context=QUESTION, response="ok")
    scraped = plain_http.get(service.url + "/metrics").text
    assert 'turnscore_requests_total{call="score",code="ok",transport="http"}' in scraped
    assert "turnscore_ready 1.0" in scraped


def test_headers_are_bounded_in_the_real_process(service):
    answer = plain_http.get(service.url + "/livez", headers={"x-large": "a" * 70_000})
    assert (answer.status_code, answer.json()["error"]["code"]) == (431, "too_large")


def test_every_line_of_the_log_is_json_and_conversations_write_none(service):
    before = len(service.log.read_text().splitlines())
    with connect(service.url.replace("http", "ws") + "/v1/conversations") as socket:
        assert say(socket, "user", "hi").ack
    plain_http.get(service.url + "/livez").raise_for_status()
    lines = [json.loads(line) for line in service.log.read_text().splitlines()]
    assert len({(line["message"], line["time"]) for line in lines}) == len(lines) == before


def refusal_of(*command, **environment):
    """What a command that cannot start a service says."""
    words, settings = [str(each) for each in command], {**os.environ, "TURNSCORE_MODELS": "engagement", **environment}
    refused = subprocess.run(words, env=settings, capture_output=True, text=True, timeout=300)
    assert refused.returncode == 1
    assert "Traceback" not in refused.stderr
    return refused.stderr


def test_a_taken_address_is_one_sentence(service, tmp_path):
    program, port = service.process.args[0], service.url.rpartition(":")[2]
    words = (program, "serve", "turnscore_service.bento:TurnScore", "--host", "127.0.0.1", "--port", port)
    told = refusal_of(*words, BENTOML_HOME=str(tmp_path), TURNSCORE_GRPC__ENABLED="false")
    assert "another process is listening on its address" in told
    assert plain_http.get(service.url + "/readyz").status_code == 200


def test_turnscore_serve_with_a_damaged_bundle_is_one_process_not_ready_until_sigterm_ends_it_well(tmp_path):
    shutil.copytree(starter_bundles()[0], tmp_path / "bundle")
    with (tmp_path / "bundle" / "tokenizer.json").open("ab") as file:
        file.write(b" ")
    environment = {"TURNSCORE_MODELS": f"{tmp_path}/bundle"}
    with running_service(tmp_path / "run", environment=environment, wait_for="/livez", alone=True) as service:
        wait_until(lambda: "refused" in plain_http.get(service.url + "/readyz").text)
        with TurnScoreClient(service.url, max_retries=0) as client, pytest.raises(NotReadyError, match="tokenizer"):
            client.score(response="ok")
        assert psutil.Process(service.process.pid).children() == []
        program, port = Path(sys.executable).with_name("turnscore"), service.url.rpartition(":")[2]
        told = refusal_of(program, "serve", TURNSCORE_HTTP__PORT=port)
        assert told.count("\n") == 1
        assert "turnscore cannot listen on 127.0.0.1" in told
        assert service.stop() == 0


@pytest.mark.parametrize(
    ("name", "value", "alone", "told"),
    [
        ("MODELS", "engagement,qualty", True, r": no bundle qualty; .*; did you mean quality\?"),
        ("SPLIT", "quality:9.9.9=0.5", False, ": no bundle quality:9.9.9; "),
    ],
)
def test_a_wrong_setting_ends_the_start_with_a_sentence_that_names_it(name, value, alone, told, tmp_path):
    variable = f"TURNSCORE_{name}"
    with (
        pytest.raises(StartError, match=f"{variable}{told}"),
        running_service(tmp_path, environment={variable: value}, alone=alone),
    ):
        pytest.fail("it started")
