import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.environments import NOT_COMPILED

ROOT = Path(__file__).parents[2]
DISTRIBUTIONS = (".", "./clients", "./assessment", "./exporters", "./corpora")


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the freshly built wheels of all distributions."""
    folder = tmp_path_factory.mktemp("wheels")
    done = subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, *DISTRIBUTIONS],
        cwd=ROOT, env={**os.environ, **NOT_COMPILED}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return folder
