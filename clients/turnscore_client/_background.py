"""Background scoring: turns are scored behind a chatbot's back, which waits for nothing and gets no error from here."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from turnscore_wire import ScoreReply

from turnscore_client import _defaults
from turnscore_client._async.calls import AsyncCalls
from turnscore_client._errors import TurnScoreError
from turnscore_client._options import MessageLike, ScoringOptions, TurnLike, check_names

T = TypeVar("T")
_LOGGER = logging.getLogger("turnscore_client.background")


@dataclass(frozen=True)
class Scored:
    """What became of one turn: its reply, or the error it failed with. `tag` is what it was handed over with."""

    tag: object
    reply: ScoreReply | None
    error: TurnScoreError | None


OnScored = Callable[[Scored], Awaitable[None] | None]


@dataclass(frozen=True, kw_only=True)
class _Job:
    tag: object
    context: Iterable[TurnLike]
    response: str | None
    messages: Iterable[MessageLike] | None


class BackgroundScorer:
    """Scores turns in the background of one event loop, inside its `async with`; it leaves the client open.

    At most `max_waiting` turns wait and `concurrency` are being scored; one more is dropped and counted in `dropped`.
    `on_scored` gets each outcome, in the order in which they come; it may be a coroutine function. What it raises is
    logged by its type, and stops nothing. Leaving the `async with` waits `goodbye_seconds` for what was handed over.
    What else is given holds for every turn, as in a client's `score`.
    """

    def __init__(
        self,
        client: AsyncCalls,
        on_scored: OnScored,
        *,
        max_waiting: int = _defaults.BACKGROUND_WAITING,
        concurrency: int = _defaults.CONCURRENCY,
        goodbye_seconds: float = _defaults.BACKGROUND_GOODBYE_SECONDS,
        **given: Unpack[ScoringOptions],
    ) -> None:
        check_names(given, ScoringOptions.__optional_keys__)
        if max_waiting < 1 or concurrency < 1:
            raise ValueError("max_waiting and concurrency must be 1 or more")
        self._client = client
        self._on_scored = on_scored
        self._given = given
        self._waiting: asyncio.Queue[_Job] = asyncio.Queue(max_waiting)
        self._concurrency = concurrency
        self._goodbye_seconds = goodbye_seconds
        self._workers: list[asyncio.Task[None]] = []
        self._is_open = False
        self.dropped = 0
        """Turns that nobody will score: there was no room, or no time at the end."""

    def score(
        self,
        response: str | None = None,
        context: Iterable[TurnLike] = (),
        *,
        messages: Iterable[MessageLike] | None = None,
        tag: object = None,
    ) -> bool:
        """Hands over a turn and returns at once; False where it is dropped. Errors go to `on_scored` alone.

        The turn is `response` after `context`, or as in a client's `score` what `messages` say.
        """
        try:
            if not self._is_open:
                raise asyncio.QueueFull
            job = _Job(tag=tag, context=_kept(context), response=response, messages=_kept(messages))
            self._waiting.put_nowait(job)
        except asyncio.QueueFull:
            self.dropped += 1
            return False
        return True

    async def wait_until_idle(self) -> None:
        """Returns when every turn that was handed over has its outcome."""
        await self._waiting.join()

    async def aclose(self) -> None:
        """Takes no more turns, waits `goodbye_seconds` for those it has, and drops the rest."""
        self._is_open = False
        try:
            async with asyncio.timeout(self._goodbye_seconds):
                await self.wait_until_idle()
        except TimeoutError:
            _LOGGER.warning("turns handed over last are not scored: the time at the end was too short")
        finally:
            self.dropped += self._waiting.qsize()
            for worker in self._workers:
                worker.cancel()
            await asyncio.gather(*self._workers, return_exceptions=True)

    async def __aenter__(self) -> Self:
        self._is_open = True
        self._workers = [asyncio.create_task(self._work()) for _ in range(self._concurrency)]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _work(self) -> None:
        while True:
            job = await self._waiting.get()
            try:
                await self._deliver(await self._score(job))
            except asyncio.CancelledError:
                self.dropped += 1
                raise
            except Exception as error:
                _LOGGER.error("a turn's outcome is lost: %s", type(error).__name__)  # its words may be the dialogue's
            finally:
                self._waiting.task_done()

    async def _score(self, job: _Job) -> Scored:
        try:
            reply = await self._client.score(
                context=job.context, response=job.response, messages=job.messages, **self._given
            )
        except TurnScoreError as error:
            return Scored(job.tag, None, error)
        return Scored(job.tag, reply, None)

    async def _deliver(self, scored: Scored) -> None:
        waiting = self._on_scored(scored)
        if waiting is not None:
            await waiting


def _kept(given: T) -> T | tuple[Any, ...]:
    """A copy of a series: the caller's list goes on."""
    return tuple(given) if isinstance(given, Iterable) else given
