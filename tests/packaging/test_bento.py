"""The bento, built from the wheels and served from an environment that has no checkout, scores a turn."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from support.environments import NOT_COMPILED, environment_with, pins
from support.processes import running_service
from turnscore_client import TurnScoreClient

ROOT = Path(__file__).parents[2]
SCRIPTS = Path(sys.executable).parent


def run(command, folder, **environment):
    done = subprocess.run(command, cwd=folder, env={**os.environ, **environment}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


@pytest.fixture(scope="module")
def bento(wheels, tmp_path_factory):
    """The folder of a freshly built bento."""
    build, home = tmp_path_factory.mktemp("build"), tmp_path_factory.mktemp("bentoml")
    for name in ("bentofile.yaml", ".bentoignore", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, build)
    shutil.copytree(ROOT / "requirements", build / "requirements")
    shutil.copytree(wheels, build / "dist")
    path = f"{SCRIPTS}{os.pathsep}{os.environ['PATH']}"
    run([str(SCRIPTS / "bentoml"), "build"], build, BENTOML_HOME=str(home), BENTOML_DO_NOT_TRACK="True", PATH=path)
    [manifest] = home.glob("bentos/turnscore/*/bento.yaml")
    return manifest.parent


@pytest.mark.packaging
def test_the_bento_serves_without_a_checkout_and_a_killed_supervisor_leaves_nothing(bento, tmp_path):
    """pip finds every pin there already, and no index: what serve.txt lacks, or has in another version, it refuses."""
    environment = tmp_path / "environment"
    environment_with(environment, ["pip", *pins("serve.txt")])
    path = f"{environment / 'bin'}{os.pathsep}{os.environ['PATH']}"
    own = {"VIRTUAL_ENV": str(environment), "PATH": path, "PYTHONPATH": "", "PIP_NO_INDEX": "1", **NOT_COMPILED}
    run(["bash", str(bento / "env/python/install.sh")], tmp_path, **own)
    installed = {path.name for path in environment.glob("lib/python3*/site-packages/*")}
    assert {"bentoml", "turnscore_service"} <= installed
    assert not {"torch", "transformers"} & installed

    isolated = {**own, "TURNSCORE_MODELS": "engagement", "TURNSCORE_DRAIN_SECONDS": "0"}
    executable = environment / "bin" / "bentoml"
    with (
        running_service(tmp_path / "run", target=str(bento), executable=executable, environment=isolated) as service,
        TurnScoreClient(service.url, timeout_seconds=60) as client,
    ):
        score = client.score(context=[("user", "hi, what did you do today?")], response="i hiked up a volcano.")
        assert 0 < score.scores["engagement"].value < 1
        workers = psutil.Process(service.process.pid).children(recursive=True)
        service.process.kill()
        assert psutil.wait_procs(workers, timeout=120)[1] == []
