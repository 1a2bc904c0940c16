"""The page's requests: their bodies, checked against the plan's bounds."""

from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StrictFloat, StrictInt, StrictStr, ValidationError

from turnscore_assessment.ratings.rating_file import describe_problem
from turnscore_assessment.study.chatbots import clean_text
from turnscore_assessment.study.plan import StudyPlan
from turnscore_assessment.study.refusals import Refusal, RefusedError

DialogueId = Annotated[StrictStr, Field(min_length=1, max_length=40, pattern=r"^[a-z0-9]+$")]

Body = TypeVar("Body", bound="PageRequest")


class PageRequest(BaseModel):
    """A JSON object; unknown fields are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Nothing(PageRequest):
    """No fields."""


class Agreement(PageRequest):
    """The worker agrees to the text with this hash."""

    consent_hash: Annotated[StrictStr, Field(pattern=r"^[0-9a-f]{64}$")]


class Message(PageRequest):
    """The worker's message `number`, from 0."""

    dialogue: DialogueId
    number: Annotated[StrictInt, Field(ge=0, le=1000)]
    text: StrictStr


class Rating(PageRequest):
    """The ratings of a dialogue, by criterion."""

    dialogue: DialogueId
    ratings: Annotated[dict[StrictStr, StrictFloat | StrictInt], Field(max_length=50)]


class OneDialogue(PageRequest):
    dialogue: DialogueId


def read_body(form: type[Body], fields: Any) -> Body:
    """The body in its form; RefusedError (INVALID) names the field."""
    try:
        return form.model_validate(fields)
    except ValidationError as error:
        raise RefusedError(Refusal.INVALID, describe_problem(error)) from None


def check_text(text: str, plan: StudyPlan) -> str:
    """The message as it is stored; RefusedError (INVALID) where it is empty or too long."""
    cleaned = clean_text(text).strip()
    if not cleaned:
        raise RefusedError(Refusal.INVALID, "text: must not be empty")
    if len(cleaned) > plan.chat.input_characters:
        raise RefusedError(Refusal.INVALID, f"text: may have at most {plan.chat.input_characters} characters")
    return cleaned


def check_ratings(ratings: Mapping[str, float], plan: StudyPlan) -> dict[str, float]:
    """A number for every criterion, in its range, in the plan's order; RefusedError (INVALID) names the criterion."""
    names = [criterion.name for criterion in plan.criteria]
    for name in ratings:
        if name not in names:
            raise RefusedError(Refusal.INVALID, f"ratings.{name}: is no criterion of this study")
    for criterion in plan.criteria:
        rating = ratings.get(criterion.name)
        if rating is None:
            raise RefusedError(Refusal.INVALID, f"ratings.{criterion.name}: is missing")
        if not criterion.low <= rating <= criterion.high:  # nor is NaN
            reason = f"must be from {criterion.low:g} to {criterion.high:g}"
            raise RefusedError(Refusal.INVALID, f"ratings.{criterion.name}: {reason}")
    return {name: float(ratings[name]) for name in names}
