"""The error table of the service and the one form of its errors, and sentences for refused fields."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from pydantic import BaseModel, ConfigDict, Field, ValidationError


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
    """How HTTP and gRPC report one code, and whether the same call may be sent again."""

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


# Longer field paths are cut: only an unknown field's own name can be so long.
MAX_FIELD_CHARS = 200

# The field that is named where no single field is at fault.
BODY_FIELD = "body"

NAMESPACE_PATTERN = r"^[A-Za-z0-9_-]{1,64}$"
CONVERSATION_PATTERN = r"^[!-~]{1,128}$"
# Pydantic's own message of a pattern repeats it.
_PATTERN_WORDS = {
    NAMESPACE_PATTERN: "must be 1 to 64 of the characters a-z, A-Z, 0-9, _ and -",
    CONVERSATION_PATTERN: "must be 1 to 128 visible ASCII characters without spaces",
}

# What pydantic says when it reads JSON; of parsed values it speaks of dictionaries, lists and our classes' names.
_JSON_WORDS = {
    "model_type": "Input should be an object",
    "dict_type": "Input should be an object",
    "list_type": "Input should be a valid array",
}


def describe_refusal(error: ValidationError, prefix: str = "") -> tuple[str, str]:
    """The first fault as (field, message): the field's path from the root, the broken rule, never what was sent."""
    faults = error.errors(include_url=False, include_input=False)
    first = faults[0]
    # A union's member with validators is named by them.
    path = ".".join([*filter(None, [prefix]), *(part for part in map(str, first["loc"]) if "function-" not in part)])
    # An unknown field's name is the caller's own: it may be long, or hold what no reply can carry.
    printable = path.encode(errors="replace").decode()[:MAX_FIELD_CHARS]
    message = _PATTERN_WORDS.get(first.get("ctx", {}).get("pattern", ""), _JSON_WORDS.get(first["type"], first["msg"]))
    if first["loc"][-1:] == ("speaker",) and any(each["loc"] == (*first["loc"][:-1], "role") for each in faults):
        message += "; a turn has speaker and text: chat messages with role and content go in `messages`"
    return printable or BODY_FIELD, message[:1].lower() + message[1:]
