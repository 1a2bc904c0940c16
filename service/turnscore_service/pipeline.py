"""The path of a request: admission, tokenising, batching, scores. The same for every door; knows none of them.

docs/architecture.md draws it.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence

from turnscore_wire import (
    BatchReply,
    DialogueReply,
    DialogueRequest,
    DialogueTurnScores,
    ErrorReply,
    Limits,
    ModelDescription,
    RankReply,
    RankRequest,
    Score,
    ScoreReply,
    ScoreRequest,
    TokenCount,
)

from turnscore_service import metrics
from turnscore_service.admission import Admission, Demand
from turnscore_service.batching import Batcher, PackScores
from turnscore_service.deadline import Deadline
from turnscore_service.dialogue_tally import DialogueTally
from turnscore_service.errors import DeadlineExceededError, ScoringError
from turnscore_service.items import Item
from turnscore_service.outcomes import Outcome, error_details, raise_if_none, score_reply, timing_of
from turnscore_service.ranking import rank_candidates
from turnscore_service.request_checks import (
    check_dialogue_request,
    check_item_count,
    check_rank_request,
    check_score_request,
)
from turnscore_service.scorers.isolation import encode_isolating
from turnscore_service.scorers.loading import LoadedScorer
from turnscore_service.scorers.scorer import RawScore, TokenPack
from turnscore_service.stages import Stage


class ScoringPipeline:
    """Scores turns with the loaded scorers. Belongs to one event loop."""

    def __init__(
        self,
        scorers: Mapping[str, LoadedScorer],
        batchers: Mapping[str, Batcher],
        admission: Admission,
        limits: Limits,
        tokenizing: Mapping[str, Stage],
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
        asked = check_score_request(request, self._limits, self._scorers)
        [outcome] = await self._score_items([Item(request.context, request.response, asked, deadline)])
        return score_reply(outcome, request_id, started_at)

    async def score_batch(
        self, requests: Sequence[ScoreRequest | ScoringError], request_id: str, deadline: Deadline
    ) -> BatchReply:
        """Scores independent turns, in order. An item that is wrong or fails is answered with its own error.

        An item that could not be decoded comes as its error and goes out as such. The items are admitted together or
        not at all. Raises TooLargeError for too many items, OverloadedError.
        """
        started_at = time.monotonic()
        check_item_count(len(requests), self._limits)
        prepared = [self._prepare(index, each, deadline, started_at) for index, each in enumerate(requests)]
        outcomes = iter(await self._score_items([each for each in prepared if isinstance(each, Item)]))
        results: list[ScoreReply | ErrorReply] = []
        for each in prepared:
            try:
                if isinstance(each, ScoringError):
                    raise each
                results.append(score_reply(next(outcomes), request_id, started_at))
            except ScoringError as error:
                results.append(ErrorReply(error=error.detail(), request_id=request_id))
        return BatchReply(request_id=request_id, results=results)

    async def score_dialogue(self, request: DialogueRequest, request_id: str, deadline: Deadline) -> DialogueReply:
        """Scores every system turn of a dialogue and takes each scorer's mean, least and greatest value.

        Raises as `score` does; a turn that fails stands in its own `errors`, and all failing raises the first.
        """
        started_at = time.monotonic()
        asked = check_dialogue_request(request, self._limits, self._scorers)
        places = [index for index, turn in enumerate(request.turns) if turn.speaker == "system"]
        items = [Item(request.turns[:index], request.turns[index].text, asked, deadline) for index in places]
        outcomes = await self._score_items(items)
        raise_if_none(outcomes)
        tally = DialogueTally(self._scorers, asked)
        for item, outcome in zip(items, outcomes, strict=True):
            tally.add(item, outcome)
        return DialogueReply(
            request_id=request_id,
            turns=[
                DialogueTurnScores(index=index, scores=outcome.scores, errors=error_details(outcome))
                for index, outcome in zip(places, outcomes, strict=True)
            ],
            dialogue=tally.aggregates(),
            timing_ms=timing_of(outcomes, started_at),
        )

    async def rank(self, request: RankRequest, request_id: str, deadline: Deadline) -> RankReply:
        """Scores several responses to one context and puts them in order, best first.

        The candidates are admitted together or not at all. Raises as `score` does; a candidate for which a scorer that
        counts fails comes last, and where that leaves none with a combined score, the first such error is raised.
        """
        started_at = time.monotonic()
        asked, weights = check_rank_request(request, self._limits, self._scorers)
        outcomes = await self._score_items(
            [Item(request.context, each, asked, deadline) for each in request.candidates]
        )
        return RankReply(
            request_id=request_id,
            candidates=rank_candidates(outcomes, weights),
            weights=weights,
            timing_ms=timing_of(outcomes, started_at),
        )

    @property
    def scorers(self) -> Mapping[str, LoadedScorer]:
        """What is loaded, by name."""
        return self._scorers

    async def score_turn(self, item: Item) -> Outcome:
        """What the scorers say of one checked turn. Raises OverloadedError, DeadlineExceededError without any work."""
        [outcome] = await self._score_items([item])
        return outcome

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

    def close(self) -> None:
        """Ends the threads; what still waits is dropped."""
        for batcher in self._batchers.values():
            batcher.close()
        for stage in self._tokenizing.values():
            stage.close()

    def _prepare(
        self, index: int, request: ScoreRequest | ScoringError, deadline: Deadline, started_at: float
    ) -> Item | ScoringError:
        """The item, or the error that answers it; fields are named from the whole request's root.

        An item's own deadline counts from the start of the request, and stands instead of the request's.
        """
        if isinstance(request, ScoringError):
            return request
        try:
            asked = check_score_request(request, self._limits, self._scorers)
        except ScoringError as error:
            return type(error)(error.message, field=f"items.{index}.{error.field}")
        own = deadline if request.deadline_ms is None else Deadline(started_at + request.deadline_ms / 1000)
        return Item(request.context, request.response, asked, own)

    async def _score_items(self, items: Sequence[Item]) -> list[Outcome]:
        if not items:
            return []
        outcomes = [Outcome() for _ in items]
        jobs: dict[str, list[int]] = {}
        for place, item in enumerate(items):
            for name in item.asked:
                jobs.setdefault(name, []).append(place)
        demands = {name: self._demand(name, [items[place] for place in places]) for name, places in jobs.items()}
        with self._admission.reserve(demands, _latest(items)) as reservation:

            async def work(name: str, places: Sequence[int]) -> None:
                try:
                    await self._score_with(name, [items[each] for each in places], [outcomes[each] for each in places])
                finally:
                    reservation.release(name)

            await asyncio.gather(*(work(name, places) for name, places in jobs.items()))
        for item, outcome in zip(items, outcomes, strict=True):
            outcome.scores = {name: outcome.scores[name] for name in item.asked if name in outcome.scores}
        return outcomes

    def _demand(self, name: str, items: Sequence[Item]) -> Demand:
        estimate = self._scorers[name].scorer.estimate_tokens
        return Demand(len(items), sum(estimate(item.turn_for(name)) for item in items))

    async def _score_with(self, name: str, items: Sequence[Item], outcomes: Sequence[Outcome]) -> None:
        """Fills in one scorer's part of every outcome; a failure is that scorer's alone.

        Work that answers several items lasts until the latest of their deadlines.
        """
        loaded = self._scorers[name]
        started_at = time.monotonic()
        try:
            packs, failed = await self._encode(loaded, items)
            deadlines = [max((items[place].deadline for place in pack.answers), key=_expiry) for pack in packs]
            submit = self._batchers[name].submit
            futures = [submit(pack, deadline) for pack, deadline in zip(packs, deadlines, strict=True)]
        except ScoringError as error:
            packs, futures, failed = [], [], dict.fromkeys(range(len(items)), error)
        for place, failure in failed.items():
            outcomes[place].errors[name] = failure
        tokenize = time.monotonic() - started_at
        metrics.TOKENIZE_SECONDS.labels(name).observe(tokenize)
        try:
            found = await asyncio.gather(*futures, return_exceptions=True)
        finally:
            for future in futures:
                future.cancel()
        for pack, result in zip(packs, found, strict=True):
            for place, tokens, raw in zip(pack.answers, pack.tokens, _raw_scores(pack, result), strict=True):
                outcome = outcomes[place]
                outcome.tokenize = max(outcome.tokenize, tokenize)
                if isinstance(result, PackScores):
                    outcome.queue = max(outcome.queue, result.queue_seconds)
                    outcome.inference = max(outcome.inference, result.inference_seconds)
                if isinstance(raw, ScoringError):
                    outcome.errors[name] = raw
                else:
                    outcome.scores[name] = _score(loaded, raw, tokens)

    async def _encode(
        self, loaded: LoadedScorer, items: Sequence[Item]
    ) -> tuple[list[TokenPack], dict[int, ScoringError]]:
        """The items' packs, and by place the errors of those that cannot be tokenized.

        Raises DeadlineExceededError when the last of the items' deadlines passes first.
        """
        turns = [item.turn_for(loaded.name) for item in items]
        work = self._tokenizing[loaded.name].run(encode_isolating, loaded, turns)
        try:
            async with asyncio.timeout(_latest(items).remaining_seconds()):
                packs, failed = await work
        except TimeoutError:
            raise DeadlineExceededError("the deadline passed before the turn was tokenized") from None
        estimated = self._demand(loaded.name, items).tokens
        self._admission.learn(loaded.name, estimated, sum(pack.real_tokens for pack in packs))
        return packs, failed


def _raw_scores(pack: TokenPack, result: PackScores | BaseException) -> Sequence[RawScore | ScoringError]:
    """One for each answer of the pack. Raises what is no scoring error: the caller has left."""
    if isinstance(result, PackScores):
        return result.raw
    if isinstance(result, ScoringError):
        return [result] * len(pack.answers)
    raise result


def _score(loaded: LoadedScorer, raw: RawScore, tokens: TokenCount) -> Score:
    return Score(
        value=raw.value,
        percentile=loaded.percentile(raw),
        details=raw.details,
        model=loaded.bundle.manifest.reference,
        tokens=tokens,
        cached=False,
    )


def _latest(items: Sequence[Item]) -> Deadline:
    return max((item.deadline for item in items), key=_expiry)


def _expiry(deadline: Deadline) -> float:
    return deadline.expires_at
