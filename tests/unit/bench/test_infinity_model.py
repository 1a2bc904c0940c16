"""The encoder that infinity serves, cut out of the starter bundle's graph."""

from pathlib import Path

import numpy as np
import onnxruntime
from turnscore_bench.servers.infinity_model import mean_vectors, write_int8_folder
from turnscore_models import read_bundle, starter_bundles


def test_the_encoder_alone_gives_a_vector_for_each_token_of_each_row(tmp_path: Path) -> None:
    bundle = read_bundle(next(folder for folder in starter_bundles() if folder.name == "engagement"))
    write_int8_folder(bundle.path_of("graphs/cpu-int8.onnx"), tmp_path / "model")
    rows = [[101, 2129, 2024, 2017, 102], [101, 2986, 102]]
    ids = np.array([rows[0], [*rows[1], 0, 0]])
    session = onnxruntime.InferenceSession(tmp_path / "model" / "model_quantized.onnx")
    [tokens] = session.run(None, {"input_ids": ids, "attention_mask": (ids > 0).astype(np.int64)})
    assert tokens.shape == (2, 5, 384)
    means = np.stack([tokens[0].mean(axis=0), tokens[1, :3].mean(axis=0)])
    means /= np.linalg.norm(means, axis=1, keepdims=True)
    assert np.allclose(means, mean_vectors(tmp_path / "model", [rows]), atol=1e-5)
