"""The difference of two systems: its interval covers, its p-value is honest, its parts are the textbook's."""

from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats
from turnscore_assessment.comparison.comparison import measure_length_effect
from turnscore_assessment.comparison.difference import (
    find_needed_dialogues,
    find_power,
    find_smallest_difference,
    measure_difference,
)
from turnscore_assessment.errors import TooFewError
from turnscore_assessment.figures import Floats

Draw = Callable[[np.random.Generator, int], Floats]

GENERATOR = np.random.default_rng(11)
A = GENERATOR.gamma(2, 1, 60) + 0.8
B = GENERATOR.gamma(2, 1, 50)


def test_p_value_and_interval_are_near_welchs_where_that_holds() -> None:
    x, y = np.random.default_rng(1).normal(0.4, 1, (2, 300)) * [[1], [0.5]]
    found = measure_difference(x, y, paired=False, rounds=4000)
    welch = stats.ttest_ind(x, y, equal_var=False)
    interval = welch.confidence_interval()
    assert found.p_value == pytest.approx(welch.pvalue, abs=0.02)
    assert (found.difference.low, found.difference.high) == pytest.approx((interval.low, interval.high), abs=0.02)


DRAWS = {
    "normal": lambda generator, count: generator.normal(0, 1, count),
    "beta": lambda generator, count: generator.beta(0.6, 3, count),
    "ties": lambda generator, count: generator.integers(0, 3, count).astype(float),
    "unequal": lambda generator, count: generator.normal(0, generator.uniform(0.2, 4), count),
}


@pytest.mark.parametrize("paired", [True, False])
@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
def test_the_interval_excludes_0_exactly_where_p_is_below_the_level(draw: Draw, paired: bool) -> None:
    generator = np.random.default_rng(3)
    decided = 0
    for seed in range(60):
        sizes = generator.integers(6, 25, 2)
        x, y = draw(generator, sizes[0]), draw(generator, sizes[int(not paired)])
        x = x + 0.7 * y.std()
        found = measure_difference(x, y, paired=paired, rounds=300, seed=seed)
        assert found.p_value is not None
        assert found.difference.low <= found.difference.value <= found.difference.high
        assert (found.difference.low > 0 or found.difference.high < 0) == (found.p_value < 0.05)
        decided += found.p_value < 0.05
    assert 0 < decided < 60


def test_few_dialogues_are_tested_by_all_their_arrangements() -> None:
    apart = measure_difference([1, 2, 3, 4], [6, 7, 8, 9.5], paired=False)
    paired = measure_difference([1, 2, 3, 4, 5, 6], [2, 3, 4, 5, 7, 8], paired=True)
    assert (apart.p_value, paired.p_value) == (2 / 70, 2 / 64)


def test_effect_size_and_superiority_are_the_definitions() -> None:
    found = measure_difference(A, B, paired=False)
    pooled = np.sqrt((A.var(ddof=1) + B.var(ddof=1)) / 2)
    assert found.effect is not None
    assert found.effect == pytest.approx((A.mean() - B.mean()) / pooled * (1 - 3 / (4 * 108 - 1)))
    assert found.superiority == pytest.approx(stats.mannwhitneyu(A, B).statistic / (60 * 50))
    ties = measure_difference([1, 2, 3, 3, 5, 6], [1, 1, 3, 4, 4, 5], paired=True)
    assert ties.superiority == (3 + 2 * 0.5) / 6


@pytest.mark.parametrize("paired", [True, False])
def test_scores_that_differ_by_rounding_are_the_same(paired: bool) -> None:
    found = measure_difference([0.1 + 0.2] * 8, [0.3] * 8, paired=paired)
    assert (found.p_value, found.effect, found.difference.low, found.difference.high) == (None, None, 0, 0)


def test_too_few_dialogues_are_refused() -> None:
    with pytest.raises(TooFewError, match="3 dialogues of a system; at least 4 are needed"):
        measure_difference([1, 2, 3], [1, 2, 3, 4], paired=False)
    with pytest.raises(TooFewError, match="5 pairs of dialogues; at least 6 are needed"):
        measure_difference(np.arange(5), np.arange(5) + 1, paired=True)


@pytest.mark.parametrize(("difference", "needed"), [(0.1, 365), (0.2, 92), (0.3, 42)])
def test_dialogues_needed_are_those_of_the_t_test(difference: float, needed: int) -> None:
    """With the published study's deviation of .481: one more than by the normal formula, 364, 91 and 41."""
    found = find_needed_dialogues(difference, 0.481, paired=False)
    assert found == needed
    assert (
        find_power(difference, 0.481, needed, paired=False)
        >= 0.8
        > find_power(difference, 0.481, needed - 1, paired=False)
    )
    assert find_smallest_difference(0.481, needed, paired=False) == pytest.approx(difference, rel=0.02)


def test_length_that_makes_a_difference_is_named() -> None:
    lengths = GENERATOR.normal(20, 4, (2, 80)) + np.array([[6], [0]])
    x, y = 0.1 * lengths + GENERATOR.normal(0, 0.3, (2, 80))
    found = measure_difference(x, y, paired=False)
    effect = measure_length_effect("words", found, (x, y), (lengths[0], lengths[1]), is_decided=True)
    assert found.difference.low > 0
    assert effect is not None
    assert effect.warning == "words: at equal length there is no visible difference"
    assert effect.explained == pytest.approx(1, abs=0.3)


def test_a_difference_at_equal_length_only_must_hold_for_all_that_was_tested() -> None:
    generator = np.random.default_rng(6)
    lengths = generator.normal(20, 4, (2, 30)) - np.array([[3], [0]])
    x, y = 0.1 * lengths + generator.normal(0, 0.4, (2, 30)) + np.array([[0.3], [0]])
    found = measure_difference(x, y, paired=False)
    one, many = (
        measure_length_effect("words", found, (x, y), (lengths[0], lengths[1]), is_decided=False, tests=tests)
        for tests in (1, 1000)
    )
    assert one is not None
    assert many is not None
    assert one.warning == "words: only at equal length is there a visible difference"
    assert many.warning is None


def test_length_that_only_goes_with_the_system_cannot_be_told_apart_from_it() -> None:
    x, y = GENERATOR.normal(1, 0.2, 30), GENERATOR.normal(0, 0.2, 30)
    found = measure_difference(x, y, paired=False)
    effect = measure_length_effect("turns", found, (x, y), ([12] * 30, [8] * 30), is_decided=True)
    assert effect is not None
    assert effect.warning == "turns: length and system cannot be separated"
    assert measure_length_effect("turns", found, (x, y), ([8] * 30, [8] * 30), is_decided=True) is None


def test_the_regression_has_hc3_errors() -> None:
    """HC3 as MacKinnon and White define it, with matrices in place of sums."""
    x, y = np.array([1.0, 2, 4, 3, 2, 5]), np.array([0.5, 1, 2, 2.5, 3, 1])
    m, n = np.array([1.0, 2, 3, 5, 4, 2]), np.array([2.0, 1, 2, 2, 3, 1])
    found = measure_difference(x, y, paired=True)
    effect = measure_length_effect("words", found, (x, y), (m, n), is_decided=False)
    design = np.column_stack([np.ones(6), m - n])
    hat = design @ np.linalg.inv(design.T @ design) @ design.T
    rests = ((np.eye(6) - hat) @ (x - y)) / (1 - np.diag(hat))
    inverse = np.linalg.inv(design.T @ design)
    error = np.sqrt((inverse @ design.T @ np.diag(rests**2) @ design @ inverse)[0, 0])
    value = (inverse @ design.T @ (x - y))[0]
    assert effect is not None
    assert effect.at_equal_length is not None
    assert effect.at_equal_length.value == pytest.approx(value)
    assert effect.at_equal_length.high == pytest.approx(value + stats.t.ppf(0.975, 4) * error)
