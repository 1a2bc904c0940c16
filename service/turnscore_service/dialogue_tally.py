"""The tally of a dialogue: each scorer's view of its turns so far. Pure; knows whole and running dialogues alike."""

from collections.abc import Iterable, Mapping

from turnscore_wire import DialogueAggregate

from turnscore_service.items import Item
from turnscore_service.outcomes import Outcome
from turnscore_service.scorers.loading import LoadedScorer


class DialogueTally:
    """Collects the values of a dialogue's turns, to be added in the order in which they were said."""

    def __init__(self, scorers: Mapping[str, LoadedScorer], asked: Iterable[str]) -> None:
        self._scorers = scorers
        self._values: dict[str, list[float]] = {name: [] for name in asked}

    def add(self, item: Item, outcome: Outcome) -> None:
        """Takes in the turn's values of those scorers that answered and for whose paper the turn counts."""
        for name, values in self._values.items():
            if name in outcome.scores and self._scorers[name].scorer.counts_in_dialogue(item.turn_for(name)):
                values.append(outcome.scores[name].value)

    def aggregates(self) -> dict[str, DialogueAggregate]:
        """Mean, least and greatest value of each scorer that has one."""
        return {
            name: DialogueAggregate(mean=sum(values) / len(values), min=min(values), max=max(values), turns=len(values))
            for name, values in self._values.items()
            if values
        }
