"""`turnscore-models` as a user runs it, on a model store of its own."""

import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from support.bundles import make_bundle
from turnscore_models import starter_bundles, write_bundle

STARTER = next(folder for folder in starter_bundles() if folder.name == "engagement")
STARTER_VERSION = json.loads((STARTER / "manifest.json").read_text())["version"]
STARTER_REFERENCE = f"engagement:{STARTER_VERSION}"


class Store:
    def __init__(self, home: Path) -> None:
        self._environment = {**os.environ, "BENTOML_HOME": str(home), "COLUMNS": "200", "BENTOML_DO_NOT_TRACK": "True"}

    def __call__(self, *words: str | Path, expect: int = 0) -> str:
        command = [sys.executable, "-m", "turnscore_models", *map(str, words)]
        done = subprocess.run(command, env=self._environment, capture_output=True, text=True, check=False)
        assert done.returncode == expect, done.stdout + done.stderr
        return done.stdout + done.stderr


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "bentoml")


def test_bundles_are_imported_listed_shown_verified_and_exported(store: Store, tmp_path: Path):
    for version in ("1.9.0", "1.10.0"):
        store("import", make_bundle(tmp_path / version, version=version).folder)
    listed = store("list")
    assert "engagement:1.9.0" in listed
    assert "engagement:1.10.0" in listed
    assert json.loads(store("show", "engagement"))["version"] == "1.10.0"
    assert json.loads(store("show", "engagement:latest"))["version"] == "1.10.0"
    assert json.loads(store("show", "engagement:1.9.0"))["version"] == "1.9.0"
    assert "4 files" in store("verify", "engagement:1.9.0")

    archive = tmp_path / "engagement.tar.gz"
    store("export", "engagement:1.9.0", archive)
    assert "refused" in store("export", "engagement:1.9.0", archive, expect=1)
    elsewhere = Store(tmp_path / "elsewhere")
    elsewhere("import", archive)
    assert json.loads(elsewhere("show", "engagement:1.9.0"))["version"] == "1.9.0"


def test_what_cannot_be_trusted_is_refused_with_a_sentence(store: Store, tmp_path: Path):
    bundle = make_bundle(tmp_path / "bundle")
    store("import", bundle.folder)
    assert "stored engagement:1.0.0" in store("import", bundle.folder)

    bundle.path_of("graph.onnx").write_bytes(b"something else")
    assert "graph.onnx has SHA-256" in store("import", bundle.folder, expect=1)
    other = make_bundle(tmp_path / "other", version="1.0.0")
    other.path_of("graph.onnx").write_bytes(b"another graph")
    write_bundle(other.folder, other.manifest)
    assert "already holds another engagement:1.0.0" in store("import", other.folder, expect=1)
    assert "stored: engagement:1.0.0" in store("show", "engagement:2.0.0", expect=1)
    assert "no bundle mood" in store("verify", "mood", expect=1)

    climbing = tmp_path / "climbing.tar.gz"
    with tarfile.open(climbing, "w:gz") as archive:
        archive.add(bundle.path_of("graph.onnx"), arcname="../../escaped")
    assert "is not a bundle archive" in store("import", climbing, expect=1)
    assert "does not exist" in store("import", tmp_path / "nothing.tar.gz", expect=1)


def stored_file(tmp_path: Path, version: str, name: str) -> Path:
    return tmp_path / "bentoml" / "models" / "engagement" / version / name


def test_a_damaged_stored_bundle_is_refused_and_not_replaced_by_the_starter(store: Store, tmp_path: Path):
    assert str(STARTER) in store("verify", STARTER_REFERENCE)
    store("import", make_bundle(tmp_path / "bundle", version=STARTER_VERSION).folder)
    graph = stored_file(tmp_path, STARTER_VERSION, "graph.onnx")
    assert str(graph.parent) in store("verify", STARTER_REFERENCE)
    graph.write_bytes(b"something else")
    for reference in (STARTER_REFERENCE, "engagement", "engagement:latest"):
        assert "graph.onnx has SHA-256" in store("verify", reference, expect=1)


def test_a_starter_bundle_is_found_by_name_version_and_latest(store: Store):
    for reference in ("engagement", "engagement:latest", STARTER_REFERENCE):
        assert json.loads(store("show", reference))["name"] == "engagement"
    assert f"starter bundles: {STARTER_REFERENCE}" in store("show", "engagement:9.0.0", expect=1)


def test_one_broken_manifest_leaves_the_other_bundles_usable(store: Store, tmp_path: Path):
    for version in ("1.9.0", "1.10.0", "1.11.0"):
        store("import", make_bundle(tmp_path / version, version=version).folder)
    stored_file(tmp_path, "1.9.0", "manifest.json").write_text("{")
    assert "4 files" in store("verify", "engagement:1.10.0")
    assert "engagement:1.11.0" in store("verify", "engagement")
    listed = store("list")
    assert "engagement:1.11.0" in listed
    assert "broken" in listed
    assert "manifest.json" in listed
    store("import", make_bundle(tmp_path / "2.0.0", version="2.0.0").folder)

    stored_file(tmp_path, "2.0.0", "manifest.json").write_text("{")
    assert "manifest.json" in store("verify", "engagement:latest", expect=1)
    assert "manifest.json" in store("verify", "engagement:1.9.0", expect=1)


def test_a_stored_bundle_that_calls_itself_another_is_refused(store: Store, tmp_path: Path):
    for version in ("1.9.0", "1.10.0"):
        store("import", make_bundle(tmp_path / version, version=version).folder)
    stored_file(tmp_path, "1.9.0", "manifest.json").write_bytes(
        stored_file(tmp_path, "1.10.0", "manifest.json").read_bytes()
    )
    assert "calls itself engagement:1.10.0" in store("verify", "engagement:1.9.0", expect=1)


@pytest.mark.parametrize(
    "reference", ["~nouser/x", "no/such/folder", "a b", "Engagement", "engagement:1", ":1.0.0", ""]
)
def test_a_reference_to_nothing_is_refused_with_a_sentence(store: Store, reference: str):
    assert store("verify", reference, expect=1).startswith("refused: ")
