"""Training examples of the quality model: a real response with bad ones by kind, labelled head by head.

Negatives decide what a model of fitting responses learns. Each kind here teaches one thing that real dialogues hold
hardly any example of; the labels are assumptions of ours, not observations.
"""

import math
import random
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import groupby
from operator import attrgetter

from turnscore_assessment.data.dialogues import SYSTEM, UNKNOWN, USER, LabelledTurn

from turnscore_exporters.data.pairs import DULL_REPLIES, MarkovChain
from turnscore_exporters.sentiment.model import LabelRules, garble, label_sentiment, score_vader

# Words at which responses change their length class: a random negative is as long as the real response.
LENGTH_STEPS = (4, 7, 10, 14, 19, 26)
BAD_NEWS, GOOD_NEWS = -0.45, 0.6  # VADER's score of a user's turn from which an opposite mood is out of place.


class NegativeKind(StrEnum):
    """What is wrong with a made-up response."""

    RANDOM = "random"
    SAME_DIALOGUE = "same_dialogue"
    PARROT = "parrot"
    REPEAT = "repeat"
    CONTRADICTION = "contradiction"
    WRONG_MOOD = "wrong_mood"
    DULL = "dull"
    GARBLED = "garbled"
    BABBLE = "babble"
    HOSTILE = "hostile"


@dataclass(frozen=True, slots=True, kw_only=True)
class NegativeLabels:
    """What a kind says of the heads, UNKNOWN where it says nothing; and its share of the negatives."""

    share: float
    relevant: float = 0.0
    fluent: float = 1.0
    engaging: float = UNKNOWN
    sentiment_shift: float = -0.5  # Against the label of the real response.
    overall: float = UNKNOWN  # What the rubric gives such a response.


# Shares are chosen; docs/models/quality.md has what each kind is worth.
LABELS: dict[NegativeKind, NegativeLabels] = {
    NegativeKind.RANDOM: NegativeLabels(share=0.54, overall=0.12),
    NegativeKind.SAME_DIALOGUE: NegativeLabels(share=0.12),
    NegativeKind.PARROT: NegativeLabels(share=0.05, engaging=0.0, overall=0.06),
    NegativeKind.REPEAT: NegativeLabels(share=0.05, engaging=0.0, overall=0.15),
    NegativeKind.CONTRADICTION: NegativeLabels(share=0.04, relevant=0.1, overall=0.25),
    NegativeKind.WRONG_MOOD: NegativeLabels(share=0.03, sentiment_shift=-0.8, overall=0.1),
    NegativeKind.DULL: NegativeLabels(share=0.04, relevant=0.35, engaging=0.0, sentiment_shift=-0.25, overall=0.18),
    NegativeKind.GARBLED: NegativeLabels(share=0.05, fluent=0.0, engaging=0.0, overall=0.2),
    NegativeKind.BABBLE: NegativeLabels(share=0.05, fluent=0.1, overall=0.06),
    NegativeKind.HOSTILE: NegativeLabels(
        share=0.03, relevant=0.1, fluent=0.7, engaging=0.0, sentiment_shift=-1.0, overall=0.02
    ),
}

CHEERFUL = (
    "that's great! congratulations!", "haha that's awesome!", "wow, i am so happy for you!",
    "that sounds like so much fun!", "lol that is so funny!", "nice! i love that!", "yay, good for you!",
    "awesome, that must have been amazing!",
)  # fmt: skip
GLOOMY = (
    "i am so sorry for your loss.", "oh no, that is terrible.", "that must be very hard for you. i am sorry.",
    "how awful, i hope you feel better soon.", "sorry to hear that. my condolences.",
)  # fmt: skip
MORE_DULL = (
    "i don't know what to say.", "maybe.", "hmm.", "okay.", "i guess so.", "that is interesting.", "cool.", "nice.",
    "i don't understand.", "whatever.", "it depends.", "i am not sure what you mean.",
)  # fmt: skip
INSULTS = (
    "shut up, you idiot.", "you are so stupid.", "nobody cares what you think.", "go away, i hate talking to you.",
    "what a dumb thing to say.", "you are boring and pathetic.", "that is the worst idea ever, moron.",
)  # fmt: skip
_SWAPS = (
    (r"\bi am\b", "i am not"), (r"\bi'm\b", "i'm not"), (r"\bi have\b", "i don't have"), (r"\bi love\b", "i hate"),
    (r"\bi like\b", "i don't like"), (r"\bi do\b", "i don't"), (r"\bi don'?t\b", "i"), (r"\bmy\b", "i have no"),
    (r"\bit is\b", "it is not"), (r"\bit's\b", "it's not"), (r"\byes\b", "no"), (r"\bno\b", "yes"),
    (r"\bcan\b", "can't"),
)  # fmt: skip
_INSULT = re.compile(
    r"\byou(r|'re| are|r a| a)?\b.{0,12}\b(stupid|idiot|dumb|moron|loser|pathetic|useless|suck|bitch|asshole|jerk)"
    r"|\bshut up\b|\bi hate you\b|\bfuck you\b",
    re.IGNORECASE,
)
_LONGEST_INSULT = 90


class Negatives:
    """Makes bad responses for the turns at hand; the same generator gives the same responses."""

    def __init__(self, turns: Sequence[LabelledTurn]) -> None:
        self._turns = turns
        self._by_length: dict[int, list[str]] = defaultdict(list)
        self._by_dialogue: dict[str, list[int]] = defaultdict(list)
        insults = set(INSULTS)
        for index, turn in enumerate(turns):
            self._by_length[length_class(turn.response)].append(turn.response)
            self._by_dialogue[turn.dialogue].append(index)
            insults.update(text for text in (turn.response, turn.next_user or "") if is_insult(text))
        self.insults = sorted(insults)
        self._chain = MarkovChain([turn.response for turn in turns])
        self._makers: dict[NegativeKind, _Maker] = {
            NegativeKind.RANDOM: self._random,
            NegativeKind.SAME_DIALOGUE: self._same_dialogue,
            NegativeKind.PARROT: self._parrot,
            NegativeKind.REPEAT: self._repeat,
            NegativeKind.CONTRADICTION: self._contradict,
            NegativeKind.WRONG_MOOD: self._wrong_mood,
            NegativeKind.DULL: lambda _, generator: generator.choice(DULL_REPLIES + MORE_DULL),
            NegativeKind.GARBLED: lambda index, generator: garble(self._turns[index].response, generator),
            NegativeKind.BABBLE: lambda _, generator: self._chain.draw(generator),
            NegativeKind.HOSTILE: lambda _, generator: generator.choice(self.insults),
        }

    def make(self, index: int, kind: NegativeKind, generator: random.Random) -> str | None:
        """A response of that kind for the turn at `index`; None where the turn allows none."""
        response = self._makers[kind](index, generator)
        if response is None or not response.strip() or _same(response, self._turns[index].response):
            return None
        return response

    def _random(self, index: int, generator: random.Random) -> str:
        return generator.choice(self._by_length[length_class(self._turns[index].response)])

    def _same_dialogue(self, index: int, generator: random.Random) -> str | None:
        own = self._turns[index]
        others = [each for each in self._by_dialogue[own.dialogue] if abs(self._turns[each].place - own.place) >= 2]
        return self._turns[generator.choice(others)].response if others else None

    def _parrot(self, index: int, generator: random.Random) -> str:
        last = self._turns[index].context[-1][1]
        sentences = re.split(r"(?<=[.!?])\s+", last)
        return last if len(sentences) < 2 or generator.random() < 0.6 else generator.choice(sentences)

    def _repeat(self, index: int, generator: random.Random) -> str | None:
        said = [text for speaker, text in self._turns[index].context if speaker == SYSTEM]
        return generator.choice(said) if said else None

    def _contradict(self, index: int, generator: random.Random) -> str | None:
        """Something the speaker said before, or the real response, turned into its opposite."""
        turn = self._turns[index]
        said = [text for speaker, text in turn.context if speaker == SYSTEM]
        text = (said[-1] if said else turn.response).lower()
        ways = [(pattern, opposite) for pattern, opposite in _SWAPS if re.search(pattern, text)]
        if not ways:
            return None
        pattern, opposite = generator.choice(ways)
        return re.sub(pattern, opposite, text, count=1)

    def _wrong_mood(self, index: int, generator: random.Random) -> str | None:
        speaker, text = self._turns[index].context[-1]
        return _react(text, CHEERFUL, GLOOMY, generator) if speaker == USER else None


def _react(text: str, to_bad: Sequence[str], to_good: Sequence[str], generator: random.Random) -> str | None:
    """A short reaction to bad or to good news; None to neither."""
    mood = score_vader(text)
    if mood <= BAD_NEWS:
        return generator.choice(to_bad)
    return generator.choice(to_good) if mood >= GOOD_NEWS else None


_Maker = Callable[[int, random.Random], str | None]


def is_insult(text: str) -> bool:
    """Whether the text is short and hostile to whom it is said."""
    return len(text) <= _LONGEST_INSULT and bool(_INSULT.search(text))


def length_class(text: str) -> int:
    """How many of LENGTH_STEPS the text's words reach."""
    words = len(text.split())
    return sum(words >= step for step in LENGTH_STEPS)


def _same(left: str, right: str) -> bool:
    return re.findall(r"\w+", left.lower()) == re.findall(r"\w+", right.lower())


# Of the real responses, so many are stitched to a long one, with another long one that has one bad piece.
LONG_SHARE = 0.08
RULES = LabelRules()


# Turns of one context, their labels named as the heads, `fits` among them; the first one is what was really said.
Group = list[LabelledTurn]
LEAST_SENTIMENT = -1.6


class ExampleMaker:
    """Makes an epoch's groups of examples. The same seed and epoch give the same examples."""

    def __init__(
        self, people: Sequence[LabelledTurn], negatives: Negatives, seed: int = 0, long_share: float = LONG_SHARE
    ) -> None:
        self._people = people
        self._negatives = negatives
        self._seed = seed
        self._long_share = long_share
        self._later = _later_pieces(people)

    def epoch(self, number: int) -> Iterable[Group]:
        """A group for each turn of a person, in an order of its own."""
        generator = random.Random(self._seed * 1000 + number)  # noqa: S311
        for index in generator.sample(range(len(self._people)), len(self._people)):
            yield self._group(index, generator)

    def _group(self, index: int, generator: random.Random) -> Group:
        turn = self._people[index]
        real = replace(turn, labels=_label(relevant=1.0, fluent=1.0) | _label_answer(turn))
        if generator.random() < self._long_share and self._later[index]:
            return self._long_group(index, real, generator)
        # Of the real responses that are not stitched, so many become a short reaction.
        if generator.random() < 0.1:
            # In the mood of the user's turn, so that its words alone do not show a misfit.
            mood = _react(turn.context[-1][1], GLOOMY, CHEERFUL, generator)
            if mood:
                real = replace(real, response=mood)
        group = [real]
        # Responses for each real one.
        for kind in generator.choices(list(LABELS), [each.share for each in LABELS.values()], k=3):
            made = self._negatives.make(index, kind, generator)
            if made is None:
                kind = NegativeKind.RANDOM
                made = self._negatives.make(index, kind, generator)
            if made is not None and all(made != each.response for each in group):
                group.append(_spoil(real, made, kind))
        return group

    def _long_group(self, index: int, real: LabelledTurn, generator: random.Random) -> Group:
        """The real response and sound pieces after it; then the same with one bad piece at a random place."""
        pieces = [real.response, *self._later[index][: generator.randint(2, 8)]]
        group = [replace(real, response=join_pieces(pieces))]
        kinds = (NegativeKind.RANDOM, NegativeKind.GARBLED, NegativeKind.HOSTILE, NegativeKind.BABBLE)
        for kind in generator.sample(kinds, 2):
            made = self._negatives.make(index, kind, generator)
            if made is None:
                continue
            place = generator.randrange(len(pieces) + 1)
            relevant = 0.3 if kind == NegativeKind.RANDOM else LABELS[kind].relevant
            group.append(_spoil(real, join_pieces([*pieces[:place], made, *pieces[place:]]), kind, relevant))
        wrong = self._negatives.make(index, NegativeKind.RANDOM, generator)
        if wrong:
            others = self._later[generator.randrange(len(self._people))][:6]
            group.append(_spoil(real, join_pieces([wrong, *others]), NegativeKind.RANDOM))
        return group


def _spoil(real: LabelledTurn, response: str, kind: NegativeKind, relevant: float | None = None) -> LabelledTurn:
    """A made-up response in the place of the real one, as relevant as its kind where nothing else is given."""
    own = LABELS[kind]
    # Where the real one's is unknown, it is the least.
    sentiment = max(LEAST_SENTIMENT, real.labels.get("sentiment", LEAST_SENTIMENT) + own.sentiment_shift)
    labels = _label(
        relevant=own.relevant if relevant is None else relevant,
        fluent=own.fluent,
        engaging=own.engaging,
        overall=own.overall,
        sentiment=sentiment,
        continues=0.0,
    )
    return LabelledTurn(context=real.context, response=response, system=kind, labels=labels)


def _label(relevant: float, fluent: float, **others: float) -> dict[str, float]:
    """The rubric's marks by head, and how far the response fits; what is not known is left out."""
    marks = {"fits": relevant, "relevant": 0.1 + 0.7 * relevant, "fluent": 0.1 + 0.75 * fluent, **others}
    return {name: mark for name, mark in marks.items() if not math.isnan(mark)}


def _later_pieces(people: Sequence[LabelledTurn]) -> list[list[str]]:
    """For each turn what its speaker said later in the dialogue: every second turn after it, at most eight."""
    places = {id(turn): index for index, turn in enumerate(people)}
    found: list[list[str]] = [[] for _ in people]
    in_order = sorted(people, key=attrgetter("dialogue", "place"))
    for _, group in groupby(in_order, key=attrgetter("dialogue")):
        turns = list(group)
        for turn in turns:
            later = [each.response for each in turns if each.place > turn.place and (each.place - turn.place) % 2 == 0]
            found[places[id(turn)]] = later[:8]
    return found


def join_pieces(pieces: Sequence[str]) -> str:
    """One text of several sentences, each ending in a full stop or what it ended in."""
    return " ".join(piece if piece.rstrip()[-1:] in ".!?" else f"{piece.rstrip()}." for piece in pieces)


def _label_answer(turn: LabelledTurn) -> dict[str, float]:
    """What the other side did next, as far as it is known."""
    labels = {} if turn.goes_on is None else {"continues": float(turn.goes_on)}
    if turn.next_user is not None:
        labels["sentiment"] = label_sentiment(turn.next_user, turn.response, RULES)
    return labels


def make_bot_examples(turns: Sequence[LabelledTurn]) -> list[LabelledTurn]:
    """Systems' turns with what the user did next; whether they fit is not known."""
    return [replace(turn, labels=_label_answer(turn)) for turn in turns]
