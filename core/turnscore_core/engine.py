"""The engine: scores many dialogues in the caller's own process, with the scorers of the service."""

import logging
import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import chain
from operator import attrgetter
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Any, Protocol, Self

from pydantic import ValidationError
from turnscore_models import BundleError
from turnscore_wire import Limits, Turn, describe_refusal

from turnscore_core.batches import SizedPack, TokenLimit, grow_batch
from turnscore_core.deadline import Deadline
from turnscore_core.dialogues import (
    Dialogue,
    DialogueResult,
    DialogueTally,
    ModelIdentity,
    TurnResult,
    check_spoken,
    check_system_turn_is_there,
    check_turns,
    identify,
)
from turnscore_core.errors import FailedScoringError, InvalidRequestError, ScoringError
from turnscore_core.load_settings import LoadSettings
from turnscore_core.loaded_scorer import LoadedScorer
from turnscore_core.model_loader import load_scorers
from turnscore_core.model_set import ModelSet, choose_defaults, read_options
from turnscore_core.score_entries import (
    KeyMaker,
    StaleEntryError,
    TextHashes,
    UnreadableEntryError,
    decode_entry,
    encode_entry,
    mark_key,
)
from turnscore_core.scorers.history import History
from turnscore_core.scorers.scorer import BuildsPlans, Fields, ScorePart, TokenPack, TurnToScore, parts_reader
from turnscore_core.scoring import (
    Item,
    Outcome,
    PackResult,
    PieceCollector,
    encode_isolating,
    error_details,
    moved,
    score_isolating,
    score_of,
    to_scoring_error,
)


class SharedScores(Protocol):
    """A store of bytes by key, such as the service's Redis. An engine without its answer computes."""

    def fetch(self, keys: Sequence[str]) -> Sequence[bytes | None]:
        """What is kept under each key, in order."""

    def keep(self, entries: Mapping[str, bytes]) -> None:
        """Keeps these, for as long as the store likes."""


class ScorerStore:
    """One scorer's turns in the shared scores."""

    def __init__(self, loaded: LoadedScorer, shared: SharedScores, *, namespace: str, secret: bytes) -> None:
        self._shared = shared
        self._namespace = namespace
        self._secret = secret
        self._keys = KeyMaker(loaded, secret)
        self._model = loaded.bundle.manifest.reference
        self._reader = parts_reader(loaded.scorer)

    def find(self, groups: Sequence[Sequence[TurnToScore]]) -> list[list[ScorePart] | None]:
        """The whole scores of each group's turns; None for a group of which any turn is not known whole."""
        [mark] = self._shared.fetch([mark_key(self._model)])
        self._keys.take_mark(mark or b"")
        hashes = TextHashes()
        keys = [[self._key(turn, hashes) for turn in group] for group in groups]
        entries = iter(self._shared.fetch(list(chain.from_iterable(keys))))
        found = []
        for group, own in zip(groups, keys, strict=True):
            wholes = [self._read(turn, key, next(entries)) for turn, key in zip(group, own, strict=True)]
            known = [each for each in wholes if each is not None]
            found.append(known if len(known) == len(wholes) else None)
        return found

    def keep(self, finished: Sequence[tuple[TurnToScore, ScorePart]]) -> None:
        """Keeps the scores of these turns."""
        hashes = TextHashes()
        entries: dict[str, bytes] = {}
        for turn, whole in finished:
            key = self._key(turn, hashes)
            pieces = dict(zip(self._reader.parts_of(turn), self._reader.split(turn, whole), strict=True))
            if (entry := encode_entry(key, pieces, self._secret)) is not None:
                entries[key] = entry
        if entries:
            self._shared.keep(entries)

    def _key(self, turn: TurnToScore, hashes: TextHashes) -> str:
        return self._keys.key(self._namespace, self._reader.inputs_of(turn), hashes)

    def _read(self, turn: TurnToScore, key: str, entry: bytes | None) -> ScorePart | None:
        """The turn's score, if all of its pieces are there."""
        if entry is None:
            return None
        try:
            known = decode_entry(key, entry, self._secret)
        except (StaleEntryError, UnreadableEntryError):
            return None
        wanted = self._reader.parts_of(turn)
        return self._reader.join(turn, [known[part] for part in wanted]) if known.keys() >= set(wanted) else None


_AHEAD = 2
"""Batches for each lane that are under way: one computes, the next waits for nobody. Chosen."""


class Lanes:
    """The threads of one scorer."""

    def __init__(self, loaded: LoadedScorer, max_batch_tokens: int | None = None) -> None:
        self._loaded = loaded
        self._limit = TokenLimit(max_batch_tokens or loaded.budget.most_tokens)
        self._ahead = _AHEAD * loaded.concurrency.lanes
        self._threads = ThreadPoolExecutor(loaded.concurrency.lanes, f"turnscore-{loaded.name}")

    def compute(self, packs: Sequence[TokenPack]) -> Iterator[tuple[TokenPack, PackResult]]:
        """Each pack with its result, in the order in which the batches were made: the widest first.

        The same packs make the same batches every time, unless memory ends.
        """
        under_way: deque[tuple[list[TokenPack], Future[list[PackResult]]]] = deque()
        for batch in self._batches(packs):
            under_way.append((batch, self._threads.submit(score_isolating, self._loaded, batch, self._limit)))
            if len(under_way) > self._ahead:
                yield from _take(under_way)
        while under_way:
            yield from _take(under_way)

    def close(self) -> None:
        """Ends the threads."""
        self._threads.shutdown()

    def _batches(self, packs: Sequence[TokenPack]) -> Iterator[list[TokenPack]]:
        sized = sorted(map(SizedPack, packs), key=attrgetter("width"))
        while sized:
            low, high = grow_batch(sized, len(sized) - 1, self._limit.tokens, self._loaded.budget.waste)
            batch = [each.pack for each in sized[low:high]]
            del sized[low:high]
            yield batch


def _take(
    under_way: deque[tuple[list[TokenPack], "Future[list[PackResult]]"]],
) -> Iterator[tuple[TokenPack, PackResult]]:
    batch, scoring = under_way.popleft()
    yield from zip(batch, scoring.result(), strict=True)


Said = tuple[Item, Outcome]
"""A system turn, and where its scores go."""
Answer = ScorePart | ScoringError


@dataclass(slots=True)
class _Group:
    """Turns that are asked together, and everywhere that the same was said."""

    turns: list[TurnToScore]
    askers: list[list[Said]] = field(default_factory=list)


class ScorerQuestions:
    """One scorer's part of the engine."""

    def __init__(self, loaded: LoadedScorer, lanes: Lanes, store: ScorerStore | None) -> None:
        self.loaded = loaded
        self._lanes = lanes
        self._store = store
        self._reader = parts_reader(loaded.scorer)
        self._shares_passes = isinstance(loaded.scorer, BuildsPlans)
        self.turns_computed = 0

    def prepare(self, dialogue: Sequence[Said]) -> Sequence[Fields]:
        """What the scorer reads of each turn of the dialogue. Raises what its texts make the scorer raise."""
        return [self._reader.inputs_of(item.turn_for(self.loaded)) for item, _ in dialogue]

    def answer(self, dialogues: Sequence[tuple[Sequence[Said], Sequence[Fields]]]) -> None:
        """Puts the scorer's score, or its error, into each turn's outcome."""
        groups = self._group(dialogues)
        if self._store is not None:
            groups = self._answer_known(self._store, groups)
        turns = [turn for group in groups for turn in group.turns]
        self.turns_computed += len(turns)
        answers = self._compute(groups, turns)
        place = 0
        for group in groups:
            self._deliver(group, answers[place : place + len(group.turns)])
            place += len(group.turns)
        if self._store is not None:
            pairs = zip(turns, answers, strict=True)
            self._store.keep([(turn, each) for turn, each in pairs if isinstance(each, ScorePart)])

    def _group(self, dialogues: Sequence[tuple[Sequence[Said], Sequence[Fields]]]) -> list[_Group]:
        groups: dict[tuple[Fields, ...], _Group] = {}
        for said, inputs in dialogues:
            asked_together = [said] if self._shares_passes else [[each] for each in said]
            keys = [tuple(inputs)] if self._shares_passes else [(each,) for each in inputs]
            for key, together in zip(keys, asked_together, strict=True):
                if (group := groups.get(key)) is None:
                    group = groups[key] = _Group([item.turn_for(self.loaded) for item, _ in together])
                group.askers.append(list(together))
        return list(groups.values())

    def _answer_known(self, store: ScorerStore, groups: Sequence[_Group]) -> list[_Group]:
        """The groups that are not known."""
        unknown = []
        for group, found in zip(groups, store.find([each.turns for each in groups]), strict=True):
            if found is None:
                unknown.append(group)
            else:
                self._deliver(group, found, is_cached=True)
        return unknown

    def _compute(self, groups: Sequence[_Group], turns: Sequence[TurnToScore]) -> list[Answer]:
        answers: list[Answer] = [FailedScoringError(f"{self.loaded.name} gave no score")] * len(turns)
        packs, failed = self._encode(groups, turns)
        for place, error in failed.items():
            answers[place] = error
        collector = PieceCollector(self.loaded.scorer)
        for pack, result in self._lanes.compute(packs):
            for number, place in enumerate(pack.answers):
                answer = _read_answer(collector, pack, number, result)
                if answer is not None and place not in failed:
                    answers[place] = answer
                if isinstance(answer, ScoringError):
                    failed[place] = answer
        return answers

    def _encode(
        self, groups: Sequence[_Group], turns: Sequence[TurnToScore]
    ) -> tuple[list[TokenPack], dict[int, ScoringError]]:
        if not self._shares_passes:
            return encode_isolating(self.loaded, turns)
        packs: list[TokenPack] = []
        all_failed: dict[int, ScoringError] = {}
        start = 0
        for group in groups:
            own, broken = encode_isolating(self.loaded, group.turns)
            packs += [moved(pack, start) for pack in own]
            all_failed.update((start + place, error) for place, error in broken.items())
            start += len(group.turns)
        return packs, all_failed

    def _deliver(self, group: _Group, answers: Sequence[Answer], *, is_cached: bool = False) -> None:
        name = self.loaded.name
        for asker in group.askers:
            for (item, outcome), answer in zip(asker, answers, strict=True):
                if isinstance(answer, ScoringError):
                    outcome.errors[name] = answer
                else:
                    turn = item.turn_for(self.loaded)
                    outcome.scores[name] = score_of(self.loaded, turn, answer, is_cached=is_cached)


def _read_answer(collector: PieceCollector, pack: TokenPack, number: int, result: PackResult) -> Answer | None:
    """The turn's score or error; None while packs of it are still being computed."""
    if isinstance(result, Exception):
        _LOGGER.error("scoring failed: %s", type(result).__name__, exc_info=result)
        return to_scoring_error(result)
    try:
        whole = collector.take(pack, number, result[number])
    except Exception as error:
        return to_scoring_error(error)
    return None if whole is None else ScorePart(whole, pack.tokens[number])


Models = Mapping[str, Path] | Sequence[str | Path]
Loader = Callable[[LoadSettings], Mapping[str, LoadedScorer]]

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
        self._model_set = choose_defaults(loaded)
        if self._model_set.encoder is not None:
            raise BundleError(f"{self._model_set.encoder.bundle.manifest.reference} compares texts and scores no turns")
        self._options = {name: dict(each) for name, each in (options or {}).items()}
        self._asked = _read_all_options(self._model_set, self._options)
        self._limits = limits or Limits()
        self._lanes = {name: Lanes(each, max_batch_tokens) for name, each in self._model_set.scorers.items()}
        self._questions = [
            ScorerQuestions(
                each,
                self._lanes[name],
                None if shared is None else ScorerStore(each, shared, namespace=namespace, secret=secret),
            )
            for name, each in self._model_set.scorers.items()
        ]
        self._models = {name: identify(each) for name, each in self._model_set.scorers.items()}
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
            tally.add(item, outcome, self._model_set)
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
) -> LoadSettings:
    """Raises OptionsError."""
    for name, count in (("threads", threads), ("lanes", lanes), ("max_batch_tokens", max_batch_tokens)):
        if count is not None and (not isinstance(count, int) or count < 1):
            raise OptionsError("must be a whole number, 1 or more", name)
    if isinstance(models, str):
        raise OptionsError("must be a list of bundles, or bundles by scorer", "models")
    named = models.values() if isinstance(models, Mapping) else models
    try:
        return LoadSettings(
            models=tuple(str(each.absolute()) if isinstance(each, Path) else each for each in named),
            thresholds=dict(thresholds or {}),
            threads=threads,
            lanes=lanes,
            device=device,
            max_batch_tokens=max_batch_tokens or 0,
        )
    except ValidationError as error:
        named_field, message = describe_refusal(error)
        raise OptionsError(message, named_field) from None


def _check_names(models: Models, loaded: Mapping[str, LoadedScorer]) -> None:
    """Raises BundleError where a folder was given under another name than its scorer's."""
    if isinstance(models, Mapping):
        for name, folder in models.items():
            if name not in loaded:
                raise BundleError(f"the bundle in {folder} is no {name}; loaded: {', '.join(loaded)}")


def _read_all_options(model_set: ModelSet, options: Mapping[str, Mapping[str, Any]]) -> dict[str, object]:
    """Each scorer's options, as a request's would be read. Raises OptionsError."""
    for name in options:
        if name not in model_set.scorers:
            raise OptionsError(f"no such scorer is loaded; loaded: {', '.join(model_set.scorers)}", f"options.{name}")
    asked: dict[str, object] = {}
    for name, loaded in model_set.scorers.items():
        try:
            asked[name] = read_options(loaded, options.get(name, {}))
        except ScoringError as error:
            raise OptionsError(error.message, error.field or f"options.{name}") from None
    return asked
