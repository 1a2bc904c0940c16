"""Scores turns behind a chatbot's back: it waits for nothing, and gets no error from here."""

import asyncio
import atexit
import logging
import math
import os
import queue
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self, TypedDict, TypeVar, Unpack

from pydantic import ValidationError
from turnscore_wire import ScoreReply, ScoreRequest, Speaker, Turn
from turnscore_wire.messages import ChatMessage, map_messages

from turnscore_client import _defaults
from turnscore_client._async import AsyncCalls
from turnscore_client._calls import invalid_request
from turnscore_client._errors import TurnScoreError
from turnscore_client._options import MessageLike, ScoringOptions, Tls, TurnLike, check_names
from turnscore_client._sync import Calls, TurnScoreClient

T = TypeVar("T")
_LOGGER = logging.getLogger("turnscore_client.background")


@dataclass(frozen=True)
class Scored:
    """What became of one turn: its reply, or the error it failed with. `tag` is what it was submitted with."""

    tag: object
    reply: ScoreReply | None
    error: TurnScoreError | None


OnScoredAsync = Callable[[Scored], Awaitable[None] | None]


class AsyncBackgroundScorer:
    """Scores turns in the background of one event loop, inside its `async with`; it leaves the client open.

    At most `max_waiting` turns wait and `concurrency` are being scored; one more is dropped and counted in `dropped`.
    `on_scored` gets each outcome, in the order in which they come; it may be a coroutine function. What it raises is
    logged by its type, and stops nothing. Leaving the `async with` waits `goodbye_seconds` for what was submitted.
    What else is given holds for every turn, as in a client's `score`.
    """

    def __init__(
        self,
        client: AsyncCalls,
        on_scored: OnScoredAsync,
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
        self._most = max_waiting + concurrency
        self._slots = asyncio.Semaphore(concurrency)
        self._goodbye_seconds = goodbye_seconds
        self._tasks: set[asyncio.Task[None]] = set()  # one for each turn that waits or is being scored
        self._is_open = False
        self.dropped = 0  # turns that will not be scored: the queue was full, or there was no time at the end

    def submit(
        self,
        response: str | None = None,
        context: Iterable[TurnLike] = (),
        *,
        messages: Iterable[MessageLike] | None = None,
        speaker: Speaker | None = None,
        tag: object = None,
    ) -> bool:
        """Takes a turn and returns at once; False where it is dropped. Errors go to `on_scored` alone.

        The turn is `response` after `context`, or as in a client's `score` what `messages` and `speaker` say.
        """
        if not self._is_open or len(self._tasks) >= self._most:
            self.dropped += 1
            return False
        turn = {"context": _kept(context), "response": response, "messages": _kept(messages), "speaker": speaker}
        try:
            asyncio.get_running_loop()
        except RuntimeError:  # in a thread, such as that of a handler without async
            self._loop.call_soon_threadsafe(self._begin, tag, turn)
        else:
            self._begin(tag, turn)
        return True

    def _begin(self, tag: object, turn: dict[str, Any]) -> None:
        if len(self._tasks) >= self._most:  # of several threads at once
            self.dropped += 1
            return
        task = asyncio.create_task(self._score(tag, turn))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def wait_until_idle(self) -> None:
        """Returns when every submitted turn has its outcome."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def aclose(self) -> None:
        """Takes no more turns, waits `goodbye_seconds` for those it has, and drops the rest."""
        self._is_open = False
        try:
            async with asyncio.timeout(self._goodbye_seconds):
                await self.wait_until_idle()
        except TimeoutError:
            _LOGGER.warning("the last turns are not scored: the time at the end was too short")
        finally:
            left = list(self._tasks)
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)
            self.dropped += sum(task.cancelled() for task in left)

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._is_open = True
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def _score(self, tag: object, turn: dict[str, Any]) -> None:
        async with self._slots:
            try:
                try:
                    scored = Scored(tag, await self._client.score(**turn, **self._given), None)
                except TurnScoreError as error:
                    scored = Scored(tag, None, error)
                waiting = self._on_scored(scored)
                if waiting is not None:
                    await waiting
            except Exception as error:
                _LOGGER.error("a turn's outcome is lost: %s", type(error).__name__)  # its words may be the dialogue's


def _kept(given: T) -> T | tuple[Any, ...]:
    """A copy of a series: the caller's list goes on."""
    return tuple(given) if isinstance(given, Iterable) else given


@dataclass(frozen=True, kw_only=True)
class TurnIds:
    """Where a turn stands in the traces of its chatbot; None where its framework does not say."""

    trace_id: str | None = None
    span_id: str | None = None
    # The conversation, as the chatbot names it.
    session_id: str | None = None


NO_IDS = TurnIds()

# Gets each outcome, with the turn's TurnIds as its `tag`; one at a time, in a thread of its own.
OnScored = Callable[[Scored], object]

# Makes OpenAI's messages of a framework's own; it runs in a thread of ours.
Convert = Callable[[Sequence[Any]], Iterable[Mapping[str, Any]]]


class ServiceOptions(TypedDict, total=False):
    """Which service is asked, and how."""

    # Else TURNSCORE_URL, or http://localhost:3000.
    url: str | None
    # Else TURNSCORE_API_KEY.
    api_key: str | None
    tls: Tls | None
    # A client for threads of your own, in place of the three above. It is left open.
    client: Calls | None


class BackgroundOptions(ServiceOptions, total=False):
    """What scoring behind the chatbot's back takes."""

    # What becomes of the scores, such as a writer; else they are logged.
    on_scored: OnScored | None
    # Who scores; else the service's default ones.
    scorers: Sequence[str] | None
    # Turns that wait or are being scored; one more is dropped and counted.
    max_waiting: int
    # Turns that are being scored at once, each in a thread.
    concurrency: int
    # For one turn, retries included.
    timeout_seconds: float


def open_client(given: ServiceOptions, *, timeout_seconds: float, max_retries: int) -> Calls:
    """The caller's own client, or one for the given service. Raises ValueError for an address or key that is none."""
    own = given.get("client")
    if own is not None:
        return own
    return TurnScoreClient(
        given.get("url"),
        api_key=given.get("api_key"),
        tls=given.get("tls"),
        timeout_seconds=timeout_seconds,
        max_retries=max_retries,
    )


def check_positive(name: str, value: float) -> None:
    """Raises ValueError for what is no bound."""
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"{name} must be a number above 0")


def current_traceparent() -> str | None:
    """The active span as W3C Trace Context writes it, so that scores can be found with it."""
    span = _current_span()
    return None if span is None else f"00-{span.trace_id:032x}-{span.span_id:016x}-{int(span.trace_flags):02x}"


def current_ids(ids: TurnIds) -> TurnIds:
    """The ids, with the active span's where the framework gives none."""
    if ids.trace_id is not None or (span := _current_span()) is None:
        return ids
    return replace(ids, trace_id=f"{span.trace_id:032x}", span_id=ids.span_id or f"{span.span_id:016x}")


def _current_span() -> Any:
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return None
    context = trace.get_current_span().get_span_context()
    return context if context.is_valid else None


def spoken_turns(messages: Iterable[Mapping[str, Any]]) -> list[Turn]:
    """The turns, oldest first; none where the chatbot has not finished the last one. Raises InvalidRequestError."""
    try:
        mapped = map_messages([ChatMessage.model_validate(message) for message in messages])
    except ValidationError as error:
        raise invalid_request(error) from None
    return [] if mapped.goes_on or mapped.ends_silent else mapped.turns


def last_turn(messages: Iterable[Mapping[str, Any]]) -> ScoreRequest | None:
    """The last turn, where it is the chatbot's and has words; else None. Raises InvalidRequestError."""
    turns = spoken_turns(messages)
    if not turns or turns[-1].speaker != "system":
        return None
    return ScoreRequest(context=turns[:-1], response=turns[-1].text)


class RecentMessages(deque[dict[str, str]]):
    """The last messages that a dialogue's speakers said; `forgotten` counts those before them."""

    def __init__(self) -> None:
        super().__init__(maxlen=_defaults.BACKGROUND_MESSAGES)
        self.forgotten = 0

    def append(self, message: dict[str, str], /) -> None:
        self.forgotten += len(self) == self.maxlen
        super().append(message)


Messages = Iterable[Any]
_SECONDS_BETWEEN_WARNINGS = 60.0  # chosen: a service that is down is one line a minute


@dataclass(frozen=True, slots=True, kw_only=True)
class _Call:
    messages: tuple[Any, ...]
    earlier: tuple[Any, ...]  # of the caller's messages those that are not sent, only counted
    forgotten: int  # how many were said before all of these
    convert: Convert | None
    ids: TurnIds
    traceparent: str | None
    begin_at: float


class BackgroundScorer:
    """Takes turns from any thread. Raises ValueError, when it is made, for options that make no sense.

    `dropped` counts turns that found no room, `scored` and `failed` what became of the others; an answer that is no
    spoken turn, such as a tool call, is in none of them.
    """

    def __init__(self, **given: Unpack[BackgroundOptions]) -> None:
        check_names(given, BackgroundOptions.__optional_keys__)
        self._max_waiting = given.get("max_waiting", _defaults.BACKGROUND_WAITING)
        self._concurrency = given.get("concurrency", _defaults.BACKGROUND_THREADS)
        self._timeout_seconds = given.get("timeout_seconds", _defaults.TIMEOUT_SECONDS)
        for name, value in (("max_waiting", self._max_waiting), ("concurrency", self._concurrency)):
            check_positive(name, value)
        self._given = given
        self._scorers = given.get("scorers")
        self._on_scored = given.get("on_scored") or self._log
        self._is_closed = False
        self.dropped = self.scored = self.failed = 0
        self._begin()
        _FORKED.add(self)
        atexit.register(self.close)

    def submit(self, messages: Messages, ids: TurnIds = NO_IDS, convert: Convert | None = None) -> bool:
        """Hands over a dialogue whose last message is to be scored, and returns at once; False where it is dropped."""
        try:
            if not self._take_room():
                return False
            known = tuple(messages)
            recent = known[-_defaults.BACKGROUND_MESSAGES :]
            kept = recent if convert else tuple(dict(each) for each in recent)  # the chatbot's own go on
            job = _Call(
                messages=kept,
                earlier=known[: -_defaults.BACKGROUND_MESSAGES],
                forgotten=messages.forgotten if isinstance(messages, RecentMessages) else 0,
                convert=convert,
                ids=current_ids(ids),
                traceparent=current_traceparent(),
                begin_at=time.monotonic() + _defaults.BACKGROUND_PAUSE_SECONDS,
            )
            self._jobs.put(job)
        except Exception as error:
            self._leave(dropped=1)
            _LOGGER.error("a turn could not be submitted: %s", type(error).__name__)  # its words may be a turn's
            return False
        return True

    def wait_until_idle(self, seconds: float) -> bool:
        """Whether every submitted turn has its outcome within that time."""
        with self._changed:
            return self._changed.wait_for(lambda: self._held == 0, timeout=seconds)

    def close(self, goodbye_seconds: float = _defaults.BACKGROUND_EXIT_SECONDS) -> None:
        """Takes no more turns, and waits that long for those it has; also at the program's end."""
        self._is_closed = True
        atexit.unregister(self.close)
        if self._threads and not self.wait_until_idle(goodbye_seconds):
            _LOGGER.warning("the last %d turns are not scored: the time at the end was too short", self._held)
        for _ in self._threads:
            self._jobs.put(None)
        if self._given.get("client") is None and not self._held:
            self._client.close()

    def _begin(self) -> None:
        """Also in a forked child, which has none of its parent's threads and must not share its connections."""
        self._client = open_client(
            self._given, timeout_seconds=self._timeout_seconds, max_retries=_defaults.MAX_RETRIES
        )
        self._jobs: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._changed = threading.Condition()
        self._telling = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._held = 0
        self._warned_at = -_SECONDS_BETWEEN_WARNINGS

    def _take_room(self) -> bool:
        with self._changed:
            if self._is_closed or self._held >= self._max_waiting:
                self.dropped += 1
                return False
            self._held += 1
            if len(self._threads) < min(self._concurrency, self._held):
                thread = threading.Thread(target=self._work, name="turnscore-background", daemon=True)
                thread.start()
                self._threads.append(thread)
            return True

    def _leave(self, *, dropped: int = 0, scored: int = 0, failed: int = 0) -> None:
        with self._changed:
            self._held -= 1
            self.dropped += dropped
            self.scored += scored
            self.failed += failed
            self._changed.notify_all()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            outcome = None
            time.sleep(max(0.0, job.begin_at - time.monotonic()))  # the interpreter is the chatbot's meanwhile
            try:
                outcome = self._score(job)
                if outcome is not None:
                    with self._telling:
                        self._on_scored(outcome)
            except Exception as error:
                _LOGGER.error("a turn's outcome is lost: %s", type(error).__name__)
            finally:
                is_scored = outcome is not None and outcome.reply is not None
                self._leave(scored=int(is_scored), failed=int(outcome is not None and not is_scored))

    def _score(self, job: _Call) -> Scored | None:
        """What the service says; None where the last message is no turn of the chatbot's."""
        turn = last_turn(job.messages if job.convert is None else job.convert(job.messages))
        if turn is None:
            return None
        metadata = {"traceparent": job.traceparent} if job.traceparent else None
        ids = job.ids
        if self._given.get("on_scored") is None:  # a log names the turn, by its place where the framework does not
            earlier = job.convert(job.earlier) if job.convert and job.earlier else job.earlier
            known = [each for each in earlier if isinstance(each, Mapping)]
            spoken = [each for each in known if each.get("content") or each.get("parts")]
            before = job.forgotten + sum(each.get("role") in ("user", "assistant") for each in spoken)
            ids = replace(ids, span_id=ids.span_id or ids.trace_id or str(before + len(turn.context) + 1))
        try:
            reply = self._client.score(
                context=turn.context,
                response=turn.response,
                scorers=self._scorers,
                metadata=metadata,
                timeout_seconds=self._timeout_seconds,
            )
            return Scored(ids, reply, None)
        except TurnScoreError as error:
            return Scored(ids, None, error)

    def _log(self, scored: Scored) -> None:
        """Logs the outcome where no `on_scored` was given, with the turn's ids; failures at most once a minute."""
        if scored.reply is not None:
            ids = scored.tag if isinstance(scored.tag, TurnIds) else NO_IDS
            for name, score in scored.reply.scores.items():
                _LOGGER.info("conversation %s, turn %s: %s %s", ids.session_id or "-", ids.span_id, name, score)
            return
        if time.monotonic() - self._warned_at >= _SECONDS_BETWEEN_WARNINGS:
            self._warned_at = time.monotonic()
            code = scored.error.code if scored.error is not None else ""
            _LOGGER.warning("turns are not scored: %s (%d so far)", code, self.failed + 1)


_FORKED: "weakref.WeakSet[BackgroundScorer]" = weakref.WeakSet()


def _begin_in_child() -> None:
    for scorer in list(_FORKED):
        scorer._begin()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_in_child)
