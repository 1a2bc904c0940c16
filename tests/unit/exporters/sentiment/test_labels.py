"""The rules that make a sentiment of a user's next utterance."""

import pytest
from turnscore_exporters.sentiment.model import LabelRules, asks, complains, label_sentiment, score_vader

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
