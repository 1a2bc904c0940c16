"""Our statistics against SciPy and scikit-learn; intervals on resamples that are really copied."""

import math
import tracemalloc

import numpy as np
import pytest
from scipy import stats
from sklearn import metrics
from turnscore_assessment import figures

DRAWN = np.random.default_rng(3)
LABELS = DRAWN.integers(0, 2, 200)
MARKS = np.round(DRAWN.normal(size=200) + LABELS * 0.7, 1)
OTHER = DRAWN.normal(size=200) + MARKS


def test_auc_with_ties_and_balanced_accuracy_are_scikit_learns():
    assert figures.compute_auc(MARKS, LABELS) == pytest.approx(metrics.roc_auc_score(LABELS, MARKS))
    expected = metrics.balanced_accuracy_score(LABELS, MARKS >= 0.3)
    assert figures.compute_balanced_accuracy(MARKS, LABELS, 0.3) == pytest.approx(expected)


def test_what_cannot_be_computed_is_nan():
    """Of three values a partial correlation would always be one."""
    assert math.isnan(figures.compute_auc([1, 2], [1, 1]))
    assert math.isnan(figures.compute_balanced_accuracy([1, 2], [0, 0]))
    assert math.isnan(figures.compute_pearson([1, 1], [1, 2]))
    assert math.isnan(figures.compute_partial_correlation(np.full(len(MARKS), 7.0), MARKS, OTHER, ranks=True))
    two, three = (
        figures.correlate_clustered(SCORES[:few], QUALITIES[:few], {"length": LENGTHS[:few]}, DIALOGUES[:few], 20, 0)
        for few in (2, 3)
    )
    assert math.isnan(two.pearson.value)
    assert [math.isnan(each.value) for each in (three.pearson, *three.given["length"].values())] == [False, True, True]
    assert not math.isnan(figures.compute_partial_correlation(SCORES[:4], QUALITIES[:4], LENGTHS[:4]))
    few = DIALOGUES < 2
    found = figures.correlate_clustered(SCORES[few], QUALITIES[few], {}, DIALOGUES[few], 20, 0).kendall
    assert found.value == figures.compute_kendall(SCORES[few], QUALITIES[few])
    assert math.isnan(found.low)


@pytest.mark.parametrize("ranks", [False, True])
def test_partial_correlation_equals_the_textbook_formula(ranks):
    given = DRAWN.normal(size=200) + MARKS
    correlate = figures.compute_spearman if ranks else figures.compute_pearson
    xy, xz, yz = correlate(MARKS, OTHER), correlate(MARKS, given), correlate(OTHER, given)
    expected = (xy - xz * yz) / math.sqrt((1 - xz**2) * (1 - yz**2))
    assert figures.compute_partial_correlation(MARKS, OTHER, given, ranks=ranks) == pytest.approx(expected)


def test_best_threshold_beats_every_other():
    best = figures.compute_balanced_accuracy(MARKS, LABELS, figures.find_best_threshold(MARKS, LABELS))
    assert all(best >= figures.compute_balanced_accuracy(MARKS, LABELS, other) for other in MARKS)


GENERATOR = np.random.default_rng(5)
DIALOGUES = np.repeat(np.arange(20), GENERATOR.integers(1, 8, 20))
QUALITIES = np.round(GENERATOR.normal(size=len(DIALOGUES)) + GENERATOR.normal(size=20)[DIALOGUES], 1)
SCORES = np.round(QUALITIES * 0.5 + GENERATOR.normal(size=len(DIALOGUES)), 1)
LENGTHS = np.round(SCORES + GENERATOR.normal(size=len(DIALOGUES)), 1)
DRAWS = figures.draw_dialogues(20, 30, seed=1)


def copy_resample(drawn):
    """The places of a resample's observations, those of a dialogue drawn twice standing there twice."""
    return np.concatenate(
        [np.flatnonzero(dialogue == DIALOGUES) for dialogue in range(20) for _ in range(int(drawn[dialogue]))]
    )


def resample_pair(pair, dialogue_of, draws):
    return figures.resample_kendall(pair, dialogue_of, draws)[:, None, None].repeat(2, axis=2)


def test_resampled_areas_are_those_of_the_copied_resamples():
    labels = QUALITIES > 0
    chosen = [copy_resample(drawn) for drawn in DRAWS]
    expected = [figures.compute_auc(SCORES[each], labels[each]) for each in chosen]
    assert figures.resample_auc(SCORES, labels, DIALOGUES, DRAWS) == pytest.approx(expected)


COEFFICIENTS = [
    (figures.resample_pearson, stats.pearsonr),
    (figures.resample_spearman, stats.spearmanr),
    (resample_pair, stats.kendalltau),
]


@pytest.mark.parametrize(("resample", "expected"), COEFFICIENTS)
def test_resampled_coefficients_equal_scipys_on_the_copied_resample(resample, expected):
    found = resample(np.stack([SCORES, QUALITIES]), DIALOGUES, DRAWS)[:, 0, 1]
    chosen = [copy_resample(drawn) for drawn in DRAWS]
    assert found == pytest.approx([expected(SCORES[each], QUALITIES[each]).statistic for each in chosen])


def test_resampled_kendall_holds_no_table_of_all_pairs_of_dialogues():
    count = 1200
    pair = np.random.default_rng(2).normal(size=(2, count))
    draws = figures.draw_dialogues(count, 2, seed=1)
    tracemalloc.start()
    try:
        found = figures.resample_kendall(pair, np.arange(count), draws)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < count**2 * pair.itemsize / 2
    copied = np.repeat(pair, draws[0].astype(int), axis=1)
    assert found[0] == pytest.approx(stats.kendalltau(*copied).statistic)


def test_points_equal_scipys_and_lie_in_their_intervals():
    found = figures.correlate_clustered(SCORES, QUALITIES, {"length": LENGTHS}, DIALOGUES, 300, 0)
    assert found.pearson.value == pytest.approx(stats.pearsonr(SCORES, QUALITIES).statistic)
    assert found.spearman.value == pytest.approx(stats.spearmanr(SCORES, QUALITIES).statistic)
    assert found.kendall.value == pytest.approx(stats.kendalltau(SCORES, QUALITIES).statistic)
    given = found.given["length"]
    assert given["spearman"].value == figures.compute_partial_correlation(SCORES, QUALITIES, LENGTHS, ranks=True)
    for interval in (found.pearson, found.spearman, found.kendall, *given.values()):
        assert interval.low < interval.value < interval.high


def test_resamples_in_which_the_score_is_constant_are_left_out():
    scores = np.where(DIALOGUES == 3, 0.7, 0.1)
    for resample in (figures.resample_pearson, figures.resample_spearman, resample_pair):
        found = resample(np.stack([scores, QUALITIES]), DIALOGUES, DRAWS)[:, 0, 1]
        assert np.isnan(found).tolist() == (DRAWS[:, 3] == 0).tolist()
