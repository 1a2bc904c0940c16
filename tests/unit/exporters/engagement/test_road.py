"""Engagement's model, and a tiny random BERT that walks the whole road: train, export, load as the service does."""

import json
from dataclasses import replace
from functools import partial

import pytest
import torch
from support.files import invoke
from turnscore_assessment.errors import BadFileError
from turnscore_core.loaded_scorer import load_scorer
from turnscore_exporters.commands import export as export_app
from turnscore_exporters.commands import train as train_app
from turnscore_exporters.data.pairs import read_engagement_data, read_pair_csv
from turnscore_exporters.engagement import training as train_engagement
from turnscore_exporters.engagement.model import EngagementModel, EngagementSettings, pool, score_pairs
from turnscore_exporters.engagement.training import MixedRecipe, PaperRecipe, train_paper_recipe
from turnscore_exporters.errors import ExporterError
from turnscore_exporters.sentiment.model import SentimentSettings
from turnscore_exporters.training.encoders import load_encoder
from turnscore_models.bundle import read_bundle


def build_model(tiny_bert, **settings):
    torch.manual_seed(1)
    encoder = load_encoder(str(tiny_bert))
    return EngagementModel(encoder.model, EngagementSettings(encoder="tiny", **settings)).eval()


@pytest.mark.parametrize("pooling", ["mean", "max"])
def test_padding_never_counts(pooling):
    tokens = torch.tensor([[[1.0, -5.0], [3.0, -7.0], [9.0, 9.0]]])
    pooled = pool(tokens, torch.tensor([[1, 1, 0]]), pooling)
    assert pooled.tolist() == [[2.0, -6.0]] if pooling == "mean" else [[3.0, -5.0]]


@pytest.mark.parametrize("combination", ["average", "compare"])
def test_score_alone_equals_score_in_a_batch(tiny_bert, combination):
    model = build_model(tiny_bert, combination=combination, heads=2)
    encoder = load_encoder(str(tiny_bert))
    encoder = replace(encoder, name="tiny", model=model.encoder)
    pairs = [("hi", "hello you"), ("", "whales"), ("what did you do today", "i saw a film about the sea")]
    together = score_pairs(model, encoder, pairs)
    assert together == pytest.approx([score_pairs(model, encoder, [pair])[0] for pair in pairs], abs=1e-5)


BAD_FILES = [
    ("query,label\nhi,1\n", "line 1: has no column `reply`"),
    ("query,reply,label\nhi,you,1\nhi,you,2\n", "line 3: has label '2'"),
    ("query,reply,label\nhi\n", "line 2: has too few columns"),
]


@pytest.mark.parametrize(("content", "reason"), BAD_FILES)
def test_bad_pair_file_is_refused_by_file_and_row(tmp_path, content, reason):
    path = tmp_path / "pairs.csv"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(BadFileError, match=f"pairs.csv, {reason}"):
        read_pair_csv(path)
    path.write_text("\ufeffquery,reply,label\nhi,you,1\n", encoding="utf-8")  # as Excel writes it
    assert [pair.query for pair in read_pair_csv(path)] == ["hi"]


def test_a_checkpoint_with_a_setting_that_there_is_not_is_refused():
    for wrong in ({"pooling": "first"}, {"combination": "sum"}):
        with pytest.raises(ValueError, match=r"is '(first|sum)', not one of"):
            EngagementSettings(encoder="tiny", **wrong)
    with pytest.raises(ValueError, match="pooling is 'first', not one of mean, pooled"):
        SentimentSettings(encoder="tiny", pooling="first")


FEW_STEPS = tuple((source, 10) for source, _ in MixedRecipe().head_steps)


@pytest.fixture(scope="module", params=["paper", "mixed"])
def checkpoint(request, tiny_bert, data_folder, tmp_path_factory):
    """Few steps and bootstrap rounds: what is looked at is the report's form."""
    output = tmp_path_factory.mktemp("checkpoint")
    options = ["--data", data_folder, "--output", output, "--encoder", tiny_bert, "--any-counts"]
    options += ["--recipe", request.param, "--steps", 4]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(train_engagement, "BOOTSTRAP_ROUNDS", 20)
        patch.setattr(train_engagement, "PaperRecipe", partial(PaperRecipe, head_steps=20))
        patch.setattr(train_engagement, "MixedRecipe", partial(MixedRecipe, head_steps=FEW_STEPS))
        invoke(train_app, ["engagement", *options])
    return output


def test_training_writes_a_report_with_length_next_to_every_figure(checkpoint):
    report = json.loads((checkpoint / "report.json").read_text(encoding="utf-8"))
    for name in ("published", "corrected", "judged", "thumbs"):
        assert 0 <= report["model"][name]["auc"]["value"] <= 1
        assert set(report["length"][name]) == {"characters", "words"}


@pytest.mark.parametrize("checkpoint", ["mixed"], indirect=True, scope="module")
def test_exported_bundle_loads_in_the_service(checkpoint, data_folder, tmp_path):
    options = ["--checkpoint", checkpoint, "--version", "0.0.1", "--output", tmp_path / "bundle"]
    # Random weights make vectors that differ little, and heads that blow up what the differences lose to int8.
    options += ["--data", data_folder, "--turns", 200, "--int8-tolerance", 0.5]
    options += ["--graph", "fp32", "--graph", "cpu-int8", "--graph", "cuda-fp16"]
    invoke(export_app, ["engagement", *options])
    bundle = read_bundle(tmp_path / "bundle")
    assert set(bundle.manifest.graphs) == {"fp32", "cpu-int8", "cuda-fp16"}
    assert bundle.manifest.graphs["cuda-fp16"].parity_measured["spearman"] >= 0.999
    for variant, spec in bundle.manifest.graphs.items():
        assert spec.parity_measured["turns"] >= 50
        assert spec.parity_measured["max_abs"] <= spec.parity_tolerance
        load_scorer(bundle, variant, threads=1)


@pytest.mark.parametrize(("pooling", "learning_rate"), [("mean", 1e-3), ("max", 1e-2)])
def test_the_paper_s_recipe_trains_a_head_on_plain_vectors_of_a_frozen_encoder(
    tiny_bert, data_folder, pooling, learning_rate
):
    data = read_engagement_data(data_folder, check_counts=False)
    recipe = PaperRecipe(pooling=pooling, head_steps=30, with_transfer=True, transfer_steps=5)
    before = load_encoder(str(tiny_bert)).model.state_dict()
    model, again = (train_paper_recipe(data, load_encoder(str(tiny_bert)), recipe)[0] for _ in range(2))
    after = model.state_dict()
    assert all(torch.equal(each, again.state_dict()[name]) for name, each in after.items()), "a seed gives the same"
    assert all(torch.equal(before[name], after[f"encoder.{name}"]) for name in before)
    head = model.first_head
    assert recipe.learning_rate == learning_rate
    assert (float(head.center.abs().sum()), set(head.scale.tolist())) == (0.0, {1.0}), "not standardised"
    assert model.settings.dropout == 0


def test_a_head_that_scores_every_pair_alike_is_refused(tiny_bert, data_folder, monkeypatch):
    def silence(head, *_):
        for weight in head.parameters():
            torch.nn.init.zeros_(weight)

    data = read_engagement_data(data_folder, check_counts=False)
    monkeypatch.setattr("turnscore_exporters.engagement.training.train_head", silence)
    with pytest.raises(ExporterError, match="--seed 3: the head scores every pair alike"):
        train_paper_recipe(data, load_encoder(str(tiny_bert)), PaperRecipe(), seed=3)
