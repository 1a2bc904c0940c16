"""The simulation of docs/compare.md, made small: it finds who keeps a promise, and who does not."""

import pytest
import simulate_comparisons as simulation
from scipy import stats
from simulate_comparisons import count_calls, count_false_verdicts, draw_ratings, draw_skewed

STUDIES = 200
MOST_FALSE = stats.binom.ppf(0.99, STUDIES, 0.05) / STUDIES


@pytest.mark.parametrize("draw", simulation.DRAWS.values(), ids=simulation.DRAWS)
def test_betting_keeps_five_percent_whatever_is_drawn(draw: simulation.Draw) -> None:
    assert count_calls("betting", draw, STUDIES)[0] <= MOST_FALSE


def test_the_others_do_not() -> None:
    assert count_calls("asymptotic", draw_ratings, STUDIES)[0] <= MOST_FALSE
    assert count_calls("asymptotic", draw_skewed, STUDIES, seed=1)[0] > 0.05
    assert count_calls("t-test", draw_ratings, STUDIES)[0] > 0.3


def test_the_printed_verdict_calls_equal_systems_different_in_five_percent() -> None:
    """Of 200 studies, with the 1 % bounds of a binomial; docs/compare.md has larger simulations."""
    found = count_false_verdicts(*simulation.SCORES["gamma(2)"], (10, 40), STUDIES, paired=False, rounds=399)
    assert stats.binom.ppf(0.01, STUDIES, 0.04) <= round(found * STUDIES) <= stats.binom.ppf(0.99, STUDIES, 0.05)
