"""The README's examples, run as they stand against the service on the starter bundles."""

import io
import json
import re
import subprocess
from contextlib import redirect_stdout
from pathlib import Path

import pytest
from support.processes import RunningService

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def block(language: str, starting: str = "") -> str:
    """The README's first fenced block of that language whose text starts so."""
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    return next(text for found, text in blocks if found == language and text.startswith(starting))


def test_the_curl_call_gives_what_the_readme_shows(service: RunningService):
    command = block("", "curl").replace("localhost:3000", service.url)
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    shown, got = json.loads(block("json")), json.loads(done.stdout)
    assert list(got) == list(shown)
    assert list(got["scores"]) == list(shown["scores"])
    for name, score in shown["scores"].items():
        assert list(got["scores"][name]) == list(score)
        assert got["scores"][name]["value"] == pytest.approx(score["value"], abs=0.02)
        assert got["scores"][name]["tokens"] == score["tokens"]


def test_the_python_example_prints_what_the_readme_shows(service: RunningService):
    output = io.StringIO()
    with redirect_stdout(output):
        exec(block("python").replace("http://localhost:3000", service.url), {})  # the README is ours
    shown = [line for line in block("", "fair, percentile").splitlines() if line]
    for line, expected in zip(output.getvalue().splitlines(), shown, strict=True):
        (label, percentile, text), wanted = (
            re.split(r", percentile |: ", each, maxsplit=2) for each in (line, expected)
        )
        assert (label, text) == (wanted[0], wanted[2])
        assert abs(int(percentile) - int(wanted[1])) <= 3
