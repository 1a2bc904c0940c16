"""The rules that make a sentiment of a user's next utterance."""

import pytest
from turnscore_exporters.sentiment.model import LabelRules, asks, complains, label_sentiment, score_vader

SHORT_ANSWERS = LabelRules(complaint_weight=0.0)
QUESTION, STATEMENT = "Do you like jazz?", "I play the cello."


@pytest.mark.parametrize("answer", ["no", "No.", "nope", "nah!", "not really", "no, not really"])
def test_a_short_no_to_a_question_is_neutral(answer: str) -> None:
    assert label_sentiment(answer, QUESTION, SHORT_ANSWERS) == 0


def test_the_same_no_keeps_vaders_score_where_nothing_was_asked() -> None:
    assert label_sentiment("no", STATEMENT, SHORT_ANSWERS) == score_vader("no") < 0


def test_the_rest_of_an_answer_keeps_its_sentiment() -> None:
    assert label_sentiment("no, i love rock", QUESTION, SHORT_ANSWERS) == score_vader("i love rock") > 0.5
    assert label_sentiment("no, that is awful", QUESTION, SHORT_ANSWERS) == score_vader("that is awful") < 0


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        ("Do you like jazz", True),
        ("Nice. what is your name", True),
        ("I know what you like.", False),
        ("Really?", True),
        ("whatever you say", False),
        ("You did it", False),
    ],
)
def test_questions_are_found_with_and_without_their_mark(response: str, expected: bool) -> None:
    assert asks(response) is expected


@pytest.mark.parametrize(
    "utterance", ["That makes no sense", "what are you talking about?", "you already said that", "huh", "what??"]
)
def test_a_complaint_loses_its_weight(utterance: str) -> None:
    assert complains(utterance)
    lost = label_sentiment(utterance, STATEMENT, SHORT_ANSWERS) - label_sentiment(utterance, STATEMENT, LabelRules())
    assert lost == pytest.approx(0.6)
