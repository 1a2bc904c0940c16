"""The GPU path where there is no GPU: what the service says, and the benchmark with tiny models on the CPU."""

import json
import os
import sys
from pathlib import Path

import pytest
import torch
from support import plain_http
from support.conditions import wait_until
from support.processes import running_service
from turnscore_core.inference.devices import Machine, choose_devices
from turnscore_core.inference.onnx_backend import DeviceError
from turnscore_load.scenarios.gpu import main

pytestmark = pytest.mark.e2e
PROGRAMS = Path(sys.executable).parent


def test_a_service_that_cannot_use_its_cuda_device_is_never_ready_and_says_why_and_what_to_do(tmp_path: Path):
    try:
        choose_devices("cuda:0", Machine())
    except DeviceError as error:
        reason = str(error)
    else:
        pytest.skip("cuda:0 works here")
    environment = {"TURNSCORE_RUNTIME__DEVICE": "cuda:0"}
    with running_service(tmp_path, environment=environment, wait_for="/livez", alone=True) as service:
        wait_until(lambda: "refused" in plain_http.get(service.url + "/readyz").text)
        told = plain_http.get(service.url + "/readyz")
        assert told.status_code == 503
        assert told.json()["error"]["message"] == f"refused: {reason}"
        assert "pip install" in reason or "driver" in reason
        assert "the device cannot be used" in service.log.read_text()
        scored = plain_http.post(service.url + "/v1/score", json={"response": "hi"})
        assert scored.json()["error"]["code"] == "not_ready"


@pytest.mark.parametrize(
    ("device", "reason"),
    [
        pytest.param(
            "cpu",
            "tiny models and computed on the CPU",
            marks=pytest.mark.skipif("TINY_BENCHMARK" not in os.environ, reason="`make test-gpu-tiny` runs it"),
        ),
        pytest.param("cuda:0", "tiny models", marks=pytest.mark.gpu),
    ],
)
def test_all_of_the_benchmark_but_the_compiler_runs_with_tiny_models_and_gives_no_verdict(
    device: str, reason: str, tmp_path: Path, request: pytest.FixtureRequest
):
    if device != "cpu":
        request.getfixturevalue("cuda")
    threads = torch.get_num_threads()
    try:
        result = main(device, tiny=True, output=tmp_path, serving=str(PROGRAMS), workers="1", compiles=False)
    finally:
        torch.set_num_threads(threads)
    assert {each.holds for each in result.checks} == {None}
    result.write(tmp_path / "gpu.json")
    found = json.loads((tmp_path / "gpu.json").read_text())["data"]
    assert found["conditions"]["not_judged"] == reason
    left_out = {"torch.compile, encoder", "torch.compile, tiny-dialogpt"}
    assert found["not_run"].keys() - {"nominal peak"} == left_out, found["not_run"]
    assert {each["qualities"] for each in found["fed"]} == {8, 18}
    assert {each["model"] for each in found["starts"]} == {"tiny-bert", "tiny-dialogpt"}
    served = [(each["model"], each["clients"], each["turns_per_request"], each["failed"]) for each in found["served"]]
    assert served == [
        *(("tiny-bert", 4, turns, 0) for turns in (1, 16)),
        *[("tiny-dialogpt", clients, 1, 0) for _ in (8, 18) for clients in (0, 4)],
    ]
    assert all(each["turns_per_second"] > 0 and each["p99_ms"] >= each["p50_ms"] > 0 for each in found["served"])
    assert "| tiny-bert | the service, 1 workers |" in result.markdown()
