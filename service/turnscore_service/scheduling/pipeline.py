"""The path of a request: checks, answers, replies. The same for every door; knows none of them.

docs/architecture.md draws it.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence

from turnscore_core.deadline import Deadline
from turnscore_core.dialogues import DialogueTally
from turnscore_core.errors import ScoringError
from turnscore_core.model_set import ModelSet
from turnscore_core.scorers.history import History
from turnscore_core.scoring import Item, Outcome, error_details, raise_if_none, score_reply, timing_of
from turnscore_wire import (
    BatchReply,
    DialogueReply,
    DialogueRequest,
    DialogueTurnScores,
    ErrorReply,
    Limits,
    RankReply,
    RankRequest,
    ScoreReply,
    ScoreRequest,
    SimilarityReply,
    SimilarityRequest,
)
from turnscore_wire.messages import count_skipped

from turnscore_service.scheduling.answerer import Answerer
from turnscore_service.scheduling.computation import Workshop
from turnscore_service.scheduling.loop_time import LARGE_TURNS, LoopTime
from turnscore_service.scheduling.open_work import OpenWork, counted
from turnscore_service.scheduling.ranking import rank_candidates
from turnscore_service.scheduling.request_checks import (
    check_dialogue_request,
    check_item_count,
    check_rank_request,
    check_score_request,
    check_similarity_request,
)
from turnscore_service.scheduling.said_turns import SaidTurns
from turnscore_service.scheduling.shadow import Shadows
from turnscore_service.scheduling.shedding import Shedding
from turnscore_service.scheduling.similarity import compare_texts, describe_texts
from turnscore_service.scheduling.split import Split


class ScoringPipeline:
    """Scores turns with one set of models, which never changes. Belongs to one event loop.

    A request finds a pipeline at its start and stays with it, so that one set of models answers all of it.
    """

    def __init__(
        self,
        model_set: ModelSet,
        workshops: Mapping[str, Workshop],
        answerer: Answerer,
        limits: Limits,
        loop_time: LoopTime,
        tenants: tuple[str, ...] = (),
        split: Split | None = None,
        shadows: Shadows | None = None,
    ) -> None:
        """`tenants`: names of keys that metrics on values tell apart; `split` is of the same model_set."""
        self.model_set = model_set
        self._workshops = workshops
        self._answerer = answerer
        self._limits = limits
        self._loop_time = loop_time
        self.split = split or Split(model_set)
        self._said = SaidTurns({name: each.loaded for name, each in workshops.items()}, tenants)
        self._shadows = shadows or Shadows()
        self.requests = OpenWork()

    @counted
    async def score(self, request: ScoreRequest, request_id: str, deadline: Deadline) -> ScoreReply:
        """Scores one turn.

        A scorer that fails while another answers stands in the reply's `errors`; when all fail, the first one's error
        is raised. Raises InvalidRequestError, TooLargeError, OverloadedError, DeadlineExceededError,
        FailedScoringError.
        """
        started_at = time.monotonic()
        model_set = self.split.model_set_for(request.conversation, request.context)
        asked = check_score_request(request, self._limits, model_set)
        item = Item.of(request, request.context, request.response, asked, deadline, model_set.versions)
        outcome = await self.score_turn(item)
        return score_reply(outcome, request_id, started_at, request.place())

    @counted
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
        items = [each for each in prepared if isinstance(each, Item)]
        outcomes = iter(await self._answerer.answer(items))
        slices.renew()
        results: list[ScoreReply | ErrorReply] = []
        for index, (request, each) in enumerate(zip(requests, prepared, strict=True)):
            await slices.pause()
            try:
                if isinstance(each, ScoringError):
                    raise each
                place = request.place() if isinstance(request, ScoreRequest) else {}
                outcome = next(outcomes)
                self._note_said(each, outcome)
                results.append(score_reply(outcome, request_id, started_at, place))
            except ScoringError as error:
                placed = _within_item(error, index) if isinstance(each, Item) else error
                results.append(ErrorReply(error=placed.detail(), request_id=request_id))
        return BatchReply(request_id=request_id, results=results)

    @counted
    async def score_dialogue(self, request: DialogueRequest, request_id: str, deadline: Deadline) -> DialogueReply:
        """Scores every system turn of a dialogue and takes each scorer's mean, least and greatest value.

        Raises as `score` does; a turn that fails stands in its own `errors`, and all failing raises the first.
        """
        started_at = time.monotonic()
        model_set = self.split.model_set_for(request.conversation, request.turns)
        asked = check_dialogue_request(request, self._limits, model_set)
        places = [index for index, turn in enumerate(request.turns) if turn.speaker == "system"]
        whole = History(request.turns)
        items = [
            Item.of(request, whole.before(index), whole[index].text, asked, deadline, model_set.versions)
            for index in places
        ]
        outcomes = await self._answerer.answer(items)
        tally = DialogueTally(asked)
        for item, outcome in zip(items, outcomes, strict=True):
            tally.add(item, outcome, model_set)
            self._note_said(item, outcome)
        raise_if_none(outcomes)
        mapped = request.mapped if request.messages else None
        return DialogueReply(
            request_id=request_id,
            turns=[
                DialogueTurnScores(
                    index=mapped.indices[place] if mapped else place,
                    scores=outcome.scores,
                    errors=error_details(outcome),
                )
                for place, outcome in zip(places, outcomes, strict=True)
            ],
            dialogue=tally.aggregates(),
            timing_ms=timing_of(outcomes, started_at),
            skipped=mapped.skipped if mapped else 0,
        )

    @counted
    async def rank(self, request: RankRequest, request_id: str, deadline: Deadline) -> RankReply:
        """Scores several responses to one context and puts them in order, best first.

        The candidates are admitted together or not at all. Raises as `score` does; a candidate for which a scorer that
        counts fails comes last, and where that leaves none with a combined score, the first such error is raised.
        """
        started_at = time.monotonic()
        model_set = self.split.model_set_for(request.conversation, request.context)
        asked, weights = check_rank_request(request, self._limits, model_set)
        context = History(request.context)
        outcomes = await self._answerer.answer(
            [Item.of(request, context, each, asked, deadline, model_set.versions) for each in request.candidates]
        )
        return RankReply(
            request_id=request_id,
            candidates=rank_candidates(outcomes, weights),
            weights=weights,
            timing_ms=timing_of(outcomes, started_at),
            skipped=count_skipped(request.messages),
        )

    @counted
    async def similarity(self, request: SimilarityRequest, request_id: str, deadline: Deadline) -> SimilarityReply:
        """Compares texts with references, or with each other, by the encoder's vectors.

        The texts are admitted, computed and paid for as turns are, together or not at all. Raises as `score` does, for
        any text that fails; UnknownPathError where no encoder is loaded.
        """
        started_at = time.monotonic()
        encoder = check_similarity_request(request, self._limits, self.model_set)
        asked: dict[str, object] = {encoder.name: None}
        said = [*request.texts, *request.references]
        outcomes = await self._answerer.answer(
            [
                Item(
                    context=(),
                    response=text,
                    asked=asked,
                    deadline=deadline,
                    cache=request.cache or "use",
                    namespace=request.cache_namespace,
                )
                for text in said
            ]
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

    @counted
    async def score_turn(self, item: Item) -> Outcome:
        """What the scorers say of one checked turn. Raises OverloadedError, DeadlineExceededError without any work."""
        [outcome] = await self._answerer.answer([item])
        self._note_said(item, outcome)
        return outcome

    @property
    def shedding(self) -> Shedding:
        """The shedding of requests, refused undecoded."""
        return self._answerer.shedding

    async def stop(self) -> None:
        """Returns when everything in flight is answered."""
        await self._shadows.stop()
        await asyncio.gather(*(each.batcher.stop() for each in self._workshops.values()))

    @property
    def workshops(self) -> Mapping[str, Workshop]:
        """By scorer; another pipeline may have some of them too."""
        return self._workshops

    async def retire(self, successor: "ScoringPipeline") -> None:
        """Returns when its requests are answered and the threads that the successor has no use for have been ended."""
        await self.requests.wait_until_none()
        await self._shadows.stop()
        kept = successor.workshops.values()
        for workshop in self._workshops.values():
            if workshop not in kept:
                await workshop.retire()

    def close(self) -> None:
        """Ends the threads; waiting work is dropped."""
        for each in self._workshops.values():
            each.batcher.close()
            each.tokenizing.close()

    def _note_said(self, item: Item, outcome: Outcome) -> None:
        self._said.count(item, outcome)
        self._shadows.offer(item, outcome)

    def _prepare(
        self, index: int, request: ScoreRequest | ScoringError, deadline: Deadline, started_at: float
    ) -> Item | ScoringError:
        """The item, or the error that answers it; fields are named from the whole request's root.

        An item's own deadline counts from the start of the request, and stands instead of the request's.
        """
        if isinstance(request, ScoringError):
            return request
        model_set = self.split.model_set_for(request.conversation, request.context)
        try:
            asked = check_score_request(request, self._limits, model_set)
        except ScoringError as error:
            return _within_item(error, index)
        own = deadline if request.deadline_ms is None else Deadline(started_at + request.deadline_ms / 1000)
        return Item.of(request, request.context, request.response, asked, own, model_set.versions)


def _within_item(error: ScoringError, index: int) -> ScoringError:
    """The error with its field, if it has one, named from the batch's root."""
    return error if error.field is None else type(error)(error.message, field=f"items.{index}.{error.field}")
