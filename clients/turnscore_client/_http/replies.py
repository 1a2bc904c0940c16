"""Replies: makes a typed reply of an answer, or raises the typed error it stands for. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import TypeVar

from pydantic import BaseModel, ValidationError
from turnscore_wire import ErrorReply

from turnscore_client import _defaults
from turnscore_client._errors import ServiceError, UnexpectedReplyError, error_from_reply

R = TypeVar("R", bound=BaseModel)


@dataclass(frozen=True)
class Answer:
    """What came over the network. Header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def read_reply(answer: Answer, reply_type: type[R]) -> R:
    """The reply in the answer; raises the typed error of an answer that is an error or not turnscore's."""
    if answer.status != 200:
        raise read_error(answer)
    try:
        return reply_type.model_validate_json(answer.body)
    except ValidationError:
        raise _unexpected(answer) from None


def read_error(answer: Answer) -> ServiceError | UnexpectedReplyError:
    """The typed error that an answer with another status than 200 stands for."""
    try:
        error = error_from_reply(ErrorReply.model_validate_json(answer.body))
    except ValidationError:
        return _unexpected(answer)
    if error.retry_after_ms is None:
        error.retry_after_ms = retry_after_header_ms(answer.headers)
    return error


def retry_after_header_ms(headers: Mapping[str, str]) -> int | None:
    """Retry-After (RFC 9110, 10.2.3) in milliseconds; a date counts from the answer's own Date, as clocks differ."""
    value = headers.get("retry-after", "").strip()
    if re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,3})?", value):
        return round(float(value) * 1000)
    try:
        wait = parsedate_to_datetime(value) - parsedate_to_datetime(headers.get("date", ""))
    except (TypeError, ValueError):
        return None
    return max(0, round(wait.total_seconds() * 1000))


def _unexpected(answer: Answer) -> UnexpectedReplyError:
    kind = answer.headers.get("content-type", "no content type").partition(";")[0]
    return UnexpectedReplyError(
        f"status {answer.status} with a body that is not turnscore's ({kind}); is something else at this address?",
        answer.status,
        answer.body[: 4 * _defaults.BODY_START_CHARS].decode(errors="replace")[: _defaults.BODY_START_CHARS],
        answer.headers.get("x-request-id"),
    )


def unexpected_text(text: str | bytes) -> UnexpectedReplyError:
    """The error of a message in a conversation that is not turnscore's."""
    if isinstance(text, bytes):
        text = text[: 4 * _defaults.BODY_START_CHARS].decode(errors="replace")
    message = "a message that is not turnscore's; is something else at this address?"
    return UnexpectedReplyError(message, body_start=text[: _defaults.BODY_START_CHARS])
