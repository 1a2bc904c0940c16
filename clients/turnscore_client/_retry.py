"""When a call is sent again and how much time it has, by a clock that tests replace."""

import asyncio
import math
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from turnscore_wire import ERROR_TABLE, MAX_DEADLINE_MS

from turnscore_client import _defaults, _errors
from turnscore_client._settings import check_timeout


class SystemClock:
    def now(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Blocks this thread: the pause before another attempt, which the server's advice or the backoff asks for."""
        time.sleep(seconds)

    async def sleep_async(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class OutOfTimeError(Exception):
    """The time given to one request ran out. Never leaves this package."""


@dataclass(frozen=True, kw_only=True)
class RetryPolicy:
    """How long a call may take, how often it is sent again, and the delays between."""

    timeout_seconds: float = _defaults.TIMEOUT_SECONDS
    max_retries: int = _defaults.MAX_RETRIES
    now: Callable[[], float] = time.monotonic
    draw: Callable[[], float] = random.random  # a number from 0 to 1 for each delay

    def delay_seconds(self, failures: int, hint_ms: int | None) -> float:
        """The delay after that many failures; never shorter than the service's hint, where it gave one."""
        if hint_ms is not None:
            return hint_ms / 1000 * (1 + _defaults.HINT_JITTER * self.draw())
        doublings = min(failures - 1, 60)  # more would only overflow
        full = min(_defaults.FIRST_DELAY_SECONDS * 2.0**doublings, _defaults.LONGEST_DELAY_SECONDS)
        return full * (1 - _defaults.JITTER * self.draw())

    def with_timeout(self, timeout_seconds: float | None) -> "RetryPolicy":
        """The same with another timeout, where one is given."""
        if timeout_seconds is None:
            return self
        check_timeout(timeout_seconds)
        return replace(self, timeout_seconds=timeout_seconds)


def is_retryable(error: _errors.TurnScoreError) -> bool:
    """Whether the same call may succeed later. Scoring changes nothing, so that sending it twice is safe."""
    if isinstance(error, _errors.ServiceError):
        return ERROR_TABLE[error.code].is_retryable
    if isinstance(error, _errors.UnexpectedReplyError):
        # what a proxy answers while the service behind it restarts (RFC 9110, 15.6)
        return error.status in (502, 503, 504)
    return isinstance(error, _errors.ConnectionFailedError)


class Attempts:
    """The attempts of one call, from its start to its one deadline."""

    def __init__(self, policy: RetryPolicy, deadline_ms: int | None = None) -> None:
        self._policy = policy
        self._now = policy.now
        self._started_at = self._now()
        self._deadline_ms = deadline_ms
        self._failures = 0

    def seconds_left(self) -> float:
        """What is left for the whole call; not positive once its time ran out."""
        return self._started_at + self._policy.timeout_seconds - self._now()

    def check_time(self) -> float:
        """What is left for the whole call. Raises OutOfTimeError where that is nothing."""
        left = self.seconds_left()
        if left <= 0:
            raise OutOfTimeError
        return left

    def deadline_ms_left(self, own_deadline_ms: int | None) -> int:
        """The deadline to send: what is left of the call, or of the caller's own deadline when that is less."""
        return max(1, math.floor(min(self._useful_seconds_left(own_deadline_ms) * 1000, MAX_DEADLINE_MS)))

    def out_of_time(self, request_id: str | None = None) -> _errors.DeadlineExceededError:
        """The error of a call whose time ran out on this side."""
        return _errors.DeadlineExceededError(
            f"no answer within {self._policy.timeout_seconds:g} s", request_id=request_id
        )

    def delay_after(self, error: _errors.TurnScoreError) -> float | None:
        """Seconds to wait before the next attempt; None when there is none, and the error is the call's."""
        self._failures += 1
        if not is_retryable(error) or self._failures > self._policy.max_retries:
            return None
        hint_ms = error.retry_after_ms if isinstance(error, _errors.ServiceError) else None
        delay = self._policy.delay_seconds(self._failures, hint_ms)
        return delay if delay < self._useful_seconds_left(self._deadline_ms) else None

    def _useful_seconds_left(self, deadline_ms: int | None) -> float:
        left = self.seconds_left()
        return left if deadline_ms is None else min(left, self._started_at + deadline_ms / 1000 - self._now())
