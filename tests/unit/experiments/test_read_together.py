"""What is read together for speed scores as if it were read alone: rows of like length, rounds of replies, chunks."""

from pathlib import Path

import numpy as np
import pytest
import torch
from paper_systems.bert_systems import ROWS_TOGETHER, hidden_loss, hide_tokens, read_groups, split_by_length
from paper_systems.ruber import RuberNetwork, Texts
from support.exporter_data import save_tiny_masked, save_tiny_pair
from torch.nn import functional
from turnscore_exporters.pair_models import models
from turnscore_exporters.pair_models.models import (
    FrozenVectors,
    PairNetwork,
    load_masked_model,
    load_pair_model,
    read_logits,
    score_network,
)
from turnscore_exporters.training.encoders import load_encoder

PAIRS = [("what about whales " * (1 + number % 5), "sea " * (1 + number * 7 % 11)) for number in range(19)]
"""Pairs of mixed length, and not a whole number of groups."""
WIDER = 5.0
"""Times a tiny checkpoint's weights, as they are drawn its logits hardly differ."""
FAMILIES = ["bert", "roberta"]


@pytest.mark.parametrize("family", FAMILIES)
def test_rows_of_like_length_have_the_logits_that_they_have_in_one_batch(family: str, tmp_path: Path) -> None:
    checkpoint = load_pair_model(str(save_tiny_pair(tmp_path, family)))
    with torch.inference_mode():
        for weight in checkpoint.model.parameters():
            weight *= WIDER
        whole, grouped = read_logits(checkpoint, PAIRS), read_groups(checkpoint, PAIRS)
    assert float(whole.std()) > 0.01
    assert torch.allclose(grouped, whole, atol=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_masked_words_cost_what_they_cost_in_one_batch(family: str, tmp_path: Path) -> None:
    checkpoint = load_masked_model(str(save_tiny_masked(tmp_path, family)))
    rows = checkpoint.lay_out(PAIRS)
    inputs = checkpoint.collate([row.ids for row in rows], [row.response_start for row in rows])
    torch.manual_seed(0)
    inputs["input_ids"], wanted = hide_tokens(inputs["input_ids"], checkpoint)
    with torch.inference_mode():
        logits = checkpoint.model(**inputs).logits
        expected = functional.cross_entropy(logits.flatten(0, 1), wanted.flatten())
        assert float(hidden_loss(checkpoint.model, inputs, wanted)) == pytest.approx(float(expected), abs=1e-5)


def test_no_group_has_a_column_of_padding_alone(tmp_path: Path) -> None:
    checkpoint = load_pair_model(str(save_tiny_pair(tmp_path, "bert")))
    rows = checkpoint.lay_out(PAIRS)
    inputs = checkpoint.collate([row.ids for row in rows], [row.response_start for row in rows])
    groups = split_by_length(checkpoint.model, inputs)
    assert sorted(int(place) for places, _ in groups for place in places) == list(range(len(PAIRS)))
    for places, group in groups:
        assert len(places) <= ROWS_TOGETHER
        assert group["inputs_embeds"].shape[:2] == group["attention_mask"].shape == group["token_type_ids"].shape
        assert group["attention_mask"].any(0).all()
        assert group["attention_mask"].sum(1).tolist() == [len(rows[int(place)].ids) for place in places]


def test_two_rounds_of_replies_score_as_two_calls() -> None:
    torch.manual_seed(0)
    network = RuberNetwork(6)
    drawn = np.random.default_rng(0)
    query, first, second = (
        [drawn.normal(size=(words, 6)).astype(np.float32) for words in lengths]
        for lengths in ([3, 1, 4], [2, 7, 1], [5, 1, 3])
    )
    with torch.inference_mode():
        together = network(Texts.of(query), Texts.of([*first, *second]))
        alone = [network(Texts.of(query), Texts.of(each)) for each in (first, second)]
    assert len(set(together.tolist())) == 6
    assert torch.allclose(together, torch.cat(alone), atol=1e-6)


def test_pairs_judged_in_chunks_score_as_at_once(tiny_bert: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = FrozenVectors(load_encoder(str(tiny_bert)))
    torch.manual_seed(0)
    network = PairNetwork(vectors.width).eval()
    at_once = score_network(network, vectors, PAIRS)
    monkeypatch.setattr(models, "NETWORK_PAIRS_AT_ONCE", 4)
    assert score_network(network, vectors, PAIRS) == pytest.approx(at_once, abs=1e-6)
    assert len(at_once) == len(PAIRS)
