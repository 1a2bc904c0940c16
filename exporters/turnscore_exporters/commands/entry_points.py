"""Entry points of the exporters' commands: each starts its program, or names the runtime that is missing.

ONNX Runtime comes in two distributions that own the same module, so no distribution of ours can require one.
"""

import sys
from importlib import import_module


def train() -> None:
    _start("train")


def export() -> None:
    _start("export")


def calibrate() -> None:
    _start("calibrate")


def _start(module: str) -> None:
    try:
        import_module(f"turnscore_exporters.commands.{module}").app()
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "onnxruntime":
            raise
        sys.exit(
            "error: ONNX Runtime is not installed: install the extra `cpu` (pip install ./clients ./core '.[cpu]' in a "
            "checkout of turnscore), or on a CUDA machine the extra `gpu`"
        )
