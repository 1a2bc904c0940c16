"""Entry points of the exporters' commands: each starts its program, or says in a sentence which extra is missing."""

import sys
from importlib import import_module

OWN_PACKAGES = "turnscore"
EXTRAS = {"onnxruntime": "cpu"}
"""The extra that brings a package, where that is not `export`."""


def train() -> None:
    """`turnscore-train`."""
    _start("train_cli")


def export() -> None:
    """`turnscore-export`."""
    _start("export_cli")


def bench_fed() -> None:
    """`turnscore-bench-fed`."""
    _start("fed_bench_cli")


def agreement() -> None:
    """`turnscore-agreement`."""
    _start("agreement_cli")


def agreement_convert() -> None:
    """`turnscore-agreement-convert`."""
    _start("agreement_cli", "convert_app")


def agreement_table() -> None:
    """`turnscore-agreement-table`."""
    _start("agreement_table.command")


def calibrate() -> None:
    """`turnscore-calibrate`."""
    _start("calibration.command")


def _start(module: str, app: str = "app") -> None:
    try:
        getattr(import_module(f"turnscore_exporters.{module}"), app)()
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if not package or package.startswith(OWN_PACKAGES):
            raise
        extra = EXTRAS.get(package, "export")
        fix = f"install the extra `{extra}` (pip install ./clients '.[{extra}]' in a checkout of turnscore)"
        sys.exit(f"error: {package} is not installed: {fix}")
