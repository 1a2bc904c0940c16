"""The order of candidates: the formula, ties, failures, scorers without a percentile."""

import pytest
from turnscore_core.errors import DeadlineExceededError, FailedScoringError
from turnscore_core.scoring import Outcome
from turnscore_service.scheduling.pipeline import rank_candidates
from turnscore_wire import Score, TokenCount


def score(value, percentile):
    return Score(
        value=value, percentile=percentile, details={}, model="m:1", tokens=TokenCount(used=1, dropped=0), cached=False
    )


def placed(**percentiles):
    """An outcome of those percentiles; the values run the other way, so that they cannot make the order."""
    return Outcome(scores={name: score(-percentile, percentile) for name, percentile in percentiles.items()})


def order(outcomes, **weights):
    return [(each.index, each.combined) for each in rank_candidates(outcomes, weights)]


def test_the_combined_score_is_the_weighted_mean_of_percentiles():
    outcomes = [placed(engagement=10, fed=90), placed(engagement=40, fed=60)]
    assert order(outcomes, engagement=1, fed=3) == [(0, pytest.approx(70)), (1, pytest.approx(55))]
    assert order(outcomes, engagement=3, fed=1) == [(1, pytest.approx(45)), (0, pytest.approx(30))]


def test_where_no_candidate_can_be_ranked_the_first_counting_error_is_raised():
    outcomes = [
        Outcome(scores={"fed": score(1, 1)}, errors={"engagement": DeadlineExceededError("late")}),
        Outcome(errors={"fed": FailedScoringError("broken"), "engagement": FailedScoringError("broken")}),
    ]
    with pytest.raises(DeadlineExceededError):
        rank_candidates(outcomes, {"fed": 1, "engagement": 1})


def test_without_percentiles_a_scorer_places_candidates_among_themselves():
    values = [1.0, 3.0, 2.0, 2.0, 0.5]
    outcomes = [Outcome(scores={"fed": score(value, None)}) for value in values]
    assert order(outcomes, fed=1) == [(1, 100.0), (2, 62.5), (3, 62.5), (0, 25.0), (4, 0.0)]


def test_a_failed_candidate_does_not_move_the_places_of_the_others():
    outcomes = [
        Outcome(scores={"fed": score(1, None)}),
        Outcome(scores={"fed": score(9, None)}, errors={"engagement": FailedScoringError("broken")}),
        Outcome(scores={"fed": score(2, None)}),
    ]
    for outcome in (outcomes[0], outcomes[2]):
        outcome.scores["engagement"] = score(0, 50)
    assert order(outcomes, fed=1, engagement=1) == [(2, 75.0), (0, 25.0), (1, None)]
