"""Replies: what the service sends. A reader ignores fields it does not know, so that fields may be added."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from turnscore_wire.errors import ErrorDetail, ErrorReply
from turnscore_wire.messages import Limits, Speaker

# What a print leaves out, so that it is one line.
_UNPRINTED = frozenset({"request_id", "timing_ms", "details", "tokens", "cached", "digest", "min", "max"})


class Reply(BaseModel):
    """What every reply shares: it is read-only, and fields that a reader does not know are left out.

    Printed, it is one line with what most look for; `model_dump()` has everything.
    """

    model_config = ConfigDict(frozen=True)

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        defaults = {name: each.get_default(call_default_factory=True) for name, each in type(self).model_fields.items()}
        for name, value in super().__repr_args__():
            if name not in _UNPRINTED and value != defaults.get(name or ""):
                yield name, _shown(value)


def _shown(value: Any) -> Any:
    """A number with four decimal places; of a list of replies how many there are."""
    if isinstance(value, list) and value and isinstance(value[0], BaseModel):
        return len(value)
    return round(value, 4) if isinstance(value, float) else value


class TokenCount(Reply):
    """How much of a turn and its context the model read, and how much it did not."""

    used: int = Field(
        description="Tokens that the model read, its marks between texts included; at most the model's "
        "`max_turn_tokens`."
    )
    dropped: int = Field(
        description="Tokens that were left out, at least: text that is cut before it is tokenized, such as turns older "
        "than the scorer reads, counts as one token."
    )
    truncated: bool = Field(default=False, description="Whether anything was left out: `dropped` is then 1 or more.")


Label = Literal["low", "fair", "good"]


class Score(Reply):
    """What one scorer says of one turn."""

    value: float = Field(description="The score as its paper defines it; see the scorer's page.")
    percentile: float | None = Field(
        description="Share of the bundle's reference turns (0 to 100) that score lower: the number to read. Null if "
        "no reference turn was scored this way: for qualities of the caller's own."
    )
    details: dict[str, float] = Field(description="The parts the value is made of; empty for engagement.")
    model: str = Field(description="The bundle that answered, as `name:version`.")
    tokens: TokenCount
    cached: bool = Field(description="Whether all of the score comes from the cache: computed for an earlier request.")
    warnings: list[str] = Field(
        default_factory=list,
        description="What to know before the score is believed: `context_not_read`, `response_cut`, `repeats_user`, "
        "`repeats_itself`, `not_in_language`, `stuck`; docs/reading-the-scores.md says what each means. There may be "
        "others.",
    )
    label: Label | None = Field(
        default=None,
        description="`low` if the value is below the threshold of the bundle or the deployment, `good` if it is at "
        "least the bundle's other threshold, else `fair`. Null if there is no threshold, or none for what was asked.",
    )
    reasons: list[str] = Field(
        default_factory=list,
        description="Up to two heads that pull the value down, the lowest first: parts of the score in the lowest "
        "quarter of the reference turns. Empty for a turn that is `good`, and for scorers without heads.",
    )
    signals: list[str] = Field(
        default_factory=list,
        description="What a user's turn shows, the most probable first: those signals in `details` that reach their "
        "threshold, such as `frustrated`; docs/api.md lists them. Empty for scorers of system turns.",
    )
    stand_in: bool = Field(
        default=False,
        description="Whether the model only stands in for the one that the scorer is meant for. It shows that the "
        "scorer works; do not act on its numbers.",
    )

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        found = dict(super().__repr_args__())
        yield from sorted(found.items(), key=lambda each: _PRINTED_FIRST.get(each[0], len(found)))


_PRINTED_FIRST: dict[str | None, int] = {"value": 0, "percentile": 1, "label": 2}


class Timing(Reply):
    """Where the time of a request went, in milliseconds; of several items, that of the slowest."""

    total: float = Field(description="From the decoded request to the finished reply.")
    tokenize: float = Field(description="Turning text into tokens, waiting for a thread included.")
    queue: float = Field(
        description="Waiting for a place in a batch, or for an equal turn of another request that was being computed."
    )
    inference: float = Field(description="In the runtime, with the whole batch.")
    cache: float = Field(default=0.0, description="Asking the shared cache.")


Errors = Annotated[
    dict[str, ErrorDetail],
    Field(
        description="Errors of scorers that failed while others answered, by name. If all fail, the request fails "
        "with the first one's error."
    ),
]


SKIPPED: int = Field(
    default=0, description="Parts of the messages that hold no text to score: images, audio, video, files."
)


class ScoreReply(Reply):
    """The scores of one turn, by scorer."""

    request_id: str
    scores: dict[str, Score]
    errors: Errors = Field(default_factory=dict)
    timing_ms: Timing
    index: int | None = Field(
        default=None,
        description="Of a request's messages the place, from 0, of the one that holds the last text of the turn that "
        "was scored. Null without messages, and where `response` was given too.",
    )
    skipped: int = SKIPPED


class BatchReply(Reply):
    """One result per item, in the order of the request."""

    request_id: str
    results: list[ScoreReply | ErrorReply]


class DialogueTurnScores(Reply):
    """The scores of one turn of a dialogue; `index` is its place in the request's turns, from 0.

    Of messages it is the place of the one that holds the turn's last text.
    """

    index: int
    scores: dict[str, Score]
    errors: Errors = Field(default_factory=dict)


class DialogueAggregate(Reply):
    """One scorer's values over the turns of a dialogue that count for it."""

    mean: float = Field(description="The dialogue's score as the papers define it.")
    min: float
    max: float
    turns: int = Field(description="Number of those turns.")
    percentile_mean: float | None = Field(
        default=None, description="Mean of those turns' percentiles; null if one has none."
    )
    percentile_min: float | None = None
    percentile_max: float | None = None

    @classmethod
    def of(cls, scores: Sequence[Score]) -> "DialogueAggregate":
        """Over these turns' scores, of which there is at least one."""
        values = [score.value for score in scores]
        percentiles = [score.percentile for score in scores if score.percentile is not None]
        are_known = len(percentiles) == len(scores)
        return cls(
            mean=sum(values) / len(values),
            min=min(values),
            max=max(values),
            turns=len(values),
            percentile_mean=sum(percentiles) / len(percentiles) if are_known else None,
            percentile_min=min(percentiles) if are_known else None,
            percentile_max=max(percentiles) if are_known else None,
        )


class DialogueReply(Reply):
    """Every turn's scores and each scorer's view of the whole dialogue."""

    request_id: str
    turns: list[DialogueTurnScores]
    dialogue: dict[str, DialogueAggregate]
    timing_ms: Timing
    skipped: int = SKIPPED


class RankedCandidate(Reply):
    """One candidate with its scores; `index` is its place in the request's candidates, from 0."""

    index: int
    combined: float | None = Field(
        description="Weighted mean of the scorers' percentiles, 0 to 100; it decides the order. Null if a scorer "
        "that counts failed; the candidate then comes after those that have one."
    )
    scores: dict[str, Score]
    errors: Errors = Field(default_factory=dict)


def order_candidates(
    scores: Sequence[Mapping[str, Score]], errors: Sequence[Mapping[str, ErrorDetail]], weights: Mapping[str, float]
) -> list[RankedCandidate]:
    """The candidates, best first; equals, and those without a combined score, keep their order.

    docs/api.md has the formula. `weights` holds every scorer asked, at least one of them above 0.
    """
    counting = {name: weight for name, weight in weights.items() if weight > 0}
    whole = [place for place, own in enumerate(scores) if counting.keys() <= own.keys()]
    combined = dict.fromkeys(whole, 0.0)
    for name, weight in counting.items():
        for place, percentile in zip(whole, _percentiles([scores[each][name] for each in whole]), strict=True):
            combined[place] += weight / sum(counting.values()) * percentile
    order = sorted(range(len(scores)), key=lambda place: -combined.get(place, -1.0))
    return [
        RankedCandidate(index=each, combined=combined.get(each), scores=dict(scores[each]), errors=dict(errors[each]))
        for each in order
    ]


def _percentiles(scores: Sequence[Score]) -> list[float]:
    """Each candidate's place among the bundle's reference turns; among the candidates where those have none."""
    known = [score.percentile for score in scores if score.percentile is not None]
    values = [score.value for score in scores]
    return known if len(known) == len(scores) else [_place_among(value, values) for value in values]


def _place_among(value: float, values: Sequence[float]) -> float:
    """Share of the other values, 0 to 100, that lie below this one, equal ones counting half; 50 where it is alone."""
    others = len(values) - 1
    below = sum(each < value for each in values)
    equal = sum(each == value for each in values) - 1
    return 100 * (below + equal / 2) / others if others else 50.0


class RankReply(Reply):
    """The candidates, best first; of equals the one that the request names first. The first has a `combined`."""

    request_id: str
    candidates: list[RankedCandidate]
    weights: dict[str, float] = Field(description="Weight of each scorer asked.")
    timing_ms: Timing
    skipped: int = SKIPPED

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        if self.candidates:
            yield "best", self.candidates[0].index
            yield "combined", _shown(self.candidates[0].combined)
        yield from super().__repr_args__()


class _Loaded(Reply):
    scorer: str
    model: str = Field(description="`name:version`, as replies carry it.")
    digest: str = Field(description="SHA-256 over every file of the bundle that can change a score.")
    graph: str = Field(description="The graph that runs, such as `cpu-int8`.")


class ModelDescription(_Loaded):
    """One loaded bundle."""

    max_text_tokens: int = Field(
        description="Tokens that the model reads of one text, its marks included; for a scorer that reads the context "
        "and the response as one text, of both together."
    )
    max_turn_tokens: int = Field(
        description="Tokens that the model reads of a turn with its context, all texts together: `tokens.used` is at "
        "most this."
    )
    speaker: Speaker = Field(default="system", description="Whose turns it scores.")
    option_limits: dict[str, int] = Field(
        default_factory=dict,
        description="Bounds of one request's options for this scorer, such as FED's `own_follow_ups`.",
    )
    is_default: bool = Field(default=True, description="Whether requests that name no scorers ask it.")
    stand_in: bool = Field(
        default=False, description="Whether the model only stands in for the one that the scorer is meant for."
    )
    threshold: float | None = Field(
        default=None, description="Value below which a turn's `label` is `low`; null if there is no threshold."
    )
    threshold_percentile: float | None = Field(
        default=None, description="The threshold's percentile, as a score of that value would have it."
    )
    good_threshold: float | None = Field(
        default=None, description="Value from which a turn's `label` is `good`; null if there is no such threshold."
    )


class VersionDescription(_Loaded):
    """A candidate: another version of a served bundle."""

    role: str = Field(
        description="`split`: it answers some conversations instead of the served version. `shadow`: it scores some "
        "turns too, and its scores are not returned. There may be others."
    )
    share: float = Field(description="The share that it gets, from 0 to 1: of conversations, or of turns.")


class ModelsReply(Reply):
    """What this service has loaded, and how much it takes at once."""

    request_id: str
    models: list[ModelDescription]
    limits: Limits
    candidates: list[VersionDescription] = Field(
        default_factory=list,
        description="Other versions of these models that score a share; empty where there are none.",
    )


class HealthReply(Reply):
    """The answer of /livez and of a ready /readyz."""

    status: Literal["alive", "ready"]


class EncodedText(Reply):
    """What was read of one text."""

    tokens: TokenCount
    cached: bool = Field(description="Whether the text was read for an earlier request.")


class TextSimilarities(Reply):
    """How near one text is to each reference, or to each text where there are no references."""

    similarities: list[float] = Field(
        description="Cosines, -1 to 1, to six places, in the order of the request. A text with itself has 1."
    )
    best: int | None = Field(
        description="The place of the greatest, from 0, the first of equals; of texts that are compared with each "
        "other the text itself does not count. Null where there is no other."
    )
    tokens: TokenCount
    cached: bool = Field(description="Whether the text was read for an earlier request.")


class SimilarityReply(Reply):
    """Every text's similarities, in the order asked for."""

    request_id: str
    texts: list[TextSimilarities]
    references: list[EncodedText] = Field(
        default_factory=list, description="What was read of each; empty where the request has none."
    )
    model: str = Field(description="The bundle that answered, as `name:version`.")
    digest: str = Field(description="SHA-256 over every file of that bundle that can change a similarity.")
    timing_ms: Timing
