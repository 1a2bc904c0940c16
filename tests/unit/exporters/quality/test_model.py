"""The quality model: rows of its own for each text, a loss that knows what is unknown, and one number."""

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from turnscore_assessment.data.rated_turns import RatedTurn
from turnscore_exporters.errors import CheckpointError, ExporterError
from turnscore_exporters.quality.development import score_texts
from turnscore_exporters.quality.examples import Example
from turnscore_exporters.quality.finish import average_models, balance_relevant, fit_formula, fit_overall
from turnscore_exporters.quality.fit_filter import drop_fitting
from turnscore_exporters.quality.model import (
    HEADS,
    RELEVANT,
    Pair,
    QualityModel,
    QualitySettings,
    RowBuilder,
    collate_pairs,
    load_model,
    save_model,
    score_pairs,
)
from turnscore_exporters.quality.rated_training import scale_ratings
from turnscore_exporters.quality.training import (
    HeadWeights,
    QualityRecipe,
    compute_loss,
    form_batches,
    new_model,
    rank_loss,
    train_model,
)
from turnscore_exporters.quality.value import ValueFormula, fit_probability, fit_weights, read_formula, write_formula
from turnscore_exporters.training.encoders import Encoder, load_encoder
from turnscore_service.scorers.quality_windows import WindowLayout

LAYOUT = WindowLayout(turn_tokens=12, window_tokens=8, stride_tokens=6, response_tokens=20)
CONTEXT = (("user", "hi"), ("system", "what did you do"), ("user", "i saw whales"))
REAL = Example(context=CONTEXT, response="i like whales", relevant=1.0, sound=1.0, engaging=0.9, sentiment=0.4)
BAD = replace(REAL, response="ok lol", kind="dull", relevant=0.0, engaging=0.0, sentiment=-0.2)
LONG = "the sea and " * 4


@pytest.fixture(scope="module")
def encoder(tiny_bert: Path) -> Encoder:
    return load_encoder(str(tiny_bert))


@pytest.fixture(scope="module")
def model(encoder: Encoder) -> QualityModel:
    torch.manual_seed(0)
    return new_model(encoder, QualitySettings(encoder.name, LAYOUT)).eval()


@pytest.fixture
def builder(encoder: Encoder) -> RowBuilder:
    return RowBuilder(encoder, LAYOUT)


def test_a_pair_scores_the_same_alone_as_in_company(model: QualityModel, builder: RowBuilder) -> None:
    pairs = [
        *builder.pairs(CONTEXT, "i like whales"),
        *builder.pairs(CONTEXT[:1], LONG),
        *builder.pairs((), "ok"),
    ]
    together = score_pairs(model, pairs)
    alone = torch.cat([score_pairs(model, [pair]) for pair in pairs])
    assert torch.allclose(together, alone, atol=1e-5)


def test_equal_texts_share_a_row(builder: RowBuilder) -> None:
    pairs = builder.pairs(CONTEXT, "i like whales") + builder.pairs(CONTEXT, "i saw whales")
    ids, _, response_row, context_rows = collate_pairs(pairs)
    assert len(ids) == 4
    assert response_row[1] == context_rows[0, 0]


def test_the_context_counts_and_its_order_does(model: QualityModel, builder: RowBuilder) -> None:
    contexts = (CONTEXT, CONTEXT[::-1], ())
    values = [score_pairs(model, builder.pairs(context, "i like whales"))[0, RELEVANT].item() for context in contexts]
    assert len({round(value, 6) for value in values}) == 3


def test_a_new_model_finds_what_is_alike_relevant(model: QualityModel, builder: RowBuilder) -> None:
    alike, other = (
        score_pairs(model, builder.pairs((("user", "i like the sea"),), text))[0, RELEVANT].item()
        for text in ("i like the sea", "no lol")
    )
    assert alike > other


def test_of_a_long_response_the_worst_window_is_shown(model: QualityModel, encoder: Encoder) -> None:
    formula = ValueFormula(weights={"relevant": 1.0}, bias=0.0)
    [shown] = score_texts(model, encoder, [(CONTEXT, LONG)], formula)
    windows = score_pairs(model, RowBuilder(encoder, LAYOUT).pairs(CONTEXT, LONG))
    assert len(windows) > 1
    assert shown[RELEVANT] == pytest.approx(windows[:, RELEVANT].min().item(), abs=1e-6)


def test_a_checkpoint_is_read_as_it_was_written(model: QualityModel, encoder: Encoder, tmp_path: Path) -> None:
    save_model(model, encoder, tmp_path)
    read, read_encoder = load_model(tmp_path)
    assert read.settings == model.settings
    pairs = RowBuilder(read_encoder, LAYOUT).pairs(CONTEXT, "i like whales")
    assert torch.equal(score_pairs(read, pairs), score_pairs(model, pairs))
    with pytest.raises(CheckpointError, match="is not a checkpoint of quality"):
        load_model(tmp_path / "nowhere")


def test_batches_keep_groups_whole_and_within_the_budget(builder: RowBuilder) -> None:
    groups = [[replace(REAL, response=f"i like word{n}"), replace(BAD, response=f"lol word{n}")] for n in range(30)]
    batches = form_batches(groups, builder, 120, random.Random(0))
    assert (
        sum(len(batch.real) for batch in batches) == sum(bool(b.context) for batch in batches for b in batch.pairs) / 2
    )
    for batch in batches:
        ids, *_ = collate_pairs(batch.pairs)
        assert ids.numel() <= 120
        assert batch.examples[::2] == [each for each in batch.examples if not each.kind]


def test_a_window_is_drawn_where_the_bad_piece_is(builder: RowBuilder) -> None:
    spoilt = replace(BAD, response=f"{LONG} never no never")
    sound = set(builder.build(CONTEXT, LONG).windows)
    for seed in range(10):
        [batch] = form_batches([[replace(REAL, response=LONG), spoilt]], builder, 500, random.Random(seed))
        assert batch.pairs[1].window not in sound


def test_what_is_unknown_costs_nothing(model: QualityModel, builder: RowBuilder) -> None:
    known = Example(context=CONTEXT, response="ok", relevant=1.0)
    [batch] = form_batches([[known]], builder, 500, random.Random(1))
    outputs = torch.zeros(1, len(HEADS), requires_grad=True)
    loss = compute_loss(outputs, batch, HeadWeights())
    loss.backward()  # type: ignore[no-untyped-call]
    assert loss.item() == pytest.approx(np.log(2), abs=1e-6)
    assert outputs.grad is not None
    assert [bool(each) for each in outputs.grad[0]] == [True, *[False] * 5]


def test_ranking_costs_less_where_the_real_response_stands_out(model: QualityModel, builder: RowBuilder) -> None:
    groups = [
        [REAL, BAD],
        [replace(REAL, context=CONTEXT[:2], response="i saw the sea"), replace(BAD, context=CONTEXT[:2])],
    ]
    [batch] = form_batches(groups, builder, 5000, random.Random(3))
    ids, mask, rows, context = collate_pairs(batch.pairs)

    def loss(slope: float) -> float:
        chosen = QualityModel(model.encoder, model.settings).eval()
        torch.nn.init.zeros_(chosen.head.weight)
        with torch.inference_mode():
            chosen.slope.fill_(slope)
            vectors = chosen.read_rows(ids, mask)
            for place in batch.real:
                vectors[rows[place]] = vectors[context[place, 0]]
            return rank_loss(chosen, vectors, rows, context, batch).item()

    assert loss(20.0) < loss(0.0) < loss(-20.0)


def test_training_is_the_same_twice_and_learns(tiny_bert: Path) -> None:
    groups = [[replace(REAL, response=f"i like word{n}"), replace(BAD, response=f"lol word{n}")] for n in range(12)]

    def train() -> torch.Tensor:
        own = load_encoder(str(tiny_bert))
        builder = RowBuilder(own, LAYOUT)
        torch.manual_seed(0)
        model = new_model(own, QualitySettings(own.name, LAYOUT))
        batches = form_batches(groups * 6, builder, 200, random.Random(0))
        train_model(batches, model, QualityRecipe(learning_rate=1e-3), "run")
        return score_pairs(model, [builder.first_pair(CONTEXT, text) for text in ("i like word70", "lol word70")])

    scores = train()
    assert torch.equal(scores, train())
    assert scores[0, RELEVANT] > scores[1, RELEVANT] + 0.05


def test_only_doubtful_responses_that_fit_are_dropped(model: QualityModel, encoder: Encoder) -> None:
    sure = QualityModel(model.encoder, model.settings).eval()
    torch.nn.init.zeros_(sure.head.weight)
    torch.nn.init.constant_(sure.head.bias, 20.0)
    near, random_one = replace(BAD, kind="near_context"), replace(BAD, kind="random", response="no no")
    assert drop_fitting([[REAL, near, random_one]], sure, encoder) == ([[REAL, random_one]], 1)


def rated(name: str, rating: float) -> RatedTurn:
    return RatedTurn(set_name=name, system="", dialogue="d", context=CONTEXT, response="ok", rating=rating)


def test_ratings_are_scaled_within_their_set() -> None:
    turns = [rated("a", 1), rated("b", 90), rated("a", 5), rated("b", 10), rated("a", 3)]
    assert scale_ratings(turns) == pytest.approx([1 / 6, 0.75, 5 / 6, 0.25, 0.5])


def test_averaging_is_of_the_weights(model: QualityModel, encoder: Encoder) -> None:
    ones, threes = (new_model(encoder, model.settings) for _ in range(2))
    torch.nn.init.constant_(ones.head.weight, 1.0)
    torch.nn.init.constant_(threes.head.weight, 3.0)
    assert torch.equal(average_models([ones, threes]).head.weight, torch.full_like(ones.head.weight, 2.0))


def test_relevant_is_balanced_for_the_responses_beside_it(model: QualityModel, encoder: Encoder) -> None:
    own = new_model(encoder, model.settings)
    before = own.head.bias.detach().clone()
    balance_relevant(own, 4)
    moved = own.head.bias.detach() - before
    assert moved[RELEVANT].item() == pytest.approx(np.log(4), abs=1e-6)
    assert moved.abs().sum() == moved[RELEVANT]


def test_overall_follows_what_people_said(model: QualityModel, encoder: Encoder) -> None:
    own = new_model(encoder, model.settings).eval()
    liked, hated = liked_and_hated()
    fit_overall(own, encoder, liked[:15] + hated[:15])
    builder = RowBuilder(encoder, LAYOUT)
    pairs = [builder.first_pair(each.context, each.response) for each in liked[15:] + hated[15:]]
    scores = score_pairs(own, pairs)[:, HEADS.index("overall")]
    assert scores[:5].min() > scores[5:].max()


def liked_and_hated() -> tuple[list[RatedTurn], list[RatedTurn]]:
    """Twenty each, of ten dialogues."""
    liked = [replace(rated("a", 5), response=f"i like word{n}", dialogue=f"d{n // 2}") for n in range(20)]
    return liked, [replace(each, rating=1, response=f"lol no word{n}") for n, each in enumerate(liked)]


def test_what_overall_says_for_the_formula_is_not_of_the_turns_own_dialogue(model: QualityModel, encoder: Encoder):
    liked, hated = liked_and_hated()
    swapped = [replace(liked[0], rating=1), *liked[1:], replace(hated[0], rating=5), *hated[1:]]
    before, after = (new_model(encoder, model.settings).eval() for _ in range(2))
    after.load_state_dict(before.state_dict())
    unseen = fit_overall(before, encoder, liked + hated)
    again = fit_overall(after, encoder, swapped)
    own = [place for place, turn in enumerate(swapped) if turn.dialogue == "d0"]
    assert unseen[own] == pytest.approx(again[own])
    assert not np.allclose(unseen, again)
    assert not torch.equal(before.head.weight, after.head.weight)
    with pytest.raises(ExporterError, match="too few dialogues"):
        fit_overall(after, encoder, [each for each in liked + hated if each.dialogue == "d0"])


def test_thumbs_decide_neither_weights_nor_probability(model: QualityModel, encoder: Encoder) -> None:
    with pytest.raises(ExporterError, match="no turn"):
        fit_formula(model, encoder, [rated("convai-thumbs", 1.0)])
    several = [replace(rated("a", rating), response=f"i like word{rating}") for rating in (1, 2, 4, 5)]
    formula = fit_formula(model, encoder, [*several, rated("convai-thumbs", 1.0)])
    assert "overall" not in formula.weights
    told = np.array([-3.0, -2.0, 2.0, 3.0, 0.0])
    following, against = (
        fit_formula(model, encoder, [*several, rated("convai-thumbs", 1.0)], logits).weights["overall"]
        for logits in (told, -told)
    )
    assert following > 0.1
    assert against == 0.0
    assert "4 turns of a" in formula.fitted_on
    assert "thumbs" not in formula.fitted_on


def test_weights_find_the_head_that_people_follow_and_none_is_negative() -> None:
    generator = np.random.default_rng(0)
    heads = generator.uniform(0.1, 0.9, (400, len(HEADS)))
    ratings = heads[:, 0] - 2 * heads[:, 1] + generator.normal(0, 0.1, 400)
    weights = fit_weights([(heads, ratings)], ridge=0.001)
    assert max(weights, key=lambda name: weights[name]) == "relevant"
    assert weights["sound"] == 0.0
    assert min(weights.values()) >= 0.0


def test_every_set_counts_alike_whatever_its_scale() -> None:
    generator = np.random.default_rng(1)
    heads = generator.uniform(0.1, 0.9, (300, len(HEADS)))
    small = fit_weights([(heads, heads[:, 0]), (heads, heads[:, 2])], 0.001)
    large = fit_weights([(heads, heads[:, 0] * 1000), (heads, heads[:, 2])], 0.001)
    assert small == pytest.approx(large)


def test_the_value_is_a_calibrated_probability(tmp_path: Path) -> None:
    generator = np.random.default_rng(2)
    scores = generator.normal(0, 2, 4000)
    good = generator.uniform(size=4000) < 1 / (1 + np.exp(-(1.5 * scores - 0.5)))
    slope, bias = fit_probability(scores, list(good))
    assert (slope, bias) == (pytest.approx(1.5, abs=0.15), pytest.approx(-0.5, abs=0.15))
    formula = ValueFormula(weights={"relevant": slope}, bias=bias, fitted_on="made-up turns")
    write_formula(tmp_path, formula)
    assert read_formula(tmp_path) == formula
    low, high = formula.compute(np.array([[0.1] * 6, [0.9] * 6]))
    assert 0 < low < high < 1


def test_pairs_are_hashable_so_that_rows_can_be_shared() -> None:
    assert len({Pair((1, 2), ((1, 3),)), Pair((1, 2), ((1, 3),))}) == 1
