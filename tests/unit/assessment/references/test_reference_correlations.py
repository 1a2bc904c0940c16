"""Correlation with ratings: against scipy, against copied rows, and where nothing can be said."""

import math

import numpy as np
import pytest
from scipy import stats
from turnscore_assessment.figures import williams_test
from turnscore_assessment.references.evaluation import correlate_contexts

GENERATOR = np.random.default_rng(0)
RATINGS = GENERATOR.integers(1, 6, 60).astype(float)
SCORES = RATINGS + GENERATOR.normal(0, 2, 60).round(0)
CONTEXTS = [str(number // 4) for number in range(60)]


def test_both_correlations_are_scipy_s():
    found = correlate_contexts(SCORES, RATINGS, CONTEXTS)
    assert found.pearson.value == pytest.approx(stats.pearsonr(SCORES, RATINGS).statistic)
    assert found.spearman.value == pytest.approx(stats.spearmanr(SCORES, RATINGS).statistic)
    assert (found.rows, found.contexts) == (60, 15)


def test_rows_of_one_context_do_not_make_an_interval_narrow():
    copied = np.tile(SCORES, 20), np.tile(RATINGS, 20)
    by_context = correlate_contexts(*copied, CONTEXTS * 20, rounds=200).pearson
    by_row = correlate_contexts(*copied, [str(n) for n in range(1200)], rounds=200).pearson
    assert by_context.high - by_context.low > 3 * (by_row.high - by_row.low)


@pytest.mark.parametrize("constant", [np.zeros(60), np.full(60, 0.1)])
def test_a_constant_column_correlates_with_nothing(constant: np.ndarray):
    found = correlate_contexts(constant, RATINGS, CONTEXTS)
    assert math.isnan(found.pearson.value)
    assert math.isnan(found.spearman.value)
    assert math.isnan(williams_test(constant, SCORES, RATINGS).p)


def test_williams_test_says_nothing_of_a_column_and_itself():
    assert math.isnan(williams_test(SCORES, SCORES, RATINGS).p)
    assert math.isnan(williams_test(SCORES[:3], RATINGS[:3] ** 2, RATINGS[:3]).p)
