"""Errors: everything the client raises about a call, in one tree.

TurnScoreError                    code
├── ServiceError                                       the service refused; .message .field .retry_after_ms .request_id
│   ├── InvalidRequestError       invalid_request      a field is wrong and named; found here before anything is sent
│   ├── UnauthenticatedError      unauthenticated      the API key is missing or wrong
│   ├── NotFoundError             not_found            there is no such path
│   ├── TooLargeError             too_large            beyond the service's limits, which `models()` returns
│   ├── OverloadedError           overloaded           no room at this moment; retried
│   ├── InternalError             internal             the service failed on this request
│   ├── NotReadyError             not_ready            models are loading or the service is draining; retried
│   └── DeadlineExceededError     deadline_exceeded    the time ran out, at the service or here
├── ConnectionFailedError         connection_failed    no answer came over the network; retried
└── UnexpectedReplyError          unexpected_reply     the answer is not turnscore's, such as a proxy's page

Arguments of a constructor that make no sense (a broken URL, a negative timeout) are a ValueError.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import ClassVar

from turnscore_wire import ErrorCode, ErrorDetail, ErrorReply

from turnscore_client import _defaults


class TurnScoreError(Exception):
    """Something went wrong with a call; `code` says what, in one word a program can branch on."""

    code: ClassVar[str]


class ServiceError(TurnScoreError):
    """The request was refused, with a code of the wire's error table."""

    code: ClassVar[ErrorCode]

    def __init__(
        self, message: str, field: str | None = None, retry_after_ms: int | None = None, request_id: str | None = None
    ) -> None:
        super().__init__(message, field, retry_after_ms, request_id)
        self.message = message
        self.field = field
        self.retry_after_ms = retry_after_ms
        self.request_id = request_id

    def __str__(self) -> str:
        """The code, the field if there is one, and the sentence."""
        where = f" ({self.field})" if self.field else ""
        return f"{self.code}{where}: {self.message}"

    def detail(self) -> ErrorDetail:
        return ErrorDetail(code=self.code, message=self.message, field=self.field, retry_after_ms=self.retry_after_ms)


class InvalidRequestError(ServiceError):
    """A field of the request is wrong; `field` is its path, such as `context.0.speaker`."""

    code = ErrorCode.INVALID_REQUEST


class UnauthenticatedError(ServiceError):
    """The service wants an API key and got none, or a wrong one."""

    code = ErrorCode.UNAUTHENTICATED


class NotFoundError(ServiceError):
    """There is no such path: an older service, or a wrong base URL."""

    code = ErrorCode.NOT_FOUND


class TooLargeError(ServiceError):
    """Something in the request is larger than the service's limits allow."""

    code = ErrorCode.TOO_LARGE


class OverloadedError(ServiceError):
    """The service had no room for more work, each time it was asked."""

    code = ErrorCode.OVERLOADED


class InternalError(ServiceError):
    """The service failed on this request; its log has more under `request_id`."""

    code = ErrorCode.INTERNAL


class NotReadyError(ServiceError):
    """The service could not score yet, or any more, each time it was asked."""

    code = ErrorCode.NOT_READY


class DeadlineExceededError(ServiceError):
    """The time of the call ran out before its answer was there."""

    code = ErrorCode.DEADLINE_EXCEEDED


class ConnectionFailedError(TurnScoreError):
    """No answer came: the host is unknown, refused, or broke the connection off."""

    code = "connection_failed"


class UnexpectedReplyError(TurnScoreError):
    """An answer came that turnscore does not give. `body_start` holds its first characters."""

    code = "unexpected_reply"

    def __init__(
        self, message: str, status: int | None = None, body_start: str = "", request_id: str | None = None
    ) -> None:
        super().__init__(message, status, body_start, request_id)
        self.message = message
        self.status = status
        self.body_start = body_start
        self.request_id = request_id

    def __str__(self) -> str:
        """The sentence; the start of the body is in `body_start`."""
        return self.message


ERROR_CLASSES: Mapping[ErrorCode, type[ServiceError]] = MappingProxyType(
    {each.code: each for each in ServiceError.__subclasses__()}
)


def start_of(body: bytes | bytearray) -> str:
    """The first characters of what came instead of a reply."""
    return bytes(body[: 4 * _defaults.BODY_START_CHARS]).decode(errors="replace")[: _defaults.BODY_START_CHARS]


def error_from_reply(reply: ErrorReply) -> ServiceError:
    """The typed error an error reply stands for, for instance one of the results of `score_batch`."""
    return error_from_detail(reply.error, reply.request_id)


def error_from_detail(error: ErrorDetail, request_id: str | None = None) -> ServiceError:
    """The typed error that one error of a reply stands for, such as those in `errors`."""
    return ERROR_CLASSES[error.code](error.message, error.field, error.retry_after_ms, request_id)


@contextmanager
def needs_extra(extra: str, what: str) -> Iterator[None]:
    """Imports inside raise an ImportError that says what to install."""
    try:
        yield
    except ImportError as error:
        raise ImportError(
            f"{what} needs the extra `{extra}` of turnscore-client (in a checkout: pip install './clients[{extra}]')",
            name=error.name,
        ) from error
