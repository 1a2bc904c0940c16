"""Training examples of the quality model: a real response with made-up ones, labelled head by head."""

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from turnscore_assessment.data.dialogues import Spoken

from turnscore_exporters.quality.negatives import (
    BAD_NEWS,
    CHEERFUL,
    GLOOMY,
    GOOD_NEWS,
    LABELS,
    SHARES,
    UNKNOWN,
    NegativeKind,
    Negatives,
)
from turnscore_exporters.quality.spoken_turns import SpokenTurn, group_by_dialogue
from turnscore_exporters.sentiment.model import LabelRules, label_sentiment, score_vader

STOP_WEIGHT = 0.25  # Weight of the label "stops" of a made-up response; a real one's is 1.
PERSON_WEIGHT = 0.5  # Weight of "continues" after a person's turn: people answer people whatever is said.


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A response in its context with its labels, UNKNOWN where there is none. `kind`: empty where really said."""

    context: tuple[Spoken, ...]
    response: str
    kind: str = ""
    relevant: float = UNKNOWN
    fluent: float = UNKNOWN
    engaging: float = UNKNOWN
    sentiment: float = UNKNOWN
    continues: float = UNKNOWN
    continues_weight: float = 1.0


MOOD_SHARE = 0.1  # Of the real responses that are not stitched, so many become a short reaction. Chosen.


@dataclass(frozen=True, kw_only=True)
class ExampleRecipe:
    """How many made-up responses there are for each real one, and which. See docs/models/quality.md for their worth."""

    negatives: int = 4
    shares: Mapping[NegativeKind, float] = field(default_factory=lambda: SHARES)
    # Of the real responses, so many are stitched to a long one, with another long one that has one bad piece.
    long_share: float = 0.08
    labels: LabelRules = field(default_factory=LabelRules)


Group = list[Example]  # Examples of one context; the first one is what was really said.


class ExampleMaker:
    """Makes an epoch's groups of examples. The same seed and epoch give the same examples."""

    def __init__(
        self, people: Sequence[SpokenTurn], negatives: Negatives, recipe: ExampleRecipe, seed: int = 0
    ) -> None:
        self._people = people
        self._negatives = negatives
        self._recipe = recipe
        self._seed = seed
        self._kinds = list(recipe.shares)
        self._weights = [recipe.shares[kind] for kind in self._kinds]
        self._later = _later_pieces(people)

    def epoch(self, number: int) -> Iterable[Group]:
        """A group for each turn of a person, in an order of its own."""
        generator = random.Random(self._seed * 1000 + number)  # noqa: S311
        for index in generator.sample(range(len(self._people)), len(self._people)):
            yield self._group(index, generator)

    def _group(self, index: int, generator: random.Random) -> Group:
        turn = self._people[index]
        real = self._real(turn)
        if generator.random() < self._recipe.long_share and self._later[index]:
            return self._long_group(index, real, generator)
        if generator.random() < MOOD_SHARE:
            mood = self._fitting_mood(turn, generator)
            if mood:
                real = replace(real, response=mood, engaging=UNKNOWN)
        group = [real]
        for kind in generator.choices(self._kinds, self._weights, k=self._recipe.negatives):
            made = self._negatives.make(index, kind, generator)
            if made is None:
                kind = NegativeKind.RANDOM
                made = self._make(index, kind, generator)
            if made is not None and all(made != each.response for each in group):
                group.append(self._spoilt(real, made, kind))
        return group

    def _make(self, index: int, kind: NegativeKind, generator: random.Random) -> str | None:
        """One of that kind, unless the recipe leaves the kind out."""
        return self._negatives.make(index, kind, generator) if kind in self._recipe.shares else None

    def _real(self, turn: SpokenTurn) -> Example:
        return Example(
            context=turn.context,
            response=turn.response,
            relevant=1.0,
            fluent=1.0,
            sentiment=_label_sentiment(turn, self._recipe.labels),
            continues=UNKNOWN if turn.goes_on is None else float(turn.goes_on),
            continues_weight=PERSON_WEIGHT,
        )

    def _spoilt(self, real: Example, response: str, kind: NegativeKind) -> Example:
        labels = LABELS[kind]
        return Example(
            context=real.context,
            response=response,
            kind=kind,
            relevant=labels.relevant,
            fluent=labels.fluent,
            engaging=labels.engaging,
            sentiment=max(-1.6, real.sentiment + labels.sentiment_shift),
            continues=0.0,
            continues_weight=STOP_WEIGHT,
        )

    def _fitting_mood(self, turn: SpokenTurn, generator: random.Random) -> str | None:
        """A short reaction in the mood of the user's turn, so that its words alone do not show a misfit."""
        mood = score_vader(turn.context[-1][1])
        if mood <= BAD_NEWS:
            return generator.choice(GLOOMY)
        return generator.choice(CHEERFUL) if mood >= GOOD_NEWS else None

    def _long_group(self, index: int, real: Example, generator: random.Random) -> Group:
        """The real response and sound pieces after it; then the same with one bad piece at a random place."""
        pieces = [real.response, *self._later[index][: generator.randint(2, 8)]]
        group = [replace(real, response=join_pieces(pieces))]
        kinds = (NegativeKind.RANDOM, NegativeKind.GARBLED, NegativeKind.HOSTILE, NegativeKind.BABBLE)
        for kind in generator.sample(kinds, 2):
            made = self._make(index, kind, generator)
            if made is None:
                continue
            place = generator.randrange(len(pieces) + 1)
            spoilt = self._spoilt(real, join_pieces([*pieces[:place], made, *pieces[place:]]), kind)
            group.append(spoilt if kind != NegativeKind.RANDOM else replace(spoilt, relevant=0.3))
        wrong = self._make(index, NegativeKind.RANDOM, generator)
        if wrong:
            others = self._later[generator.randrange(len(self._people))][:6]
            group.append(self._spoilt(real, join_pieces([wrong, *others]), NegativeKind.RANDOM))
        return group


def _later_pieces(people: Sequence[SpokenTurn]) -> list[list[str]]:
    """For each turn what its speaker said later in the dialogue: every second turn after it, at most eight."""
    places = {id(turn): index for index, turn in enumerate(people)}
    found: list[list[str]] = [[] for _ in people]
    for turns in group_by_dialogue(people).values():
        for turn in turns:
            later = [each.response for each in turns if each.place > turn.place and (each.place - turn.place) % 2 == 0]
            found[places[id(turn)]] = later[:8]
    return found


def join_pieces(pieces: Sequence[str]) -> str:
    """One text of several sentences, each ending in a full stop or what it ended in."""
    return " ".join(piece if piece.rstrip()[-1:] in ".!?" else f"{piece.rstrip()}." for piece in pieces)


def _label_sentiment(turn: SpokenTurn, rules: LabelRules) -> float:
    return UNKNOWN if turn.next_text is None else label_sentiment(turn.next_text, turn.response, rules)


def make_bot_examples(turns: Sequence[SpokenTurn], rules: LabelRules) -> list[Example]:
    """Systems' turns with what the user did next; whether they fit is not known."""
    return [
        Example(
            context=turn.context,
            response=turn.response,
            kind="bot",
            sentiment=_label_sentiment(turn, rules),
            continues=UNKNOWN if turn.goes_on is None else float(turn.goes_on),
        )
        for turn in turns
    ]
