import os
import subprocess
import tomllib

import pytest
from support.environments import NOT_COMPILED, empty_environment, pip_install
from support.files import ROOT

DISTRIBUTIONS = (".", "core", "clients", "assessment", "exporters", "corpora")
# What pip does for each in three processes, here in one for all.
BUILD = """
import os, sys
from hatchling.build import build_wheel
for folder in sys.argv[2:]:
    os.chdir(folder)
    build_wheel(sys.argv[1])
"""


@pytest.fixture(scope="session")
def wheels(tmp_path_factory):
    """A folder with the freshly built wheels of all distributions, built by what they ask for and nothing else."""
    folder = tmp_path_factory.mktemp("wheels")
    builder = empty_environment(tmp_path_factory.mktemp("builder"))
    asked = {each: _asked_to_build(each) for each in DISTRIBUTIONS}
    [first, *others] = asked.values()  # one environment for all: each takes seconds
    assert others == [first] * len(others), f"distributions ask for different things to be built with: {asked}"
    assert first == {"requires": first["requires"], "build-backend": "hatchling.build"}
    installed = pip_install(builder, *first["requires"])
    assert installed.returncode == 0, installed.stdout + installed.stderr
    done = subprocess.run(
        [builder, "-c", BUILD, folder, *(ROOT / each for each in DISTRIBUTIONS)],
        env={**os.environ, **NOT_COMPILED}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def _asked_to_build(distribution):
    return dict(tomllib.loads((ROOT / distribution / "pyproject.toml").read_text())["build-system"])
