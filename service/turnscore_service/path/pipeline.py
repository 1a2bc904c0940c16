"""The path of a request: checks, answers, replies. The same for every door; knows none of them.

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
    ScoreReply,
    ScoreRequest,
    SimilarityReply,
    SimilarityRequest,
)

from turnscore_service.cache.choice import CacheChoice
from turnscore_service.deadline import Deadline
from turnscore_service.errors import ScoringError
from turnscore_service.path.answerer import Answerer
from turnscore_service.path.computation import Workshop
from turnscore_service.path.dialogue_tally import DialogueTally
from turnscore_service.path.items import Item
from turnscore_service.path.loop_time import LARGE_TURNS, LoopTime
from turnscore_service.path.outcomes import Outcome, error_details, raise_if_none, score_reply, timing_of
from turnscore_service.path.ranking import rank_candidates
from turnscore_service.path.request_checks import (
    Roster,
    check_dialogue_request,
    check_item_count,
    check_rank_request,
    check_score_request,
    check_similarity_request,
)
from turnscore_service.path.shedding import Shedding
from turnscore_service.path.similarity import compare_texts, describe_texts
from turnscore_service.scorers.history import History
from turnscore_service.scorers.scorer import BoundsOptions


class ScoringPipeline:
    """Scores turns with the loaded scorers. Belongs to one event loop."""

    def __init__(
        self,
        roster: Roster,
        workshops: Mapping[str, Workshop],
        answerer: Answerer,
        limits: Limits,
        loop_time: LoopTime,
    ) -> None:
        self.roster = roster
        self._scorers = roster.scorers
        self._workshops = workshops
        self._answerer = answerer
        self._limits = limits
        self._loop_time = loop_time

    async def score(self, request: ScoreRequest, request_id: str, deadline: Deadline) -> ScoreReply:
        """Scores one turn.

        A scorer that fails while another answers stands in the reply's `errors`; when all fail, the first one's error
        is raised. Raises InvalidRequestError, TooLargeError, OverloadedError, DeadlineExceededError,
        FailedScoringError.
        """
        started_at = time.monotonic()
        asked = check_score_request(request, self._limits, self.roster)
        [outcome] = await self._answerer.answer([Item.of(request, request.context, request.response, asked, deadline)])
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
        slices = self._loop_time.slices(is_large=len(requests) >= LARGE_TURNS)
        prepared: list[Item | ScoringError] = []
        for index, request in enumerate(requests):
            await slices.pause()
            prepared.append(self._prepare(index, request, deadline, started_at))
        outcomes = iter(await self._answerer.answer([each for each in prepared if isinstance(each, Item)]))
        results: list[ScoreReply | ErrorReply] = []
        for index, each in enumerate(prepared):
            await slices.pause()
            try:
                if isinstance(each, ScoringError):
                    raise each
                results.append(score_reply(next(outcomes), request_id, started_at))
            except ScoringError as error:
                placed = _within_item(error, index) if isinstance(each, Item) else error
                results.append(ErrorReply(error=placed.detail(), request_id=request_id))
        return BatchReply(request_id=request_id, results=results)

    async def score_dialogue(self, request: DialogueRequest, request_id: str, deadline: Deadline) -> DialogueReply:
        """Scores every system turn of a dialogue and takes each scorer's mean, least and greatest value.

        Raises as `score` does; a turn that fails stands in its own `errors`, and all failing raises the first.
        """
        started_at = time.monotonic()
        asked = check_dialogue_request(request, self._limits, self.roster)
        places = [index for index, turn in enumerate(request.turns) if turn.speaker == "system"]
        whole = History(request.turns)
        items = [Item.of(request, whole.before(index), whole[index].text, asked, deadline) for index in places]
        outcomes = await self._answerer.answer(items)
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
        asked, weights = check_rank_request(request, self._limits, self.roster)
        context = History(request.context)
        outcomes = await self._answerer.answer(
            [Item.of(request, context, each, asked, deadline) for each in request.candidates]
        )
        return RankReply(
            request_id=request_id,
            candidates=rank_candidates(outcomes, weights),
            weights=weights,
            timing_ms=timing_of(outcomes, started_at),
        )

    async def similarity(self, request: SimilarityRequest, request_id: str, deadline: Deadline) -> SimilarityReply:
        """Compares texts with references, or with each other, by the encoder's vectors.

        The texts are admitted, computed and paid for as turns are, together or not at all. Raises as `score` does, for
        any text that fails; UnknownPathError where no encoder is loaded.
        """
        started_at = time.monotonic()
        encoder = check_similarity_request(request, self._limits, self.roster)
        cache = CacheChoice(request.cache or "use", request.cache_namespace)
        asked: dict[str, object] = {encoder.name: None}
        said = [*request.texts, *request.references]
        outcomes = await self._answerer.answer(
            [Item(context=(), response=text, asked=asked, deadline=deadline, cache=cache) for text in said]
        )
        texts, references = outcomes[: len(request.texts)], outcomes[len(request.texts) :]
        return SimilarityReply(
            request_id=request_id,
            texts=compare_texts(encoder.name, texts, references),
            references=describe_texts(encoder.name, references),
            model=encoder.bundle.manifest.reference,
            digest=encoder.bundle.digest,
            timing_ms=timing_of(outcomes, started_at),
        )

    async def score_turn(self, item: Item) -> Outcome:
        """What the scorers say of one checked turn. Raises OverloadedError, DeadlineExceededError without any work."""
        [outcome] = await self._answerer.answer([item])
        return outcome

    @property
    def shedding(self) -> Shedding:
        """The shedding of requests, refused undecoded."""
        return self._answerer.shedding

    def models(self) -> list[ModelDescription]:
        """The loaded bundles."""
        return [
            ModelDescription(
                scorer=name,
                model=loaded.bundle.manifest.reference,
                digest=loaded.bundle.digest,
                graph=loaded.variant,
                token_limit=loaded.bundle.manifest.token_limit,
                option_limits=loaded.scorer.option_limits if isinstance(loaded.scorer, BoundsOptions) else {},
                is_default=name in self.roster.defaults,
                stand_in=loaded.bundle.manifest.stand_in,
                threshold=loaded.threshold,
            )
            for name, loaded in self.roster.loaded.items()
        ]

    async def stop(self) -> None:
        """Returns when everything in flight is answered."""
        await asyncio.gather(*(each.batcher.stop() for each in self._workshops.values()))

    def close(self) -> None:
        """Ends the threads; waiting work is dropped."""
        for each in self._workshops.values():
            each.batcher.close()
            each.tokenizing.close()

    def _prepare(
        self, index: int, request: ScoreRequest | ScoringError, deadline: Deadline, started_at: float
    ) -> Item | ScoringError:
        """The item, or the error that answers it; fields are named from the whole request's root.

        An item's own deadline counts from the start of the request, and stands instead of the request's.
        """
        if isinstance(request, ScoringError):
            return request
        try:
            asked = check_score_request(request, self._limits, self.roster)
        except ScoringError as error:
            return _within_item(error, index)
        own = deadline if request.deadline_ms is None else Deadline(started_at + request.deadline_ms / 1000)
        return Item.of(request, request.context, request.response, asked, own)


def _within_item(error: ScoringError, index: int) -> ScoringError:
    """The error with its field, if it has one, named from the batch's root."""
    return error if error.field is None else type(error)(error.message, field=f"items.{index}.{error.field}")
