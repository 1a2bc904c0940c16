"""Dialogues as the engine takes them, and what it returns for each: no text is in a result."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from turnscore_wire import DialogueAggregate, DialogueTurnScores, ErrorDetail, Limits, Score, Speaker, Turn
from turnscore_wire.messages import is_blank
from turnscore_wire.requests import ScorerChoice

from turnscore_core.errors import InvalidRequestError, TooLargeError
from turnscore_core.model_set import ModelSet
from turnscore_core.scoring import Item, Outcome


@dataclass(frozen=True, slots=True)
class Dialogue:
    """The turns that were said, oldest first; `id` is the caller's, and comes back with the result."""

    id: str
    turns: Sequence[Turn]
    # The scorers and options of this dialogue; None for the engine's own.
    choice: ScorerChoice | None = None
    # Whether only the last turn is scored, and the others are its context.
    is_last_alone: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DialogueResult:
    """Every turn's scores, and each scorer's view of the whole dialogue."""

    id: str
    # Of a system turn without a text every scorer has an error.
    turns: list[DialogueTurnScores] = field(default_factory=list)
    aggregates: Mapping[str, DialogueAggregate] = field(default_factory=dict)
    # Why nothing of the dialogue was scored; None otherwise.
    error: ErrorDetail | None = None


def choose_turns(
    turns: Sequence[Turn], asked: Mapping[str, object], model_set: ModelSet, field: str
) -> list[tuple[int, dict[str, object]]]:
    """The places of the turns to score, each with the scorers asked of its speaker's turns.

    A user's turn without a text is left out. Raises InvalidRequestError for a scorer without any turn.
    """
    own: dict[Speaker, dict[str, object]] = {
        "system": model_set.asked_of("system", asked),
        "user": model_set.asked_of("user", asked),
    }
    chosen = [
        (place, own[turn.speaker])
        for place, turn in enumerate(turns)
        if own[turn.speaker] and (turn.speaker == "system" or not is_blank(turn.text))
    ]
    for speaker, of_speaker in own.items():
        if of_speaker and all(turns[place].speaker != speaker for place, _ in chosen):
            raise InvalidRequestError(f"there is no {speaker} turn to score", field=field)
    return chosen


def check_system_text(turn: Turn, field: str) -> None:
    """Raises InvalidRequestError for a system turn without a text."""
    if turn.speaker == "system" and is_blank(turn.text):
        raise InvalidRequestError("a system turn must not be empty", field=field)


def too_many(field: str, turns: Sequence[object], limits: Limits) -> TooLargeError:
    return TooLargeError(f"{len(turns)} turns; at most {limits.max_turns} are allowed at once", field=field)


def check_turns(field: str, turns: Sequence[Turn], limits: Limits) -> None:
    """Raises TooLargeError for more turns, or a longer one, than the limits allow."""
    if len(turns) > limits.max_turns:
        raise too_many(field, turns, limits)
    most = limits.max_text_chars
    for index, turn in enumerate(turns):
        if len(turn.text) > most:
            check_text(f"{field}.{index}.text", turn.text, limits)


def check_text(field: str, text: str, limits: Limits) -> None:
    if len(text) > limits.max_text_chars:
        raise TooLargeError(f"{len(text)} characters; at most {limits.max_text_chars} are allowed", field=field)


class DialogueTally:
    """Collects the scores of a dialogue's turns, to be added in the order in which they were said."""

    def __init__(self, asked: Iterable[str]) -> None:
        self._scores: dict[str, list[Score]] = {name: [] for name in asked}

    def add(self, item: Item, outcome: Outcome, model_set: ModelSet) -> None:
        """Takes in the turn's scores of those scorers that answered and for whose paper the turn counts.

        `model_set` is of the models that answered it: those of the next turn may be others.
        """
        for name, scores in self._scores.items():
            if name in outcome.scores and all(
                loaded.scorer.counts_in_dialogue(item.turn_for(loaded)) for loaded in model_set.behind(name)
            ):
                scores.append(outcome.scores[name])

    def aggregates(self) -> dict[str, DialogueAggregate]:
        """Mean, least and greatest value and percentile of each scorer that has one."""
        return {name: DialogueAggregate.of(scores) for name, scores in self._scores.items() if scores}
