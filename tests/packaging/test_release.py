"""What a release's folder holds is installed from there, without a checkout and without an index, and works."""

import os
import re
import shutil
import subprocess
import tarfile
import tomllib
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml
from support.deployments import HELM, helm
from support.environments import environment_with, pins, pip_install
from turnscore_load.machine import free_port

pytestmark = pytest.mark.packaging
ROOT = Path(__file__).parents[2]
NPM = shutil.which("npm")
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
OURS = ("turnscore", "turnscore_core", "turnscore_client")
SCORE = """
import { TurnScoreClient } from "turnscore";
const { scores } = await new TurnScoreClient(process.argv[2]).score({ response: "i hiked up a volcano!" });
console.log(scores.engagement.value);
"""


@pytest.fixture(scope="module")
def release(wheels, tmp_path_factory):
    """The folder, as `make release` fills it."""
    folder = tmp_path_factory.mktemp("release")
    for wheel in wheels.glob("*.whl"):
        (folder / wheel.name).hardlink_to(wheel)
    if NPM:
        subprocess.run([ROOT / "deploy/release.sh", "pack", folder], capture_output=True, check=HELM is not None)
    return folder


@contextmanager
def served_on_a_terminal(program, folder):
    """The last line of `turnscore serve`, which it writes when it is ready."""
    own = {name: text for name, text in os.environ.items() if not name.startswith(("TURNSCORE_", "PYTHON"))}
    own |= {"TURNSCORE_HTTP__PORT": str(free_port()), "TURNSCORE_GRPC__PORT": str(free_port())}
    own |= {"TURNSCORE_MODELS": "engagement", "HOME": str(folder)}
    screen, terminal = os.openpty()
    with subprocess.Popen([program, "serve"], cwd=folder, env=own, stdout=terminal, stderr=terminal) as process:
        os.close(terminal)
        try:
            with os.fdopen(screen, encoding="utf-8") as shown:
                lines = []
                for line in shown:
                    lines.append(line.strip())
                    if "is ready" in line:
                        break
                    assert "{" not in line, "JSON on a terminal"
                yield lines[-1]
        finally:
            process.terminate()


@pytest.mark.skipif(NPM is None, reason="there is no npm")
def test_the_service_serves_its_starter_bundles_to_the_client_of_npm_without_a_checkout(release, tmp_path):
    """pip and npm are given files, as docs/deploy.md does, and need nothing that is not installed already."""
    interpreter = environment_with(tmp_path / "environment", pins("serve.txt"))
    ours, core, client = (release / f"{name}-{VERSION}-py3-none-any.whl" for name in OURS)
    done = pip_install(interpreter, "--no-index", f"{ours}[cpu]", core, client)
    assert done.returncode == 0, done.stdout + done.stderr
    page = tmp_path / "page"
    page.mkdir()
    [package] = release.glob("turnscore-javascript-*.tgz")
    subprocess.run(["npm", "install", "--offline", "--silent", package], cwd=page, check=True, timeout=300)
    (page / "score.mjs").write_text(SCORE)
    with served_on_a_terminal(interpreter.with_name("turnscore"), page) as line:
        [url] = re.findall(r"^turnscore is ready: (http://127\.0\.0\.1:\d+)$", line)
        scored = subprocess.run(["node", "score.mjs", url], cwd=page, capture_output=True, text=True, timeout=300)
    assert scored.returncode == 0, scored.stderr
    assert 0 < float(scored.stdout) < 1


needs_both = pytest.mark.skipif(HELM is None or NPM is None, reason="there is no npm, or no helm: make deploy-tools")


@needs_both
def test_the_packed_chart_renders_what_the_charts_folder_does(release):
    [chart] = [each for each in release.glob("turnscore-*.tgz") if "javascript" not in each.name]
    done = helm("template", "turnscore", str(chart))
    assert done.returncode == 0, done.stderr
    assert done.stdout == helm("template", "turnscore", str(ROOT / "deploy/helm/turnscore")).stdout
    assert len(list(yaml.safe_load_all(done.stdout))) > 5


@needs_both
def test_what_is_packed_has_only_what_git_knows(tmp_path):
    checkout, folder = tmp_path / "checkout", tmp_path / "release"
    folder.mkdir()
    for each in ("deploy", "clients/javascript"):
        shutil.copytree(ROOT / each, checkout / each, symlinks=True)
    (checkout / "pyproject.toml").write_text(f'version = "{VERSION}"\n')
    for words in (["init", "--quiet"], ["add", "."]):
        subprocess.run(["git", *words], cwd=checkout, check=True)
    for stray in ("deploy/compose/.env", "deploy/helm/turnscore/files/stray.env", "clients/javascript/src/stray.env"):
        (checkout / stray).write_text("REDIS_PASSWORD=secret")
    path = f"{Path(str(HELM)).parent}{os.pathsep}{os.environ['PATH']}"
    subprocess.run([checkout / "deploy/release.sh", "pack", folder], env={**os.environ, "PATH": path}, check=True)
    names = []
    for each in folder.iterdir():
        with tarfile.open(each) as opened:
            names.append(opened.getnames())
    assert len(names) == 3
    assert all(len(each) > 5 for each in names)
    assert [name for each in names for name in each if name.endswith(".env")] == []
