"""The engine: scores many dialogues in the caller's own process, with the scorers of the service."""

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Any, Protocol, Self

import turnscore_wire as wire
from pydantic import ValidationError
from turnscore_models.bundle import read_manifest, starter_bundles
from turnscore_models.manifest import BundleError
from turnscore_models.store import resolve
from turnscore_wire.requests import ScorerChoice

from turnscore_core import score_entries
from turnscore_core.batches import Answer, TokenLimit
from turnscore_core.dialogues import (
    Dialogue,
    DialogueResult,
    DialogueTally,
    check_system_text,
    check_text,
    check_turns,
    choose_turns,
)
from turnscore_core.errors import FailedScoringError, InvalidRequestError, ScoringError
from turnscore_core.inference.devices import usable_cpus
from turnscore_core.load_settings import KEPT_VECTOR_BYTES, LoadSettings
from turnscore_core.loaded_scorer import LoadedScorer, find_scorer
from turnscore_core.model_loader import load_scorers
from turnscore_core.model_set import (
    ModelSet,
    choose_defaults,
    describe_models,
    read_choice,
    read_options,
    read_score_choice,
)
from turnscore_core.scorers.history import History
from turnscore_core.scorers.scorer import Fields, RawScore, TurnToScore
from turnscore_core.scoring import (
    Deadline,
    Item,
    Outcome,
    dialogue_reply,
    error_details,
    score_groups,
    score_of,
    score_reply,
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
        self._keys = score_entries.KeyMaker(loaded, secret)
        self._model = loaded.model
        self._scorer = loaded.scorer

    def find(self, groups: Sequence[Sequence[TurnToScore]]) -> list[list[RawScore] | None]:
        """The whole scores of each group's turns; None for a group of which any turn is not known whole."""
        [mark] = self._shared.fetch([score_entries.mark_key(self._model)])
        self._keys.take_mark(mark or b"")
        hashes = score_entries.TextHashes()
        keys = [[self._key(turn, hashes) for turn in group] for group in groups]
        entries = iter(self._shared.fetch(list(chain.from_iterable(keys))))
        found = []
        for group, own in zip(groups, keys, strict=True):
            wholes = [self._read(turn, key, next(entries)) for turn, key in zip(group, own, strict=True)]
            known = [each for each in wholes if each is not None]
            found.append(known if len(known) == len(wholes) else None)
        return found

    def keep(self, finished: Sequence[tuple[TurnToScore, RawScore]]) -> None:
        hashes = score_entries.TextHashes()
        entries: dict[str, bytes] = {}
        for turn, whole in finished:
            key = self._key(turn, hashes)
            fragments = dict(zip(self._scorer.fragments_of(turn), self._scorer.split(turn, whole), strict=True))
            if (entry := score_entries.encode_entry(key, fragments, self._secret)) is not None:
                entries[key] = entry
        if entries:
            self._shared.keep(entries)

    def _key(self, turn: TurnToScore, hashes: score_entries.TextHashes) -> str:
        return self._keys.key(self._namespace, self._scorer.inputs_of(turn), hashes)

    def _read(self, turn: TurnToScore, key: str, entry: bytes | None) -> RawScore | None:
        if entry is None:
            return None
        try:
            known = score_entries.decode_entry(key, entry, self._secret)
        except (score_entries.StaleEntryError, score_entries.UnreadableEntryError):
            return None
        wanted = self._scorer.fragments_of(turn)
        return self._scorer.join(turn, [known[each] for each in wanted]) if known.keys() >= set(wanted) else None


@dataclass(slots=True)
class _Group:
    """Turns that are asked together, by what is read of them, and everywhere that the same was said."""

    key: tuple[Fields, ...]
    turns: list[TurnToScore]
    askers: list[list[tuple[Item, Outcome]]] = field(default_factory=list)


class _ScorerRun:
    """One scorer's part of the engine, and what was known of its turns.

    What is asked together is a group: for most scorers one turn; for one that shares passes, all of a dialogue's. Equal
    groups are asked once, and a group is computed whole or known whole: what else is known does not change its numbers.
    """

    def __init__(self, loaded: LoadedScorer, store: ScorerStore | None) -> None:
        self.loaded = loaded
        self._store = store
        self._finished: list[tuple[TurnToScore, RawScore]] = []
        self.turns_computed = 0

    def prepare(self, dialogue: Sequence[tuple[Item, Outcome]]) -> Sequence[Fields]:
        """What the scorer reads of each turn of the dialogue. Raises what its texts make the scorer raise."""
        return [self.loaded.scorer.inputs_of(item.turn_for(self.loaded)) for item, _ in dialogue]

    def answer_known(
        self, dialogues: Sequence[tuple[Sequence[tuple[Item, Outcome]], Sequence[Fields]]]
    ) -> Sequence[_Group]:
        """Puts the scores that are known into the turns' outcomes; the groups that are not."""
        groups = self._group(dialogues)
        if self._store is None:
            return groups
        unknown = []
        for group, found in zip(groups, self._store.find([each.turns for each in groups]), strict=True):
            if found is None:
                unknown.append(group)
            else:
                self._deliver(group, found, is_cached=True)
        return unknown

    def finish(self, group: _Group, answers: Sequence[Answer]) -> None:
        """Puts the group's scores, or errors, into the turns' outcomes."""
        self.turns_computed += len(answers)
        self._deliver(group, answers)
        if self._store is not None:
            told = zip(group.turns, answers, strict=True)
            self._finished += [(turn, each) for turn, each in told if isinstance(each, RawScore)]

    def keep(self) -> None:
        """Has the finished scores known from here on."""
        if self._store is not None:
            self._store.keep(self._finished)
            self._finished = []

    def _group(self, dialogues: Sequence[tuple[Sequence[tuple[Item, Outcome]], Sequence[Fields]]]) -> list[_Group]:
        groups: dict[tuple[Fields, ...], _Group] = {}
        for said, inputs in dialogues:
            is_whole = self.loaded.scorer.shares_passes
            asked_together = [said] if is_whole else [[each] for each in said]
            keys = [tuple(inputs)] if is_whole else [(each,) for each in inputs]
            for key, together in zip(keys, asked_together, strict=True):
                if (group := groups.get(key)) is None:
                    group = groups[key] = _Group(key, [item.turn_for(self.loaded) for item, _ in together])
                group.askers.append(list(together))
        return list(groups.values())

    def _deliver(self, group: _Group, answers: Sequence[Answer], *, is_cached: bool = False) -> None:
        name = self.loaded.name
        for asker in group.askers:
            for (item, outcome), answer in zip(asker, answers, strict=True):
                if isinstance(answer, ScoringError):
                    outcome.errors[name] = answer
                else:
                    turn = item.turn_for(self.loaded)
                    outcome.scores[name] = score_of(self.loaded, turn, answer, is_cached=is_cached)


class _PassRun:
    """The scorers that one pass of an encoder answers for, most often one, and the threads that compute it."""

    def __init__(self, runs: Sequence[_ScorerRun], max_batch_tokens: int | None) -> None:
        self.runs, self._first = runs, runs[0].loaded
        self._limit = TokenLimit(max_batch_tokens or self._first.budget.most_tokens)
        self._threads = ThreadPoolExecutor(self._first.concurrency.batches, f"turnscore-{self._first.name}")

    def close(self) -> None:
        self._threads.shutdown()

    def answer(self, dialogues: Sequence["ComputedDialogue"]) -> None:
        """Puts each scorer's score, or its error, into each turn's outcome."""
        asked: dict[tuple[Fields, ...], list[tuple[_ScorerRun, _Group]]] = {}
        for run in self.runs:
            name = run.loaded.name
            for group in run.answer_known([each.inputs[name] for each in dialogues if name in each.inputs]):
                asked.setdefault(group.key, []).append((run, group))
        together = list(asked.values())
        scorers = [[run.loaded.scorer for run, _ in each] for each in together] if len(self.runs) > 1 else None
        turns = [each[0][1].turns for each in together]
        answers = score_groups(self._first, turns, self._limit, self._threads.map, scorers)
        for askers, own in zip(together, answers, strict=True):
            for place, (run, group) in enumerate(askers):
                run.finish(group, own if scorers is None else [own[place]])
        for run in self.runs:
            run.keep()


Models = Mapping[str, Path] | Sequence[str | Path]
Loader = Callable[[LoadSettings], Mapping[str, LoadedScorer]]
LineRequest = wire.ScoreRequest | wire.DialogueRequest
LineReply = wire.ScoreReply | wire.DialogueReply | wire.ErrorReply

_NEVER = Deadline(math.inf)
_LOCAL = "local"  # the request id of what no service answered
_LOGGER = logging.getLogger("turnscore.engine")


class OptionsError(ValueError):
    """An option of the engine or of a scorer is wrong; `field` names it."""

    def __init__(self, message: str, field: str) -> None:
        super().__init__(f"{field}: {message}")
        self.message = message
        self.field = field


@dataclass(slots=True, kw_only=True)
class ComputedDialogue:
    """A dialogue on its way through the scorers, and what they said."""

    dialogue: Dialogue
    asked: Mapping[str, object]  # the scorers asked, with their options
    # The place of each turn to score, the turn, and where its scores go.
    said: list[tuple[int, Item, Outcome]] = field(default_factory=list)
    spoken: list[tuple[Item, Outcome]] = field(default_factory=list)  # those with a text
    # Of them those that each scorer is asked of, and what it reads of them.
    inputs: dict[str, tuple[Sequence[tuple[Item, Outcome]], Sequence[Fields]]] = field(default_factory=dict)
    error: wire.ErrorDetail | None = None


class Engine:
    """In-process scoring of many dialogues. One call at a time: others wait for it.

    Takes nothing from the environment's TURNSCORE_ variables, and ends no process.
    """

    def __init__(
        self,
        models: Models,
        *,
        threads: int = 1,
        concurrent_batches: int = 1,
        device: str = "cpu",
        options: Mapping[str, Mapping[str, Any]] | None = None,
        thresholds: Mapping[str, float | None] | None = None,
        max_batch_tokens: int | None = None,
        limits: wire.Limits | None = None,
        shared: SharedScores | None = None,
        namespace: str = "default",
        secret: bytes = b"",
        kept_vector_bytes: int = KEPT_VECTOR_BYTES,
        load: Loader = load_scorers,
    ) -> None:
        """Loads the bundles: folders by scorer, or names and folders as `TURNSCORE_MODELS` takes them.

        `threads` compute one batch, and `concurrent_batches` run at once; `options` are those of a request, by scorer;
        `thresholds` replace the bundles'. With `shared`, scores are asked there first and kept there, under
        `namespace`, as the service's cache does with a `secret`; `kept_vector_bytes` are for what is kept of texts
        that were read; `load` makes the scorers.
        Raises BundleError for a bundle that is refused or scores no turns, DeviceError, and OptionsError, with the
        field, for the rest.
        """
        counts = (threads, concurrent_batches, max_batch_tokens)
        loaded = load(_settings(models, device, thresholds, *counts, kept_vector_bytes))
        _check_names(models, loaded)
        self._model_set = choose_defaults(loaded)
        if self._model_set.encoder is not None:
            raise BundleError(f"{self._model_set.encoder.model} compares texts and scores no turns")
        own = {name: dict(each) for name, each in (options or {}).items()}
        self._asked, self._choice = _read_all_options(self._model_set, own), ScorerChoice.model_construct(options=own)
        self._limits = limits or wire.Limits()
        self._runs = [
            _ScorerRun(each, None if shared is None else ScorerStore(each, shared, namespace=namespace, secret=secret))
            for each in self._model_set.scorers.values()
        ]
        passes: dict[str, list[_ScorerRun]] = {}
        for run in self._runs:
            passes.setdefault(run.loaded.pass_key, []).append(run)
        self._passes = [_PassRun(each, max_batch_tokens) for each in passes.values()]
        self._models = describe_models(self._model_set)
        self._lock = Lock()
        self._is_closed = False

    @property
    def models(self) -> Sequence[wire.ModelDescription]:
        """What is loaded, in the order in which scores come, as a service describes it."""
        return self._models

    @property
    def code_versions(self) -> Mapping[str, str]:
        """By scorer distribution and version of the code that scores, and of its runtime."""
        return {name: each.code_version for name, each in self._model_set.loaded.items()}

    @property
    def limits(self) -> wire.Limits:
        return self._limits

    @property
    def turns_computed(self) -> int:
        """Turns computed since the start, once for each scorer; those that were equal to others or known are not."""
        return sum(each.turns_computed for each in self._runs)

    def score(self, dialogues: Sequence[Dialogue]) -> list[DialogueResult]:
        """The results in the order of the dialogues; what is wrong with one is an error of its own, never of the call.

        Batches are made of turns of like width across all of them, and equal turns are computed once. Takes memory in
        proportion to the turns of one call. The same call returns the same numbers. Raises RuntimeError once closed.
        """
        return [self._conclude(each) for each in self.compute(dialogues)]

    def answer(self, requests: Sequence[LineRequest]) -> list[LineReply]:
        """A reply for each, in order, as a service would give it: for what asks of files.

        Deadlines and what a request says of the cache have no meaning here.
        """
        started_at = time.monotonic()
        computed = self.compute([_dialogue_of(each) for each in requests])
        return [self._reply(*each, started_at) for each in zip(requests, computed, strict=True)]

    def compute(self, dialogues: Sequence[Dialogue]) -> list[ComputedDialogue]:
        """As `score`, with each turn's outcome."""
        with self._lock:
            if self._is_closed:
                raise RuntimeError("the engine is closed")
            prepared = [self._prepare(each) for each in dialogues]
            whole = [each for each in prepared if each.spoken]
            for each in self._passes:
                each.answer(whole)
            return prepared

    def close(self) -> None:
        """Ends the threads; a call that is under way ends first."""
        with self._lock:
            self._is_closed = True
            for each in self._passes:
                each.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _prepare(self, dialogue: Dialogue) -> ComputedDialogue:
        prepared = ComputedDialogue(dialogue=dialogue, asked=self._asked)
        try:
            if dialogue.is_last_alone:
                check_turns("context", dialogue.turns[:-1], self._limits)
                check_text("response", dialogue.turns[-1].text, self._limits)
            else:
                check_turns("turns", dialogue.turns, self._limits)
            if isinstance(dialogue.choice, wire.ScoreRequest):
                prepared.asked = read_score_choice(dialogue.choice, self._model_set)
            elif dialogue.choice is not None:
                prepared.asked = read_choice(dialogue.choice, self._model_set, self._model_set.defaults)
            self._take_turns(prepared)
        except ScoringError as error:
            prepared.error = error.detail()
        except Exception as error:
            _LOGGER.error("a dialogue could not be read: %s", type(error).__name__, exc_info=error)
            message = f"the dialogue could not be read ({type(error).__name__})"
            prepared.error = FailedScoringError(message, field="turns").detail()
        if prepared.error is not None:
            prepared.spoken = []
        return prepared

    def _take_turns(self, prepared: ComputedDialogue) -> None:
        dialogue, asked = prepared.dialogue, prepared.asked
        history, choice = History(dialogue.turns), dialogue.choice or self._choice
        turns, model_set = dialogue.turns, self._model_set
        chosen = choose_turns(turns, asked, model_set, "turns") if not dialogue.is_last_alone else []
        if dialogue.is_last_alone:
            chosen = [(len(turns) - 1, model_set.asked_of(turns[-1].speaker, asked))]
        for place, own in chosen:
            turn = turns[place]
            whole = TurnToScore(history.before(place), turn.text)
            item = Item(turn=whole, asked=own, deadline=_NEVER, choice=choice)
            outcome = Outcome()
            prepared.said.append((place, item, outcome))
            try:
                check_system_text(turn, f"turns.{place}.text")
                prepared.spoken.append((item, outcome))
            except InvalidRequestError as error:
                outcome.errors = dict.fromkeys(own, error)
        for run in self._runs:
            if run.loaded.name in asked:
                said = [each for each in prepared.spoken if run.loaded.name in each[0].asked]
                prepared.inputs[run.loaded.name] = said, run.prepare(said)

    def _conclude(self, prepared: ComputedDialogue) -> DialogueResult:
        if prepared.error is not None:
            return DialogueResult(id=prepared.dialogue.id, error=prepared.error)
        return DialogueResult(
            id=prepared.dialogue.id,
            turns=[
                wire.DialogueTurnScores(index=place, scores=outcome.scores, errors=error_details(outcome))
                for place, _, outcome in prepared.said
            ],
            aggregates=self.aggregates(prepared),
        )

    def _reply(self, request: LineRequest, computed: ComputedDialogue, started_at: float) -> LineReply:
        outcomes = [outcome for _, _, outcome in computed.said]
        if computed.error is not None:
            return wire.ErrorReply(error=computed.error, request_id=_LOCAL)
        try:
            if isinstance(request, wire.ScoreRequest):
                return score_reply(outcomes[0], _LOCAL, started_at, request)
            places = [place for place, _, _ in computed.said]
            return dialogue_reply(request, _LOCAL, started_at, places, outcomes, self.aggregates(computed))
        except ScoringError as error:
            return wire.ErrorReply(error=error.detail(), request_id=_LOCAL)

    def aggregates(self, computed: ComputedDialogue) -> dict[str, wire.DialogueAggregate]:
        """Each scorer's view of the dialogue."""
        tally = DialogueTally(computed.asked)
        for item, outcome in computed.spoken:
            tally.add(item, outcome, self._model_set)
        return tally.aggregates()


def open_file_engine(models: Sequence[str] | None, scorers: Sequence[str] | None) -> Engine:
    """An engine on all CPUs of this machine; see `choose_bundles`. Raises BundleError."""
    return Engine(choose_bundles(models, scorers), threads=usable_cpus())


def choose_bundles(models: Sequence[str] | None, scorers: Sequence[str] | None) -> tuple[Path, ...]:
    """The bundles of the scorers asked for: those in `scorers`, in that order, else as a service's default scorers.

    `models` are as TURNSCORE_MODELS takes them; None means the starter bundles. Raises BundleError for a scorer without
    a bundle.
    """
    folders = starter_bundles() if models is None else [resolve(each).folder for each in models]
    references = {
        manifest.scorer: (folder, manifest.kind, manifest.stand_in)
        for folder, manifest in ((each, read_manifest(each)) for each in folders)
        if manifest.kind != "encoder" or models is not None  # which scores no turn
    }
    if not scorers:
        of_system = [name for name, (_, kind, _) in references.items() if find_scorer(kind)[0].speaker == "system"]
        of_system = of_system or list(references)
        scorers = [name for name in of_system if not references[name][2]] or of_system
    for name in scorers:
        if name not in references:
            raise BundleError(
                f"--scorers names {name}, for which there is no bundle; there are: {', '.join(references)}"
            )
    return tuple(references[name][0] for name in dict.fromkeys(scorers))


def _dialogue_of(request: LineRequest) -> Dialogue:
    return Dialogue("", request.turns, request, is_last_alone=isinstance(request, wire.ScoreRequest))


def _settings(
    models: Models,
    device: str,
    thresholds: Mapping[str, float | None] | None,
    threads: int,
    concurrent_batches: int,
    max_batch_tokens: int | None,
    kept_vector_bytes: int,
) -> LoadSettings:
    """Raises OptionsError."""
    for name, count in (
        ("threads", threads),
        ("concurrent_batches", concurrent_batches),
        ("max_batch_tokens", max_batch_tokens),
    ):
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
            concurrent_batches=concurrent_batches,
            device=device,
            max_batch_tokens=max_batch_tokens or 0,
            kept_vector_bytes=kept_vector_bytes,
        )
    except ValidationError as error:
        named_field, message = wire.describe_refusal(error)
        raise OptionsError(message, named_field) from None


def _check_names(models: Models, loaded: Mapping[str, LoadedScorer]) -> None:
    """Raises BundleError where a folder was given under another name than its scorer's."""
    if isinstance(models, Mapping):
        for name, folder in models.items():
            if name not in loaded:
                raise BundleError(f"the bundle in {folder} has no scorer {name}; loaded: {', '.join(loaded)}")


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
