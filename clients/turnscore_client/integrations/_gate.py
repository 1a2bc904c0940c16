"""Lets a reply that scores low be answered once more, within a time budget; in doubt the first reply stands."""

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar, Unpack

from turnscore_wire import Score

from turnscore_client import _defaults
from turnscore_client._background import (
    BackgroundOptions,
    BackgroundScorer,
    Convert,
    GateOptions,
    ServiceOptions,
    check_positive,
    current_traceparent,
    last_turn,
    open_client,
)
from turnscore_client._options import check_names
from turnscore_client._sync import run_now

T = TypeVar("T")
_LOGGER = logging.getLogger("turnscore_client.integrations")
_Dialogue = Callable[[], Iterable[Mapping[str, Any]]]  # makes OpenAI's messages of those before the reply


class QualityGate:
    """Lets a reply through whose value is `min_quality` or more; any thread and any event loop may ask it.

    `passed`, `low` and `unknown` count first replies by what was found. While the service fails again and again the
    gate stands open for some seconds without asking. Raises ValueError for options that make no sense.
    """

    def __init__(
        self,
        min_quality: float,
        *,
        scorer: str = "quality",
        budget_seconds: float = _defaults.GATE_BUDGET_SECONDS,
        **given: Unpack[ServiceOptions],
    ) -> None:
        check_positive("budget_seconds", budget_seconds)
        if not isinstance(min_quality, int | float) or min_quality != min_quality:
            raise ValueError("min_quality must be a number")
        self.min_quality = min_quality
        self.budget_seconds = budget_seconds
        self._scorer = scorer
        self._client = open_client(given, timeout_seconds=budget_seconds, max_retries=0)
        self._owns_client = given.get("client") is None
        self._threads, self._process = _start_threads(), os.getpid()
        self._failures = 0
        self._open_until = 0.0
        self.passed = self.low = self.unknown = 0

    def choose(
        self,
        messages: Iterable[Any],
        first: T,
        again: Callable[[Score], T | None],
        text_of: Callable[[T], str | None],
        convert: Convert | None = None,
    ) -> T:
        """The first reply, or the second where the first is low and the second not lower still.

        `messages` are OpenAI's, up to the user's last; or a framework's own, of which `convert` makes OpenAI's.
        `again` is called once at most, with the low score; None, or an exception, leaves the first reply. It cannot be
        interrupted, so the budget only decides whether it is begun.
        """

        async def judge(dialogue: _Dialogue, text: str, seconds: float) -> Score | None:
            return self._judge(dialogue, text, seconds, current_traceparent())

        async def answer(score: Score, seconds: float) -> T | None:
            return again(score) if seconds > 0 else None

        return run_now(self._choose(messages, first, text_of, convert, judge, answer))

    async def achoose(
        self,
        messages: Iterable[Any],
        first: T,
        again: Callable[[Score], Awaitable[T | None]],
        text_of: Callable[[T], str | None],
        convert: Convert | None = None,
    ) -> T:
        """The same for asyncio; a second answer that is not there when the budget ends is cancelled."""

        async def judge(dialogue: _Dialogue, text: str, seconds: float) -> Score | None:
            work = dialogue, text, seconds, current_traceparent()
            loop = asyncio.get_running_loop()
            return await _within(seconds, loop.run_in_executor(self._own_threads(), self._judge, *work))

        async def answer(score: Score, seconds: float) -> T | None:
            return await _within(seconds, again(score))

        return await self._choose(messages, first, text_of, convert, judge, answer)

    def close(self) -> None:
        """Ends the threads and, unless it was given, the client; what they are doing is not waited for."""
        self._own_threads().shutdown(wait=False, cancel_futures=True)
        if self._owns_client:
            self._client.close()

    def _own_threads(self) -> ThreadPoolExecutor:
        """A forked child has none of its parent's threads, and starts its own."""
        if self._process != os.getpid():
            self._threads, self._process = _start_threads(), os.getpid()
        return self._threads

    async def _choose(
        self,
        messages: Iterable[Any],
        first: T,
        text_of: Callable[[T], str | None],
        convert: Convert | None,
        judge: Callable[[_Dialogue, str, float], Awaitable[Score | None]],
        again: Callable[[Score, float], Awaitable[T | None]],
    ) -> T:
        """The chosen reply. `judge` and `again` get the seconds that are left."""
        ends_at = time.monotonic() + self.budget_seconds
        recent = tuple(messages)[-_defaults.BACKGROUND_MESSAGES :]
        dialogue = partial(convert, recent) if convert else lambda: recent

        async def score_of(reply: T | None) -> Score | None:
            words = None if reply is None else text_of(reply)
            return await judge(dialogue, words, ends_at - time.monotonic()) if words and words.strip() else None

        try:
            score = await score_of(first)
            if score is None:
                self.unknown += 1
                return first
            if score.value >= self.min_quality:
                self.passed += 1
                return first
            self.low += 1
            second = await again(score, ends_at - time.monotonic())
            if second is None or not (text_of(second) or "").strip():
                return first
            other = await score_of(second)
            return first if other is not None and other.value < score.value else second
        except Exception as error:
            _log_failure(error)
            return first

    def _judge(self, dialogue: _Dialogue, text: str, seconds: float, traceparent: str | None) -> Score | None:
        """The score of a reply to the dialogue; None where there is none in time."""
        if seconds <= 0 or time.monotonic() < self._open_until:
            return None
        try:
            turn = last_turn([*dialogue(), {"role": "assistant", "content": text}])
            if turn is None:
                return None
            reply = self._client.score(
                context=turn.context,
                response=turn.response,
                scorers=[self._scorer],
                timeout_seconds=seconds,
                metadata={"traceparent": traceparent} if traceparent else None,
            )
        except Exception as error:
            self._note_failure(error)
            return None
        self._failures = 0
        return reply.scores.get(self._scorer)

    def _note_failure(self, error: Exception) -> None:
        """After some failures in a row the gate stands open for a while: an unwell service delays no more replies."""
        self._failures += 1
        if self._failures >= _defaults.GATE_FAILURES:
            self._failures = 0
            self._open_until = time.monotonic() + _defaults.GATE_OPEN_SECONDS
            _log_failure(error)


def _start_threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_defaults.GATE_THREADS, thread_name_prefix="turnscore-gate")


async def _within(seconds: float, waiting: Awaitable[T | None]) -> T | None:
    """The result, or None where it is not there in time."""
    try:
        return await asyncio.wait_for(waiting, max(0.0, seconds))
    except TimeoutError:
        return None


def _log_failure(error: Exception) -> None:
    """What went wrong, in a word: an error's message may hold the dialogue's."""
    _LOGGER.warning("the gate let a reply pass unjudged: %s", getattr(error, "code", type(error).__name__))


class Hook:
    """Made of an integration's options. Raises TypeError for an unknown one, ValueError for one without sense."""

    def __init__(self, given: GateOptions) -> None:
        check_names(given, GateOptions.__optional_keys__)
        background: BackgroundOptions = {name: value for name, value in given.items() if name in _BACKGROUND}  # type: ignore[assignment]
        service: ServiceOptions = {name: value for name, value in given.items() if name in _SERVICE}  # type: ignore[assignment]
        least = given.get("min_quality")
        self.gate = (
            None
            if least is None
            else QualityGate(
                least,
                scorer=given.get("gate_scorer", "quality"),
                budget_seconds=given.get("budget_seconds", _defaults.GATE_BUDGET_SECONDS),
                **service,
            )
        )
        self.background = BackgroundScorer(**background)


_BACKGROUND = BackgroundOptions.__optional_keys__
_SERVICE = ServiceOptions.__optional_keys__
