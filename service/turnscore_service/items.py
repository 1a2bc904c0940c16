"""Items: one turn to score with everything that is asked of it, as it travels from a request to the scorers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from turnscore_wire import Turn

from turnscore_service.deadline import Deadline
from turnscore_service.scorers.scorer import TurnToScore


@dataclass(frozen=True, slots=True)
class Item:
    """One turn to score with everything that is asked of it."""

    context: Sequence[Turn]
    response: str
    asked: Mapping[str, object]
    """The scorers asked for, in that order, with their options."""
    deadline: Deadline

    def turn_for(self, scorer: str) -> TurnToScore:
        """The turn as that scorer takes it."""
        return TurnToScore(self.context, self.response, self.asked[scorer])
