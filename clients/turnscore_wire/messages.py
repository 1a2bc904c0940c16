"""Turns, OpenAI's chat messages mapped to turns, and the service's limits on both.

Roles are mapped, never renamed: OpenAI's `system` is a prompt and no speaker. Everything that no speaker reads
(prompts, calls and results of tools, reasoning) is left out as soon as a message is read, so that a client sends
none of it.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NoReturn, Self, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PositiveInt, ValidationError, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

# The longest deadline a request may name: ten minutes.
MAX_DEADLINE_MS = 600_000

# A caller's request id; the service replaces any other by one of its own.
REQUEST_ID_PATTERN = r"[A-Za-z0-9._:-]{1,128}"


class Limits(BaseModel):
    """A request beyond any of these is refused as `too_large`, before any work is done.

    The defaults are chosen: above the longest of the public dialogues turnscore was built on (measured in ConvAI 2017,
    DSTC9 and DBDC3: 630 turns, 4,924 characters a turn).
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    max_text_chars: PositiveInt = Field(default=8_000, description="Characters in one turn or response.")
    max_turns: PositiveInt = Field(
        default=1024,
        description="Turns in one context or dialogue; as many messages, and four times as many parts in them.",
    )
    max_items: PositiveInt = Field(default=256, description="Items in one batch request.")
    max_candidates: PositiveInt = Field(default=64, description="Candidates in one rank request.")
    max_body_bytes: PositiveInt = Field(default=1024 * 1024, description="Bytes in one request body.")


Speaker = Literal["user", "system"]


def refuse_broken(text: str) -> str:
    """The text. Raises PydanticCustomError for characters that not every part of the way can carry."""
    if "\x00" in text:
        raise PydanticCustomError("nul_character", "must not contain a NUL character")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise PydanticCustomError("lone_surrogate", "must not contain a lone surrogate") from None
    return text


# White space, and what only formats what stands around it, such as a joiner of emoji: by itself it shows nothing.
_BLANK = re.compile(r"[\s\xad\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff]*")


def is_blank(text: str) -> bool:
    """Whether the text says nothing: it has no character that is seen."""
    return _BLANK.fullmatch(text) is not None


def _refuse_blank(text: str) -> str:
    if _BLANK.fullmatch(text):
        raise PydanticCustomError("blank_text", "must not be empty")
    return text


Text = Annotated[str, AfterValidator(refuse_broken)]
SpokenText = Annotated[Text, AfterValidator(_refuse_blank), Field(json_schema_extra={"minLength": 1})]


class WireRequest(BaseModel):
    """What everything a caller sends shares: no type is converted, no unknown field is taken."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class Turn(WireRequest):
    """One turn of a dialogue. The text of a context turn may be empty; it is then ignored."""

    speaker: Speaker
    text: Text


MessageRole = Literal["user", "assistant", "system", "developer", "tool", "function"]

_ROLES = frozenset(get_args(MessageRole))
_SPEAKERS = frozenset({"user", "assistant"})
_TEXT_PARTS = frozenset({"text", "input_text", "output_text", "refusal"})
_SKIPPED_PARTS = frozenset(
    {"image", "image_url", "input_image", "audio", "audio_url", "input_audio", "output_audio", "video", "video_url"}
    | {"input_video", "file", "input_file", "document", "blob", "uri"}
)
_CALL_PARTS = frozenset({"tool_call", "tool_use", "function_call", "server_tool_call", "server_tool_use"})
_RESULT_PARTS = frozenset({"tool_call_response", "tool_result", "server_tool_call_response", "function_call_output"})
_UNSAID_PARTS = frozenset({"reasoning", "thinking", "redacted_thinking"})
# Every type that a part may have: OpenAI's (chat and responses), OpenTelemetry's and Anthropic's.
PART_TYPES = _TEXT_PARTS | _SKIPPED_PARTS | _CALL_PARTS | _RESULT_PARTS | _UNSAID_PARTS

Fields = dict[str, Any]
Place = tuple[str | int, ...]


class MessagePart(BaseModel):
    """One part of a message. Texts are joined; images, audio, video and files are counted as skipped."""

    model_config = ConfigDict(strict=True, frozen=True)

    type: str = Field(description="What the part is, in OpenAI's or OpenTelemetry's word; docs/api.md lists them.")
    text: str | None = Field(
        default=None,
        description="The text of a part that is one. Over HTTP OpenAI's `refusal` and OpenTelemetry's `content` are "
        "read too.",
    )


class ChatMessage(BaseModel):
    """One message as a chatbot keeps it: OpenAI's chat form, or OpenTelemetry's with `parts`.

    Fields that are not listed are ignored. Of a message that no speaker reads only the role is kept.
    """

    model_config = ConfigDict(strict=True, frozen=True)

    # What is read of a mapping is checked while it is read, texts too: pydantic checks types alone.
    role: MessageRole = Field(
        description="`user` speaks as the user, `assistant` as the system that is scored. The others are no speakers: "
        "prompts, and results of tools."
    )
    content: str | None = Field(
        default=None,
        description="The text. Over HTTP also a list of parts, or null with a call of tools.",
        json_schema_extra={
            "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "object"}}, {"type": "null"}]
        },
    )
    parts: list[MessagePart] = Field(default_factory=list, description="What was said, in parts, instead of `content`.")
    calls_tools: bool = Field(
        default=False,
        description="Whether the message calls tools, so that the assistant's turn goes on after their results. Over "
        "HTTP OpenAI's `tool_calls` and `function_call` say so too.",
    )

    @model_validator(mode="wrap")
    @classmethod
    def _read(cls, value: Any, handler: Callable[[Any], Self]) -> Self:
        return handler(_read_message(value) if isinstance(value, Mapping) else value)

    @property
    def text(self) -> str:
        """Its texts as one."""
        if self.content is not None:
            return self.content
        return join_texts([part.text for part in self.parts if part.text is not None])

    @property
    def skipped(self) -> int:
        """How many of its parts were said and hold no text to score."""
        return sum(part.type in _SKIPPED_PARTS for part in self.parts)

    @property
    def goes_on(self) -> bool:
        """Whether tools are at work after it."""
        return self.calls_tools or self.role in ("tool", "function") or self.brings_results

    @property
    def brings_results(self) -> bool:
        """Whether it only hands results of tools back, as Anthropic's form does in the user's name."""
        return bool(self.parts) and all(part.type in _RESULT_PARTS for part in self.parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class MappedMessages:
    """The turns that messages are."""

    turns: list[Turn]
    # For each turn the place, from 0, of the message that holds its last text.
    indices: list[int]
    # Parts that were said and hold no text to score: images, audio, video, files.
    skipped: int
    # Whether the messages end while tools are at work, so that the assistant may have more to say.
    goes_on: bool
    # Whether the last assistant's message, after every turn, has no text and calls no tools.
    ends_silent: bool


@dataclass(slots=True)
class _OpenTurn:
    index: int
    speaker: Speaker
    texts: list[str]


def map_messages(messages: Sequence[ChatMessage]) -> MappedMessages:
    """The turns in the messages.

    The user's messages and the assistant's are turns; an assistant's without text is none. The assistant's texts before
    and after calls of tools are one turn, as long as the user says nothing between.
    """
    said: list[_OpenTurn] = []
    goes_on = ends_silent = False
    for index, message in enumerate(messages):
        if message.role == "user" and not message.brings_results:
            said.append(_OpenTurn(index, "user", [message.text]))
            goes_on = ends_silent = False
        elif message.role != "assistant":
            goes_on = goes_on or message.goes_on
        elif not is_blank(text := message.text):
            if goes_on and said and said[-1].speaker == "system":
                said[-1].index = index
                said[-1].texts.append(text)
            else:
                said.append(_OpenTurn(index, "system", [text]))
            goes_on, ends_silent = message.calls_tools, False
        else:
            goes_on = goes_on or message.calls_tools
            ends_silent = not message.calls_tools
    return MappedMessages(
        turns=[Turn.model_construct(speaker=each.speaker, text=join_texts(each.texts)) for each in said],
        indices=[each.index for each in said],
        skipped=count_skipped(messages),
        goes_on=goes_on,
        ends_silent=ends_silent,
    )


def count_skipped(messages: Sequence[ChatMessage]) -> int:
    """Parts that were said and hold no text to score."""
    return sum(message.skipped for message in messages)


def join_texts(texts: Sequence[str]) -> str:
    """The texts in one: a space between two that would grow together, nothing where white space stands already."""
    joined: list[str] = []
    for text in texts:
        if text:
            if joined and not joined[-1][-1].isspace() and not text[0].isspace():
                joined.append(" ")
            joined.append(text)
    return "".join(joined)


def refuse_field(place: Place, kind: str, message: str) -> NoReturn:
    """Raises what pydantic reports as the fault of the field at that place."""
    detail = InitErrorDetails(type=PydanticCustomError(kind, message), loc=place, input=None)
    raise ValidationError.from_exception_data("request", [detail])


def refuse_missing(place: Place) -> NoReturn:
    refuse_field(place, "missing", "Field required")


def _read_message(message: Mapping[str, Any]) -> Fields:
    """What is read of a message, in the words of ChatMessage. Raises ValidationError."""
    role = message.get("role")
    if role is None:
        refuse_missing(("role",))
    if not isinstance(role, str) or role not in _ROLES:
        refuse_field(("role",), "role", f"must be one of {', '.join(get_args(MessageRole))}")
    if role not in _SPEAKERS:
        return {"role": role}
    if not isinstance(message.get("calls_tools", False), bool):
        refuse_field(("calls_tools",), "bool_type", "Input should be a valid boolean")
    calls_tools = any(message.get(name) for name in ("tool_calls", "function_call", "calls_tools"))
    said = _read_content(message, is_required=role == "user" or not calls_tools)
    calls_tools = calls_tools or any(part["type"] in _CALL_PARTS for part in said.get("parts", ()))
    return {"role": role, **said, **({"calls_tools": True} if calls_tools else {})}


def _read_content(message: Mapping[str, Any], *, is_required: bool) -> Fields:
    """Its `content`, or its `parts` without those whose texts no speaker reads."""
    content, parts = message.get("content"), message.get("parts")
    field, listed = ("content", content) if isinstance(content, list) else ("parts", parts)
    if content is not None and parts:
        refuse_field(("parts",), "two_contents", "must not be given together with `content`")
    if listed is not None and not isinstance(listed, list):
        refuse_field((field,), "list_type", "Input should be a valid array")
    read = [_read_part(part, (field, place)) for place, part in enumerate(listed or ())]
    if isinstance(content, str):
        _check_text(content, ("content",))
    elif content is not None and not isinstance(content, list):
        refuse_field(("content",), "string_type", "Input should be a string or a list of parts")
    # As parts, what OpenAI's replies hold besides `content`: a refusal, which is text, and speech.
    refusal = message.get("refusal")
    if refusal is not None:
        _check_text(refusal, ("refusal",))
    spoken: list[Fields] = [{"type": "audio"}] if message.get("audio") else []
    extras = [{"type": "refusal", "text": refusal}, *spoken] if refusal else spoken
    if read or extras:
        written = [{"type": "text", "text": content}] if isinstance(content, str) and content else []
        return {"parts": [*written, *read, *extras]}
    if content is None and listed is None and "content" not in message and is_required:
        refuse_missing(("content",))
    return {"content": content} if isinstance(content, str) else {"content": ""} if is_required else {}


def _read_part(part: object, place: Place) -> Fields:
    if not isinstance(part, Mapping):
        refuse_field(place, "dict_type", "Input should be an object")
    kind = part.get("type")
    if kind is None:
        refuse_missing((*place, "type"))
    if not isinstance(kind, str) or kind not in PART_TYPES:
        refuse_field((*place, "type"), "part_type", "is no type of part; docs/api.md lists those that are")
    if kind not in _TEXT_PARTS:
        return {"type": kind}
    for name in ("text", "content", "refusal"):
        if (text := part.get(name)) is not None:
            _check_text(text, (*place, name))
            return {"type": kind, "text": text}
    refuse_missing((*place, "text"))


def _check_text(text: object, place: Place) -> None:
    if not isinstance(text, str):
        refuse_field(place, "string_type", "Input should be a valid string")
    try:
        refuse_broken(text)
    except PydanticCustomError as error:
        refuse_field(place, error.type, error.message())
