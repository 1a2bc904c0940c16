"""Turns for the FED scorer, and their scores."""

from collections.abc import Sequence

from turnscore_core.scorers.fed.scorer import FedScorer
from turnscore_core.scorers.scorer import RawScore, TurnToScore
from turnscore_wire import Turn

DIALOGUE = ["hi", "hello", "how are you?", "fine", "and your dog?", "my dog died"]


def turn(texts: Sequence[str], options: object = None) -> TurnToScore:
    speakers = ["user", "system"]
    context = [Turn(speaker=speakers[place % 2], text=text) for place, text in enumerate(texts[:-1])]  # type: ignore[arg-type]
    return TurnToScore(context, texts[-1], options=options)


def score(scorer: FedScorer, turns: Sequence[TurnToScore]) -> list[RawScore]:
    packs = scorer.encode(turns)
    places = [place for pack in packs for place in pack.answers]
    found = dict(zip(places, scorer.score(packs), strict=True))
    return [found[place] for place in range(len(turns))]
