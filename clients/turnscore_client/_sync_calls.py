"""The calls of a client for threads, whatever its door: checks, sends until answered or near the deadline."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Protocol, Self, TypeVar

from pydantic import BaseModel
from turnscore_wire import BatchReply, CacheMode, DialogueReply, ModelsReply, RankReply, ScoreReply

from turnscore_client import _calls
from turnscore_client._bounded_stream import OutOfTimeError
from turnscore_client._calls import Call, ItemLike, Options, TurnLike
from turnscore_client._clock import Clock
from turnscore_client._conversation import Conversation, Line
from turnscore_client._errors import TurnScoreError
from turnscore_client._retry import Attempts, Patience

R = TypeVar("R", bound=BaseModel)


class SyncDoor(Protocol):
    """What sends for a client. Everything raises a TurnScoreError, or OutOfTimeError."""

    def send(self, call: Call[R], attempts: Attempts) -> R:
        """The reply to one attempt."""

    def open_line(self, metadata: Mapping[str, str], request_id: str | None, attempts: Attempts) -> Line:
        """A connection for one conversation."""

    def close(self) -> None:
        """Closes every connection."""


class SyncCalls:
    """The calls; every method raises a TurnScoreError."""

    def __init__(self, door: SyncDoor, patience: Patience, clock: Clock) -> None:
        self._door = door
        self._patience = patience
        self._clock = clock

    def score(
        self,
        *,
        context: Iterable[TurnLike] = (),
        response: str,
        scorers: Sequence[str] | None = None,
        options: Options | None = None,
        deadline_ms: int | None = None,
        cache: CacheMode | None = None,
        cache_namespace: str | None = None,
        timeout_seconds: float | None = None,
        request_id: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> ScoreReply:
        """The scores of one system turn. `context` is oldest first; without `scorers` the service's default ones score.

        `deadline_ms`, counted from this call, tells the service when to drop the work; what is left of
        `timeout_seconds` does so otherwise. `cache` is "use", "bypass" or "refresh"; only scores of `cache_namespace`
        are found, and they are kept there. `metadata` travels beside the request, such as a trace's: headers over HTTP,
        metadata over gRPC.
        """
        call = _calls.score_call(context, response, scorers, options, deadline_ms, request_id, cache, cache_namespace)
        return self._run(call.with_metadata(metadata), timeout_seconds)

    def score_batch(
        self,
        items: Iterable[ItemLike],
        *,
        scorers: Sequence[str] | None = None,
        options: Options | None = None,
        deadline_ms: int | None = None,
        cache: CacheMode | None = None,
        cache_namespace: str | None = None,
        timeout_seconds: float | None = None,
        request_id: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> BatchReply:
        """The scores of several turns; `results` holds a ScoreReply or an ErrorReply for each, in order.

        An item's own `scorers`, `options`, `deadline_ms`, `cache` and `cache_namespace` go before the ones given here.
        An item that is not well-formed is an InvalidRequestError of the whole call, naming it.
        """
        call = _calls.batch_call(items, scorers, options, deadline_ms, request_id, cache, cache_namespace)
        return self._run(call.with_metadata(metadata), timeout_seconds)

    def score_dialogue(
        self,
        turns: Iterable[TurnLike],
        *,
        scorers: Sequence[str] | None = None,
        options: Options | None = None,
        deadline_ms: int | None = None,
        cache: CacheMode | None = None,
        cache_namespace: str | None = None,
        timeout_seconds: float | None = None,
        request_id: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> DialogueReply:
        """The scores of every system turn of a dialogue, oldest turn first, and of the dialogue as a whole."""
        call = _calls.dialogue_call(turns, scorers, options, deadline_ms, request_id, cache, cache_namespace)
        return self._run(call.with_metadata(metadata), timeout_seconds)

    def rank(
        self,
        candidates: Iterable[str],
        *,
        context: Iterable[TurnLike] = (),
        scorers: Sequence[str] | None = None,
        options: Options | None = None,
        weights: Mapping[str, float] | None = None,
        deadline_ms: int | None = None,
        cache: CacheMode | None = None,
        cache_namespace: str | None = None,
        timeout_seconds: float | None = None,
        request_id: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> RankReply:
        """Several responses to one context, best first: `candidates[reply.candidates[0].index]` is the best.

        `weights` say how much each scorer's percentile counts, 1 where none is given; without `scorers` they are asked.
        """
        call = _calls.rank_call(
            context, candidates, scorers, options, weights, deadline_ms, request_id, cache, cache_namespace
        )
        return self._run(call.with_metadata(metadata), timeout_seconds)

    def conversation(
        self,
        *,
        context: Iterable[TurnLike] = (),
        scorers: Sequence[str] | None = None,
        options: Options | None = None,
        deadline_ms: int | None = None,
        cache: CacheMode | None = None,
        cache_namespace: str | None = None,
        timeout_seconds: float | None = None,
        request_id: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> Conversation:
        """A live conversation, to be entered: `say` every turn once; those of the system are answered by their scores.

        `context` is what was said before; it is not scored. `deadline_ms` is for each turn, `timeout_seconds` for
        the opening, retries included, and for each turn.
        """
        opening = _calls.opening_of(context, scorers, options, deadline_ms, cache, cache_namespace)
        patience = self._patience.with_timeout(timeout_seconds)
        open_line = partial(self._door.open_line, _calls.checked_metadata(metadata))
        return Conversation(open_line, opening, _calls.checked_id(request_id), patience, self._clock)

    def models(
        self,
        *,
        timeout_seconds: float | None = None,
        request_id: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> ModelsReply:
        """What the service has loaded, and how much it takes at once."""
        return self._run(_calls.models_call(request_id).with_metadata(metadata), timeout_seconds)

    def close(self) -> None:
        """Closes every connection; the client is of no use after that."""
        self._door.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _run(self, call: Call[R], timeout_seconds: float | None) -> R:
        attempts = self._patience.with_timeout(timeout_seconds).begin(call.deadline_ms)
        while True:
            try:
                return self._door.send(call, attempts)
            except OutOfTimeError:
                raise attempts.out_of_time(call.request_id) from None
            except TurnScoreError as error:
                delay = attempts.delay_after(error)
                if delay is None:
                    raise
            self._clock.sleep(delay)
