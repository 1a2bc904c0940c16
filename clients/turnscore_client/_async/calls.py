"""The calls of a client for asyncio, whatever its door: checks, sends until answered or near the deadline."""

from collections.abc import Iterable, Mapping
from functools import partial
from types import TracebackType
from typing import Protocol, Self, TypeVar, Unpack

from pydantic import BaseModel
from turnscore_wire import BatchReply, DialogueReply, ModelsReply, RankReply, ScoreReply, SimilarityReply

from turnscore_client import _calls, _defaults
from turnscore_client._async.conversation import AsyncConversation, AsyncLine
from turnscore_client._calls import Call
from turnscore_client._clock import Clock, SystemClock
from turnscore_client._errors import TurnScoreError
from turnscore_client._options import CallOptions, ItemLike, MessageLike, ScoringOptions, SimilarityOptions, TurnLike
from turnscore_client._retry import Attempts, OutOfTimeError, Patience, RetryPolicy
from turnscore_client._settings import CommonSettings

R = TypeVar("R", bound=BaseModel)


class AsyncDoor(Protocol):
    """What sends for a client. Everything raises a TurnScoreError, or OutOfTimeError."""

    async def send(self, call: Call[R], attempts: Attempts) -> R:
        """The reply to one attempt."""

    async def open_line(self, metadata: Mapping[str, str], request_id: str | None, attempts: Attempts) -> AsyncLine:
        """A connection for one conversation."""

    async def close(self) -> None:
        """Closes every connection."""


class AsyncCalls:
    """The calls; every method raises a TurnScoreError."""

    def __init__(self, door: AsyncDoor, settings: CommonSettings, clock: Clock | None) -> None:
        self._door = door
        self._clock = clock or SystemClock()
        self._patience = Patience(
            RetryPolicy(max_retries=settings.max_retries), settings.timeout_seconds, self._clock.now
        )

    async def score(
        self,
        *,
        context: Iterable[TurnLike] = (),
        response: str | None = None,
        messages: Iterable[MessageLike] | None = None,
        **given: Unpack[ScoringOptions],
    ) -> ScoreReply:
        """The scores of one system turn. `context` is oldest first; ScoringOptions has what else may be given.

        `messages`, in OpenAI's chat form, stand in for both: their last turn is scored, or `response` after them.
        """
        return await self._run(_calls.score_call(context, response, given, messages))

    async def score_batch(self, items: Iterable[ItemLike], **given: Unpack[ScoringOptions]) -> BatchReply:
        """The scores of several turns; `results` holds a ScoreReply or an ErrorReply for each, in order.

        What an item says about its scoring goes before what is given here.
        An item that is not well-formed is an InvalidRequestError of the whole call, naming it.
        """
        return await self._run(_calls.batch_call(items, given))

    async def score_dialogue(
        self,
        turns: Iterable[TurnLike] = (),
        *,
        messages: Iterable[MessageLike] | None = None,
        **given: Unpack[ScoringOptions],
    ) -> DialogueReply:
        """The scores of every system turn of a dialogue, oldest turn first, and of the dialogue as a whole.

        `messages`, in OpenAI's chat form, stand in for the turns; `turns[i].index` is then a message's.
        """
        return await self._run(_calls.dialogue_call(turns, given, messages))

    async def rank(
        self,
        candidates: Iterable[str],
        *,
        context: Iterable[TurnLike] = (),
        messages: Iterable[MessageLike] | None = None,
        weights: Mapping[str, float] | None = None,
        **given: Unpack[ScoringOptions],
    ) -> RankReply:
        """Several responses to one context, best first: `candidates[reply.candidates[0].index]` is the best.

        `weights` say how much each scorer's percentile counts, 1 where none is given; without `scorers` they are asked.
        `messages`, in OpenAI's chat form, stand in for `context`.
        """
        return await self._run(_calls.rank_call(context, candidates, weights, given, messages))

    def conversation(
        self,
        *,
        context: Iterable[TurnLike] = (),
        messages: Iterable[MessageLike] | None = None,
        max_reopenings: int = _defaults.MAX_REOPENINGS,
        **given: Unpack[ScoringOptions],
    ) -> AsyncConversation:
        """A live conversation, to be entered: `say` every turn once; those of the system are answered by their scores.

        `context`, or `messages` in OpenAI's chat form, is what was said before; it is not scored. `deadline_ms` is
        for each turn, `timeout_seconds` for the opening, retries included, and for each turn. Where the connection
        breaks or the service shuts down, the conversation goes on with another replica, `max_reopenings` times; 0
        leaves that to you.
        """
        opening = _calls.opening_of(context, given, messages)
        patience = self._patience.with_timeout(given.get("timeout_seconds"))
        open_line = partial(self._door.open_line, _calls.checked_metadata(given.get("metadata")))
        request_id = _calls.checked_id(given.get("request_id"))
        return AsyncConversation(open_line, opening, request_id, patience, self._clock, max_reopenings)

    async def similarity(
        self, texts: Iterable[str], references: Iterable[str] = (), **given: Unpack[SimilarityOptions]
    ) -> SimilarityReply:
        """How near each text is to each of `references`, or to the other texts without any, by the sentence encoder.

        `texts[i].similarities[j]` is a cosine, -1 to 1, and `texts[i].best` the place of the greatest. A NotFoundError
        where the service has no encoder loaded.
        """
        return await self._run(_calls.similarity_call(texts, references, given))

    async def models(self, **given: Unpack[CallOptions]) -> ModelsReply:
        """What the service has loaded, and how much it takes at once."""
        return await self._run(_calls.models_call(given))

    async def aclose(self) -> None:
        """Closes every connection; the client is of no use after that."""
        await self._door.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _run(self, call: Call[R]) -> R:
        attempts = self._patience.with_timeout(call.timeout_seconds).begin(call.deadline_ms)
        while True:
            try:
                return await self._door.send(call, attempts)
            except OutOfTimeError:
                raise attempts.out_of_time(call.request_id) from None
            except TurnScoreError as error:
                delay = attempts.delay_after(error)
                if delay is None:
                    raise
            await self._clock.sleep_async(delay)
