"""The sentiment/stop regressor of Ghazarian et al. (2022): labels of users' next utterances, and a BERT in torch.

Made-up bad responses (mismatched, repeated, garbled, hostile) stand in for what people's dialogues hardly hold. They
are assumed to please less by a fixed amount and to be likelier to end the dialogue; no one reacted to them.
"""

import random
import re
import string
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn
from transformers import BertModel
from turnscore_assessment.data.dialogues import SYSTEM, USER, LabelledTurn, Spoken
from turnscore_core.scorers.sentiment_stop import DialogueRow, SpecialTokens, WindowLayout, lay_out_row
from vaderSentiment.vaderSentiment import SentimentIntensityAnalyzer  # type: ignore[import-untyped]

from turnscore_exporters.graphs.export import BertGraph, average_tokens
from turnscore_exporters.training.encoders import POOLED, Encoder, check_choice, pad_rows, read_checkpoint, score_alike

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

    scale: float = 1.0  # What VADER's score from -1 to 1 is multiplied by; the paper's sentiments lie between -3 and 3.
    handles_short_answers: bool = True
    # The amount that an utterance with a complaint loses. Chosen, with the phrases, by the labels' own agreement with
    # thumbs in ConvAI and judged turns in dbdc3_dev; see docs/models/sentiment_stop.md.
    complaint_weight: float = 0.6


@cache
def _analyzer() -> SentimentIntensityAnalyzer:
    return SentimentIntensityAnalyzer()


@cache
def _complaints() -> tuple[re.Pattern[str], ...]:
    lines = Path(__file__).with_name("complaints.txt").read_text(encoding="utf-8").splitlines()
    return tuple(re.compile(line, re.IGNORECASE) for line in lines if line)


def score_vader(text: str) -> float:
    """VADER's compound score, -1 to 1."""
    return float(_analyzer().polarity_scores(text)["compound"])


def label_sentiment(utterance: str, response: str, rules: LabelRules) -> float:
    """Sentiment of the utterance that follows the response; by default between -1, less a complaint's weight, and 1.

    VADER's compound score takes a plain "no" for a complaint although it may simply answer a question; after a question
    a leading "no", "not really" or "i don't" therefore counts for nothing. And VADER takes "what are you talking about"
    for neutral; an utterance with such a phrase loses a fixed amount.
    """
    counted = strip_negation(utterance) if rules.handles_short_answers and asks(response) else utterance
    sentiment = rules.scale * score_vader(counted) if counted.strip() else 0.0
    return sentiment - rules.complaint_weight * complains(utterance)


def asks(response: str) -> bool:
    """Whether the response asks something: a question mark, or a last sentence that begins like a question."""
    text = response.strip().lower()
    return "?" in text or bool(_QUESTION.match(_SENTENCE_END.split(text)[-1].strip()))


def strip_negation(utterance: str) -> str:
    """The utterance without its leading negations; empty where it is nothing else."""
    before = None
    while before != utterance:
        before, utterance = utterance, _NEGATION.sub("", utterance, count=1)
    return utterance


def complains(utterance: str) -> bool:
    """Whether the utterance says that the response made no sense, was said before, or missed what was asked."""
    return any(pattern.search(utterance) for pattern in _complaints())


# Measured: "you" and one of these words find insults rather than talk of something stupid.
_INSULT = re.compile(
    r"\b(stupid|idiot|dumb|moron|shut up|hate you|loser|ugly|pathetic|useless|suck|fuck|bitch|fool|asshole|jerk"
    r"|worthless)\b",
    re.IGNORECASE,
)
_AT_SOMEONE = re.compile(r"\byou", re.IGNORECASE)
_LONGEST_INSULT = 120


@dataclass(frozen=True)
class NegativeRecipe:
    """How many made-up responses there are, and how they are labelled."""

    share: float = 0.5  # Made-up responses per real turn, drawn again in each epoch.
    sentiment_shift: float = -0.5  # Their sentiment label is the real response's plus this.
    # Weight of their label "stops" in the loss; a real one's is 1. None where the set does not show stops.
    stop_weight: float = 0.25


class BadResponses:
    """Makes bad responses out of a set of real turns."""

    def __init__(self, turns: Iterable[LabelledTurn]) -> None:
        self._pools: dict[str, list[str]] = defaultdict(list)
        insults: set[str] = set()
        for turn in turns:
            self._pools[turn.set_name].append(turn.response)
            said = [text for speaker, text in turn.context if speaker == USER]
            insults.update(text for text in (*said, turn.next_user or "") if is_insult(text))
        self.insults = sorted(insults)

    def make(self, turn: LabelledTurn, generator: random.Random) -> str:
        """Half of them mismatched, a sixth each repeated, garbled and hostile; one may equal the real response."""
        [kind] = generator.choices(("mismatched", "repeated", "garbled", "hostile"), weights=(3, 1, 1, 1))
        said = [text for speaker, text in turn.context if speaker == SYSTEM]
        if kind == "repeated" and said:
            return said[-1]
        if kind == "garbled":
            return garble(turn.response, generator)
        if kind == "hostile" and self.insults:
            return generator.choice(self.insults)
        return generator.choice(self._pools[turn.set_name])


def is_insult(text: str) -> bool:
    """Whether a user's utterance would be hostile from a system."""
    return len(text) < _LONGEST_INSULT and bool(_INSULT.search(text) and _AT_SOMEONE.search(text))


def garble(text: str, generator: random.Random) -> str:
    """The garbled text: words dropped, one word stuttered, letters typed at random, or the words shuffled."""
    words = text.split()

    def type_at_random() -> str:
        return "".join(generator.choices(string.ascii_lowercase, k=generator.randint(2, 9)))

    ways = (
        lambda: [word for word in words if generator.random() > 0.5] or words[:1],
        lambda: [generator.choice(words)] * generator.randint(3, 12),
        lambda: [type_at_random() for _ in range(generator.randint(1, 7))],
        lambda: generator.sample(words, len(words)),
    )
    return " ".join(generator.choice(ways)())


DEFAULT_LAYOUT = WindowLayout(context_turns=3, turn_marks="separator", response_segment=1)

RowPooling = Literal["mean", "pooled"]  # The mean of a row's token vectors, or BERT's pooled output.
# `two`: sentiment and probability of going on, separately. `sentiment` and `sum`, the paper's, are one regression each:
# the prediction is `sentiment`, and `goes_on` is 0, so that the value is the target.
Target = Literal["two", "sentiment", "sum"]


@dataclass(frozen=True, kw_only=True)
class SentimentSettings:
    """The model's settings, besides its weights."""

    encoder: str
    layout: WindowLayout = DEFAULT_LAYOUT
    pooling: RowPooling = "mean"
    target: Target = "two"
    token_limit: int = 80
    dropout: float = 0.1

    def __post_init__(self) -> None:
        """ValueError for a setting that there is not."""
        check_choice("pooling", self.pooling, RowPooling)
        check_choice("target", self.target, Target)


class SentimentStopModel(BertGraph):
    """The predicted sentiment of the next user utterance, and the probability that there is one, for each row."""

    def __init__(self, encoder: BertModel, settings: SentimentSettings) -> None:
        super().__init__()
        self.encoder = encoder
        self.settings = settings
        self.dropout = nn.Dropout(settings.dropout)
        self.head = nn.Linear(int(encoder.config.hidden_size), 2)
        nn.init.normal_(self.head.weight, std=0.02)
        nn.init.zeros_(self.head.bias)

    def read_rows(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor) -> Tensor:
        """Row vectors, fp32 [rows, width], of token ids, mask and segments [rows, tokens]."""
        found = self.encoder(input_ids=input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids)
        if self.settings.pooling == POOLED:
            return found.pooler_output.float()  # type: ignore[no-any-return]
        return average_tokens(found.last_hidden_state.float(), attention_mask)

    def predict(self, vectors: Tensor) -> Tensor:
        """Sentiment and logit of going on, [rows, 2], of row vectors."""
        outputs: Tensor = self.head(self.dropout(vectors))
        return outputs

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor) -> tuple[Tensor, Tensor]:
        """Sentiments and probabilities of going on, both float32 [rows]."""
        outputs = self.predict(self.read_rows(input_ids, attention_mask, token_type_ids))
        goes_on = outputs[:, 1].sigmoid()
        return outputs[:, 0], goes_on if self.settings.target == "two" else goes_on * 0.0


class WindowBuilder:
    """Lays texts out as the service does, each text tokenised once."""

    def __init__(self, encoder: Encoder, settings: SentimentSettings) -> None:
        """Raises EncoderError where the tokenizer lacks a token that a row may need."""
        self._encoder = encoder
        self._settings = settings
        self._special = SpecialTokens(
            first=encoder.special("[CLS]"),
            separator=encoder.special("[SEP]"),
            user=encoder.special("[unused0]"),
            system=encoder.special("[unused1]"),
        )
        self._ids: dict[str, list[int]] = {}

    def add(self, texts: Iterable[str]) -> None:
        """Tokenises the texts that were not seen yet."""
        wanted = [text for text in dict.fromkeys(texts) if text not in self._ids]
        self._ids.update(zip(wanted, self._encoder.tokenize_bare(wanted), strict=True))

    def build(self, context: Sequence[Spoken], response: str) -> DialogueRow:
        """The row of a response after its context, oldest turn first."""
        self.add([response, *(text for _, text in context)])
        spoken = [(speaker, self._ids[text]) for speaker, text in context]
        return lay_out_row(
            spoken, self._ids[response], self._settings.layout, self._special, self._settings.token_limit
        )


def collate_rows(rows: Sequence[DialogueRow], layout: WindowLayout) -> tuple[Tensor, Tensor, Tensor]:
    """The graph's three inputs for a batch of rows: ids, mask and segments."""
    input_ids, attention_mask = pad_rows([row.ids for row in rows])
    starts = torch.tensor([[row.response_start] for row in rows])
    segments = (torch.arange(input_ids.shape[1]) >= starts) * attention_mask * layout.response_segment
    return input_ids, attention_mask, segments


def score_rows(model: SentimentStopModel, rows: Sequence[DialogueRow]) -> Tensor:
    """Sentiment and probability of going on, [rows, 2], in order."""

    def score(chosen: list[DialogueRow]) -> Tensor:
        return torch.stack(model(*collate_rows(chosen, model.settings.layout)), dim=-1)

    return score_alike(rows, lambda row: len(row.ids), score)


def load_model(folder: Path) -> tuple[SentimentStopModel, Encoder]:
    """A checkpoint, ready to score; CheckpointError naming what is missing or broken."""
    return read_checkpoint(folder, "sentiment/stop", SentimentStopModel, SentimentSettings)
