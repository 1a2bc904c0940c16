"""One version: the service's pyproject.toml says it, and every other place follows."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
VERSION = re.findall(r'^version = "(.*)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)[0]
PLACES = {
    "clients/pyproject.toml": r'^version = "(.*)"$',
    "assessment/pyproject.toml": r'^version = "(.*)"$',
    "exporters/pyproject.toml": r'^version = "(.*)"$',
    "corpora/pyproject.toml": r'^version = "(.*)"$',
    "pyproject.toml": r'"turnscore-client==(.*)"',
    "bentofile.yaml": r"turnscore(?:_client)?-([0-9.]+)-py3",
    "deploy/helm/turnscore/Chart.yaml": r"^(?:appV|v)ersion: (.*)$",
    "deploy/corpus/Dockerfile": r"--tag turnscore-corpus:(\S+)",
    "deploy/corpus/rayjob.yaml": r"image: turnscore-corpus:(.*)$",
    "deploy/compose/compose.yaml": r"image: turnscore:(.*)$",
    "deploy/kubernetes/fixed.yaml": r'image: "turnscore:(.*)"$',
    "deploy/kubernetes/autoscaled.yaml": r'image: "turnscore:(.*)"$',
}


@pytest.mark.parametrize("place", PLACES)
def test_every_place_has_the_version_of_the_service(place: str):
    found = re.findall(PLACES[place], (ROOT / place).read_text(), re.MULTILINE)
    assert set(found) == {VERSION}


def release_check(folder: Path, changelog: str) -> str:
    """What `make release` says before it builds, of a committed tree with that changelog; empty for nothing."""
    script = folder / "deploy" / "release.sh"
    script.parent.mkdir()
    script.write_bytes((ROOT / "deploy" / "release.sh").read_bytes())
    for tool in (folder / "build" / "tools" / "helm", folder / "bin" / "syft"):
        tool.parent.mkdir(parents=True)
        tool.touch(mode=0o755)
    (folder / "pyproject.toml").write_text('version = "7.0.0"\n')
    (folder / "CHANGELOG.md").write_text(changelog)
    (folder / ".gitignore").write_text("build\nbin\n")
    author = ["-c", "user.name=a", "-c", "user.email=a@localhost"]
    for words in (["init", "--quiet"], ["add", "."], [*author, "commit", "--quiet", "--message", "all"]):
        subprocess.run(["git", *words], cwd=folder, check=True)
    return checked(folder)


def checked(folder: Path) -> str:
    command = ["bash", "deploy/release.sh", "check", "bin/python"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert bool(done.returncode) == bool(done.stderr)
    return done.stderr.removeprefix("no release: ").strip()


def test_a_version_with_its_section_is_released_from_a_tree_that_is_committed(tmp_path: Path):
    assert release_check(tmp_path, "## [7.0.0] - 2026-01-01\n\n### Added\n- A change.\n") == ""
    (tmp_path / "pyproject.toml").write_text('version = "7.0.0"\nname = "another"\n')
    assert checked(tmp_path) == "the tree has changes that are not committed"
