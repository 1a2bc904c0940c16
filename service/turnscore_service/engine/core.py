"""The engine itself: many dialogues in, their scores out, computed in this process by the scorers of the service."""

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Any, Self

from pydantic import ValidationError
from turnscore_core.deadline import Deadline
from turnscore_core.errors import InvalidRequestError, ScoringError
from turnscore_core.scorers.fields import Fields
from turnscore_core.scorers.history import History
from turnscore_core.scorers.loaded_scorer import LoadedScorer
from turnscore_models import BundleError
from turnscore_wire import Limits, Turn, describe_refusal

from turnscore_service.engine.dialogues import Dialogue, DialogueResult, ModelIdentity, TurnResult, identify
from turnscore_service.engine.lanes import Lanes
from turnscore_service.engine.questions import Said, ScorerQuestions
from turnscore_service.engine.shared_scores import ScorerStore, SharedScores
from turnscore_service.lifecycle.loading.model_loader import load_scorers
from turnscore_service.scheduling.dialogue_tally import DialogueTally
from turnscore_service.scheduling.items import Item
from turnscore_service.scheduling.outcomes import Outcome, error_details
from turnscore_service.scheduling.request_checks import (
    Roster,
    check_spoken,
    check_system_turn_is_there,
    check_turns,
    choose_defaults,
    read_options,
)
from turnscore_service.settings.service import GivenSettings, Settings

Models = Mapping[str, Path] | Sequence[str | Path]
Loader = Callable[[Settings], Mapping[str, LoadedScorer]]

_NEVER = Deadline(math.inf)
_LOGGER = logging.getLogger("turnscore.engine")


class OptionsError(ValueError):
    """An option of the engine or of a scorer is wrong; `field` names it."""

    def __init__(self, message: str, field: str) -> None:
        super().__init__(f"{field}: {message}")
        self.message = message
        self.field = field


@dataclass(slots=True, kw_only=True)
class _Prepared:
    """A dialogue on its way through the scorers."""

    dialogue: Dialogue
    said: list[tuple[int, Item, Outcome]] = field(default_factory=list)
    """Each system turn's place, the turn, and where its scores go."""
    spoken: list[Said] = field(default_factory=list)
    """Those with a text."""
    inputs: dict[str, Sequence[Fields]] = field(default_factory=dict)
    """What each scorer reads of them."""
    error: str | None = None


class Engine:
    """In-process scoring of many dialogues. One call at a time: others wait for it.

    Takes nothing from the environment's TURNSCORE_ variables, and ends no process.
    """

    def __init__(
        self,
        models: Models,
        *,
        threads: int = 1,
        lanes: int = 1,
        device: str = "cpu",
        options: Mapping[str, Mapping[str, Any]] | None = None,
        thresholds: Mapping[str, float | None] | None = None,
        max_batch_tokens: int | None = None,
        limits: Limits | None = None,
        shared: SharedScores | None = None,
        namespace: str = "default",
        secret: bytes = b"",
        load: Loader = load_scorers,
    ) -> None:
        """Loads the bundles: folders by scorer, or names and folders as `TURNSCORE_MODELS` takes them.

        `threads` compute one batch and `lanes` batches at once; `options` are those of a request, by scorer;
        `thresholds` replace the bundles'. With `shared`, scores are asked there first and kept there, under
        `namespace`, as the service's cache does with a `secret`; `load` makes the scorers.
        Raises BundleError for a bundle that is refused or scores no turns, DeviceError, and OptionsError, with the
        field, for the rest.
        """
        settings = _settings(models, threads, lanes, device, thresholds, max_batch_tokens)
        loaded = load(settings)
        _check_names(models, loaded)
        self._roster = choose_defaults(loaded)
        if self._roster.encoder is not None:
            raise BundleError(f"{self._roster.encoder.bundle.manifest.reference} compares texts and scores no turns")
        self._options = {name: dict(each) for name, each in (options or {}).items()}
        self._asked = _read_all_options(self._roster, self._options)
        self._limits = limits or Limits()
        self._lanes = {name: Lanes(each, max_batch_tokens) for name, each in self._roster.scorers.items()}
        self._questions = [
            ScorerQuestions(
                each,
                self._lanes[name],
                None if shared is None else ScorerStore(each, shared, namespace=namespace, secret=secret),
            )
            for name, each in self._roster.scorers.items()
        ]
        self._models = {name: identify(each) for name, each in self._roster.scorers.items()}
        self._lock = Lock()
        self._is_closed = False

    @property
    def models(self) -> Mapping[str, ModelIdentity]:
        """What is loaded, by scorer, in the order in which scores come."""
        return self._models

    @property
    def limits(self) -> Limits:
        """How long a dialogue and its turns may be."""
        return self._limits

    @property
    def turns_computed(self) -> int:
        """Turns computed since the start, once for each scorer; those that were equal to others or known are not."""
        return sum(each.turns_computed for each in self._questions)

    def score(self, dialogues: Sequence[Dialogue]) -> list[DialogueResult]:
        """The results in the order of the dialogues; what is wrong with one is an error of its own, never of the call.

        Batches are made of turns of like width across all of them, and equal turns are computed once. Takes memory in
        proportion to the turns of one call. The same call returns the same numbers. Raises RuntimeError once closed.
        """
        with self._lock:
            if self._is_closed:
                raise RuntimeError("the engine is closed")
            prepared = [self._prepare(each) for each in dialogues]
            whole = [each for each in prepared if each.spoken]
            for questions in self._questions:
                questions.answer([(each.spoken, each.inputs[questions.loaded.name]) for each in whole])
            return [self._conclude(each) for each in prepared]

    def close(self) -> None:
        """Ends the threads; a call that is under way ends first."""
        with self._lock:
            self._is_closed = True
            for each in self._lanes.values():
                each.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _prepare(self, dialogue: Dialogue) -> _Prepared:
        prepared = _Prepared(dialogue=dialogue)
        try:
            _check(dialogue.turns, self._limits)
            self._take_turns(prepared)
        except ScoringError as error:
            prepared.error = f"{error.field}: {error.message}" if error.field else error.message
        except Exception as error:
            _LOGGER.error("a dialogue could not be read: %s", type(error).__name__, exc_info=error)
            prepared.error = f"turns: the dialogue could not be read ({type(error).__name__})"
        if prepared.error is not None:
            prepared.spoken = []
        return prepared

    def _take_turns(self, prepared: _Prepared) -> None:
        whole = History(prepared.dialogue.turns)
        for place, turn in enumerate(prepared.dialogue.turns):
            if turn.speaker != "system":
                continue
            item = Item(
                context=whole.before(place),
                response=turn.text,
                asked=self._asked,
                options=self._options,
                deadline=_NEVER,
            )
            outcome = Outcome()
            prepared.said.append((place, item, outcome))
            try:
                check_spoken(turn, f"turns.{place}.text")
                prepared.spoken.append((item, outcome))
            except InvalidRequestError as error:
                outcome.errors = dict.fromkeys(self._asked, error)
        for questions in self._questions:
            prepared.inputs[questions.loaded.name] = questions.prepare(prepared.spoken)

    def _conclude(self, prepared: _Prepared) -> DialogueResult:
        if prepared.error is not None:
            return DialogueResult(id=prepared.dialogue.id, error=prepared.error)
        tally = DialogueTally(self._asked)
        for item, outcome in prepared.spoken:
            tally.add(item, outcome, self._roster)
        return DialogueResult(
            id=prepared.dialogue.id,
            turns=[
                TurnResult(index=place, scores=outcome.scores, errors=error_details(outcome))
                for place, _, outcome in prepared.said
            ],
            aggregates=tally.aggregates(),
        )


def _check(turns: Sequence[Turn], limits: Limits) -> None:
    check_turns("turns", turns, limits)
    check_system_turn_is_there(turns, "turns")


def _settings(
    models: Models,
    threads: int,
    lanes: int,
    device: str,
    thresholds: Mapping[str, float | None] | None,
    max_batch_tokens: int | None,
) -> Settings:
    """Those of a service of this engine's models alone. Raises OptionsError."""
    for name, count in (("threads", threads), ("lanes", lanes), ("max_batch_tokens", max_batch_tokens)):
        if count is not None and (not isinstance(count, int) or count < 1):
            raise OptionsError("must be a whole number, 1 or more", name)
    if isinstance(models, str):
        raise OptionsError("must be a list of bundles, or bundles by scorer", "models")
    named = models.values() if isinstance(models, Mapping) else models
    try:
        return GivenSettings(
            models=tuple(str(each.absolute()) if isinstance(each, Path) else each for each in named),
            thresholds=dict(thresholds or {}),
            runtime={"threads": threads, "lanes": lanes, "device": device},
            batching={"max_batch_tokens": max_batch_tokens or 0},
        )
    except ValidationError as error:
        named_field, message = describe_refusal(error)
        raise OptionsError(message, named_field.removeprefix("runtime.")) from None


def _check_names(models: Models, loaded: Mapping[str, LoadedScorer]) -> None:
    """Raises BundleError where a folder was given under another name than its scorer's."""
    if isinstance(models, Mapping):
        for name, folder in models.items():
            if name not in loaded:
                raise BundleError(f"the bundle in {folder} is no {name}; loaded: {', '.join(loaded)}")


def _read_all_options(roster: Roster, options: Mapping[str, Mapping[str, Any]]) -> dict[str, object]:
    """Each scorer's options, as a request's would be read. Raises OptionsError."""
    for name in options:
        if name not in roster.scorers:
            raise OptionsError(f"no such scorer is loaded; loaded: {', '.join(roster.scorers)}", f"options.{name}")
    asked: dict[str, object] = {}
    for name, loaded in roster.scorers.items():
        try:
            asked[name] = read_options(loaded, options.get(name, {}))
        except ScoringError as error:
            raise OptionsError(error.message, error.field or f"options.{name}") from None
    return asked
