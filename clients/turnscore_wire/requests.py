"""Requests: what a caller may send. Shape and characters are checked here, sizes by the service's limits."""

import json
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, FailFast, Field, JsonValue
from pydantic_core import PydanticCustomError

from turnscore_wire.limits import MAX_DEADLINE_MS

Speaker = Literal["user", "system"]


def _refuse_broken(text: str) -> str:
    if "\x00" in text:
        raise PydanticCustomError("nul_character", "must not contain a NUL character")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise PydanticCustomError("lone_surrogate", "must not contain a lone surrogate") from None
    return text


def _refuse_blank(text: str) -> str:
    if not text.strip():
        raise PydanticCustomError("blank_text", "must not be empty")
    return text


Text = Annotated[str, AfterValidator(_refuse_broken)]
SpokenText = Annotated[Text, AfterValidator(_refuse_blank), Field(json_schema_extra={"minLength": 1})]
ScorerName = Annotated[str, Field(min_length=1, max_length=64)]
Weight = Annotated[float, Field(ge=0, le=1_000_000, allow_inf_nan=False)]


def _refuse_unsendable(options: dict[str, dict[str, JsonValue]] | None) -> dict[str, dict[str, JsonValue]] | None:
    try:
        json.dumps(options, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise PydanticCustomError("lone_surrogate", "must not contain a lone surrogate") from None
    return options


class WireRequest(BaseModel):
    """What everything a caller sends shares: no type is converted, no unknown field is taken."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class Turn(WireRequest):
    """One turn of a dialogue. The text of a context turn may be empty; it is then ignored."""

    speaker: Speaker
    text: Text


CacheMode = Literal["use", "bypass", "refresh"]
CacheNamespace = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]


class ScorerChoice(WireRequest):
    """Which scorers are asked, with which options, and until when."""

    scorers: Annotated[list[ScorerName], Field(min_length=1, max_length=64)] | None = Field(
        default=None,
        description="Names of the scorers to ask. When left out: the service's default scorers, in a ranking those "
        "that `weights` names, else quality alone if it is loaded; and those that `options` names.",
    )
    options: Annotated[dict[ScorerName, dict[str, JsonValue]] | None, AfterValidator(_refuse_unsendable)] = Field(
        default=None,
        description="Options for each scorer, by its name. FED's `own_qualities` are 16 at most, with 256 "
        "follow-ups and 4,096 characters together; `option_limits` of `GET /v1/models` bounds their tokens.",
    )
    deadline_ms: Annotated[int, Field(ge=1, le=MAX_DEADLINE_MS)] | None = Field(
        default=None,
        description="Milliseconds after which the answer is worthless to the caller; "
        "work not yet started is then dropped.",
    )
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


class ScoreRequest(ScorerChoice):
    """One system turn to score."""

    context: Annotated[list[Turn], FailFast()] = Field(
        default_factory=list, description="The turns before the response, oldest first; may be empty."
    )
    response: SpokenText = Field(description="The system turn to score.")


class BatchRequest(WireRequest):
    """Several independent turns to score in one call; each is scored, or refused, by itself."""

    items: Annotated[list[ScoreRequest], Field(min_length=1), FailFast()]


class DialogueRequest(ScorerChoice):
    """A dialogue whose every system turn is to be scored."""

    turns: Annotated[list[Turn], Field(min_length=1), FailFast()] = Field(
        description="The dialogue, oldest turn first; at least one turn must be the system's."
    )


class RankRequest(ScorerChoice):
    """Several responses to one context, to be put in order."""

    context: Annotated[list[Turn], FailFast()] = Field(
        default_factory=list, description="The turns before the response, oldest first; may be empty."
    )
    candidates: Annotated[list[SpokenText], Field(min_length=1), FailFast()] = Field(
        description="The responses to choose from; may hold the same text twice."
    )
    weights: Annotated[dict[ScorerName, Weight], Field(max_length=64)] | None = Field(
        default=None,
        description="Weight of each scorer, 0 or more; 1 by default. Without `scorers`, the scorers named here are "
        "asked. A scorer that weighs 0 is returned and does not count; at least one must weigh more.",
    )
