"""The sentiment of a user's next utterance, rows, batches, loss, and the paper's recipe."""

import math
from dataclasses import replace

import pytest
import torch
from turnscore_assessment.data.dialogues import LabelledTurn
from turnscore_core.scorers.sentiment_stop import DialogueRow
from turnscore_exporters.errors import ExporterError
from turnscore_exporters.sentiment import model, training
from turnscore_exporters.sentiment.model import (
    LabelRules,
    SentimentSettings,
    asks,
    complains,
    label_sentiment,
    score_vader,
)
from turnscore_exporters.training.encoders import load_encoder

CONTEXT = (("user", "hi"), ("system", "what did you do"), ("user", "i saw whales"))


def turn(response, next_user, **labels):
    return LabelledTurn(set_name="own", context=CONTEXT, response=response, next_user=next_user, labels=labels)


TURNS = [
    turn("i like whales", "i like you", goes_on=1.0),
    replace(turn("no", None, goes_on=0.0), context=CONTEXT[:1]),
    turn("ok", "what ?"),
    *(turn(f"word{number} and the sea", "yes", goes_on=1.0) for number in range(30)),
]
RECIPE = training.SentimentRecipe(epochs=2, batch_tokens=120, frozen_layers=1)


def settings(tiny_bert, **changes):
    return SentimentSettings(encoder=str(tiny_bert), token_limit=32, **changes)


def build_rows(tiny_bert, recipe=RECIPE):
    return training.TrainingRows(TURNS, model.WindowBuilder(load_encoder(str(tiny_bert)), settings(tiny_bert)), recipe)


def test_labels_of_real_rows_are_unknown_where_nothing_is_known(tiny_bert):
    liked, stopped, unknown = build_rows(tiny_bert).real[:3]
    assert (liked.sentiment > 0, liked.goes_on) == (True, 1.0)
    assert (math.isnan(stopped.sentiment), stopped.goes_on) == (True, 0.0)
    assert (unknown.sentiment < 0, math.isnan(unknown.goes_on)) == (True, True)


def test_unknown_labels_cost_nothing():
    row = DialogueRow((1, 2), 1, 0)
    batch = [
        training.LabelledRow(row=row, sentiment=known, goes_on=training.UNKNOWN) for known in (training.UNKNOWN, 1.0)
    ]
    outputs = torch.tensor([[5.0, 5.0], [0.0, 5.0]])
    assert training.compute_loss(outputs, batch, "two").item() == pytest.approx(0.5)
    assert training.compute_loss(outputs, batch, "sentiment").item() == pytest.approx(0.5)
    assert training.compute_loss(outputs, batch, "sum").item() == pytest.approx((16 + 4) / 2)


@pytest.mark.parametrize("pooling", ["mean", "pooled"])
def test_a_row_alone_scores_as_in_a_batch(tiny_bert, pooling):
    encoder = load_encoder(str(tiny_bert), has_pooler=pooling == "pooled")
    chosen = settings(tiny_bert, pooling=pooling)
    made = model.SentimentStopModel(encoder.model, chosen).eval()
    rows = [model.WindowBuilder(encoder, chosen).build(turn.context, turn.response) for turn in TURNS[:4]]
    together = model.score_rows(made, rows)
    assert torch.allclose(together, torch.cat([model.score_rows(made, [row]) for row in rows]), atol=1e-5)


JUDGED = [replace(turn, labels={"rating": float(len(turn.response))}) for turn in TURNS]


def test_the_paper_s_recipe_trains_every_layer(tiny_bert):
    torch.manual_seed(0)
    encoder = load_encoder(str(tiny_bert), 48, has_pooler=True)
    before = {name: weight.clone() for name, weight in encoder.model.state_dict().items()}
    chosen = replace(training.PAPER_SETTINGS, encoder=str(tiny_bert), token_limit=48, target="sum")
    recipe = replace(training.PAPER, epochs=3)
    after = training.train_model(TURNS, encoder, chosen, recipe, judged=JUDGED).state_dict()
    changed = {name for name in before if not torch.equal(before[name], after[f"encoder.{name}"])}
    assert {"embeddings.word_embeddings.weight", "pooler.dense.weight"} <= changed
    assert {name.split(".")[2] for name in changed if name.startswith("encoder.layer")} == {"0", "1"}
    assert all(torch.isfinite(weight).all() for weight in after.values())


def test_the_paper_s_recipe_needs_judged_responses_to_choose_its_epoch(tiny_bert):
    encoder = load_encoder(str(tiny_bert), 48, has_pooler=True)
    chosen = replace(training.PAPER_SETTINGS, encoder=str(tiny_bert), token_limit=48)
    with pytest.raises(ExporterError, match="dbdc3_dev"):
        training.train_model(TURNS, encoder, chosen, training.PAPER)


SHORT_ANSWERS = LabelRules(complaint_weight=0.0)
QUESTION, STATEMENT = "Do you like jazz?", "I play the cello."


def test_a_short_no_is_neutral_where_something_was_asked():
    for answer in ("no", "No.", "nope", "nah!", "not really", "no, not really"):
        assert label_sentiment(answer, QUESTION, SHORT_ANSWERS) == 0, answer
    assert label_sentiment("no", STATEMENT, SHORT_ANSWERS) == score_vader("no") < 0


def test_the_rest_of_an_answer_keeps_its_sentiment():
    assert label_sentiment("no, i love rock", QUESTION, SHORT_ANSWERS) == score_vader("i love rock") > 0.5
    assert label_sentiment("no, that is awful", QUESTION, SHORT_ANSWERS) == score_vader("that is awful") < 0


def test_questions_are_found_with_and_without_their_mark():
    assert all(map(asks, ("Do you like jazz", "Nice. what is your name", "Really?")))
    assert not any(map(asks, ("I know what you like.", "whatever you say", "You did it")))


def test_a_complaint_loses_its_weight():
    for said in ("That makes no sense", "what are you talking about?", "you already said that", "huh", "what??"):
        assert complains(said)
        before, after = (label_sentiment(said, STATEMENT, rules) for rules in (SHORT_ANSWERS, LabelRules()))
        assert before - after == pytest.approx(0.6)
