"""Turns: who said what, and the rules of every text that a caller sends. Shape and characters; no sizes."""

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic_core import PydanticCustomError

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


def _refuse_blank(text: str) -> str:
    if not text.strip():
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
