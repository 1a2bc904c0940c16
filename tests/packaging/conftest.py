import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from support.environments import NOT_COMPILED, empty_environment, pip_install

ROOT = Path(__file__).parents[2]
DISTRIBUTIONS = (".", "./core", "./clients", "./assessment", "./exporters", "./corpora")


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the freshly built wheels of all distributions, built by what they ask for and nothing else."""
    folder = tmp_path_factory.mktemp("wheels")
    builder = empty_environment(tmp_path_factory.mktemp("builder"))
    asked = {each: _asked_to_build(each) for each in DISTRIBUTIONS}
    [first, *others] = asked.values()  # one environment for all: each takes seconds
    assert others == [first] * len(others), f"distributions ask for different things to be built with: {asked}"
    installed = pip_install(builder, *first)
    assert installed.returncode == 0, installed.stdout + installed.stderr
    words = ["wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", folder, *DISTRIBUTIONS]
    done = subprocess.run(
        [sys.executable, "-m", "pip", "--python", builder, *words],
        cwd=ROOT, env={**os.environ, **NOT_COMPILED}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def _asked_to_build(distribution: str) -> list[str]:
    project = tomllib.loads((ROOT / distribution / "pyproject.toml").read_text())
    return list(project["build-system"]["requires"])
