"""Domain errors: what can go wrong while scoring, without any word of HTTP or gRPC.

ScoringError                  code                 raised when
├── InvalidRequestError       invalid_request      a field is wrong; it is named
├── UnauthenticatedError      unauthenticated      the API key is missing or unknown
├── UnknownPathError          not_found            there is no such path
├── TooLargeError             too_large            a size is beyond the limits
├── OverloadedError           overloaded           there is no room for more work at this moment
├── NotReadyError             not_ready            models are loading, were refused, or the service is draining
├── DeadlineExceededError     deadline_exceeded    the caller's time ran out
└── FailedScoringError        internal             the runtime failed on this item
    └── NotComputableError                         ... and returned something that is not a number
"""

from typing import Any, ClassVar

from turnscore_wire import ErrorCode, ErrorDetail


class CallerLeftError(Exception):
    """The caller closed the connection: no answer can be sent."""


class ScoringError(Exception):
    """An error with a code that callers can branch on; its message holds no dialogue text."""

    code: ClassVar[ErrorCode]

    def __init__(self, message: str, *, field: str | None = None, retry_after_ms: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.field = field
        self.retry_after_ms = retry_after_ms

    def detail(self) -> ErrorDetail:
        return ErrorDetail(code=self.code, message=self.message, field=self.field, retry_after_ms=self.retry_after_ms)


class InvalidRequestError(ScoringError):
    """A field of the request is wrong; `field` names it."""

    code = ErrorCode.INVALID_REQUEST


class UnauthenticatedError(ScoringError):
    """The API key is missing or unknown."""

    code = ErrorCode.UNAUTHENTICATED


class UnknownPathError(ScoringError):
    code = ErrorCode.NOT_FOUND


class TooLargeError(ScoringError):
    """Something in the request is larger than the service's limits allow."""

    code = ErrorCode.TOO_LARGE


class OverloadedError(ScoringError):
    """There is no room for more work; `retry_after_ms` estimates when there will be."""

    code = ErrorCode.OVERLOADED


class NotReadyError(ScoringError):
    """The service cannot score at this time; the message says why."""

    code = ErrorCode.NOT_READY


class DeadlineExceededError(ScoringError):
    """The request's time ran out before its score was there."""

    code = ErrorCode.DEADLINE_EXCEEDED


class FailedScoringError(ScoringError):
    """The runtime failed on this item, or returned something that is not a number."""

    code = ErrorCode.INTERNAL

    def __init__(self, message: str = "an internal error occurred; the service's log has the details", **more: Any):
        super().__init__(message, **more)


class NotComputableError(FailedScoringError):
    """What the model gave for this item is not a number."""
