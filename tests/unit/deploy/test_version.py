"""One version: the service's pyproject.toml says it, and every other place follows."""

import re

import pytest
from support.files import ROOT

VERSION = re.findall(r'^version = "(.*)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)[0]
PLACES = {
    "core/pyproject.toml": r'^version = "(.*)"$', "clients/javascript/package.json": r'^  "version": "(.*)",$',
    "clients/pyproject.toml": r'^version = "(.*)"$', "assessment/pyproject.toml": r'^version = "(.*)"$',
    "exporters/pyproject.toml": r'^version = "(.*)"$', "corpora/pyproject.toml": r'^version = "(.*)"$',
    "pyproject.toml": r'"turnscore-client==(.*)"', "bentofile.yaml": r"turnscore\w*-([0-9.]+)-py3",
    "deploy/helm/turnscore/Chart.yaml": r"^(?:appV|v)ersion: (.*)$",
    "deploy/corpus/Dockerfile": r"--tag turnscore-corpus:(\S+)",
    "deploy/corpus/rayjob.yaml": r"image: turnscore-corpus:(.*)$",
    "deploy/compose/compose.yaml": r"image: turnscore:(.*)$",
    "deploy/kubernetes/fixed.yaml": r'image: "turnscore:(.*)"$',
    "deploy/kubernetes/autoscaled.yaml": r'image: "turnscore:(.*)"$',
}  # fmt: skip


@pytest.mark.parametrize("place", PLACES)
def test_every_place_has_the_version_of_the_service(place):
    found = re.findall(PLACES[place], (ROOT / place).read_text(), re.MULTILINE)
    assert set(found) == {VERSION}


def test_a_release_has_the_sdist_of_every_distribution():
    [folders] = re.findall(r"^for folder in (.*); do$", (ROOT / "deploy" / "release.sh").read_text(), re.MULTILINE)
    assert set(folders.split()) == {".", *(each.parent.name for each in ROOT.glob("*/pyproject.toml"))}
