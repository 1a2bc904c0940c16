"""deploy/observability's scripts, and Prometheus' own test of the rules that they write."""

import importlib.util
import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

FOLDER = Path(__file__).parents[2] / "deploy" / "observability"


def load_written(name: str) -> ModuleType:
    """A script of the folder, which is no package."""
    spec = importlib.util.spec_from_file_location(f"observability_{name}", FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look themselves up
    spec.loader.exec_module(module)
    return module


def run_promtool(folder: Path, step: str, cases: Sequence[dict[str, Any]]) -> None:
    """Holds the written rules against the cases, a value of each series a step. Skips where there is no promtool."""
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed: apt-get install prometheus")
    file = folder / "tests.yml"
    described = {
        "rule_files": [str(FOLDER / "rules" / "turnscore.yml")],
        "evaluation_interval": step,
        "group_eval_order": list(load_written("rules").GROUPS),
        "tests": [{**each, "interval": step} for each in cases],
    }
    file.write_text(json.dumps(described))
    ran = subprocess.run([promtool, "test", "rules", str(file)], capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stdout + ran.stderr
