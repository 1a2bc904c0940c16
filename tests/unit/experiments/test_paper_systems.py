"""The papers' systems: what their scores are made of, and what they must not depend on."""

import math

import numpy as np
import pytest
import torch
from paper_systems.bert_systems import fit_overall
from support.exporter_data import save_tiny_masked
from transformers import AutoModelForMaskedLM
from turnscore_exporters.errors import ExporterError
from turnscore_exporters.pair_models.bundles import weigh_alike
from turnscore_exporters.pair_models.models import load_masked_model, score_masked


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_masked_words_are_scored_as_the_published_model_scores_them(family, tmp_path):
    """By the plain model over whole rows: one masked copy at a time, no batch."""
    checkpoint = load_masked_model(str(save_tiny_masked(tmp_path, family)))
    said, response = "what did you do", "saw a film"
    [row] = checkpoint.lay_out([(said, response)])
    plain = AutoModelForMaskedLM.from_pretrained(tmp_path).eval()
    logs = []
    for place in range(row.response_start, row.response_end):
        ids = torch.tensor([row.ids])
        ids[0, place] = checkpoint.marks.mask
        inputs = {"input_ids": ids}
        if family == "bert":
            inputs["token_type_ids"] = (torch.arange(len(row.ids)) >= row.response_start).long()[None]
        with torch.inference_mode():
            logs.append(float(plain(**inputs).logits[0, place].log_softmax(-1)[row.ids[place]]))
    found = score_masked(checkpoint, [(said, response), ("hi", "never know whales like it"), ("hi", "")])
    assert found[0] == pytest.approx(np.mean(logs), abs=1e-5)
    assert math.isnan(found[2]), "a response without tokens has no score"


def test_a_part_that_hardly_differs_weighs_nothing_instead_of_showing_fp32_s_rounding():
    generator = np.random.default_rng(0)
    parts = {"mlm": generator.normal(-10, 1, 200), "retrieval": generator.normal(0.5, 2e-5, 200)}
    ratings = parts["mlm"] + 1e4 * parts["retrieval"]
    rounded = {name: values.astype(np.float32).astype(np.float64) for name, values in parts.items()}
    for formula in (fit_overall(parts, ratings.tolist()), weigh_alike(parts)):
        assert formula.parts["retrieval"].weight == 0
        assert formula.parts["mlm"].weight > 0.4
        assert formula.apply(rounded) == pytest.approx(formula.apply(parts), abs=1e-5)
    with pytest.raises(ExporterError, match="retrieval by 2e-05"):
        weigh_alike({"retrieval": parts["retrieval"]})
