"""Each system trained for a few steps on tiny data: what it must learn, and what it must not depend on."""

import math
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from paper_systems.bert_systems import draw_retrieval, fit_overall, train_joint, train_pair_network
from paper_systems.data import RandomNegatives, ReplyPool
from paper_systems.ruber import RuberNetwork, Texts, TrainingScale, WordReader, score_ruber_network, train_ruber_network
from support.exporter_data import save_tiny_masked, save_tiny_pair
from transformers import AutoModelForMaskedLM
from turnscore_exporters.data.pairs import TextPair
from turnscore_exporters.errors import ExporterError
from turnscore_exporters.pair_models.bundles import weigh_alike
from turnscore_exporters.pair_models.models import (
    FrozenVectors,
    PairNetwork,
    load_masked_model,
    load_pair_model,
    score_masked,
    score_network,
    score_pairs,
)
from turnscore_exporters.training.encoders import load_encoder
from turnscore_exporters.training.loop import LoopSettings

TOPICS = (("whales", "sea"), ("film", "saw"))


def talk(count: int = 40) -> list[TextPair]:
    """Each reply takes up its query's topic, so that a wrong one can be told."""
    rows = []
    for number in range(count):
        asked, answered = TOPICS[number % 2]
        rows.append(
            TextPair(dialogue=f"d{number}", query=f"what about {asked} word{number}", reply=f"{answered} word{number}")
        )
    return rows


def settings(name: str, steps: int, learning_rate: float = 1e-3) -> LoopSettings:
    return LoopSettings(steps=steps, run_key=name, warm_up_steps=1, description=name, learning_rate=learning_rate)


class DrawnVectors:
    """A vector a word, as far apart as real ones."""

    name, width = "drawn", 16

    def of(self, words: Sequence[str]) -> NDArray[np.float32]:
        rows = [np.random.default_rng(zlib.crc32(word.encode())).normal(0, 1, self.width) for word in words]
        return np.array(rows, dtype=np.float32).reshape(len(rows), self.width)


def test_ruber_learns_which_reply_fits_and_resumes_to_the_same_weights(tmp_path: Path) -> None:
    exchanges, vectors = talk(), DrawnVectors()
    negatives = RandomNegatives(ReplyPool(exchanges))

    def train() -> RuberNetwork:
        torch.manual_seed(0)
        network = RuberNetwork(vectors.width)
        path = tmp_path / "ruber.state"
        chosen = settings("ruber", 60)
        train_ruber_network(network, exchanges, negatives, vectors, chosen, path)
        return network

    network = train()
    fits = score_ruber_network(network, vectors, [(each.query, each.reply) for each in exchanges])
    wrong = [(each.query, exchanges[n - 1].reply) for n, each in enumerate(exchanges)]
    other = score_ruber_network(network, vectors, wrong)
    assert np.mean(np.array(fits) > np.array(other)) > 0.9
    again = train()  # a finished state: nothing is trained twice
    assert all(torch.equal(left, right) for left, right in zip(network.parameters(), again.parameters(), strict=True))


def test_contextual_ruber_learns_and_leaves_its_encoder_as_it_was(tiny_bert: Path) -> None:
    exchanges, encoder = talk(), load_encoder(str(tiny_bert))
    before = {name: weight.clone() for name, weight in encoder.model.state_dict().items()}
    vectors = FrozenVectors(encoder)
    torch.manual_seed(0)
    network = PairNetwork(vectors.width)
    network.fit_scale(vectors.of([each.reply for each in exchanges]))
    negatives = RandomNegatives(ReplyPool(exchanges))
    train_pair_network(network, exchanges, negatives, vectors, settings("ctx", 60))
    fits = score_network(network, vectors, [(each.query, each.reply) for each in exchanges])
    wrong = [(each.query, exchanges[n - 1].reply) for n, each in enumerate(exchanges)]
    other = score_network(network, vectors, wrong)
    assert np.mean(fits > other) > 0.9
    assert all(torch.equal(before[name], weight) for name, weight in encoder.model.state_dict().items())


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_masked_words_are_scored_as_the_published_model_scores_them(family: str, tmp_path: Path) -> None:
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


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_retrieval_changes_by_training_and_scores_each_pair_alone(family: str, tmp_path: Path) -> None:
    exchanges = talk()
    checkpoint = load_pair_model(str(save_tiny_pair(tmp_path, family)))
    draw = draw_retrieval(exchanges, RandomNegatives(ReplyPool(exchanges)), 16, 0)
    judged = draw(0)
    assert sum(each.label for each in judged) == len(judged) / 2
    before = score_pairs(checkpoint, [(each.query, each.reply) for each in exchanges])
    train_joint(checkpoint, draw, settings("dr", 12, 3e-3))
    after = score_pairs(checkpoint, [(each.query, each.reply) for each in exchanges])
    alone = score_pairs(checkpoint, [(exchanges[3].query, exchanges[3].reply)])
    assert alone[0] == pytest.approx(after[3], abs=1e-5)
    assert not np.allclose(before, after)


def test_the_overall_score_is_the_regression_on_parts_of_variance_one() -> None:
    generator = np.random.default_rng(0)
    parts = {"mlm": generator.normal(-3, 2, 200).tolist(), "retrieval": generator.uniform(0, 1, 200).tolist()}
    ratings = 2 + 0.5 * np.array(parts["mlm"]) - 1.5 * np.array(parts["retrieval"])
    formula = fit_overall(parts, ratings.tolist())
    found = formula.apply({name: np.array(values[:5]) for name, values in parts.items()})
    assert found == pytest.approx(ratings[:5], abs=1e-9)
    assert formula.parts["mlm"].weight == pytest.approx(0.5 * np.std(parts["mlm"]))


def test_a_part_that_hardly_differs_weighs_nothing_instead_of_showing_fp32_s_rounding() -> None:
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


def test_a_score_does_not_hang_on_what_else_is_scored() -> None:
    """RUBER and PONE scaled by the least and greatest score of the test set itself."""
    scale = TrainingScale.fit(np.linspace(-2, 2, 1001).tolist())
    alone = [float(scale.apply([each])[0]) for each in (-1.0, 0.0, 1.5)]
    among = scale.apply([-1.0, 0.0, 1.5, 400.0, -400.0])
    assert among[:3].tolist() == alone
    assert among[3:].tolist() == [1.0, 0.0]
    assert not hasattr(scale, "fit_transform")


def test_padding_is_never_read() -> None:
    """The released port's GRU read the pads, in training alone."""
    torch.manual_seed(0)
    reader = WordReader(3, 4).eval()
    short, long = (np.random.default_rng(n).normal(size=(n, 3)).astype(np.float32) for n in (2, 9))
    alone = reader(*Texts.of([short]).parts())
    together = reader(*Texts.of([short, long]).parts())[:1]
    assert torch.allclose(alone, together, atol=1e-6)
