"""Dialogues for tools that ask for scores: one number and its reason, from messages as the tools have them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from turnscore_wire import Score
from turnscore_wire.messages import is_blank

from turnscore_client import _defaults
from turnscore_client._background import ServiceOptions, open_client, spoken_turns
from turnscore_client._errors import error_from_detail


@dataclass(frozen=True, kw_only=True)
class DialogueVerdict:
    """What a scorer says of a dialogue; `value` is None where the chatbot has no turn."""

    value: float | None = None
    percentile: float | None = None
    reason: str = "the chatbot said nothing"
    # The scores of its turns, by their place among the turns that were spoken.
    turns: Mapping[int, Score] = field(default_factory=dict)

    def as_result(self) -> dict[str, Any]:
        """The numbers as JSON."""
        lowest = min((score.value for score in self.turns.values()), default=None)
        return {"value": self.value, "percentile": self.percentile, "min": lowest, "turns": len(self.turns)}


class DialogueJudge:
    """Asks one scorer for whole dialogues, from any thread. Raises ValueError for options that make no sense."""

    def __init__(self, scorer: str, given: ServiceOptions) -> None:
        self._scorer = scorer
        self._client = open_client(given, timeout_seconds=_defaults.TIMEOUT_SECONDS, max_retries=_defaults.MAX_RETRIES)

    def judge(self, messages: Iterable[Mapping[str, Any]]) -> DialogueVerdict:
        """The dialogue's mean over its system turns. Raises a TurnScoreError."""
        turns = spoken_turns(messages)
        if not any(turn.speaker == "system" and not is_blank(turn.text) for turn in turns):
            return DialogueVerdict()
        reply = self._client.score_dialogue(turns, scorers=[self._scorer])
        whole = reply.dialogue.get(self._scorer)
        scored = {turn.index: turn.scores[self._scorer] for turn in reply.turns if self._scorer in turn.scores}
        if whole is None:
            failed = [turn.errors[self._scorer] for turn in reply.turns if self._scorer in turn.errors]
            if failed:
                raise error_from_detail(failed[0], reply.request_id)
            return DialogueVerdict(reason=f"no turn counts for {self._scorer}")
        reason = f"mean of {whole.turns} turns, the lowest {whole.min:.4g}"
        return DialogueVerdict(value=whole.mean, percentile=whole.percentile_mean, reason=reason, turns=scored)
