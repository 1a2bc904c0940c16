"""The GPU path where there is no GPU: what the service says."""

from pathlib import Path

import pytest
from support import plain_http
from support.conditions import wait_until
from support.processes import running_service
from turnscore_core.inference.devices import Machine, choose_devices
from turnscore_core.inference.onnx_backend import DeviceError

pytestmark = pytest.mark.e2e


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
