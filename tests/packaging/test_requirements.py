"""The pinned dependencies of the CPU's and the GPU's service, and who takes them."""

from pathlib import Path

import pytest
from support.environments import pins, unhashed

ROOT = Path(__file__).parents[2]


def test_what_the_tests_run_with_is_what_is_served():
    served, tested = pins("serve.txt"), pins("dev.txt")
    assert {name: tested.get(name) for name in served} == served


def test_on_a_gpu_only_the_runtime_and_its_cuda_wheels_are_others():
    cpu, gpu = pins("serve.txt"), pins("serve-gpu.txt")
    assert cpu.keys() - gpu.keys() == {"onnxruntime"}
    added = gpu.keys() - cpu.keys()
    assert {name for name in added if not name.startswith("nvidia-")} == {"onnxruntime-gpu"}
    assert gpu["onnxruntime-gpu"] == cpu["onnxruntime"]
    assert {name: version for name, version in gpu.items() if name not in added} == {
        name: version for name, version in cpu.items() if name != "onnxruntime"
    }


@pytest.mark.parametrize(("image", "served"), [("image-cpu.txt", "serve.txt"), ("image-cuda.txt", "serve-gpu.txt")])
def test_an_image_installs_what_is_served_each_file_by_its_hash(image: str, served: str):
    installed = pins(image)
    del installed["async-timeout"]  # what redis needs before Python 3.11.3
    assert installed == pins(served)
    assert unhashed(image) == []
    assert f"!requirements/{image}" in (ROOT / ".dockerignore").read_text().splitlines()
    assert (ROOT / "Dockerfile").read_text().count(f"COPY requirements/{image} ") == 1


def test_every_image_that_installs_checks_the_hashes():
    installs = [line for line in (ROOT / "Dockerfile").read_text().splitlines() if "--requirement" in line]
    assert len(installs) == 2
    assert all('"--require-hashes"' in line for line in installs)
