"""Requests: what a caller may send. Shape and characters are checked here, sizes by the service's limits."""

import json
from functools import cached_property
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    ConfigDict,
    FailFast,
    Field,
    JsonValue,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)
from pydantic_core import PydanticCustomError

from turnscore_wire.errors import CONVERSATION_PATTERN, NAMESPACE_PATTERN
from turnscore_wire.messages import (
    MAX_DEADLINE_MS,
    ChatMessage,
    MappedMessages,
    Speaker,
    SpokenText,
    Turn,
    WireRequest,
    is_blank,
    map_messages,
    refuse_field,
    refuse_missing,
)

ScorerName = Annotated[str, Field(min_length=1, max_length=64)]
Weight = Annotated[float, Field(ge=0, le=1_000_000, allow_inf_nan=False)]


def _refuse_unsendable(options: dict[str, dict[str, JsonValue]] | None) -> dict[str, dict[str, JsonValue]] | None:
    try:
        json.dumps(options, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise PydanticCustomError("lone_surrogate", "must not contain a lone surrogate") from None
    return options


CacheMode = Literal["use", "bypass", "refresh"]
CacheNamespace = Annotated[str, Field(pattern=NAMESPACE_PATTERN)]
ConversationName = Annotated[str, Field(pattern=CONVERSATION_PATTERN)]
Deadline = Annotated[
    Annotated[int, Field(ge=1, le=MAX_DEADLINE_MS)] | None,
    Field(
        description="Milliseconds after which the answer is worthless to the caller; "
        "work not yet started is then dropped."
    ),
]


class ScorerChoice(WireRequest):
    """Which scorers are asked, with which options, and until when."""

    scorers: Annotated[list[ScorerName], Field(min_length=1, max_length=64)] | None = Field(
        default=None,
        description="Names of the scorers to ask. When left out: the service's default scorers, in a ranking those "
        "that `weights` names, else only quality if it is loaded; and those that `options` names. Scorers of user "
        "turns, such as reaction, are asked by name only.",
    )
    options: Annotated[dict[ScorerName, dict[str, JsonValue]] | None, AfterValidator(_refuse_unsendable)] = Field(
        default=None,
        description="Options for each scorer, by its name. FED's `own_qualities` are 16 at most, with 256 "
        "follow-ups and 4,096 characters together; `option_limits` of `GET /v1/models` bounds their tokens.",
    )
    deadline_ms: Deadline = None
    cache: CacheMode | None = Field(
        default=None,
        description="`use`, also when left out: scores computed before may answer. `bypass`: every score is computed, "
        "and none is kept. `refresh`: every score is computed, and kept for later requests.",
    )
    cache_namespace: CacheNamespace | None = Field(
        default=None,
        description="Only scores kept under this name answer, and they are kept under it: one for each tenant or "
        "experiment that must not see what others asked. The service's own when left out.",
    )
    conversation: ConversationName | None = Field(
        default=None,
        description="The caller's name for the conversation, the same for each of its turns: 1 to 128 printable ASCII "
        "characters without spaces. A service that splits conversations between versions of a scorer answers all of "
        "this one by one version. When left out, the user's first turn tells conversations apart.",
    )


Messages = Annotated[list[ChatMessage], Field(min_length=1), FailFast()]


_HELD_BY_MESSAGES = frozenset({"context", "turns", "response"})


class TakesMessages(ScorerChoice):
    """A request whose turns may be given as messages. Once it is checked, its turns are there either way.

    Dumped, it has the one form in which the caller gave them.
    """

    messages: Messages = Field(
        default_factory=list,
        description="The dialogue as a chatbot keeps it, in OpenAI's chat form, oldest message first, instead of the "
        "other fields that hold turns; docs/api.md has the rules.",
    )

    @cached_property
    def mapped(self) -> MappedMessages:
        """The turns in its messages."""
        return map_messages(self.messages)

    @model_serializer(mode="wrap")
    def _dump(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields: dict[str, Any] = dump(self)
        for field in _HELD_BY_MESSAGES - self.model_fields_set if self.messages else ("messages",):
            fields.pop(field, None)
        return fields

    def _settle(self, **turns: Any) -> None:
        self.__dict__.update(turns)

    def _refuse_both(self, field: str) -> None:
        if getattr(self, field) and field in self.model_fields_set:
            refuse_field((field,), "two_dialogues", "must not be given together with `messages`")


class TakesContext(TakesMessages):
    """A request with turns before what it asks about, which may stand in its messages."""

    context: Annotated[list[Turn], FailFast()] = Field(
        default_factory=list, description="The turns before the response, oldest first; may be empty."
    )

    @model_validator(mode="after")
    def _take_messages(self) -> Self:
        if self.messages:
            self._refuse_both("context")
            self._settle(context=self.mapped.turns)
        return self


def _or_messages(field: str) -> dict[str, Any]:
    return {"anyOf": [{"required": [field]}, {"required": ["messages"]}]}


NO_RESPONSE = (
    "must end with the assistant's text, or come with `response`; a user's text is scored if all `scorers` are scorers "
    "of user turns"
)
_NO_USER_TURN = "must end with the user's text, or come with `response`, where `speaker` is `user`"


class ScoreRequest(TakesContext):
    """One turn to score. Of `messages` it is the last turn, unless `response` is given too."""

    model_config = ConfigDict(json_schema_extra=_or_messages("response"))

    response: SpokenText = Field(default_factory=str, description="The turn to score.")
    speaker: Speaker = Field(
        default="system",
        description="Who said the turn to score. When left out: the system, or the user if `messages` end with the "
        "user's text and all `scorers` are scorers of user turns.",
    )

    @model_validator(mode="after")
    def _take_messages(self) -> Self:
        if not self.messages:
            if not self.response:
                refuse_missing(("response",))
            return self
        self._refuse_both("context")
        mapped = self.mapped
        if self.response:
            self._settle(context=mapped.turns)
            return self
        if not mapped.turns or mapped.ends_silent or is_blank(mapped.turns[-1].text) or not self._takes(mapped):
            refuse_field(("messages",), "no_response", _NO_USER_TURN if self.speaker == "user" else NO_RESPONSE)
        *context, last = mapped.turns
        self._settle(context=context, response=last.text, speaker=last.speaker)
        return self

    def _takes(self, mapped: MappedMessages) -> bool:
        """Whether the last turn may be the one to score; of which scorers, only the service knows."""
        if self.is_speaker_given or self.scorers is None:
            return mapped.turns[-1].speaker == self.speaker
        return True

    @property
    def is_speaker_given(self) -> bool:
        """Whether the caller said who speaks; else the messages do."""
        return "speaker" in self.model_fields_set

    @property
    def turns(self) -> list[Turn]:
        """The dialogue up to the turn to score."""
        return [*self.context, Turn.model_construct(speaker=self.speaker, text=self.response)]

    def place(self) -> dict[str, int]:
        """The fields of its reply that say what of its messages was scored; none without messages."""
        if not self.messages:
            return {}
        mapped = self.mapped
        is_apart = "response" in self.model_fields_set
        return {"skipped": mapped.skipped, **({} if is_apart else {"index": mapped.indices[-1]})}


class BatchRequest(WireRequest):
    """Several independent turns to score in one call; each is scored, or refused, by itself."""

    items: Annotated[list[ScoreRequest], Field(min_length=1), FailFast()]


class DialogueRequest(TakesMessages):
    """A dialogue whose turns are to be scored: the system's, and the user's if scorers of user turns are asked."""

    model_config = ConfigDict(json_schema_extra=_or_messages("turns"))

    turns: Annotated[list[Turn], Field(min_length=1), FailFast()] = Field(
        default_factory=list, description="The dialogue, oldest turn first, with at least one turn for every scorer."
    )

    @model_validator(mode="after")
    def _take_messages(self) -> Self:
        if self.messages:
            self._refuse_both("turns")
            self._settle(turns=self.mapped.turns)
        elif not self.turns:
            # In the words for an empty list, from which gRPC cannot tell a missing one.
            refuse_field(("turns",), "too_short", "List should have at least 1 item after validation, not 0")
        return self


class RankRequest(TakesContext):
    """Several responses to one context, to be put in order."""

    candidates: Annotated[list[SpokenText], Field(min_length=1), FailFast()] = Field(
        description="The responses to choose from; may hold the same text twice."
    )
    weights: Annotated[dict[ScorerName, Weight], Field(max_length=64)] | None = Field(
        default=None,
        description="Weight of each scorer, 0 or more; 1 by default. Without `scorers`, the scorers named here are "
        "asked. A scorer that weighs 0 is returned and does not count; at least one must weigh more.",
    )


class SimilarityRequest(WireRequest):
    """Texts to compare with others by the sentence encoder. Texts and references together are at most `max_items`."""

    texts: Annotated[list[SpokenText], Field(min_length=1), FailFast()] = Field(
        description="The texts to compare; may hold the same one twice."
    )
    references: Annotated[list[SpokenText], FailFast()] = Field(
        default_factory=list,
        description="What they are compared with. Without any, the texts are compared with each other, and each counts "
        "twice.",
    )
    deadline_ms: Deadline = None
    cache: CacheMode | None = Field(
        default=None,
        description="`use`, also when left out: texts that were read before need no reading. `bypass`: every text is "
        "read, and nothing is kept. `refresh`: every text is read, and kept for later requests.",
    )
    cache_namespace: CacheNamespace | None = Field(
        default=None,
        description="Only what was kept under this name answers, and it is kept under it: one for each tenant or "
        "experiment that must not see what others asked. The service's own when left out.",
    )
