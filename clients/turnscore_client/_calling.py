"""Calling: what both clients share between a checked call and the request that is sent for it. Pure."""

from typing import TypeVar

from pydantic import BaseModel

from turnscore_client._calls import Call
from turnscore_client._clock import Clock
from turnscore_client._http import Outgoing
from turnscore_client._retry import Attempts, RetryPolicy
from turnscore_client._settings import ClientSettings, check_timeout

R = TypeVar("R", bound=BaseModel)


class Caller:
    """Begins calls and prepares each of their attempts, by the settings of one client."""

    def __init__(self, settings: ClientSettings, clock: Clock) -> None:
        self._settings = settings
        self._policy = RetryPolicy(settings.max_retries)
        self._clock = clock

    def begin(self, call: Call[R], timeout_seconds: float | None) -> Attempts:
        """The attempts of a call that starts at this moment."""
        if timeout_seconds is None:
            timeout_seconds = self._settings.timeout_seconds
        check_timeout(timeout_seconds)
        return Attempts(self._policy, self._clock.now, timeout_seconds, call.deadline_ms)

    def outgoing(self, call: Call[R], attempts: Attempts) -> Outgoing:
        """The request of one attempt, which carries the time that is left."""
        return Outgoing(
            call.method,
            call.path,
            self._settings.headers(call.request_id),
            call.body(attempts.deadline_ms_left),
            attempts.seconds_left,
        )
