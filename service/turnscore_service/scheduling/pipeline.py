"""The pipeline: answers each kind of request with one set of models."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
import turnscore_wire as wire
from numpy.typing import NDArray
from turnscore_core.dialogues import DialogueTally, check_text
from turnscore_core.errors import ScoringError
from turnscore_core.model_set import ModelSet, read_score_choice
from turnscore_core.scorers.history import History
from turnscore_core.scorers.scorer import TurnToScore
from turnscore_core.scoring import Deadline, Item, Outcome, dialogue_reply, error_details, score_reply, timing_of
from turnscore_wire.messages import count_skipped
from turnscore_wire.requests import ScorerChoice

from turnscore_service.scheduling.executor import OpenWork
from turnscore_service.scheduling.fairness import LARGE_TURNS, CooperativeScheduler, TimeSlice
from turnscore_service.scheduling.request_checks import (
    check_context,
    check_dialogue_request,
    check_item_count,
    check_rank_request,
    check_similarity_request,
)
from turnscore_service.scheduling.scheduler import Scheduler, ScorerRuntime
from turnscore_service.scheduling.score_metrics import ScoreMetrics
from turnscore_service.scheduling.shadow import Shadows
from turnscore_service.scheduling.versions import TrafficSplit


def rank_candidates(outcomes: Sequence[Outcome], weights: Mapping[str, float]) -> list[wire.RankedCandidate]:
    """The candidates, best first. Raises the first error of a scorer that counts where none has a combined score."""
    ranked = wire.order_candidates([each.scores for each in outcomes], list(map(error_details, outcomes)), weights)
    if ranked[0].combined is None:
        counting = [name for name, weight in weights.items() if weight > 0]
        raise next(each.errors[name] for each in outcomes for name in counting if name in each.errors)
    return ranked


SIMILARITY = "similarity"  # the call that compares texts
_PLACES = 6  # decimal places of a cosine. Chosen: float32 vectors give seven

_Vectors = NDArray[np.float64]


def compare_texts(name: str, texts: Sequence[Outcome], references: Sequence[Outcome]) -> list[wire.TextSimilarities]:
    """Each text's cosines with the references, or with all texts where there are none; raises the first error.

    `name` is the encoder's. Computed in double precision, so that a cosine does not depend on how many there are.
    """
    own = _stack(name, texts)
    others = _stack(name, references) if references else own
    cosines = np.clip(np.round(own @ others.T, _PLACES), -1.0, 1.0)
    found = []
    for place, (outcome, row) in enumerate(zip(texts, cosines, strict=True)):
        score = outcome.scores[name]
        best = _find_best(row, None if references else place)
        found.append(
            wire.TextSimilarities(similarities=row.tolist(), best=best, tokens=score.tokens, cached=score.cached)
        )
    return found


def _stack(name: str, outcomes: Sequence[Outcome]) -> _Vectors:
    for outcome in outcomes:
        if name in outcome.errors:
            raise outcome.errors[name]
    return np.stack([np.frombuffer(outcome.vectors[name], "<f4") for outcome in outcomes]).astype(np.float64)


def _find_best(row: _Vectors, own_place: int | None) -> int | None:
    if own_place is None:
        return int(row.argmax())
    if len(row) == 1:
        return None
    others = row.copy()
    others[own_place] = -np.inf
    return int(others.argmax())


class ScoringPipeline:
    """Scores turns with one set of models, which never changes. Belongs to one event loop.

    A request finds a pipeline at its start and stays with it, so that one set of models answers all of it.
    """

    def __init__(
        self,
        model_set: ModelSet,
        runtimes: Mapping[str, ScorerRuntime],
        scheduler: Scheduler,
        limits: wire.Limits,
        cooperative: CooperativeScheduler,
        tenants: tuple[str, ...] = (),
        split: TrafficSplit | None = None,
        shadows: Shadows | None = None,
    ) -> None:
        """`tenants`: names of keys that metrics on values tell apart; `split` is of the same model_set."""
        self.model_set = model_set
        self._runtimes = runtimes
        self._scheduler = scheduler
        self.admission = scheduler.admission
        self._limits = limits
        self._cooperative = cooperative
        self.split = split or TrafficSplit(model_set)
        self._score_metrics = ScoreMetrics({name: each.loaded for name, each in runtimes.items()}, tenants)
        self._shadows = shadows
        self.requests = OpenWork()

    async def score(self, request: wire.ScoreRequest, request_id: str, deadline: Deadline) -> wire.ScoreReply:
        """Scores one turn.

        A scorer that fails while another answers stands in the reply's `errors`; when all fail, the first one's error
        is raised. Raises InvalidRequestError, TooLargeError, OverloadedError, DeadlineExceededError,
        FailedScoringError.
        """
        with self.requests:
            started_at = time.monotonic()
            item = self._check(request, deadline)
            [outcome] = await self._scheduler.answer([item])
            self._observe(item, outcome)
            return score_reply(outcome, request_id, started_at, request)

    async def score_batch(
        self, requests: Sequence[wire.ScoreRequest | ScoringError], request_id: str, deadline: Deadline
    ) -> wire.BatchReply:
        """Scores independent turns; each is answered, or refused, on its own.

        An item that could not be decoded comes as its error and goes out as such. The items are admitted together or
        not at all. Raises TooLargeError for too many items, OverloadedError.
        """
        with self.requests:
            started_at = time.monotonic()
            check_item_count(len(requests), self._limits)
            slices = TimeSlice(self._cooperative, is_large=len(requests) >= LARGE_TURNS)
            prepared: list[Item | ScoringError] = []
            for index, request in enumerate(requests):
                await slices.pause()
                prepared.append(self._prepare(index, request, deadline, started_at))
            items = [each for each in prepared if isinstance(each, Item)]
            outcomes = iter(await self._scheduler.answer(items))
            slices = TimeSlice(self._cooperative, is_large=slices.is_large)
            results: list[wire.ScoreReply | wire.ErrorReply] = []
            for index, (request, each) in enumerate(zip(requests, prepared, strict=True)):
                await slices.pause()
                try:
                    if isinstance(each, ScoringError):
                        raise each
                    assert isinstance(request, wire.ScoreRequest)
                    outcome = next(outcomes)
                    self._observe(each, outcome)
                    results.append(score_reply(outcome, request_id, started_at, request))
                except ScoringError as error:
                    placed = _within_item(error, index) if isinstance(each, Item) else error
                    results.append(wire.ErrorReply(error=placed.detail(), request_id=request_id))
            return wire.BatchReply(request_id=request_id, results=results)

    async def score_dialogue(
        self, request: wire.DialogueRequest, request_id: str, deadline: Deadline
    ) -> wire.DialogueReply:
        """Scores every system turn of a dialogue, the user's for scorers of user turns, and the dialogue.

        The dialogue has each scorer's mean, least and greatest value. Raises as `score` does; a turn that fails stands
        in its own `errors`, and all failing raises the first.
        """
        with self.requests:
            started_at = time.monotonic()
            model_set = self.split.model_set_for(request.conversation, request.turns)
            asked, chosen = check_dialogue_request(request, self._limits, model_set)
            whole = History(request.turns)
            make_item = partial(Item, deadline=deadline, choice=request, versions=model_set.versions)
            items = [
                make_item(turn=TurnToScore(whole.before(place), whole[place].text), asked=own) for place, own in chosen
            ]
            outcomes = await self._scheduler.answer(items)
            tally = DialogueTally(asked)
            for item, outcome in zip(items, outcomes, strict=True):
                tally.add(item, outcome, model_set)
                self._observe(item, outcome)
            places = [place for place, _ in chosen]
            return dialogue_reply(request, request_id, started_at, places, outcomes, tally.aggregates())

    async def rank(self, request: wire.RankRequest, request_id: str, deadline: Deadline) -> wire.RankReply:
        """Puts several responses to one context in order, best first.

        The candidates are admitted together or not at all. Raises as `score` does; a candidate for which a scorer that
        counts fails comes last, and where that leaves none with a combined score, the first such error is raised.
        """
        with self.requests:
            started_at = time.monotonic()
            model_set = self.split.model_set_for(request.conversation, request.context)
            asked, weights = check_rank_request(request, self._limits, model_set)
            context = History(request.context)
            make_item = partial(Item, asked=asked, deadline=deadline, choice=request, versions=model_set.versions)
            outcomes = await self._scheduler.answer(
                [make_item(turn=TurnToScore(context, each)) for each in request.candidates]
            )
            return wire.RankReply(
                request_id=request_id,
                candidates=rank_candidates(outcomes, weights),
                weights=weights,
                timing_ms=timing_of(outcomes, started_at),
                skipped=count_skipped(request.messages),
            )

    async def similarity(
        self, request: wire.SimilarityRequest, request_id: str, deadline: Deadline
    ) -> wire.SimilarityReply:
        """Compares texts with references by the sentence encoder, where one is loaded.

        Without references they are compared with each other. Texts are admitted, computed and paid for as turns are,
        together or not at all. Raises as `score` does, for any text that fails; UnknownPathError where no encoder is
        loaded.
        """
        with self.requests:
            started_at = time.monotonic()
            encoder = check_similarity_request(request, self._limits, self.model_set)
            asked: dict[str, object] = {encoder.name: None}
            every = [*request.texts, *request.references]
            choice = ScorerChoice.model_construct(cache=request.cache, cache_namespace=request.cache_namespace)
            outcomes = await self._scheduler.answer(
                [Item(turn=TurnToScore((), text), asked=asked, deadline=deadline, choice=choice) for text in every]
            )
            texts, references = outcomes[: len(request.texts)], outcomes[len(request.texts) :]
            compared = compare_texts(encoder.name, texts, references)  # raises the error of any
            known = [each.scores[encoder.name] for each in references]
            return wire.SimilarityReply(
                request_id=request_id,
                texts=compared,
                references=[wire.EncodedText(tokens=score.tokens, cached=score.cached) for score in known],
                model=encoder.bundle.manifest.reference,
                digest=encoder.bundle.digest,
                timing_ms=timing_of(outcomes, started_at),
            )

    async def score_turn(self, item: Item) -> Outcome:
        """What the scorers say of one checked turn. Raises OverloadedError, DeadlineExceededError without any work."""
        with self.requests:
            [outcome] = await self._scheduler.answer([item])
            self._observe(item, outcome)
            return outcome

    def read_ahead(self, item: Item) -> None:
        self._scheduler.read_ahead(item)

    async def stop(self) -> None:
        """Returns when everything in flight is answered."""
        if self._shadows is not None:
            await self._shadows.stop()
        await asyncio.gather(*(each.batcher.stop() for each in self._runtimes.values() if each.computes is each))

    @property
    def runtimes(self) -> Mapping[str, ScorerRuntime]:
        """By scorer; another pipeline may have some of them too."""
        return self._runtimes

    def computed_by(self, scorer: str) -> list[str]:
        """The scorers that this one computes for, itself among them."""
        return [name for name, runtime in self._runtimes.items() if runtime.computes.loaded.name == scorer]

    async def retire(self, successor: "ScoringPipeline") -> None:
        """Returns when its requests are answered and the threads that the successor has no use for have been ended."""
        await self.requests.wait_until_none()
        if self._shadows is not None:
            await self._shadows.stop()
        kept = successor.runtimes.values()
        for runtime in self._runtimes.values():
            if runtime not in kept:
                await runtime.retire()

    def close(self) -> None:
        """Ends the threads; waiting work is dropped."""
        for each in self._runtimes.values():
            each.close()

    def _observe(self, item: Item, outcome: Outcome) -> None:
        self._score_metrics.count(item, outcome)
        if self._shadows is not None:
            self._shadows.offer(item, outcome)

    def _check(self, request: wire.ScoreRequest, deadline: Deadline) -> Item:
        """The request's turn for the models that answer the conversation, in which a user's turn may be the first."""
        said = request.context if request.speaker == "system" else request.turns
        model_set = self.split.model_set_for(request.conversation, said)
        check_context(request, self._limits)
        if "response" in request.model_fields_set:
            check_text("response", request.response, self._limits)
        asked = read_score_choice(request, model_set)
        turn = TurnToScore(request.context, request.response)
        return Item(turn=turn, asked=asked, deadline=deadline, choice=request, versions=model_set.versions)

    def _prepare(
        self, index: int, request: wire.ScoreRequest | ScoringError, deadline: Deadline, started_at: float
    ) -> Item | ScoringError:
        """The item, or the error that answers it; fields are named from the whole request's root.

        An item's own deadline counts from the start of the request, and stands instead of the request's.
        """
        if isinstance(request, ScoringError):
            return request
        own = deadline if request.deadline_ms is None else Deadline(started_at + request.deadline_ms / 1000)
        try:
            return self._check(request, own)
        except ScoringError as error:
            return _within_item(error, index)


def _within_item(error: ScoringError, index: int) -> ScoringError:
    """The error with its field, if it has one, named from the batch's root."""
    return error if error.field is None else type(error)(error.message, field=f"items.{index}.{error.field}")
