"""Each system trained for a few steps on tiny data: what it must learn, and what it must not depend on."""

import math
import random
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from paper_systems import classifiers
from paper_systems.bert_systems import (
    NOT_PREDICTED,
    ROWS_TOGETHER,
    alter_reply,
    choose_by_auc,
    draw_retrieval,
    filter_candidates,
    find_candidates,
    fit_overall,
    hidden_loss,
    hide_tokens,
    read_groups,
    split_by_length,
    train_joint,
    train_masked,
    train_pair_network,
)
from paper_systems.classifiers import SvmClassifier, train_bi_rnn
from paper_systems.data import EvalTurn, RandomNegatives, ReplyPool, normalize, split_words
from paper_systems.ruber import (
    PieceVectors,
    Ruber,
    RuberNetwork,
    Texts,
    TrainingScale,
    WordReader,
    blend_mean,
    blend_min,
    compare_references,
    hinge_loss,
    score_ruber_network,
    train_ruber_network,
)
from support.exporter_data import save_tiny_masked, save_tiny_pair
from support.fakes import POOL, exchanges
from torch.nn import functional
from transformers import AutoModelForMaskedLM
from turnscore_exporters.data.convai import TextPair
from turnscore_exporters.errors import ExporterError
from turnscore_exporters.pair_models import models
from turnscore_exporters.pair_models.bundles import weigh_alike
from turnscore_exporters.pair_models.models import (
    FrozenVectors,
    PairHead,
    PairNetwork,
    load_masked_model,
    load_pair_model,
    read_logits,
    score_masked,
    score_network,
    score_pairs,
)
from turnscore_exporters.training.encoders import load_encoder
from turnscore_exporters.training.loop import BestWeights, LoopSettings

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


def settings(name: str, steps: int) -> LoopSettings:
    return LoopSettings(steps=steps, run_key=name, warm_up_steps=1, description=name)


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
        train_ruber_network(network, exchanges, negatives, vectors, chosen, learning_rate=1e-3, state_path=path)
        return network

    network = train()
    fits = score_ruber_network(network, vectors, [(each.query, each.reply) for each in exchanges])
    wrong = [(each.query, exchanges[n - 1].reply) for n, each in enumerate(exchanges)]
    other = score_ruber_network(network, vectors, wrong)
    assert np.mean(np.array(fits) > np.array(other)) > 0.9
    again = train()  # a finished state: nothing is trained twice
    assert all(torch.equal(left, right) for left, right in zip(network.parameters(), again.parameters(), strict=True))


def test_ruber_has_a_referenced_score_only_with_references(tiny_bert: Path) -> None:
    vectors = PieceVectors(load_encoder(str(tiny_bert)))
    torch.manual_seed(0)
    system = Ruber(
        network=RuberNetwork(vectors.width).eval(),
        vectors=vectors,
        unreferenced=TrainingScale(0.0, 1.0),
        referenced=TrainingScale(0.0, 1.0),
    )
    bare = EvalTurn(context=("hi",), response="whales like it")
    known = EvalTurn(context=("hi",), response="whales like it", references=("never", "whales like the sea"))
    assert set(system.score([bare])) == {"unreferenced"}
    found = system.score([known])
    assert found["min"][0] == min(found["unreferenced"][0], found["referenced"][0])
    assert found["referenced"][0] == pytest.approx(
        compare_references(vectors, "whales like it", ["whales like the sea"]), abs=1e-6
    )
    both = system.score([known, EvalTurn(context=("no",), response="lol", references=("yes",))])
    for name, scores in both.items():
        assert scores[0] == pytest.approx(found[name][0], abs=1e-6), "a neighbour changes nothing"


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


class FirstLook(BestWeights):
    """Finds most at the first look; `kept` are the weights at it."""

    def __init__(self, measure: Callable[[], float], steps: int) -> None:
        super().__init__(lambda: -len(self.looks), steps)
        self.looks: list[dict[str, torch.Tensor]] = []

    def update(self, model: torch.nn.Module, step: int) -> None:
        self.looks.append({name: weight.clone() for name, weight in model.state_dict().items()})
        super().update(model, step)


def test_contextual_ruber_has_the_weights_that_validation_chose(tiny_bert: Path) -> None:
    exchanges, vectors = talk(), FrozenVectors(load_encoder(str(tiny_bert)))
    network = PairNetwork(vectors.width)
    best = FirstLook(lambda: 0.0, 10)
    negatives = RandomNegatives(ReplyPool(exchanges))
    train_pair_network(network, exchanges, negatives, vectors, settings("ctx", 10), best=best)
    assert not network.training
    assert best.found["step"] == 1
    assert_weights(network, best.looks)


def test_validation_is_judged_by_the_auc_of_true_against_wrong_replies(tiny_bert: Path) -> None:
    exchanges, vectors = talk(), FrozenVectors(load_encoder(str(tiny_bert)))
    wrong = [exchanges[number - 1].reply for number in range(len(exchanges))]
    torch.manual_seed(0)
    network = PairNetwork(vectors.width).train()
    best = choose_by_auc(network, vectors, exchanges, wrong, settings("ctx", 1))
    best.update(network, 0)
    assert network.training
    network.eval()
    right = score_network(network, vectors, [(each.query, each.reply) for each in exchanges])
    other = score_network(network, vectors, [(each.query, reply) for each, reply in zip(exchanges, wrong, strict=True)])
    higher = right[:, None] - other[None, :]
    assert best.found["value"] == pytest.approx(float(((higher > 0) + 0.5 * (higher == 0)).mean()))


def assert_weights(network: torch.nn.Module, looks: Sequence[dict[str, torch.Tensor]]) -> None:
    """The network's are those of the first look, which the last one's are not."""
    now = network.state_dict()
    assert all(torch.equal(weight, now[name]) for name, weight in looks[0].items())
    assert not all(torch.equal(weight, now[name]) for name, weight in looks[-1].items())


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


def test_only_text_is_hidden_and_what_is_hidden_is_what_is_wanted(tmp_path: Path) -> None:
    checkpoint = load_masked_model(str(save_tiny_masked(tmp_path, "bert")))
    rows = checkpoint.lay_out([("what did you do", "saw a film about whales")] * 30)
    inputs = checkpoint.collate([row.ids for row in rows], [row.response_start for row in rows])
    torch.manual_seed(0)
    hidden, wanted = hide_tokens(inputs["input_ids"].clone(), checkpoint)
    is_wanted = wanted != NOT_PREDICTED
    assert torch.equal(wanted[is_wanted], inputs["input_ids"][is_wanted])
    assert torch.equal(hidden[~is_wanted], inputs["input_ids"][~is_wanted])
    marks = checkpoint.marks
    assert not torch.isin(wanted[is_wanted], torch.tensor([marks.first, marks.last, marks.pad])).any()
    assert 0.06 < is_wanted.float().mean() < 0.25
    share = (hidden == marks.mask)[is_wanted].float().mean()
    assert 0.6 < share < 0.95


def test_masked_training_makes_the_words_of_the_training_more_expected(tmp_path: Path) -> None:
    checkpoint = load_masked_model(str(save_tiny_masked(tmp_path, "bert")))
    pairs = [(each.query, each.reply) for each in talk()]
    before = score_masked(checkpoint, pairs[:4]).mean()
    train_masked(checkpoint, talk(), settings("mlm", 30), batch_size=16, learning_rate=3e-3)
    assert score_masked(checkpoint, pairs[:4]).mean() > before + 1


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_retrieval_changes_by_training_and_scores_each_pair_alone(family: str, tmp_path: Path) -> None:
    exchanges = talk()
    checkpoint = load_pair_model(str(save_tiny_pair(tmp_path, family)))
    draw = draw_retrieval(exchanges, RandomNegatives(ReplyPool(exchanges)), 16, 0)
    judged = draw(0)
    assert sum(each.label for each in judged) == len(judged) / 2
    before = score_pairs(checkpoint, [(each.query, each.reply) for each in exchanges])
    train_joint(checkpoint, draw, settings("dr", 12), learning_rate=3e-3)
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


def test_a_regression_needs_rated_turns_and_parts_that_differ() -> None:
    with pytest.raises(ExporterError, match="19 rated turns with every part"):
        fit_overall({"mlm": [float(n) for n in range(19)] + [math.nan]}, list(range(20)))
    with pytest.raises(ExporterError, match=r"every part is the same for all turns.*\(mlm by 0\)"):
        fit_overall({"mlm": [1.0] * 20}, list(range(20)))


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


def engagement_pairs(count: int = 60) -> list[TextPair]:
    return [
        TextPair(query="what about whales", reply="i saw a film" if n % 2 else "ok", label=n % 2) for n in range(count)
    ]


def test_the_svm_tells_the_classes_and_counts_nothing_of_what_it_scores() -> None:
    classifier = SvmClassifier(engagement_pairs())
    scores = classifier.score_pairs([("what about whales", "i saw a film"), ("what about whales", "ok")])
    assert scores[0] > 0 > scores[1]
    among = classifier.score_pairs([("hi", "ok " * 500), ("what about whales", "ok")])
    assert among[1] == pytest.approx(scores[1])


def test_the_bi_rnn_tells_the_classes_and_says_which_step_validation_chose(tiny_bert: Path) -> None:
    vectors, pairs = PieceVectors(load_encoder(str(tiny_bert))), engagement_pairs()
    found = train_bi_rnn(pairs, pairs[:10], vectors, settings("bi-rnn", 30), learning_rate=1e-2)
    assert found.chosen["value"] == 1


def test_the_bi_rnn_has_the_weights_that_validation_chose(tiny_bert: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[FirstLook] = []

    def make(measure: Callable[[], float], steps: int) -> FirstLook:
        made.append(FirstLook(measure, steps))
        return made[-1]

    monkeypatch.setattr(classifiers, "BestWeights", make)
    vectors, pairs = PieceVectors(load_encoder(str(tiny_bert))), engagement_pairs()
    found = train_bi_rnn(pairs, pairs[:10], vectors, settings("bi-rnn", 5), learning_rate=1e-2)
    assert found.chosen["step"] == 1
    assert_weights(found.network, made[0].looks)
    lively, dull = found.score_pairs([("what about whales", "i saw a film"), ("what about whales", "ok")])
    assert lively > 0.5 > dull


def test_a_score_does_not_hang_on_what_else_is_scored() -> None:
    """RUBER and PONE scaled by the least and greatest score of the test set itself."""
    scale = TrainingScale.fit(np.linspace(-2, 2, 1001).tolist())
    alone = [float(scale.apply([each])[0]) for each in (-1.0, 0.0, 1.5)]
    among = scale.apply([-1.0, 0.0, 1.5, 400.0, -400.0])
    assert among[:3].tolist() == alone
    assert among[3:].tolist() == [1.0, 0.0]
    assert not hasattr(scale, "fit_transform")


def test_a_scale_of_equal_scores_or_none_is_refused() -> None:
    with pytest.raises(ExporterError, match=r"every training score is 0\.5"):
        TrainingScale.fit([0.5] * 10)
    with pytest.raises(ExporterError, match="needs training scores"):
        TrainingScale.fit([])


def test_blends_take_the_lesser_and_the_mean() -> None:
    left, right = np.array([0.2, 0.9]), np.array([0.6, 0.5])
    assert blend_min(left, right).tolist() == [0.2, 0.5]
    assert blend_mean(left, right).tolist() == pytest.approx([0.4, 0.7])


def test_the_filter_keeps_what_the_model_is_sure_of_under_the_model_s_own_label() -> None:
    mine = exchanges(("a", "q", "r"))
    candidates = [(0, "sure"), (0, "unsure"), (0, "wrong")]
    kept = filter_candidates(mine, candidates, lambda pairs: np.array([0.95, 0.6, 0.05]), sure=0.1)
    assert kept == [TextPair("q", "sure", 1.0), TextPair("q", "wrong", 0.0)]


def test_candidates_are_altered_copies_and_replies_to_like_queries_of_other_dialogues() -> None:
    vectors = np.zeros((len(POOL), 2), dtype=np.float32)
    vectors[:, 0] = 1
    found = find_candidates(ReplyPool(POOL), vectors)
    assert [index for index, _ in found] == [index for index in range(len(POOL)) for _ in range(5)]
    near = {text for index, text in found if index == 0} & {each.reply for each in POOL}
    assert near
    assert not near & {each.reply for each in POOL if each.dialogue == "a"}


@pytest.mark.parametrize("seed", range(5))
def test_an_altered_reply_has_the_reply_s_words_and_at_least_one(seed: int) -> None:
    altered = alter_reply("One single day!", random.Random(seed))
    assert set(split_words(altered)) <= set(split_words("One single day!"))
    assert split_words(altered)
    assert normalize(alter_reply("yes", random.Random(seed))).split()[0] == "yes"


def test_the_hinge_is_zero_from_the_margin_on_and_grows_below_it() -> None:
    fitting, wrong = torch.tensor([0.9, 0.6, 0.2]), torch.tensor([0.3, 0.4, 0.6])
    assert hinge_loss(fitting, wrong, 0.5).item() == pytest.approx((0 + 0.3 + 0.9) / 3)


def test_padding_is_never_read() -> None:
    """The released port's GRU read the pads, in training alone."""
    torch.manual_seed(0)
    reader = WordReader(3, 4).eval()
    short, long = (np.random.default_rng(n).normal(size=(n, 3)).astype(np.float32) for n in (2, 9))
    alone = reader(*Texts.of([short]).parts())
    beside = reader(*Texts.of([short, long]).parts())[:1]
    assert torch.allclose(alone, beside, atol=1e-6)


def test_the_pair_head_reads_both_sides_and_their_product() -> None:
    torch.manual_seed(0)
    head, query = PairHead(4).eval(), torch.randn(1, 4)
    one, other = torch.randn(1, 4), torch.randn(1, 4)
    assert head(query, one) != head(query, other)
    with torch.no_grad():
        before = head(query, one).item()
        head.quadratic.zero_()
        assert head(query, one).item() != before


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
