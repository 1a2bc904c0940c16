"""File scoring: each line of a file through the service at a pace that it can keep, one row a line, in order.

A line is asked again while the service has no room, restarts or is gone, for as long as the caller says. A line that
fails for reasons of its own becomes a row with an error; nothing about one line stops the others.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from turnscore_wire import DialogueReply, ErrorCode, Limits, ScoreReply

from turnscore_client import _defaults
from turnscore_client._async.calls import AsyncCalls
from turnscore_client._clock import Clock
from turnscore_client._errors import (
    DeadlineExceededError,
    ServiceError,
    TurnScoreError,
    UnauthenticatedError,
    UnexpectedReplyError,
)
from turnscore_client._files.lines import Line
from turnscore_client._files.output import Row
from turnscore_client._files.pace import Pace
from turnscore_client._files.rows import Asked, describe, kept_of, read_line, row_of
from turnscore_client._retry import is_retryable

T = TypeVar("T")
_NOBODY_BEHIND = (502, 503, 504)
"""What a proxy answers while the service behind it restarts (RFC 9110, 15.6)."""


@dataclass(frozen=True)
class Outcome:
    """What became of one line: the row to write."""

    line: Line
    row: Row


class StoppedError(Exception):
    """The service took no line for as long as it is waited for. `reason` is its last answer."""

    def __init__(self, reason: TurnScoreError, waited_seconds: float) -> None:
        waited = f"the service took no line for {waited_seconds:.0f} s; the last answer: " if waited_seconds else ""
        super().__init__(f"{waited}{reason}")
        self.reason = reason


class UndeliveredError(Exception):
    """Who gets the rows did not take one, which is not written to the output then."""


@dataclass(frozen=True, kw_only=True)
class Patient:
    """Asks the service at its pace, and again while that may help, for `wait_seconds` at most."""

    pace: Pace
    clock: Clock
    wait_seconds: float
    timeout_seconds: float
    probe: Callable[[float], Awaitable[object]] | None = None
    """Asks something small, which tells a line that is too much from a service that takes none."""

    async def ask(self, call: Callable[[float], Awaitable[T]]) -> T:
        """What the call returns, which takes its timeout.

        Raises its error where asking again does not help, or did not for `wait_seconds` though the service answers
        something small; StoppedError, for all lines, where it does not.
        """
        refused_at: float | None = None
        timeout = self.timeout_seconds
        while True:
            begun_in = await self.pace.begin()
            try:
                answer = await call(timeout)
            except TurnScoreError as error:
                now = self.clock.now()
                if isinstance(error, UnauthenticatedError):
                    raise self._stop(error, 0.0) from error
                if not _may_pass(error):
                    self.pace.answered()
                    raise
                refused_at = now if refused_at is None else refused_at
                if now - refused_at >= self.wait_seconds:
                    if await self._answers():
                        raise
                    raise self._stop(error, now - refused_at) from error
                pause = self._note(error, begun_in)
                if isinstance(error, DeadlineExceededError):
                    timeout = min(2 * timeout, max(self.timeout_seconds, self.wait_seconds))
            else:
                self.pace.answered()
                return answer
            finally:
                self.pace.end()
            await self.clock.sleep_async(pause)

    def _stop(self, error: TurnScoreError, waited: float) -> StoppedError:
        stopped = StoppedError(error, waited)
        self.pace.stop(stopped)
        return stopped

    async def _answers(self) -> bool:
        try:
            if self.probe is not None:
                await self.probe(self.timeout_seconds)
        except TurnScoreError:
            return False
        return self.probe is not None

    def _note(self, error: TurnScoreError, begun_in: int) -> float:
        """Lets the pace know; the seconds before the next attempt."""
        hint_ms = error.retry_after_ms if isinstance(error, ServiceError) else None
        has_no_room = isinstance(error, ServiceError) and error.code != ErrorCode.NOT_READY
        return self.pace.refused(begun_in, hint_ms, is_gone=not has_no_room)


def _may_pass(error: TurnScoreError) -> bool:
    """Whether the same line may be answered later: no room, no time, nobody there, or a proxy that says so."""
    if isinstance(error, UnexpectedReplyError):
        return error.status in _NOBODY_BEHIND
    return is_retryable(error) or isinstance(error, DeadlineExceededError)


async def score_lines(
    client: AsyncCalls, lines: Iterable[Line], scorers: Sequence[str] | None, patient: Patient, limits: Limits
) -> AsyncGenerator[Outcome, None]:
    """One outcome a line, in the lines' order. A bounded number is read ahead. Raises StoppedError."""
    tasks: deque[asyncio.Task[Outcome]] = deque()

    async def score(line: Line) -> Outcome:
        return await score_line(client, line, scorers, patient, limits)

    try:
        for line in lines:
            if len(tasks) >= patient.pace.most * _defaults.LINES_AHEAD:
                yield await tasks.popleft()
            tasks.append(asyncio.create_task(score(line)))
        while tasks:
            yield await tasks.popleft()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def score_line(
    client: AsyncCalls, line: Line, scorers: Sequence[str] | None, patient: Patient, limits: Limits
) -> Outcome:
    """The outcome of one line, with all its fields; the reply's go before them."""
    try:
        asked = read_line(line.raw, scorers, limits)
        reply = await patient.ask(lambda timeout: _call(client, asked, timeout))
        row = row_of(asked, reply)
    except TurnScoreError as error:
        return Outcome(line, {**kept_of(line.raw), "line": line.number, "error": describe(error)})
    return Outcome(line, {**row, "line": line.number})


async def _call(client: AsyncCalls, asked: Asked, timeout_seconds: float) -> ScoreReply | DialogueReply:
    fields: dict[str, Any] = {**asked.fields, "timeout_seconds": timeout_seconds}
    if asked.kind == "response":
        return await client.score(**fields)
    return await client.score_dialogue(**fields)
