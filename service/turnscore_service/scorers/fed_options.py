"""What FED is asked: which qualities, which loss, and qualities of the caller's own. Refuses what is wrong, by name."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, StringConstraints, ValidationError, model_validator

from turnscore_service.errors import InvalidRequestError
from turnscore_service.inference.dialogue_tokens import Join

Loss = Literal["response_only", "whole_sequence"]
"""`response_only`: the mean loss of the follow-up's tokens, L(r | c) as the papers define it. `whole_sequence`: of
every token but the first of context and follow-up, as the authors' released code computes it."""

QualityName = Annotated[str, StringConstraints(min_length=1, max_length=64, pattern=r"^[a-z][a-z0-9 _-]*$")]
FollowUp = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=200)]
MAX_OWN_QUALITIES = 16  # chosen: as many as FED has, about
PERCENTILE_SUFFIX = "_percentile"


class Quality(BaseModel):
    """What users say after a turn that has the quality, and after one that lacks it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    positive: Annotated[tuple[FollowUp, ...], Field(max_length=16)] = ()
    negative: Annotated[tuple[FollowUp, ...], Field(max_length=16)] = ()

    @model_validator(mode="after")
    def _has_follow_ups(self) -> "Quality":
        if not self.positive and not self.negative:
            raise ValueError("a quality needs a positive or a negative follow-up")
        return self


Qualities = dict[QualityName, Quality]


class FedBundleOptions(BaseModel):
    """What a FED bundle's manifest says in `options`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    qualities: Qualities = Field(description="All that the bundle knows, in the order of the reference values.")
    default_qualities: tuple[str, ...] = Field(min_length=1, description="Asked where a request names none.")
    loss: Loss = Field(default="response_only", description="Taken where a request names none.")
    join: Join = "stripped"
    eos_id: Annotated[int, Field(ge=0)] = Field(description="The end-of-text token, which stands between turns.")
    reference: str = Field(description="File with the reference turns' values, [turns, qualities] for each loss.")
    own_qualities: Annotated[Qualities, Field(max_length=MAX_OWN_QUALITIES)] = Field(
        default_factory=dict, description="Qualities that a deployment adds; they have no percentile."
    )

    @model_validator(mode="after")
    def _defaults_are_known(self) -> "FedBundleOptions":
        unknown = set(self.default_qualities) - self.qualities.keys()
        if unknown:
            raise ValueError(f"default_qualities names {', '.join(sorted(unknown))}, which qualities lacks")
        return self


@dataclass(frozen=True, slots=True)
class FedQuestion:
    """What one turn is scored on, in the order asked."""

    key: str
    """Qualities and loss as one text: equal questions have equal keys, and only the keys are compared."""
    qualities: tuple[tuple[str, Quality], ...] = field(compare=False)
    loss: Loss = field(compare=False)


class _RequestOptions(BaseModel):
    model_config = ConfigDict(extra="forbid")

    qualities: Annotated[list[str], Field(min_length=1, max_length=64)] | None = None
    own_qualities: Annotated[Qualities, Field(max_length=MAX_OWN_QUALITIES)] = Field(default_factory=dict)
    loss: Loss | None = None


def read_question(options: Mapping[str, JsonValue], bundle: FedBundleOptions) -> FedQuestion:
    """The question that a request's options ask.

    `qualities` names some; without it the caller's own are asked, or else the bundle's default. A quality in
    `own_qualities` stands before the bundle's of that name. Raises InvalidRequestError with the option's name.
    """
    try:
        asked = _RequestOptions.model_validate(dict(options))
    except ValidationError as error:
        first = error.errors()[0]
        raise InvalidRequestError(first["msg"], field=".".join(map(str, first["loc"]))) from None
    known = {**bundle.qualities, **bundle.own_qualities, **asked.own_qualities}
    names = asked.qualities or list(asked.own_qualities) or bundle.default_qualities
    for place, name in enumerate(names):
        if name not in known:
            raise InvalidRequestError(f"no such quality; known: {', '.join(known)}", field=f"qualities.{place}")
    return build_question({name: known[name] for name in names}, asked.loss or bundle.loss)


def build_question(qualities: Mapping[str, Quality], loss: Loss) -> FedQuestion:
    """The question of these qualities, in their order."""
    key = [loss, *((name, quality.positive, quality.negative) for name, quality in qualities.items())]
    return FedQuestion(json.dumps(key), tuple(qualities.items()), loss)
