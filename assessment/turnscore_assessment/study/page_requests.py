"""The page's requests, checked against the plan's bounds, and refusals: a code for the page, a sentence, a status."""

from collections.abc import Mapping
from enum import Enum
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StrictFloat, StrictInt, StrictStr, ValidationError

from turnscore_assessment.files import describe_problem
from turnscore_assessment.study.chatbots import clean_text
from turnscore_assessment.study.plan import StudyPlan


class StudyRefusal(Enum):
    """Status and sentence by code. No sentence says which system is behind a conversation."""

    UNKNOWN_LINK = 401, "This link is not known. Please open the link that you were sent, whole."
    FOREIGN_ORIGIN = 403, "The request does not come from this study's page."
    NO_SUCH_DIALOGUE = 404, "There is no such conversation."
    NO_SUCH_PAGE = 404, "There is no such page."
    NO_SUCH_METHOD = 405, "This request has the wrong method."
    NOT_AGREED = 409, "You have not agreed to take part yet."
    TEXT_CHANGED = 409, "The text that you agreed to has changed. Please read it again."
    NOT_OPEN = 409, "This conversation is not open."
    OUT_OF_TURN = 409, "The conversation has gone on elsewhere, perhaps in another tab."
    BUSY = 409, "The chatbot is still answering."
    NO_MORE_INPUTS = 409, "This conversation has reached its end. Please rate it."
    TOO_FEW_INPUTS = 409, "Please talk a little longer before you rate the conversation."
    ALREADY_RATED = 409, "This conversation has been rated already."
    STILL_ANSWERS = 409, "The chatbot has not failed so often. Please try again."
    LEFT = 410, "You have left the study, and what you said and rated is deleted."
    TOO_LARGE = 413, "The request is too large."
    NOT_JSON = 415, "The request must be JSON."
    INVALID = 422, "The request is not valid."
    NO_REPLY = 502, "The chatbot did not answer. Please try again."
    FULL = 503, "There are too many conversations at the moment. Please try again in a few minutes."
    BROKEN = 500, "Something went wrong. What you said so far is stored; please load the page again."

    def __init__(self, status: int, sentence: str) -> None:
        self.status = status
        self.sentence = sentence

    @property
    def code(self) -> str:
        """Its name on the wire."""
        return self.name.lower()


class RefusedError(Exception):
    """A refused request; `detail` replaces the sentence."""

    def __init__(self, refusal: StudyRefusal, detail: str = "") -> None:
        super().__init__(detail or refusal.sentence)
        self.refusal = refusal


DialogueId = Annotated[StrictStr, Field(min_length=1, max_length=40, pattern=r"^[a-z0-9]+$")]

Body = TypeVar("Body", bound="PageRequest")


class PageRequest(BaseModel):
    """A JSON object; unknown fields are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class EmptyRequest(PageRequest):
    """No fields."""


class ConsentRequest(PageRequest):
    """The worker agrees to the text with this hash."""

    consent_hash: Annotated[StrictStr, Field(pattern=r"^[0-9a-f]{64}$")]


class MessageRequest(PageRequest):
    """The worker's message `number`, from 0."""

    dialogue: DialogueId
    number: Annotated[StrictInt, Field(ge=0, le=1000)]
    text: StrictStr


class RatingRequest(PageRequest):
    """The ratings of a dialogue, by criterion."""

    dialogue: DialogueId
    ratings: Annotated[dict[StrictStr, StrictFloat | StrictInt], Field(max_length=50)]


class GiveUpRequest(PageRequest):
    dialogue: DialogueId


def read_body(form: type[Body], fields: Any) -> Body:
    """The body in its form; RefusedError (INVALID) names the field."""
    try:
        return form.model_validate(fields)
    except ValidationError as error:
        raise RefusedError(StudyRefusal.INVALID, describe_problem(error)) from None


def check_text(text: str, plan: StudyPlan) -> str:
    """The message as it is stored; RefusedError (INVALID) where it is empty or too long."""
    cleaned = clean_text(text).strip()
    if not cleaned:
        raise RefusedError(StudyRefusal.INVALID, "text: must not be empty")
    if len(cleaned) > plan.chat.input_characters:
        raise RefusedError(StudyRefusal.INVALID, f"text: may have at most {plan.chat.input_characters} characters")
    return cleaned


def check_ratings(ratings: Mapping[str, float], plan: StudyPlan) -> dict[str, float]:
    """A number for every criterion, in its range, in the plan's order; RefusedError (INVALID) names the criterion."""
    names = [criterion.name for criterion in plan.criteria]
    for name in ratings:
        if name not in names:
            raise RefusedError(StudyRefusal.INVALID, f"ratings.{name}: is no criterion of this study")
    for criterion in plan.criteria:
        rating = ratings.get(criterion.name)
        if rating is None:
            raise RefusedError(StudyRefusal.INVALID, f"ratings.{criterion.name}: is missing")
        if not criterion.low <= rating <= criterion.high:  # nor is NaN
            reason = f"must be from {criterion.low:g} to {criterion.high:g}"
            raise RefusedError(StudyRefusal.INVALID, f"ratings.{criterion.name}: {reason}")
    return {name: float(ratings[name]) for name in names}
