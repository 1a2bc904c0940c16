"""Sentiment labels: what a user's next utterance says about the response before it. Reads text alone; trains nothing.

The sentiment is VADER's compound score, -1 to 1. VADER takes a plain "no" for a complaint although it may simply answer
a question; after a question a leading "no", "not really" or "i don't" therefore counts for nothing. And VADER takes
"what are you talking about" for neutral; an utterance with such a phrase loses a fixed amount.
"""

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from vaderSentiment.vaderSentiment import SentimentIntensityAnalyzer  # type: ignore[import-untyped]

COMPLAINT_FILE = Path(__file__).with_name("complaints.txt")

_QUESTION = re.compile(
    r"(do|did|are|is|was|were|have|has|can|could|would|will|should) (you|it|that|he|she|they|there|i|your|the)\b"
    r"|(what|who|where|when|why|how|which)\b"
)
_SENTENCE_END = re.compile(r"[.!]\s+")
_NEGATION = re.compile(
    r"^\W*(no+|nope|nah+|not really|not at all|not much|not yet|never|none|neither|i do not|i don'?t|i did not"
    r"|i didn'?t|i have not|i haven'?t|i'?m not|i am not)\b[\s,.!;:-]*",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class LabelRules:
    """The corrections of VADER's score."""

    handles_short_answers: bool = True
    complaint_weight: float = 0.6
    """The amount that an utterance with a complaint loses. Chosen, with the phrases, by the labels' own agreement with
    thumbs in ConvAI and judged turns in dbdc3_dev; see docs/models/sentiment_stop.md."""


@cache
def _analyzer() -> SentimentIntensityAnalyzer:
    return SentimentIntensityAnalyzer()


@cache
def _complaints() -> tuple[re.Pattern[str], ...]:
    lines = COMPLAINT_FILE.read_text(encoding="utf-8").splitlines()
    return tuple(re.compile(line, re.IGNORECASE) for line in lines if line)


def score_vader(text: str) -> float:
    """VADER's compound score, -1 to 1."""
    return float(_analyzer().polarity_scores(text)["compound"])


def label_sentiment(utterance: str, response: str, rules: LabelRules) -> float:
    """Sentiment of the utterance that follows the response: at least -1 less the complaint's weight, at most 1."""
    counted = strip_negation(utterance) if rules.handles_short_answers and asks(response) else utterance
    sentiment = score_vader(counted) if counted.strip() else 0.0
    return sentiment - rules.complaint_weight * complains(utterance)


def asks(response: str) -> bool:
    """Whether the response asks something: a question mark, or a last sentence that begins like a question."""
    text = response.strip().lower()
    return "?" in text or bool(_QUESTION.match(_SENTENCE_END.split(text)[-1].strip()))


def begins_with_negation(utterance: str) -> bool:
    """Whether the utterance begins like a short negative answer."""
    return bool(_NEGATION.match(utterance))


def strip_negation(utterance: str) -> str:
    """The utterance without its leading negations; empty where it is nothing else."""
    before = None
    while before != utterance:
        before, utterance = utterance, _NEGATION.sub("", utterance, count=1)
    return utterance


def complains(utterance: str) -> bool:
    """Whether the utterance says that the response made no sense, was said before, or missed what was asked."""
    return any(pattern.search(utterance) for pattern in _complaints())
