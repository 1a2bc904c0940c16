"""The turns that a larger encoder is asked about, in batches."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from turnscore_assessment.data.dialogue_sets import Spoken

from turnscore_exporters.errors import ExporterError
from turnscore_exporters.quality.negatives import NegativeKind, Negatives
from turnscore_exporters.quality.spoken_turns import SpokenTurn

LONGEST_RESPONSE = 60
"""Words. Longer ones are rare among people's turns, and cost most."""
SORTED_TOGETHER = 8
"""Batches whose turns are sorted by length together."""
HELD_KINDS = (
    NegativeKind.PARROT, NegativeKind.REPEAT, NegativeKind.CONTRADICTION, NegativeKind.WRONG_MOOD, NegativeKind.DULL,
    NegativeKind.GARBLED, NegativeKind.BABBLE, NegativeKind.HOSTILE, NegativeKind.SAME_DIALOGUE,
)  # fmt: skip
"""Made-up responses that the teacher would take for fitting, or says nothing of."""


@dataclass(frozen=True, kw_only=True)
class TaughtBatch:
    """Turns, and made-up responses in the contexts of some of them."""

    turns: list[SpokenTurn]
    made_up: list[tuple[tuple[Spoken, ...], str]]


def choose_turns(people: Sequence[SpokenTurn], bots: Sequence[SpokenTurn], seed: int) -> list[SpokenTurn]:
    """People's and systems' turns whose response is of LONGEST_RESPONSE words at most, in random order."""
    turns = [turn for turn in (*people, *bots) if turn.context and len(turn.response.split()) <= LONGEST_RESPONSE]
    random.Random(seed).shuffle(turns)  # noqa: S311
    return turns


def list_texts(turns: Sequence[SpokenTurn]) -> list[str]:
    """Every text that the teacher compares, once."""
    texts = (text for turn in turns for text in (turn.response, *(text for _, text in turn.context[-2:])))
    return list(dict.fromkeys(texts))


def draw_batches(
    turns: Sequence[SpokenTurn], people: Sequence[SpokenTurn], size: int, epochs: float, made_up_share: float, seed: int
) -> list[TaughtBatch]:
    """Batches of turns of like length in random order, with made-up responses beside some of people's turns."""
    generator = random.Random(seed)  # noqa: S311
    negatives = Negatives(people)
    places = {id(turn): place for place, turn in enumerate(people)}
    wanted = max(1, int(len(turns) * epochs / size))
    batches: list[TaughtBatch] = []
    while len(batches) < wanted:
        drawn = _sort_by_length(turns, size, generator)
        if not drawn:
            raise ExporterError(f"{len(turns)} turns are at hand, too few for a batch of {size}")
        batches += [_with_made_up(batch, places, negatives, made_up_share, generator) for batch in drawn]
    return batches[:wanted]


def _sort_by_length(turns: Sequence[SpokenTurn], size: int, generator: random.Random) -> list[list[SpokenTurn]]:
    order = generator.sample(list(turns), len(turns))
    batches: list[list[SpokenTurn]] = []
    for start in range(0, len(order), size * SORTED_TOGETHER):
        chunk = sorted(order[start : start + size * SORTED_TOGETHER], key=lambda turn: len(turn.response))
        batches += [chunk[place : place + size] for place in range(0, len(chunk) - size + 1, size)]
    generator.shuffle(batches)
    return batches


def _with_made_up(
    turns: list[SpokenTurn],
    places: dict[int, int],
    negatives: Negatives,
    made_up_share: float,
    generator: random.Random,
) -> TaughtBatch:
    made_up = []
    for turn in generator.sample(turns, int(len(turns) * made_up_share)):
        place = places.get(id(turn))
        response = None if place is None else negatives.make(place, generator.choice(HELD_KINDS), generator)
        if response is not None and len(response.split()) <= LONGEST_RESPONSE:
            made_up.append((turn.context, response))
    return TaughtBatch(turns=turns, made_up=made_up)
