"""Environments: a virtual environment for each foreign server, made once below the output folder."""

import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from turnscore_bench.harness.processes import run_quietly

_STAMP = "requirements-met.txt"
_RUNTIME = f"onnxruntime=={version('onnxruntime')}"
"""The same runtime for everybody."""

BENTOML = ("bentoml==1.4.39", _RUNTIME, f"tokenizers=={version('tokenizers')}")
LITSERVE = ("litserve==0.2.19", _RUNTIME, f"tokenizers=={version('tokenizers')}")
INFINITY = (
    "infinity-emb[optimum,server,torch]==0.0.78",
    "optimum-onnx==0.1.0",
    "sentence-transformers==3.4.1",
    "torch==2.13.0",  # exactly this pin is the build for CPUs
    "transformers==4.57.6",  # the last that infinity and optimum take
    _RUNTIME,
)


def make_environment(folder: Path, requirements: Sequence[str]) -> None:
    """Makes the environment, unless the one there was made of the same requirements. Raises StartError."""
    wanted = "\n".join(requirements)
    stamp = folder / _STAMP
    if stamp.is_file() and stamp.read_text() == wanted:
        return
    run_quietly([sys.executable, "-m", "venv", "--clear", str(folder)])
    run_quietly([str(folder / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check", *requirements])
    stamp.write_text(wanted)
