"""The diagnosis of made-up machines, as the command prints it."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from support.fakes import CPU_BUILD, GPU_BUILD, FakeMachine
from turnscore_client._command.registry import app
from turnscore_core.inference.onnx_backend import OnnxBuild
from turnscore_models import starter_bundles
from turnscore_service.lifecycle import doctor
from typer.testing import CliRunner, Result

STARTER = f"{starter_bundles()[0]}/"
BOTH = OnnxBuild(
    version="1.31.1", packages=("onnxruntime", "onnxruntime-gpu"), providers=GPU_BUILD.providers, cuda_version=(13, 0)
)


@pytest.fixture(autouse=True)
def _one_bundle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURNSCORE_MODELS", STARTER)
    monkeypatch.setattr(doctor, "check_service", lambda *_: [])  # of the machine that the tests run on


def run(monkeypatch: pytest.MonkeyPatch, machine: FakeMachine, *options: str) -> Result:
    monkeypatch.setattr(doctor, "Machine", lambda: machine)
    return CliRunner().invoke(app, ["doctor", *options], env={"COLUMNS": "160"})


def read(monkeypatch: pytest.MonkeyPatch, machine: FakeMachine, *options: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run(monkeypatch, machine, "--json", *options).stdout)
    return found


def test_a_machine_without_a_gpu_serves_on_its_cpu(monkeypatch: pytest.MonkeyPatch):
    result = run(monkeypatch, FakeMachine(CPU_BUILD, driver="libcuda.so.1: cannot open"))
    assert result.exit_code == 0, result.output
    assert re.search(r"NVIDIA driver +none", result.output)
    assert re.search(r"engagement:\S+ +cpu-int8 +cpu +CPUExecutionProvider", result.output)
    assert result.output.endswith("ready to serve\n")


def test_cuda_that_cannot_be_used_is_told_with_its_fix_and_ends_with_status_1(monkeypatch: pytest.MonkeyPatch):
    result = run(monkeypatch, FakeMachine(missing="libcudnn.so.9"), "--device", "cuda")
    assert result.exit_code == 1
    assert "cuda lacks" in result.output
    assert "problem CUDAExecutionProvider needs libcudnn.so.9, which cannot be loaded: install" in result.output
    assert result.output.endswith("the service would not be ready\n")


def test_a_gpu_left_unused_is_a_warning(monkeypatch: pytest.MonkeyPatch):
    found = read(monkeypatch, FakeMachine(CPU_BUILD))
    assert found["can_serve"]
    assert [(each["is_fatal"], each["text"][:51]) for each in found["problems"]] == [
        (False, "there is a GPU, but the CPU would be used: the inst")
    ]


def test_both_runtimes_at_once_are_a_problem_even_where_cuda_works(monkeypatch: pytest.MonkeyPatch):
    found = read(monkeypatch, FakeMachine(BOTH))
    assert found["extras"][-2:] == ["cpu", "gpu"]
    assert [each["is_fatal"] for each in found["problems"] if "overwrite each other" in each["text"]] == [True]
    assert not found["can_serve"]


def test_it_loads_what_would_be_served_and_tells_a_damaged_bundle(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    assert run(monkeypatch, FakeMachine(CPU_BUILD), "--load").exit_code == 0
    shutil.copytree(STARTER, tmp_path / "bundle")
    (tmp_path / "bundle" / "tokenizer.json").write_text("{}")
    monkeypatch.setenv("TURNSCORE_MODELS", f"{tmp_path}/bundle")
    result = run(monkeypatch, FakeMachine(CPU_BUILD))
    assert result.exit_code == 1
    assert "tokenizer.json has SHA-256" in result.output


@pytest.mark.parametrize("setting", ["SHADOW", "SPLIT"])
def test_candidate_versions_are_looked_at_too(setting: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(f"TURNSCORE_{setting}", "./nowhere/engagement=0.1")
    found = read(monkeypatch, FakeMachine(CPU_BUILD))
    assert not found["can_serve"]
    assert "nowhere/engagement" in found["scorers"][-1]["problem"]
