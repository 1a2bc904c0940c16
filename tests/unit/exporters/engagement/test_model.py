"""Pooling, combination, heads and blend of the torch model, and what its checkpoint keeps."""

from dataclasses import replace

import pytest
import torch
from turnscore_assessment.errors import BadFileError
from turnscore_exporters.data.pairs import read_pair_csv
from turnscore_exporters.engagement.model import EngagementModel, EngagementSettings, pool, score_pairs
from turnscore_exporters.sentiment.model import SentimentSettings
from turnscore_exporters.training.encoders import load_encoder


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


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("query,label\nhi,1\n", "line 1: has no column `reply`"),
        ("query,reply,label\nhi,you,1\nhi,you,2\n", "line 3: has label '2'"),
        ("query,reply,label\nhi\n", "line 2: has too few columns"),
    ],
)
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
