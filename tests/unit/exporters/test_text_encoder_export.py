"""A tiny sentence encoder becomes a bundle: poolings, parity, int8's drift, and what is refused."""

import json
import shutil

import numpy as np
import pytest
from support.exporter_data import build_dialogue, write_rows
from support.files import invoke
from torch.nn.functional import normalize
from turnscore_core.loaded_scorer import load_scorer
from turnscore_core.scorers.scorer import TurnToScore
from turnscore_exporters.commands import export as app
from turnscore_exporters.errors import EncoderError
from turnscore_exporters.text_encoder import TextEncoderModel, find_pooling
from turnscore_exporters.training.encoders import TextVectors, load_encoder
from turnscore_models.bundle import read_bundle

TEXTS = ["hi what did you do", "i saw a film about whales", "ok", "no no never " * 30]


@pytest.fixture(scope="module")
def dialogues(tmp_path_factory):
    rows = [build_dialogue(number, has_bot=True, rating=3) for number in range(80)]
    return write_rows(tmp_path_factory.mktemp("dialogues") / "dialogues.jsonl.gz", rows)


def describe(folder, modes, *modules):
    """The files by which sentence-transformers says how a folder pools."""
    listed = [{"type": f"sentence_transformers.models.{name}", "path": f"{place}_{name}"}
              for place, name in enumerate(modules)]  # fmt: skip
    (folder / "modules.json").write_text(json.dumps(listed))
    if "Pooling" in modules:
        (folder / f"{modules.index('Pooling')}_Pooling").mkdir(exist_ok=True)
        (folder / f"{modules.index('Pooling')}_Pooling" / "config.json").write_text(json.dumps(modes))
    return folder


@pytest.fixture
def sentence_encoder(tiny_bert, tmp_path):
    folder = tmp_path / "sentence-encoder"
    shutil.copytree(tiny_bert, folder)
    return describe(folder, {"pooling_mode_cls_token": True}, "Transformer", "Pooling", "Normalize")


def export(encoder, output, *options, code=0):
    command = ["encoder", "--encoder", encoder, "--version", "0.0.1", "--output", output, "--turns", 200, *options]
    return invoke(app, command, code)


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_the_served_vectors_are_the_encoder_s(tiny_bert, dialogues, tmp_path, pooling):
    options = ["--dialogues", dialogues, "--pooling", pooling, "--int8-tolerance", 0.2, "--token-limit", 32]
    export(tiny_bert, tmp_path / "bundle", *options)
    bundle = read_bundle(tmp_path / "bundle")
    assert (bundle.manifest.kind, bundle.manifest.token_limit) == ("encoder", 32)
    encoder = load_encoder(str(tiny_bert), 32)
    model = TextEncoderModel(encoder.model, pooling).eval()
    expected = normalize(TextVectors(encoder, model).of(TEXTS), dim=1).numpy()
    for variant, far in (("fp32", 1e-4), ("cpu-int8", 0.2)):
        assert bundle.manifest.graphs[variant].parity_measured["turns"] >= 200
        loaded = load_scorer(bundle, variant, threads=1)
        packs = loaded.scorer.encode([loaded.scorer.trim(TurnToScore([], text)) for text in TEXTS])
        for vector, score in zip(expected, loaded.scorer.score(packs), strict=True):
            assert score.vector is not None
            assert float(np.frombuffer(score.vector, "<f4") @ vector) == pytest.approx(1, abs=far)


def test_the_folder_says_how_it_pools(sentence_encoder, tiny_bert):
    assert find_pooling(str(sentence_encoder)) == "cls"
    assert find_pooling(str(tiny_bert)) == "mean"
    mean = describe(sentence_encoder, {"pooling_mode_mean_tokens": True}, "Transformer", "Pooling")
    assert find_pooling(str(mean)) == "mean"


def test_a_pooling_or_module_that_is_not_exported_is_refused(sentence_encoder):
    with pytest.raises(EncoderError, match="pooling_mode_max_tokens"):
        find_pooling(str(describe(sentence_encoder, {"pooling_mode_max_tokens": True}, "Transformer", "Pooling")))
    with pytest.raises(EncoderError, match="Dense"):
        find_pooling(str(describe(sentence_encoder, {}, "Transformer", "Dense")))


@pytest.mark.parametrize(
    ("options", "said"),
    [(["--int8-tolerance", 1e-9], "graph cpu-int8: scores"), (["--data", "."], "either --data or --dialogues")],
)
def test_what_cannot_be_exported_leaves_nothing(tiny_bert, dialogues, tmp_path, options, said):
    assert said in export(tiny_bert, tmp_path / "bundle", "--dialogues", dialogues, *options, code=1).output
    assert not (tmp_path / "bundle").exists()
