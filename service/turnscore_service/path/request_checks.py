"""Request checks: sizes against the service's limits, and names against what is loaded. Names the field at fault."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pydantic import JsonValue
from turnscore_models import BundleError
from turnscore_wire import (
    ConversationOpening,
    DialogueRequest,
    Limits,
    RankRequest,
    ScoreRequest,
    SimilarityRequest,
    Turn,
)
from turnscore_wire.requests import ScorerChoice

from turnscore_service.errors import InvalidRequestError, ScoringError, TooLargeError, UnknownPathError
from turnscore_service.scorers.loaded_scorer import LoadedScorer
from turnscore_service.scorers.scorer import EncodesTexts

QUALITY = "quality"
"""The scorer that answers a ranking's question by itself."""


@dataclass(frozen=True, kw_only=True)
class Roster:
    """The loaded scorers by name, and which of them are asked where a request names none."""

    scorers: Mapping[str, LoadedScorer]
    defaults: Sequence[str]
    ranking: Sequence[str]
    """The scorers that a ranking asks."""
    encoder: LoadedScorer | None = None
    """The encoder that compares texts; it scores no turn."""

    @property
    def loaded(self) -> dict[str, LoadedScorer]:
        """All that is loaded, by name."""
        return {**self.scorers, **({} if self.encoder is None else {self.encoder.name: self.encoder})}


def choose_defaults(scorers: Mapping[str, LoadedScorer], named: Sequence[str] = ()) -> Roster:
    """The scorers in `named`, else all but stand-ins, or all if there are only stand-ins.

    A ranking asks quality alone where it is one of them. Raises BundleError for a name that is not loaded, or is the
    encoder's.
    """
    encoder = next((each for each in scorers.values() if isinstance(each.scorer, EncodesTexts)), None)
    scorers = {name: each for name, each in scorers.items() if not isinstance(each.scorer, EncodesTexts)}
    for name in named:
        if name not in scorers:
            raise BundleError(
                f"TURNSCORE_DEFAULT_SCORERS names {name}, which is not loaded; loaded: {', '.join(scorers)}"
            )
    meant = [name for name, loaded in scorers.items() if not loaded.bundle.manifest.stand_in]
    defaults = tuple(dict.fromkeys(named)) or tuple(meant) or tuple(scorers)
    return Roster(
        scorers=scorers, defaults=defaults, ranking=(QUALITY,) if QUALITY in defaults else defaults, encoder=encoder
    )


def check_score_request(request: ScoreRequest, limits: Limits, roster: Roster) -> dict[str, object]:
    """The scorers asked for, in that order, each with its options as its `read_options` made them.

    Raises TooLargeError or InvalidRequestError for the first field that this service cannot take.
    """
    _check_text("response", request.response, limits)
    _check_turns("context", request.context, limits)
    return _check_choice(request, roster.scorers, roster.defaults)


def check_dialogue_request(request: DialogueRequest, limits: Limits, roster: Roster) -> dict[str, object]:
    """As `check_score_request`; a dialogue also needs a system turn, and every system turn needs a text."""
    _check_turns("turns", request.turns, limits)
    if all(turn.speaker != "system" for turn in request.turns):
        raise InvalidRequestError("there is no system turn to score", field="turns")
    for index, turn in enumerate(request.turns):
        if turn.speaker == "system" and not turn.text.strip():
            raise InvalidRequestError("a system turn must not be empty", field=f"turns.{index}.text")
    return _check_choice(request, roster.scorers, roster.defaults)


def check_rank_request(
    request: RankRequest, limits: Limits, roster: Roster
) -> tuple[dict[str, object], dict[str, float]]:
    """As `check_score_request`, and the weight of every scorer asked; a weight names one of them, and one is not 0.

    Where no scorers are named, those that have a weight are asked.
    """
    if len(request.candidates) > limits.max_candidates:
        raise TooLargeError(
            f"{len(request.candidates)} candidates; at most {limits.max_candidates} are allowed at once",
            field="candidates",
        )
    for index, text in enumerate(request.candidates):
        _check_text(f"candidates.{index}", text, limits)
    _check_turns("context", request.context, limits)
    given = request.weights or {}
    named = [name for name in given if name in roster.scorers]
    asked = _check_choice(request, roster.scorers, named or roster.ranking)
    for name in given:
        if name not in asked:
            raise InvalidRequestError("this scorer is not among those asked", field=f"weights.{name}")
    weights = {name: given.get(name, 1.0) for name in asked}
    if not any(weights.values()):
        raise InvalidRequestError("at least one scorer must weigh more than 0", field="weights")
    return asked, weights


def check_similarity_request(request: SimilarityRequest, limits: Limits, roster: Roster) -> LoadedScorer:
    """The encoder that is to compare. Raises UnknownPathError where there is none, and TooLargeError."""
    if roster.encoder is None:
        raise UnknownPathError("no bundle of kind encoder is loaded, which compares texts; see docs/references.md")
    texts, references = request.texts, request.references
    count = len(texts) + len(references or texts)
    if count > limits.max_items:
        field = "references" if len(texts) < len(references) else "texts"
        message = (
            f"{len(texts)} texts against {len(references or texts)}; together at most {limits.max_items} are allowed"
        )
        raise TooLargeError(message, field=field)
    for field, listed in (("texts", texts), ("references", references)):
        for index, text in enumerate(listed):
            _check_text(f"{field}.{index}", text, limits)
    return roster.encoder


def check_opening(opening: ConversationOpening, limits: Limits, roster: Roster) -> dict[str, object]:
    """As `check_score_request`; the fields are named as those of the message that opens a conversation."""
    try:
        _check_turns("context", opening.context, limits)
        return _check_choice(opening, roster.scorers, roster.defaults)
    except ScoringError as error:
        raise type(error)(error.message, field=f"open.{error.field}") from None


def check_spoken_turn(turn: Turn, index: int, limits: Limits) -> None:
    """Raises TooLargeError or InvalidRequestError where it cannot be a conversation's turn number `index`."""
    if index >= limits.max_turns:
        raise TooLargeError(f"at most {limits.max_turns} turns are allowed in one conversation", field="turn")
    _check_text("turn.text", turn.text, limits)
    if turn.speaker == "system" and not turn.text.strip():
        raise InvalidRequestError("a system turn must not be empty", field="turn.text")


def check_turn_counts(parsed: object, limits: Limits, path: str = "") -> None:
    """Raises TooLargeError where a request that is not checked yet has more turns or texts than one may carry."""
    if isinstance(parsed, dict):
        for field in ("context", "turns"):
            if isinstance(turns := parsed.get(field), list):
                _check_count(f"{path}{field}", turns, limits)
        for field in ("texts", "references"):
            if isinstance(texts := parsed.get(field), list) and len(texts) > limits.max_items:
                raise TooLargeError(f"{len(texts)} texts; at most {limits.max_items} are allowed at once", field=field)
        check_turn_counts(parsed.get("open"), limits, "open.")


def check_item_count(count: int, limits: Limits) -> None:
    """Raises TooLargeError where a batch has more items than one request may carry."""
    if count > limits.max_items:
        raise TooLargeError(f"{count} items; at most {limits.max_items} are allowed at once", field="items")


def _check_count(field: str, turns: Sequence[object], limits: Limits) -> None:
    if len(turns) > limits.max_turns:
        raise TooLargeError(f"{len(turns)} turns; at most {limits.max_turns} are allowed at once", field=field)


def _check_turns(field: str, turns: Sequence[Turn], limits: Limits) -> None:
    _check_count(field, turns, limits)
    for index, turn in enumerate(turns):
        _check_text(f"{field}.{index}.text", turn.text, limits)


def _check_text(field: str, text: str, limits: Limits) -> None:
    if len(text) > limits.max_text_chars:
        raise TooLargeError(f"{len(text)} characters; at most {limits.max_text_chars} are allowed", field=field)


def _check_choice(
    request: ScorerChoice, scorers: Mapping[str, LoadedScorer], defaults: Sequence[str]
) -> dict[str, object]:
    known = ", ".join(scorers)
    for field, names in (("scorers", request.scorers), ("options", request.options)):
        for place, name in enumerate(names or ()):
            if name not in scorers:
                where = place if field == "scorers" else name
                raise InvalidRequestError(f"no such scorer is loaded; loaded: {known}", field=f"{field}.{where}")
    if not scorers:
        raise InvalidRequestError("no scorer of turns is loaded", field="scorers")
    asked = dict.fromkeys((*defaults, *(request.options or ())) if request.scorers is None else request.scorers)
    return {name: _read_options(scorers[name], (request.options or {}).get(name, {})) for name in asked}


def _read_options(loaded: LoadedScorer, options: Mapping[str, JsonValue]) -> object:
    try:
        return loaded.scorer.read_options(options)
    except InvalidRequestError as error:
        raise InvalidRequestError(error.message, field=f"options.{loaded.name}.{error.field}") from None
