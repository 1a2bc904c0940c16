"""ONNX Runtime leaves nothing behind and reports nothing: no file of its telemetry appears, whatever imports it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from turnscore_models.bundle import starter_bundles

ROOT = Path(__file__).parents[4]
SWITCH = "ORT_DISABLE_TELEMETRY"
SERVED = """
import sys
from pathlib import Path
from turnscore_models.bundle import read_bundle
from turnscore_core.loaded_scorer import load_scorer
load_scorer(read_bundle(Path(sys.argv[1])), "cpu-int8").run_sample()
"""


def test_a_bundle_that_is_loaded_and_scores_leaves_no_file_of_the_runtime(tmp_path):
    [bundle] = [each for each in starter_bundles() if each.name == "engagement"]
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "TMPDIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", SERVED, bundle], env=environment, check=True)
    assert [each for each in tmp_path.rglob("*") if each.is_file()] == []


@pytest.mark.parametrize("name", ["Dockerfile", "bentofile.yaml", "Makefile"])
def test_images_and_commands_set_it_for_what_else_they_run(name):
    assert SWITCH in (ROOT / name).read_text()
