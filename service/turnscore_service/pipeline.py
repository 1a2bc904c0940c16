"""The path of a request: admission, tokenising, batching, scores. The same for every door; knows none of them.

docs/architecture.md draws it.
"""

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass

from turnscore_wire import (
    BatchReply,
    DialogueAggregate,
    DialogueReply,
    DialogueRequest,
    DialogueTurnScores,
    ErrorDetail,
    ErrorReply,
    Limits,
    ModelDescription,
    Score,
    ScoreReply,
    ScoreRequest,
    Timing,
)

from turnscore_service import metrics
from turnscore_service.admission import Admission
from turnscore_service.batching import BatchedScore, Batcher
from turnscore_service.deadline import Deadline
from turnscore_service.errors import FailedScoringError, ScoringError
from turnscore_service.request_checks import check_dialogue_request, check_item_count, check_score_request
from turnscore_service.scorers.loading import LoadedScorer
from turnscore_service.scorers.scorer import EncodedTurn, TurnToScore

_LOGGER = logging.getLogger("turnscore.pipeline")


@dataclass(frozen=True, slots=True)
class _Item:
    """One turn to score with everything that is asked of it."""

    turn: TurnToScore
    scorers: tuple[str, ...]
    deadline: Deadline


@dataclass(slots=True)
class _Outcome:
    """What the scorers said of one item, and the slowest one's times in seconds."""

    scores: dict[str, Score]
    errors: dict[str, ScoringError]
    tokenize: float = 0.0
    queue: float = 0.0
    inference: float = 0.0


class ScoringPipeline:
    """Scores turns with the loaded scorers. Belongs to one event loop."""

    def __init__(
        self,
        scorers: Mapping[str, LoadedScorer],
        batchers: Mapping[str, Batcher],
        admission: Admission,
        limits: Limits,
        tokenizing: Executor,
    ) -> None:
        self._scorers = scorers
        self._batchers = batchers
        self._admission = admission
        self._limits = limits
        self._tokenizing = tokenizing

    async def score(self, request: ScoreRequest, request_id: str, deadline: Deadline) -> ScoreReply:
        """Scores one turn.

        A scorer that fails while another answers stands in the reply's `errors`; when all fail, the first one's error
        is raised. Raises InvalidRequestError, TooLargeError, OverloadedError, DeadlineExceededError,
        FailedScoringError.
        """
        started_at = time.monotonic()
        check_score_request(request, self._limits, self._scorers)
        [outcome] = await self._score_items([self._item(request, deadline)])
        return _score_reply(outcome, request_id, started_at)

    async def score_batch(
        self, requests: Sequence[ScoreRequest | ScoringError], request_id: str, deadline: Deadline
    ) -> BatchReply:
        """Scores independent turns, in order. An item that is wrong or fails is answered with its own error.

        An item that could not be decoded comes as its error and goes out as such. The items are admitted together or
        not at all. Raises TooLargeError for too many items, OverloadedError.
        """
        started_at = time.monotonic()
        check_item_count(len(requests), self._limits)
        prepared = [self._prepare(index, request, deadline) for index, request in enumerate(requests)]
        outcomes = iter(await self._score_items([each for each in prepared if isinstance(each, _Item)]))
        results: list[ScoreReply | ErrorReply] = []
        for each in prepared:
            try:
                if isinstance(each, ScoringError):
                    raise each
                results.append(_score_reply(next(outcomes), request_id, started_at))
            except ScoringError as error:
                results.append(ErrorReply(error=error.detail(), request_id=request_id))
        return BatchReply(request_id=request_id, results=results)

    async def score_dialogue(self, request: DialogueRequest, request_id: str, deadline: Deadline) -> DialogueReply:
        """Scores every system turn of a dialogue and takes each scorer's mean, least and greatest value.

        Raises as `score` does; a turn that fails stands in its own `errors`, and all failing raises the first.
        """
        started_at = time.monotonic()
        check_dialogue_request(request, self._limits, self._scorers)
        places = [index for index, turn in enumerate(request.turns) if turn.speaker == "system"]
        names = self._names(request.scorers)
        items = [
            _Item(TurnToScore(request.turns[:index], request.turns[index].text), names, deadline) for index in places
        ]
        outcomes = await self._score_items(items)
        _raise_if_none(outcomes)
        return DialogueReply(
            request_id=request_id,
            turns=[
                DialogueTurnScores(index=index, scores=outcome.scores, errors=_details(outcome))
                for index, outcome in zip(places, outcomes, strict=True)
            ],
            dialogue=self._aggregate(names, items, outcomes),
            timing_ms=_timing(outcomes, started_at),
        )

    def models(self) -> list[ModelDescription]:
        """The loaded bundles."""
        return [
            ModelDescription(
                scorer=name,
                model=loaded.bundle.manifest.reference,
                digest=loaded.bundle.digest,
                graph=loaded.variant,
                token_limit=loaded.bundle.manifest.token_limit,
            )
            for name, loaded in self._scorers.items()
        ]

    async def stop(self) -> None:
        """Returns when everything in flight is answered."""
        await asyncio.gather(*(batcher.stop() for batcher in self._batchers.values()))

    def _names(self, asked: Sequence[str] | None) -> tuple[str, ...]:
        return tuple(self._scorers) if asked is None else tuple(dict.fromkeys(asked))

    def _item(self, request: ScoreRequest, deadline: Deadline) -> _Item:
        return _Item(TurnToScore(request.context, request.response), self._names(request.scorers), deadline)

    def _prepare(self, index: int, request: ScoreRequest | ScoringError, deadline: Deadline) -> _Item | ScoringError:
        """The item, or the error that answers it; fields are named from the whole request's root."""
        if isinstance(request, ScoringError):
            return request
        try:
            check_score_request(request, self._limits, self._scorers)
        except ScoringError as error:
            return type(error)(error.message, field=f"items.{index}.{error.field}")
        own = deadline if request.deadline_ms is None else Deadline.after_ms(request.deadline_ms)
        return self._item(request, min(own, deadline, key=lambda each: each.expires_at))

    async def _score_items(self, items: Sequence[_Item]) -> list[_Outcome]:
        outcomes = [_Outcome({}, {}) for _ in items]
        jobs = [(name, place) for place, item in enumerate(items) for name in item.scorers]
        tokens = sum(self._scorers[name].scorer.estimate_tokens(items[place].turn) for name, place in jobs)
        with self._admission.reserve(len(jobs), tokens):
            by_scorer = {name: [place for asked, place in jobs if asked == name] for name in self._scorers}
            work = [
                self._score_with(name, [items[place] for place in places], [outcomes[place] for place in places])
                for name, places in by_scorer.items()
                if places
            ]
            await asyncio.gather(*work)
        for item, outcome in zip(items, outcomes, strict=True):
            outcome.scores = {name: outcome.scores[name] for name in item.scorers if name in outcome.scores}
        return outcomes

    async def _score_with(self, name: str, items: Sequence[_Item], outcomes: Sequence[_Outcome]) -> None:
        """Fills in one scorer's part of every outcome; a failure is that scorer's alone."""
        loaded = self._scorers[name]
        started_at = time.monotonic()
        try:
            encoded = await self._encode(loaded, [item.turn for item in items])
            futures = [
                self._batchers[name].submit(turn, item.deadline) for turn, item in zip(encoded, items, strict=True)
            ]
        except ScoringError as error:
            for outcome in outcomes:
                outcome.errors[name] = error
            return
        tokenize = time.monotonic() - started_at
        metrics.TOKENIZE_SECONDS.labels(name).observe(tokenize)
        try:
            found = await asyncio.gather(*futures, return_exceptions=True)
        finally:
            for future in futures:
                future.cancel()
        for turn, result, outcome in zip(encoded, found, outcomes, strict=True):
            outcome.tokenize = max(outcome.tokenize, tokenize)
            _record(loaded, turn, result, outcome)

    async def _encode(self, loaded: LoadedScorer, turns: Sequence[TurnToScore]) -> list[EncodedTurn]:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._tokenizing, loaded.scorer.encode, turns)
        except Exception as error:
            _LOGGER.exception("tokenizing failed")
            raise FailedScoringError(f"{loaded.name} could not tokenize the text") from error

    def _aggregate(
        self, names: Sequence[str], items: Sequence[_Item], outcomes: Sequence[_Outcome]
    ) -> dict[str, DialogueAggregate]:
        aggregates = {}
        for name in names:
            counts = self._scorers[name].scorer.counts_in_dialogue
            values = [
                outcome.scores[name].value
                for item, outcome in zip(items, outcomes, strict=True)
                if name in outcome.scores and counts(item.turn)
            ]
            if values:
                aggregates[name] = DialogueAggregate(
                    mean=sum(values) / len(values), min=min(values), max=max(values), turns=len(values)
                )
        return aggregates


def _record(loaded: LoadedScorer, turn: EncodedTurn, result: BatchedScore | BaseException, outcome: _Outcome) -> None:
    if isinstance(result, ScoringError):
        outcome.errors[loaded.name] = result
        return
    if isinstance(result, BaseException):
        raise result
    outcome.queue = max(outcome.queue, result.queue_seconds)
    outcome.inference = max(outcome.inference, result.inference_seconds)
    outcome.scores[loaded.name] = Score(
        value=result.raw.value,
        percentile=loaded.percentile(result.raw.value),
        details=result.raw.details,
        model=loaded.bundle.manifest.reference,
        tokens=turn.tokens,
        cached=False,
    )


def _score_reply(outcome: _Outcome, request_id: str, started_at: float) -> ScoreReply:
    _raise_if_none([outcome])
    return ScoreReply(
        request_id=request_id,
        scores=outcome.scores,
        errors=_details(outcome),
        timing_ms=_timing([outcome], started_at),
    )


def _raise_if_none(outcomes: Sequence[_Outcome]) -> None:
    """Raises the first error where no scorer answered for any item."""
    if not any(outcome.scores for outcome in outcomes):
        raise next(error for outcome in outcomes for error in outcome.errors.values())


def _details(outcome: _Outcome) -> dict[str, ErrorDetail]:
    return {name: error.detail() for name, error in outcome.errors.items()}


def _timing(outcomes: Sequence[_Outcome], started_at: float) -> Timing:
    return Timing(
        total=1000 * (time.monotonic() - started_at),
        tokenize=1000 * max(outcome.tokenize for outcome in outcomes),
        queue=1000 * max(outcome.queue for outcome in outcomes),
        inference=1000 * max(outcome.inference for outcome in outcomes),
    )
