"""Ranking: puts candidates in order by their scores and the scorers' weights. Pure; docs/ranking.md has the formula."""

from collections.abc import Mapping, Sequence

from turnscore_core.scoring import Outcome, error_details
from turnscore_wire import RankedCandidate


def rank_candidates(outcomes: Sequence[Outcome], weights: Mapping[str, float]) -> list[RankedCandidate]:
    """The candidates, best first; equals, and those without a combined score, keep the order of `outcomes`.

    `weights` holds every scorer asked, at least one of them above 0. Raises the first error of a scorer that counts
    where it leaves no candidate with a combined score.
    """
    counting = {name: weight for name, weight in weights.items() if weight > 0}
    whole = [place for place, outcome in enumerate(outcomes) if all(name in outcome.scores for name in counting)]
    if not whole:
        raise next(outcome.errors[name] for outcome in outcomes for name in counting if name in outcome.errors)
    total = sum(counting.values())
    combined = dict.fromkeys(whole, 0.0)
    for name, weight in counting.items():
        for place, percentile in zip(whole, _percentiles(name, [outcomes[each] for each in whole]), strict=True):
            combined[place] += weight / total * percentile
    order = sorted(range(len(outcomes)), key=lambda place: -combined.get(place, -1.0))
    return [
        RankedCandidate(
            index=place,
            combined=combined.get(place),
            scores=outcomes[place].scores,
            errors=error_details(outcomes[place]),
        )
        for place in order
    ]


def _percentiles(name: str, outcomes: Sequence[Outcome]) -> list[float]:
    """Each candidate's place among the bundle's reference turns; among the candidates where those have none."""
    scores = [outcome.scores[name] for outcome in outcomes]
    known = [score.percentile for score in scores if score.percentile is not None]
    if len(known) == len(scores):
        return known
    values = [score.value for score in scores]
    return [_place_among(value, values) for value in values]


def _place_among(value: float, values: Sequence[float]) -> float:
    """Share of the other values, 0 to 100, that lie below this one, equal ones counting half; 50 where it is alone."""
    others = len(values) - 1
    below = sum(each < value for each in values)
    equal = sum(each == value for each in values) - 1
    return 100 * (below + equal / 2) / others if others else 50.0
