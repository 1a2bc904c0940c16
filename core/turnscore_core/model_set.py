"""The model set: the loaded scorers by name, which of them are asked by default, and combinations of them.

A combination is a score that a deployment makes of several scorers' parts, by weights, under a name of its own. It is
asked for like a scorer; nothing is computed or kept for it: its scorers are asked and their parts are summed.
"""

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from dataclasses import field as dataclass_field
from typing import TypeVar

from pydantic import JsonValue
from turnscore_models.manifest import BundleError
from turnscore_wire import ModelDescription, Score, ScoreRequest, Speaker, TokenCount
from turnscore_wire.requests import NO_RESPONSE, ScorerChoice

from turnscore_core.errors import FailedScoringError, InvalidRequestError, NotComputableError
from turnscore_core.loaded_scorer import LoadedScorer
from turnscore_core.scorers.scorer import interpolate
from turnscore_core.scoring import ComponentOptions, Outcome


@dataclass(frozen=True, kw_only=True)
class Combination:
    """The weighted sum of parts: `quality` is a scorer's value, `quality.relevant` one of its details."""

    name: str
    weights: Mapping[str, float]
    # The values of reference turns at each whole percentile; None where none are known.
    percentiles: Sequence[float] | None = None
    threshold: float | None = None

    @property
    def scorers(self) -> tuple[str, ...]:
        """Those whose parts it is made of, in order."""
        return tuple(dict.fromkeys(part.partition(".")[0] for part in self.weights))

    def combine(self, found: Mapping[str, Score]) -> Score:
        """The score of one turn.

        Raises FailedScoringError where a scorer did not give the part that is weighed, or the sum is no number.
        """
        parts = {part: _read_part(part, found) for part in self.weights}
        scores = [found[name] for name in self.scorers]
        value = sum(weight * parts[part] for part, weight in self.weights.items())
        if not math.isfinite(value):
            raise NotComputableError(f"the weighted sum {self.name} is larger than a number can be")
        is_comparable = all(each.percentile is not None for each in scores)
        percentile = label = None
        if is_comparable and self.percentiles is not None:
            percentile = interpolate(value, self.percentiles)
        if is_comparable and self.threshold is not None:
            label = "low" if value < self.threshold else "fair"
        return Score(
            value=value,
            percentile=percentile,
            details=parts,
            model="+".join(each.model for each in scores),
            tokens=TokenCount(
                used=sum(each.tokens.used for each in scores),
                dropped=sum(each.tokens.dropped for each in scores),
                truncated=any(each.tokens.truncated for each in scores),
            ),
            cached=all(each.cached for each in scores),
            warnings=list(dict.fromkeys(warning for each in scores for warning in each.warnings)),
            label=label,
            stand_in=any(each.stand_in for each in scores),
        )

    def describe(self, scorers: Mapping[str, LoadedScorer], *, is_default: bool) -> ModelDescription:
        """As a loaded bundle is described; its digest is over all that can change a score."""
        behind = [scorers[name] for name in self.scorers]
        content = "\n".join([*(each.bundle.digest for each in behind), *map(repr, sorted(self.weights.items()))])
        known = None if self.threshold is None or self.percentiles is None else self.percentiles
        return ModelDescription(
            scorer=self.name,
            model="+".join(each.bundle.manifest.reference for each in behind),
            digest=hashlib.sha256(content.encode()).hexdigest(),
            graph="combination",
            max_text_tokens=min(each.bundle.manifest.token_limit for each in behind),
            max_turn_tokens=sum(each.scorer.max_turn_tokens(each.bundle.manifest.token_limit) for each in behind),
            is_default=is_default,
            stand_in=any(each.bundle.manifest.stand_in for each in behind),
            threshold=self.threshold,
            threshold_percentile=None if known is None else interpolate(self.threshold or 0.0, known),
        )


Combinations = Mapping[str, Combination]


def component_scorers(names: Iterable[str], combinations: Combinations) -> Iterable[str]:
    """The scorers to ask for these names, each once."""
    if not combinations:
        return names
    return dict.fromkeys(
        scorer for name in names for scorer in (combinations[name].scorers if name in combinations else (name,))
    )


def add_combinations(asked: Iterable[str], outcome: Outcome, combinations: Combinations) -> None:
    """Puts the combinations that were asked into the outcome, and leaves in it what was asked alone, in order.

    A combination fails with the first error of a scorer that it is made of.
    """
    scores, errors = outcome.scores, outcome.errors
    outcome.scores, outcome.errors = {}, {}
    for name in asked:
        if name not in combinations:
            outcome.scores |= {name: scores[name]} if name in scores else {}
            outcome.errors |= {name: errors[name]} if name in errors else {}
            continue
        failed = next((errors[each] for each in combinations[name].scorers if each in errors), None)
        if failed is not None:
            outcome.errors[name] = failed
            continue
        try:
            outcome.scores[name] = combinations[name].combine(scores)
        except FailedScoringError as error:
            outcome.errors[name] = error


def _read_part(part: str, found: Mapping[str, Score]) -> float:
    scorer, _, detail = part.partition(".")
    score = found[scorer]
    if not detail:
        return score.value
    if detail not in score.details:
        raise FailedScoringError(f"{scorer} gave this turn no {detail}")
    return score.details[detail]


_KEPT_CHOICES = 256  # of at most some KB each. Chosen
QUALITY = "quality"  # the scorer that answers a ranking's question by itself


@dataclass(frozen=True, kw_only=True)
class ModelSet:
    """The loaded scorers by name, and which of them are asked where a request names none."""

    scorers: Mapping[str, LoadedScorer]
    defaults: Sequence[str]
    ranking: Sequence[str]  # the scorers that a ranking asks
    encoder: LoadedScorer | None = None  # the encoder that compares texts; it scores no turn
    combinations: Combinations = dataclass_field(default_factory=dict)
    # The names under which scorers work that stand here for the served ones, by scorer (split.py).
    versions: Mapping[str, str] = dataclass_field(default_factory=dict)
    # Choices of scorers without options that were found good, by speaker and names: most requests make the same.
    choices: dict[tuple[str, ...], dict[str, object]] = dataclass_field(default_factory=dict, init=False, compare=False)

    @property
    def loaded(self) -> dict[str, LoadedScorer]:
        return {**self.scorers, **({} if self.encoder is None else {self.encoder.name: self.encoder})}

    def speaker_of(self, name: str) -> Speaker:
        """Whose turns the scorer, or combination, of that name scores."""
        return self.scorers[name].speaker if name in self.scorers else "system"

    def asked_of(self, speaker: Speaker, asked: Mapping[str, object]) -> dict[str, object]:
        """Those of the scorers asked that score this speaker's turns."""
        return {name: options for name, options in asked.items() if self.speaker_of(name) == speaker}

    def behind(self, name: str) -> list[LoadedScorer]:
        """The scorer of that name, or those that the combination is made of."""
        return [self.scorers[each] for each in component_scorers((name,), self.combinations)]


def choose_defaults(
    scorers: Mapping[str, LoadedScorer], named: Sequence[str] = (), combinations: Combinations | None = None
) -> ModelSet:
    """The scorers and combinations in `named`, else all but stand-ins, or all if there are only stand-ins.

    Scorers of user turns are asked by name only. A ranking asks quality alone where it is one of them. Raises
    BundleError for a name that is not loaded, or is the encoder's or such a scorer's.
    """
    encoder = next((each for each in scorers.values() if each.scorer.vector_width), None)
    scorers = {name: each for name, each in scorers.items() if not each.scorer.vector_width}
    for name in named:
        if name not in scorers and name not in (combinations or {}):
            raise BundleError(
                f"TURNSCORE_DEFAULT_SCORERS names {name}, which is not loaded; loaded: {', '.join(scorers)}"
            )
        if name in scorers and scorers[name].speaker == "user":
            raise BundleError(
                f"TURNSCORE_DEFAULT_SCORERS names {name}, which scores user turns and is asked by name only"
            )
    of_system = [name for name, loaded in scorers.items() if loaded.speaker == "system"]
    meant = [name for name in of_system if not scorers[name].bundle.manifest.stand_in]
    defaults = tuple(dict.fromkeys(named)) or tuple(meant or of_system)
    return ModelSet(
        scorers=scorers,
        defaults=defaults,
        ranking=choose_ranking(defaults),
        encoder=encoder,
        combinations=combinations or {},
    )


def choose_ranking(defaults: Sequence[str]) -> Sequence[str]:
    """The scorers that a ranking asks where these are asked by default."""
    return (QUALITY,) if QUALITY in defaults else defaults


def describe_models(model_set: ModelSet) -> list[ModelDescription]:
    """The served bundles, and the combinations of them."""
    return [_describe(name, loaded, model_set) for name, loaded in model_set.loaded.items()] + [
        each.describe(model_set.scorers, is_default=each.name in model_set.defaults)
        for each in model_set.combinations.values()
    ]


def _describe(name: str, loaded: LoadedScorer, model_set: ModelSet) -> ModelDescription:
    return ModelDescription(
        scorer=name,
        model=loaded.model,
        digest=loaded.bundle.digest,
        graph=loaded.variant,
        max_text_tokens=loaded.bundle.manifest.token_limit,
        max_turn_tokens=loaded.scorer.max_turn_tokens(loaded.bundle.manifest.token_limit),
        speaker=loaded.speaker,
        option_limits=dict(loaded.scorer.option_limits),
        is_default=name in model_set.defaults,
        stand_in=loaded.bundle.manifest.stand_in,
        threshold=loaded.threshold,
        threshold_percentile=loaded.threshold_percentile,
        good_threshold=loaded.good_threshold if loaded.threshold is not None else None,
    )


_Labelled = TypeVar("_Labelled", LoadedScorer, Combination)


def with_thresholds(known: Mapping[str, _Labelled], thresholds: Mapping[str, float | None]) -> Mapping[str, _Labelled]:
    """The scorers, or combinations, with those of these thresholds that are theirs."""
    if thresholds.keys().isdisjoint(known):
        return known
    changed = {name: replace(known[name], threshold=thresholds[name]) for name in known if name in thresholds}
    return {**known, **changed}


def read_options(loaded: LoadedScorer, options: Mapping[str, JsonValue]) -> object:
    """As the scorer's own; the field is named from the request's root."""
    try:
        return loaded.scorer.read_options(options)
    except InvalidRequestError as error:
        raise InvalidRequestError(error.message, field=f"options.{loaded.kind}.{error.field}") from None


def read_choice(request: ScorerChoice, model_set: ModelSet, defaults: Sequence[str]) -> dict[str, object]:
    """The scorers that a request asks, in order, each with its options as its `read_options` made them.

    The options of a combination's scorers are given under the scorers' names. Raises InvalidRequestError for a name
    that is not loaded and for an option that its scorer does not know.
    """
    scorers, combinations = model_set.scorers, model_set.combinations
    known = ", ".join((*scorers, *combinations))
    for field, names in (("scorers", request.scorers), ("options", request.options)):
        for place, name in enumerate(names or ()):
            if name not in scorers and (field == "options" or name not in combinations):
                where = place if field == "scorers" else name
                raise InvalidRequestError(f"no such scorer is loaded; loaded: {known}", field=f"{field}.{where}")
    if not scorers:
        raise InvalidRequestError("no scorer of turns is loaded", field="scorers")
    asked = dict.fromkeys((*defaults, *(request.options or ())) if request.scorers is None else request.scorers)
    if not asked:
        raise InvalidRequestError(f"no scorer is asked by default; loaded: {known}", field="scorers")
    given = request.options or {}
    return {
        name: ComponentOptions(
            {each.kind: read_options(each, given.get(each.kind, {})) for each in model_set.behind(name)}
        )
        if name in combinations
        else read_options(scorers[name], given.get(name, {}))
        for name in asked
    }


def read_score_choice(request: ScoreRequest, model_set: ModelSet) -> dict[str, object]:
    """As `read_choice`, of one turn, of whose speaker every scorer must be; not to be changed, as others get it too."""
    key = None if request.options else (request.speaker, *(request.scorers or ()))
    if key is not None and (known := model_set.choices.get(key)) is not None:
        return known
    asked = read_choice(request, model_set, model_set.defaults)
    if request.speaker == "user" and not request.is_speaker_given and model_set.asked_of("system", asked):
        raise InvalidRequestError(NO_RESPONSE, field="messages")
    check_speaker(request, asked, request.speaker, model_set)
    if key is not None:
        if len(model_set.choices) >= _KEPT_CHOICES:
            model_set.choices.clear()
        model_set.choices[key] = asked
    return asked


def check_speaker(request: ScorerChoice, asked: Mapping[str, object], speaker: Speaker, model_set: ModelSet) -> None:
    """Raises InvalidRequestError for a scorer that scores the other speaker's turns."""
    for name in asked:
        own = model_set.speaker_of(name)
        if own != speaker:
            given = (each for each in ("options", "weights") if name in (getattr(request, each, None) or ()))
            field = next((f"{each}.{name}" for each in given), "scorers")
            if request.scorers is not None:
                field = f"scorers.{request.scorers.index(name)}"
            raise InvalidRequestError(
                f"{name} scores turns of the {own}, but this is one of the {speaker}", field=field
            )
