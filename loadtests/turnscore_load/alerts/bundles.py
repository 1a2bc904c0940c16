"""Bundles that are wrong: one that is damaged, and one that proves itself and then gives what is no number."""

import hashlib
import json
import shutil
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

_SHARE_OF_GAP = 0.45
"""On both sides of its middle; what is left over is more than a self-test's tolerance."""


def damage(whole: Path, folder: Path) -> Path:
    """A copy whose graph lost its end, as when a disk fills up: the service refuses it."""
    shutil.copytree(whole, folder)
    file = _graph_of(folder)
    file.write_bytes(file.read_bytes()[:-1000])
    return folder


def repair(whole: Path, folder: Path) -> None:
    """The damaged copy gets its graph back."""
    shutil.copyfile(_graph_of(whole), _graph_of(folder))


def unhinge(whole: Path, folder: Path) -> Path:
    """A copy of an engagement bundle that passes its self-test, and gives NaN for values where no self-test's lies.

    The logarithm of how far a value is from the middle of their widest gap, less most of the way, is added: times 0.
    """
    shutil.copytree(whole, folder)
    turns = json.loads((folder / "self_test.json").read_text())["turns"]
    known = sorted(turn["graphs"]["cpu-int8"]["value"] for turn in turns)
    below, above = max(pairwise(known), key=lambda gap: gap[1] - gap[0])
    numbers = {"middle": -(below + above) / 2, "reach": -_SHARE_OF_GAP * (above - below), "nothing": 0.0}
    model = onnx.load(_graph_of(folder))
    [output] = model.graph.output
    [last] = [node for node in model.graph.node if output.name in node.output]
    last.output[0] = "whole"
    for name, value in numbers.items():
        model.graph.initializer.append(numpy_helper.from_array(np.array(value, np.float32), name))
    model.graph.node.extend(
        [
            helper.make_node("Add", ["whole", "middle"], ["side"]),
            helper.make_node("Abs", ["side"], ["distance"]),
            helper.make_node("Add", ["distance", "reach"], ["left"]),
            helper.make_node("Log", ["left"], ["logarithm"]),
            helper.make_node("Mul", ["logarithm", "nothing"], ["harm"]),
            helper.make_node("Add", ["whole", "harm"], [output.name]),
        ]
    )
    onnx.save(model, _graph_of(folder))
    _sign(folder)
    return folder


def _graph_of(folder: Path) -> Path:
    [file] = (folder / "graphs").glob("*.onnx")
    return file


def _sign(folder: Path) -> None:
    """The checksum of the changed graph, as its manifest states it."""
    file = _graph_of(folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"][f"graphs/{file.name}"] = hashlib.sha256(file.read_bytes()).hexdigest()
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n")
