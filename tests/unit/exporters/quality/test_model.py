"""The quality model: rows of their own, attention to the conversation, and a loss that knows what is unknown."""

import random

import numpy as np
import pytest
import torch
from turnscore_assessment.data.dialogues import LabelledTurn, part_of
from turnscore_core.scorers.quality import HEADS, RowLayout
from turnscore_core.scorers.reaction import REACTIONS
from turnscore_exporters.errors import CheckpointError, EncoderError
from turnscore_exporters.quality import training
from turnscore_exporters.quality.drills import RIGHT, make_filler, make_moods, make_short_answers
from turnscore_exporters.quality.model import (
    OVERALL,
    RELEVANT,
    SENTIMENT,
    Outputs,
    QualityModel,
    QualitySettings,
    RowBuilder,
    load_model,
    score_rows,
    smooth_joint_layers,
)
from turnscore_exporters.quality.value import FittedFormula, fit_probability, fit_weights, read_formula
from turnscore_exporters.training.encoders import load_encoder, save_model

LAYOUT = RowLayout(turn_tokens=12, response_tokens=20, response_end_tokens=6)
CONTEXT = (("user", "hi"), ("system", "what did you do"), ("user", "i saw whales"))
LONG = "the sea and " * 4


@pytest.fixture(scope="module")
def encoder(tiny_bert):
    return load_encoder(str(tiny_bert))


@pytest.fixture(scope="module")
def model(encoder):
    torch.manual_seed(0)
    made = QualityModel(encoder.model, QualitySettings(encoder.name, LAYOUT)).eval()
    with torch.no_grad():
        for layer in made.joint:
            layer.key_places.weight.normal_(std=0.5)
            layer.value_places.weight.normal_(std=0.5)
    return made


@pytest.fixture
def builder(encoder):
    return RowBuilder(encoder, LAYOUT)


def relevant_of(model, builder, *turns):
    heads, _ = score_rows(model, builder.build(turns))
    return [round(float(value), 6) for value in heads[:, RELEVANT]]


def test_a_turn_scores_the_same_alone_as_in_company(model, builder):
    turns = builder.build([(CONTEXT, "i like whales"), (CONTEXT[:1], LONG), ((), "ok"), (CONTEXT, "no lol")])
    one_by_one = zip(*(score_rows(model, [turn]) for turn in turns), strict=True)
    for together, alone in zip(score_rows(model, turns), one_by_one, strict=True):
        assert torch.allclose(together, torch.cat(alone), atol=1e-5)


def test_the_context_counts_and_so_do_its_order_and_who_said_it(model, builder):
    other_speakers = tuple(("system" if speaker == "user" else "user", text) for speaker, text in CONTEXT)
    contexts = (CONTEXT, CONTEXT[::-1], other_speakers, ())
    assert len(set(relevant_of(model, builder, *((context, "i like whales") for context in contexts)))) == 4


def test_a_turn_that_is_not_compared_is_still_attended_to(model, builder):
    same = (("user", "hi"), ("system", "ok"), ("user", "i saw whales"))
    turns = [((("system", first), *same), "i like whales") for first in ("the sea", "no lol")]
    one, other = relevant_of(model, builder, *turns)
    assert one != other
    five = [((("user", first), ("system", "the sea"), *same), "i like whales") for first in ("hi", "no lol")]
    one, other = relevant_of(model, builder, *five)
    assert one == other


def test_smoothing_the_joint_layers_changes_no_answer(encoder, builder):
    torch.manual_seed(1)
    model = QualityModel(encoder.model, QualitySettings(encoder.name, LAYOUT)).eval()
    turns = builder.build([(CONTEXT, "i like whales"), (CONTEXT[:1], LONG)])
    before, _ = score_rows(model, turns)
    smooth_joint_layers(model, turns)
    assert all(float((layer.scale - 1).abs().max()) > 0.01 for layer in model.joint)
    assert torch.allclose(before, score_rows(model, turns)[0], atol=1e-5)


def test_a_checkpoint_is_read_as_it_was_written(model, encoder, tmp_path):
    save_model(model, encoder, tmp_path)
    read, read_encoder = load_model(tmp_path)
    assert read.settings == model.settings
    rows = RowBuilder(read_encoder, LAYOUT).build([(CONTEXT, "i like whales")])
    assert torch.equal(score_rows(read, rows)[0], score_rows(model, rows)[0])
    (tmp_path / "weights.pt").unlink()
    with pytest.raises(CheckpointError, match="is not a checkpoint of quality"):
        load_model(tmp_path)


def test_an_encoder_of_shorter_rows_is_refused(encoder):
    with pytest.raises(EncoderError, match="a row has 402"):
        RowBuilder(encoder, RowLayout(response_tokens=400))


def outputs_of(quality):
    count = len(quality)
    rows = torch.zeros(count, 3, dtype=torch.int64)
    vectors, context = torch.zeros(count, 9), torch.zeros(1, 9)
    return Outputs(quality, torch.zeros(count, len(REACTIONS)), vectors, context, rows, torch.zeros(count, 1))


def item(**marks):
    return training.TrainingItem(LabelledTurn(context=CONTEXT, response="ok", labels=marks, set_name="a"))


def test_what_is_unknown_costs_nothing(model):
    quality = torch.zeros(2, len(HEADS) + 1)
    nothing = training.compute_loss(model, outputs_of(quality), [item(), item()], training.JudgedRecipe())
    assert float(nothing.detach()) == 0
    quality[0, HEADS.index("fluent")] = 9.0
    costly = training.compute_loss(
        model, outputs_of(quality), [item(fluent=0.0), item(relevant=0.5)], training.JudgedRecipe()
    )
    assert float(costly.detach()) > 9.0
    quality[1, SENTIMENT] = 0.5
    moved = training.compute_loss(model, outputs_of(quality), [item(), item(sentiment=0.5)], training.JudgedRecipe())
    assert float(moved.detach()) == 0


MARKS = {"overall": 0.7, "relevant": 0.8, "engaging": 0.5, "fluent": 0.9}
JUDGED = [
    [
        LabelledTurn(set_name="dstc9", split="train", context=CONTEXT, response=response, labels=marks)
        for response, marks in ((f"i like word{number}", MARKS), ("no lol", dict.fromkeys(MARKS, 0.1)))
    ]
    for number in range(8)
]
USER = LabelledTurn(
    context=CONTEXT[:2], response="you said that already", labels={"satisfaction": 0.25, "corrects": 1.0}
)
MATERIAL = training.Material(judged=JUDGED, modern=JUDGED[:2], user_turns=[USER], groups=[], bots=[])
RECIPE = training.JudgedRecipe(judged=4, user_turns=1, groups=0, bots=0, drills=1, passes=6.0)


def test_a_user_turn_is_seen_from_the_users_side():
    made = training.reaction_item(USER)
    assert made.turn.context == (("system", "hi"), ("user", "what did you do"))
    assert made.reactions == [0.25, *(float(name == "corrects") for name in REACTIONS[1:])]


def test_training_learns_which_response_was_marked_better(tiny_bert, tmp_path):
    torch.manual_seed(0)
    encoder = load_encoder(str(tiny_bert))
    model = QualityModel(encoder.model, QualitySettings(encoder.name, LAYOUT))
    training.train_judged(model, encoder, training.plan_steps(MATERIAL, RECIPE, 0), RECIPE, tmp_path / "state.pt")
    heads, _ = score_rows(model, RowBuilder(encoder, LAYOUT).build([(CONTEXT, "i like word3"), (CONTEXT, "no lol")]))
    assert float(heads[0, OVERALL]) > float(heads[1, OVERALL]) + 0.1


def test_drills_are_what_they_say():
    generator = random.Random(0)
    questions = [make_short_answers(generator) for _ in range(400)]
    assert all(answers[0].system == "right" and answers[0].labels == RIGHT for answers in questions)
    assert all(len({each.response for each in answers}) == len(answers) for answers in questions)
    sums = [(each[0].context[0][1], each[0].response) for each in questions if "plus" in each[0].context[0][1]]
    for asked, answered in sums:
        first, second = (int(word) for word in asked.replace("?", "").split() if word.isdigit())
        assert str(first + second) in answered
    assert make_filler((("user", "ok bye"),), generator) is None
    assert {each.response for _ in range(200) if (each := make_filler(CONTEXT, generator))} >= {"i saw whales"}
    for fitting, wrong in (make_moods(generator) for _ in range(50)):
        assert fitting.context == wrong.context
        assert fitting.labels["overall"] > 0.5 > wrong.labels["overall"]


def test_the_parts_of_the_judged_dialogues_are_the_same_on_every_machine():
    parts = [part_of(f"d{number}", "dev") for number in range(2000)]
    assert parts[:6] == ["calibrate", "calibrate", "choose", "choose", "report", "report"]
    assert [round(parts.count(name) / 2000, 1) for name in ("choose", "calibrate", "report")] == [0.3, 0.3, 0.4]
    assert part_of("d1", "train") == "train"


def test_weights_find_the_head_that_people_follow_and_none_is_negative():
    generator = np.random.default_rng(0)
    heads = generator.uniform(0.1, 0.9, (400, len(HEADS)))
    ratings = heads[:, 0] - 2 * heads[:, 1] + generator.normal(0, 0.1, 400)
    weights = fit_weights([(heads, ratings)], ridge=0.001)
    assert max(weights, key=lambda name: weights[name]) == "relevant"
    assert weights["fluent"] == 0.0
    assert min(weights.values()) >= 0.0


def test_the_value_is_a_calibrated_probability(tmp_path):
    generator = np.random.default_rng(2)
    scores = generator.normal(0, 2, 4000)
    good = generator.uniform(size=4000) < 1 / (1 + np.exp(-(1.5 * scores - 0.5)))
    slope, bias = fit_probability(scores, list(good))
    assert (slope, bias) == (pytest.approx(1.5, abs=0.15), pytest.approx(-0.5, abs=0.15))
    formula = FittedFormula(weights={"relevant": slope}, bias=bias, fitted_on="made-up turns")
    (tmp_path / "value.json").write_text(formula.model_dump_json())
    assert read_formula(tmp_path) == formula
    low, high = formula.values_of(formula.weigh(np.array([[0.1] * 6, [0.9] * 6])))
    assert 0 < low < high < 1
