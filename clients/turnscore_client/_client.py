"""The client for threads: builds a call, sends it until it is answered or its deadline is near. No logic of its own."""

from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Self, TypeVar

from pydantic import BaseModel
from turnscore_wire import BatchReply, CacheMode, DialogueReply, ModelsReply, RankReply, ScoreReply

from turnscore_client import _calls, _defaults
from turnscore_client._bounded_stream import OutOfTimeError
from turnscore_client._calling import Caller
from turnscore_client._calls import Call, ItemLike, Options, TurnLike
from turnscore_client._clock import Clock, SystemClock
from turnscore_client._errors import TurnScoreError
from turnscore_client._http import SyncHttp, SyncTransport
from turnscore_client._replies import read_reply
from turnscore_client._settings import ClientSettings

R = TypeVar("R", bound=BaseModel)


class TurnScoreClient:
    """A client of one turnscore service, to be kept and shared between threads: it reuses its connections.

    `url` and `api_key` default to the environment's TURNSCORE_URL and TURNSCORE_API_KEY. `timeout_seconds` is for a
    whole call: connecting, waiting, every retry and the delays between. Every method raises a TurnScoreError.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        api_key: str | None = None,
        timeout_seconds: float = _defaults.TIMEOUT_SECONDS,
        max_retries: int = _defaults.MAX_RETRIES,
        transport: SyncTransport | None = None,
        clock: Clock | None = None,
    ) -> None:
        settings = ClientSettings.resolve(url, api_key, timeout_seconds, max_retries)
        self._clock = clock or SystemClock()
        self._caller = Caller(settings, self._clock)
        self._http = SyncHttp(settings.url, transport)

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
    ) -> ScoreReply:
        """The scores of one system turn. `context` is oldest first; `scorers` are all that are loaded when left out.

        `deadline_ms`, counted from this call, tells the service when to drop the work; what is left of
        `timeout_seconds` does so otherwise. `cache` is "use", "bypass" or "refresh"; only scores of `cache_namespace`
        are found, and they are kept there.
        """
        call = _calls.score_call(context, response, scorers, options, deadline_ms, request_id, cache, cache_namespace)
        return self._run(call, timeout_seconds)

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
    ) -> BatchReply:
        """The scores of several turns; `results` holds a ScoreReply or an ErrorReply for each, in order.

        An item's own `scorers`, `options`, `deadline_ms`, `cache` and `cache_namespace` go before the ones given here.
        An item that is not well-formed is an InvalidRequestError of the whole call, naming it.
        """
        call = _calls.batch_call(items, scorers, options, deadline_ms, request_id, cache, cache_namespace)
        return self._run(call, timeout_seconds)

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
    ) -> DialogueReply:
        """The scores of every system turn of a dialogue, oldest turn first, and of the dialogue as a whole."""
        call = _calls.dialogue_call(turns, scorers, options, deadline_ms, request_id, cache, cache_namespace)
        return self._run(call, timeout_seconds)

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
    ) -> RankReply:
        """Several responses to one context, best first: `candidates[reply.candidates[0].index]` is the best.

        `weights` say how much each scorer's percentile counts, 1 where none is given.
        """
        call = _calls.rank_call(
            context, candidates, scorers, options, weights, deadline_ms, request_id, cache, cache_namespace
        )
        return self._run(call, timeout_seconds)

    def models(self, *, timeout_seconds: float | None = None, request_id: str | None = None) -> ModelsReply:
        """What the service has loaded, and how much it takes at once."""
        return self._run(_calls.models_call(request_id), timeout_seconds)

    def close(self) -> None:
        """Closes every connection; the client is of no use after that."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _run(self, call: Call[R], timeout_seconds: float | None) -> R:
        attempts = self._caller.begin(call, timeout_seconds)
        while True:
            try:
                return read_reply(self._http.send(self._caller.outgoing(call, attempts)), call.reply_type)
            except OutOfTimeError:
                raise attempts.out_of_time(call.request_id) from None
            except TurnScoreError as error:
                delay = attempts.delay_after(error)
                if delay is None:
                    raise
            self._clock.sleep(delay)
