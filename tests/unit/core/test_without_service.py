"""The core without a server: what is imported, and what is found where BentoML is not installed."""

import subprocess
import sys

SCRIPT = """
import sys
for name in ("bentoml", "fastapi", "grpc", "prometheus_client", "redis", "starlette", "turnscore_service"):
    sys.modules[name] = None  # importing it fails
from pathlib import Path
from turnscore_core.dialogues import Dialogue
from turnscore_core.engine import Engine
from turnscore_models import manifest, store
from turnscore_models.bundle import starter_bundles
from turnscore_wire import Turn
[quality] = [folder for folder in starter_bundles() if folder.name == "quality"]
assert store.list_bundles() == [] and store.resolve("quality").folder == quality
with Engine(["quality"], threads=1, concurrent_batches=1) as engine:
    turns = [Turn(speaker="user", text="How are you?"), Turn(speaker="system", text="Fine, and you?")]
    [result] = engine.score([Dialogue("a", turns)])
    assert 0 < result.turns[0].scores["quality"].value < 1
for asked in (lambda: store.resolve("nothing"), lambda: store.import_bundle(quality)):
    try:
        asked()
    except manifest.BundleError as error:
        print(error)
"""


def test_the_engine_scores_with_no_server_installed():
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    not_found, not_stored = done.stdout.splitlines()
    assert "turnscore-core[store] is not installed" in not_found
    assert not_stored.endswith("install turnscore-core[store]")
