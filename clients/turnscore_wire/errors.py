"""Error codes: the one table from which every door and every client takes its statuses."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from pydantic import BaseModel, ConfigDict, Field


class ErrorCode(StrEnum):
    """What went wrong, in one word a program can branch on."""

    INVALID_REQUEST = "invalid_request"
    UNAUTHENTICATED = "unauthenticated"
    NOT_FOUND = "not_found"
    TOO_LARGE = "too_large"
    OVERLOADED = "overloaded"
    INTERNAL = "internal"
    NOT_READY = "not_ready"
    DEADLINE_EXCEEDED = "deadline_exceeded"


@dataclass(frozen=True)
class ErrorRule:
    """How each door reports one code, and whether the same call may be sent again."""

    http_status: int
    grpc_code: str
    is_retryable: bool


ERROR_TABLE: Mapping[ErrorCode, ErrorRule] = MappingProxyType(
    {
        ErrorCode.INVALID_REQUEST: ErrorRule(400, "INVALID_ARGUMENT", is_retryable=False),
        ErrorCode.UNAUTHENTICATED: ErrorRule(401, "UNAUTHENTICATED", is_retryable=False),
        ErrorCode.NOT_FOUND: ErrorRule(404, "NOT_FOUND", is_retryable=False),
        ErrorCode.TOO_LARGE: ErrorRule(413, "OUT_OF_RANGE", is_retryable=False),
        ErrorCode.OVERLOADED: ErrorRule(429, "RESOURCE_EXHAUSTED", is_retryable=True),
        ErrorCode.INTERNAL: ErrorRule(500, "INTERNAL", is_retryable=False),
        ErrorCode.NOT_READY: ErrorRule(503, "UNAVAILABLE", is_retryable=True),
        ErrorCode.DEADLINE_EXCEEDED: ErrorRule(504, "DEADLINE_EXCEEDED", is_retryable=False),
    }
)


class ErrorDetail(BaseModel):
    """One error: a code for programs, a sentence for people, and the field it is about."""

    model_config = ConfigDict(frozen=True)

    code: ErrorCode
    message: str = Field(description="One sentence for a person; never contains dialogue text.")
    field: str | None = Field(
        default=None, description="Path of the request field at fault, such as `context.0.speaker`."
    )
    retry_after_ms: int | None = Field(
        default=None, description="Milliseconds after which the same call may succeed; only when known."
    )


class ErrorReply(BaseModel):
    """The body of every unsuccessful reply, on every path."""

    model_config = ConfigDict(frozen=True)

    error: ErrorDetail
    request_id: str
