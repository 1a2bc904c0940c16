"""The tally of a dialogue: each scorer's view of its turns so far. Pure; knows whole and running dialogues alike."""

from collections.abc import Iterable, Sequence

from turnscore_wire import DialogueAggregate, Score

from turnscore_service.scheduling.items import Item
from turnscore_service.scheduling.outcomes import Outcome
from turnscore_service.scheduling.request_checks import Roster


class DialogueTally:
    """Collects the scores of a dialogue's turns, to be added in the order in which they were said."""

    def __init__(self, asked: Iterable[str]) -> None:
        self._scores: dict[str, list[Score]] = {name: [] for name in asked}

    def add(self, item: Item, outcome: Outcome, roster: Roster) -> None:
        """Takes in the turn's scores of those scorers that answered and for whose paper the turn counts.

        `roster` is of the models that answered it: those of the next turn may be others.
        """
        for name, scores in self._scores.items():
            if name in outcome.scores and all(
                loaded.scorer.counts_in_dialogue(item.turn_for(loaded)) for loaded in roster.behind(name)
            ):
                scores.append(outcome.scores[name])

    def aggregates(self) -> dict[str, DialogueAggregate]:
        """Mean, least and greatest value and percentile of each scorer that has one."""
        return {name: _aggregate(scores) for name, scores in self._scores.items() if scores}


def _aggregate(scores: Sequence[Score]) -> DialogueAggregate:
    values = [score.value for score in scores]
    percentiles = [score.percentile for score in scores if score.percentile is not None]
    are_known = len(percentiles) == len(scores)
    return DialogueAggregate(
        mean=sum(values) / len(values),
        min=min(values),
        max=max(values),
        turns=len(values),
        percentile_mean=sum(percentiles) / len(percentiles) if are_known else None,
        percentile_min=min(percentiles) if are_known else None,
        percentile_max=max(percentiles) if are_known else None,
    )
