"""What FED is asked: which qualities, which loss, and qualities of the caller's own. Refuses what is wrong, by name."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, StringConstraints, ValidationError, model_validator
from turnscore_models.manifest import FileName

from turnscore_core.errors import InvalidRequestError
from turnscore_core.scorers.fed.dialogue_tokens import Join

Loss = Literal["response_only", "whole_sequence"]
"""`response_only`: the mean loss of the follow-up's tokens, L(r | c) as the papers define it. `whole_sequence`: of
every token but the first of context and follow-up, as the authors' released code computes it."""

QualityName = Annotated[str, StringConstraints(min_length=1, max_length=64, pattern=r"^[a-z][a-z0-9 _-]*$")]
FollowUp = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=200)]
MAX_OWN_QUALITIES = 16  # chosen: as many as FED has, about
MAX_FOLLOW_UPS = 256
"""Follow-ups of a caller's own qualities together: four times as many as FED's own. Chosen."""
MAX_FOLLOW_UP_CHARS = 4096
"""Of those: FED's own eighteen have 1,758. Chosen."""


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
    reference: FileName = Field(description="File with the reference turns' values, [turns, qualities] for each loss.")
    own_qualities: Annotated[Qualities, Field(max_length=MAX_OWN_QUALITIES)] = Field(
        default_factory=dict, description="Qualities that a deployment adds; they have no percentile."
    )

    @model_validator(mode="after")
    def _defaults_are_known(self) -> "FedBundleOptions":
        unknown = set(self.default_qualities) - self.qualities.keys()
        if unknown:
            raise ValueError(f"default_qualities names {', '.join(sorted(unknown))}, which qualities lacks")
        return self


class _RequestOptions(BaseModel):
    model_config = ConfigDict(extra="forbid")

    qualities: Annotated[list[str], Field(min_length=1, max_length=64)] | None = None
    own_qualities: Annotated[Qualities, Field(max_length=MAX_OWN_QUALITIES)] = Field(default_factory=dict)
    loss: Loss | None = None


def read_request(options: Mapping[str, JsonValue], bundle: FedBundleOptions) -> tuple[dict[str, Quality], Loss]:
    """The qualities that a request's options ask, by name, and the loss.

    `qualities` names some; without it the caller's own are asked, or else the bundle's default. A quality in
    `own_qualities` stands before the bundle's of that name. Raises InvalidRequestError with the option's name.
    """
    for name in options:
        if name not in _RequestOptions.model_fields:
            raise InvalidRequestError("there is no such option", field=name)
    _bound_follow_ups(options.get("own_qualities"))
    try:
        asked = _RequestOptions.model_validate(dict(options))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise InvalidRequestError(first["msg"], field=".".join(map(str, first["loc"]))) from None
    known = {**bundle.qualities, **bundle.own_qualities, **asked.own_qualities}
    names = asked.qualities or list(asked.own_qualities) or bundle.default_qualities
    for place, name in enumerate(names):
        if name not in known:
            raise InvalidRequestError(f"no such quality; known: {', '.join(known)}", field=f"qualities.{place}")
    return {name: known[name] for name in names}, asked.loss or bundle.loss


def _bound_follow_ups(own: JsonValue) -> None:
    """Refuses what is too much before it is looked at one by one; what is of another form is refused later."""
    if not isinstance(own, Mapping):
        return
    if len(own) > MAX_OWN_QUALITIES:
        raise InvalidRequestError(
            f"{len(own)} qualities; at most {MAX_OWN_QUALITIES} are allowed", field="own_qualities"
        )
    sizes = [len(each) if isinstance(each, str) else 0 for quality in own.values() for each in _values_of(quality)]
    if len(sizes) > MAX_FOLLOW_UPS:
        raise InvalidRequestError(
            f"{len(sizes)} follow-ups together; at most {MAX_FOLLOW_UPS} are allowed", field="own_qualities"
        )
    if sum(sizes) > MAX_FOLLOW_UP_CHARS:
        raise InvalidRequestError(
            f"the follow-ups have {sum(sizes)} characters together; at most {MAX_FOLLOW_UP_CHARS} are allowed",
            field="own_qualities",
        )


def _values_of(quality: JsonValue) -> Iterator[JsonValue]:
    """Everything that stands where follow-ups are expected, under whatever name."""
    for side in quality.values() if isinstance(quality, Mapping) else ():
        yield from side if isinstance(side, Sequence) and not isinstance(side, str) else [side]
