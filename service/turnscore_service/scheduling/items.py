"""Items: one turn to score with the request's choices, on its way from the request to the scorers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import JsonValue
from turnscore_core.deadline import Deadline
from turnscore_core.scorers.loaded_scorer import LoadedScorer
from turnscore_core.scorers.scorer import TurnToScore
from turnscore_wire import Turn
from turnscore_wire.requests import ScorerChoice

from turnscore_service.cache.score_cache import UNSAID, CacheChoice


class OptionsBehind(dict[str, object]):
    """The options of the scorers that a combination is made of, by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One turn to score with the request's choices."""

    context: Sequence[Turn]
    response: str
    asked: Mapping[str, object]
    """The scorers asked for, in that order, with their options."""
    deadline: Deadline
    options: Mapping[str, Mapping[str, JsonValue]] = field(default_factory=dict)
    """The options as they were sent, by scorer."""
    cache: CacheChoice = UNSAID
    versions: Mapping[str, str] = field(default_factory=dict)
    """The names under which other versions than the served ones work for it, by kind."""
    _turns: dict[str, TurnToScore] = field(default_factory=dict, init=False, repr=False, compare=False)

    @classmethod
    def of(
        cls,
        choice: ScorerChoice,
        context: Sequence[Turn],
        response: str,
        asked: Mapping[str, object],
        deadline: Deadline,
        versions: Mapping[str, str] | None = None,
    ) -> "Item":
        """A turn of a request, with what the request chose for all of its turns."""
        is_said = choice.cache is not None or choice.cache_namespace is not None
        cache = CacheChoice(choice.cache or "use", choice.cache_namespace) if is_said else UNSAID
        return cls(
            context=context,
            response=response,
            asked=asked,
            deadline=deadline,
            options=choice.options or {},
            cache=cache,
            versions=versions or {},
        )

    def turn_for(self, loaded: LoadedScorer) -> TurnToScore:
        """The turn as that scorer takes it, without what it cannot read; made once."""
        turn = self._turns.get(loaded.name)
        if turn is None:
            options, asked = self._options_of(loaded.kind), self.options.get(loaded.kind, {})
            whole = TurnToScore(self.context, self.response, options=options, asked=asked)
            turn = self._turns[loaded.name] = loaded.trim(whole)
        return turn

    def _options_of(self, name: str) -> object:
        if name in self.asked:
            return self.asked[name]
        behind = (each for each in self.asked.values() if isinstance(each, OptionsBehind) and name in each)
        return next(behind)[name]
