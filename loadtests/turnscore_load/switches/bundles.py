"""Versions to switch between: copies of a starter bundle with another version, and copies that must be refused."""

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

STARTER = Path(__file__).parents[3] / "model_store" / "starter" / "engagement"


def copy_as(version: str, folder: Path) -> Path:
    """The starter bundle under another version, which the manifest's checksums do not cover."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(STARTER, folder)
    _change_manifest(folder, lambda manifest: manifest.update(version=version))
    return folder


def damage(folder: Path) -> Path:
    """Flips one byte of a graph: the checksum finds it before anything is loaded."""
    graph = next(folder.rglob("*.onnx"))
    content = bytearray(graph.read_bytes())
    content[len(content) // 2] ^= 1
    graph.write_bytes(content)
    return folder


def falsify(folder: Path) -> Path:
    """Changes what a self-test turn should score, checksum and all: the proof finds it, with the graph loaded."""
    manifest = json.loads((folder / "manifest.json").read_text())
    test_file = folder / manifest["self_test"]
    test = json.loads(test_file.read_text())
    turn = test["turns"][0]
    for found in [turn, *turn.get("graphs", {}).values()]:
        if found.get("value") is not None:
            found["value"] += 0.3
    test_file.write_text(json.dumps(test))
    checksum = hashlib.sha256(test_file.read_bytes()).hexdigest()
    _change_manifest(folder, lambda changed: changed["files"].update({manifest["self_test"]: checksum}))
    return folder


def _change_manifest(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text())
    change(manifest)
    path.write_text(json.dumps(manifest))
