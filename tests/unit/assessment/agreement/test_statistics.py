"""Our statistics against scikit-learn's and SciPy's."""

import math

import numpy as np
import pytest
from sklearn import metrics
from turnscore_assessment.figures import (
    compute_auc,
    compute_balanced_accuracy,
    compute_partial_correlation,
    compute_pearson,
    compute_spearman,
    find_best_threshold,
)

GENERATOR = np.random.default_rng(3)
LABELS = GENERATOR.integers(0, 2, 200)
SCORES = np.round(GENERATOR.normal(size=200) + LABELS * 0.7, 1)
OTHER = GENERATOR.normal(size=200) + SCORES


def test_auc_equals_scikit_learns_with_ties() -> None:
    assert compute_auc(SCORES, LABELS) == pytest.approx(metrics.roc_auc_score(LABELS, SCORES))


def test_balanced_accuracy_equals_scikit_learns() -> None:
    expected = metrics.balanced_accuracy_score(LABELS, SCORES >= 0.3)
    assert compute_balanced_accuracy(SCORES, LABELS, 0.3) == pytest.approx(expected)


@pytest.mark.parametrize("ranks", [False, True])
def test_partial_correlation_equals_the_textbook_formula(ranks: bool) -> None:
    given = GENERATOR.normal(size=200) + SCORES
    correlate = compute_spearman if ranks else compute_pearson
    xy, xz, yz = correlate(SCORES, OTHER), correlate(SCORES, given), correlate(OTHER, given)
    expected = (xy - xz * yz) / math.sqrt((1 - xz**2) * (1 - yz**2))
    assert compute_partial_correlation(SCORES, OTHER, given, ranks=ranks) == pytest.approx(expected)


def test_a_constant_has_no_partial_correlation() -> None:
    constant = np.full(len(SCORES), 7.0)
    assert math.isnan(compute_partial_correlation(constant, SCORES, OTHER, ranks=True))


def test_one_class_or_a_constant_gives_nan() -> None:
    assert math.isnan(compute_auc([1, 2], [1, 1]))
    assert math.isnan(compute_balanced_accuracy([1, 2], [0, 0]))
    assert math.isnan(compute_pearson([1, 1], [1, 2]))


def test_best_threshold_beats_every_other() -> None:
    best = compute_balanced_accuracy(SCORES, LABELS, find_best_threshold(SCORES, LABELS))
    assert all(best >= compute_balanced_accuracy(SCORES, LABELS, other) for other in SCORES)
