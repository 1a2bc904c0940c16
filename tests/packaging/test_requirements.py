"""The pinned dependencies of the CPU's and the GPU's service, and who takes them."""

from pathlib import Path

from support.requirements import pins

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


def test_the_image_takes_either_file_and_the_cpu_s_unless_told():
    dockerfile, ignored = (ROOT / "Dockerfile").read_text(), (ROOT / ".dockerignore").read_text()
    assert "ARG REQUIREMENTS=serve.txt\n" in dockerfile
    assert "COPY requirements/${REQUIREMENTS} " in dockerfile
    assert {"!requirements/serve.txt", "!requirements/serve-gpu.txt"} <= set(ignored.splitlines())


def test_the_bento_names_the_requirements_once_so_that_make_can_put_others_in_their_place():
    assert (ROOT / "bentofile.yaml").read_text().count("requirements/serve.txt") == 1
