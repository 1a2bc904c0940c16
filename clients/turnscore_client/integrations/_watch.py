"""The watch: scores a chatbot's turns behind its back, in threads of its own. Never waits, never raises, logs no text.

The chatbot hands a turn over in some microseconds. What finds no room is dropped and counted.
"""

import atexit
import logging
import os
import queue
import threading
import time
import weakref
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Unpack

from turnscore_client import _defaults
from turnscore_client._background import Scored
from turnscore_client._errors import TurnScoreError
from turnscore_client._options import check_names
from turnscore_client.integrations._options import (
    NO_IDS,
    Convert,
    TurnIds,
    WatchOptions,
    check_positive,
    open_client,
)
from turnscore_client.integrations._spoken import last_turn
from turnscore_client.integrations._trace import current_ids, current_traceparent

Messages = Iterable[Any]
_LOGGER = logging.getLogger("turnscore_client.integrations")
_SECONDS_BETWEEN_WARNINGS = 60.0  # chosen: a service that is down is one line a minute


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    messages: tuple[Any, ...]
    convert: Convert | None
    ids: TurnIds
    traceparent: str | None
    begin_at: float


class TurnWatch:
    """Takes turns from any thread. Raises ValueError, when it is made, for options that make no sense.

    `dropped` counts turns that found no room, `scored` and `failed` what became of the others; an answer that is no
    spoken turn, such as a tool call, is in none of them.
    """

    def __init__(self, **given: Unpack[WatchOptions]) -> None:
        check_names(given, WatchOptions.__optional_keys__)
        self._max_waiting = given.get("max_waiting", _defaults.BACKGROUND_WAITING)
        self._concurrency = given.get("concurrency", _defaults.WATCH_THREADS)
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

    def hand_over(self, messages: Messages, ids: TurnIds = NO_IDS, convert: Convert | None = None) -> bool:
        """Hands over a dialogue whose last message is to be scored, and returns at once; False where it is dropped."""
        try:
            if not self._take_room():
                return False
            recent = tuple(messages)[-_defaults.WATCH_MESSAGES :]
            kept = recent if convert else tuple(dict(each) for each in recent)  # the chatbot's own go on
            job = _Job(
                messages=kept,
                convert=convert,
                ids=current_ids(ids),
                traceparent=current_traceparent(),
                begin_at=time.monotonic() + _defaults.WATCH_PAUSE_SECONDS,
            )
            self._jobs.put(job)
        except Exception as error:
            self._leave(dropped=1)
            _LOGGER.error("a turn could not be handed over: %s", type(error).__name__)  # its words may be a turn's
            return False
        return True

    def wait_until_idle(self, seconds: float) -> bool:
        """Whether every turn that was handed over has its outcome within that time."""
        with self._changed:
            return self._changed.wait_for(lambda: self._held == 0, timeout=seconds)

    def close(self, goodbye_seconds: float = _defaults.WATCH_GOODBYE_SECONDS) -> None:
        """Takes no more turns, and waits that long for those it has; also at the program's end."""
        self._is_closed = True
        atexit.unregister(self.close)
        if self._threads and not self.wait_until_idle(goodbye_seconds):
            _LOGGER.warning("%d turns handed over last are not scored: the time at the end was too short", self._held)
        for _ in self._threads:
            self._jobs.put(None)
        if self._given.get("client") is None and not self._held:
            self._client.close()

    def _begin(self) -> None:
        """Also in a forked child, which has none of its parent's threads and must not share its connections."""
        self._client = open_client(
            self._given, timeout_seconds=self._timeout_seconds, max_retries=_defaults.MAX_RETRIES
        )
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
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
                thread = threading.Thread(target=self._work, name="turnscore-watch", daemon=True)
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

    def _score(self, job: _Job) -> Scored | None:
        """What the service says; None where the last message is no turn of the chatbot's."""
        turn = last_turn(job.messages if job.convert is None else job.convert(job.messages))
        if turn is None:
            return None
        metadata = {"traceparent": job.traceparent} if job.traceparent else None
        try:
            reply = self._client.score(
                context=turn.context,
                response=turn.response,
                scorers=self._scorers,
                metadata=metadata,
                timeout_seconds=self._timeout_seconds,
            )
        except TurnScoreError as error:
            return Scored(job.ids, None, error)
        return Scored(job.ids, reply, None)

    def _log(self, scored: Scored) -> None:
        """The outcome in the log, where nobody else wants it. An unwell service is one line a minute."""
        if scored.reply is not None:
            for name, score in scored.reply.scores.items():
                _LOGGER.info("%s %.4f percentile %s %s", name, score.value, score.percentile, score.label or "")
            return
        if time.monotonic() - self._warned_at >= _SECONDS_BETWEEN_WARNINGS:
            self._warned_at = time.monotonic()
            code = scored.error.code if scored.error is not None else ""
            _LOGGER.warning("turns are not scored: %s (%d so far)", code, self.failed + 1)


_FORKED: "weakref.WeakSet[TurnWatch]" = weakref.WeakSet()


def _begin_in_child() -> None:
    for watch in list(_FORKED):
        watch._begin()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_in_child)
