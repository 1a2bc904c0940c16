"""Small bundles made on the spot; the graph is never run unless a test says so."""

from pathlib import Path

from turnscore_models import Bundle, GraphSpec, Manifest, TensorSpec, write_bundle


def make_bundle(folder: Path, *, name: str = "engagement", version: str = "1.0.0", kind: str = "engagement") -> Bundle:
    """A bundle of five small files that passes every check but that of the runtime."""
    folder.mkdir(parents=True)
    (folder / "graph.onnx").write_bytes(b"not a graph")
    (folder / "tokenizer.json").write_text("{}")
    percentiles = [index / 100 for index in range(101)]
    (folder / "calibration.json").write_text(f'{{"percentiles": {percentiles}, "turns": 5, "source": "made up"}}')
    (folder / "self_test.json").write_text('{"turns": [{"context": [["user", "hi"]], "response": "ok", "value": 0.5}]}')
    tensor = TensorSpec(name="input_ids", dtype="tensor(int64)", shape=["rows", "tokens"])
    graph = GraphSpec(
        file="graph.onnx",
        precision="fp32",
        opset=17,
        inputs=[tensor],
        outputs=[tensor],
        parity_tolerance=1e-4,
        parity_measured={"turns": 5.0},
    )
    manifest = Manifest(
        name=name,
        version=version,
        kind=kind,
        graphs={"fp32": graph},
        tokenizer="tokenizer.json",
        calibration="calibration.json",
        self_test="self_test.json",
        token_limit=128,
        training={"command": "none"},
        agreement={},
        licence="Apache-2.0",
    )
    return write_bundle(folder, manifest)
