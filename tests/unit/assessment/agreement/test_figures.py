"""Our statistics against SciPy and scikit-learn; intervals on resamples that are really copied."""

import math
import tracemalloc

import numpy as np
import pytest
from scipy import stats
from sklearn import metrics
from turnscore_assessment.figures import (
    compute_auc,
    compute_balanced_accuracy,
    compute_kendall,
    compute_partial_correlation,
    compute_pearson,
    compute_spearman,
    correlate_clustered,
    draw_dialogues,
    find_best_threshold,
    resample_kendall,
    resample_pearson,
    resample_spearman,
)

DRAWN = np.random.default_rng(3)
LABELS = DRAWN.integers(0, 2, 200)
MARKS = np.round(DRAWN.normal(size=200) + LABELS * 0.7, 1)
OTHER = DRAWN.normal(size=200) + MARKS


def test_auc_equals_scikit_learns_with_ties() -> None:
    assert compute_auc(MARKS, LABELS) == pytest.approx(metrics.roc_auc_score(LABELS, MARKS))


def test_balanced_accuracy_equals_scikit_learns() -> None:
    expected = metrics.balanced_accuracy_score(LABELS, MARKS >= 0.3)
    assert compute_balanced_accuracy(MARKS, LABELS, 0.3) == pytest.approx(expected)


@pytest.mark.parametrize("ranks", [False, True])
def test_partial_correlation_equals_the_textbook_formula(ranks: bool) -> None:
    given = DRAWN.normal(size=200) + MARKS
    correlate = compute_spearman if ranks else compute_pearson
    xy, xz, yz = correlate(MARKS, OTHER), correlate(MARKS, given), correlate(OTHER, given)
    expected = (xy - xz * yz) / math.sqrt((1 - xz**2) * (1 - yz**2))
    assert compute_partial_correlation(MARKS, OTHER, given, ranks=ranks) == pytest.approx(expected)


def test_a_constant_has_no_partial_correlation() -> None:
    constant = np.full(len(MARKS), 7.0)
    assert math.isnan(compute_partial_correlation(constant, MARKS, OTHER, ranks=True))


def test_three_values_have_no_partial_correlation_as_it_would_be_one() -> None:
    found = correlate_clustered(SCORES[:3], QUALITIES[:3], {"length": LENGTHS[:3]}, DIALOGUES[:3], 20, 0)
    assert [math.isnan(each.value) for each in (found.pearson, *found.given["length"].values())] == [False, True, True]
    assert not math.isnan(compute_partial_correlation(SCORES[:4], QUALITIES[:4], LENGTHS[:4]))


def test_one_class_or_a_constant_gives_nan() -> None:
    assert math.isnan(compute_auc([1, 2], [1, 1]))
    assert math.isnan(compute_balanced_accuracy([1, 2], [0, 0]))
    assert math.isnan(compute_pearson([1, 1], [1, 2]))


def test_best_threshold_beats_every_other() -> None:
    best = compute_balanced_accuracy(MARKS, LABELS, find_best_threshold(MARKS, LABELS))
    assert all(best >= compute_balanced_accuracy(MARKS, LABELS, other) for other in MARKS)


GENERATOR = np.random.default_rng(5)
DIALOGUES = np.repeat(np.arange(20), GENERATOR.integers(1, 8, 20))
QUALITIES = np.round(GENERATOR.normal(size=len(DIALOGUES)) + GENERATOR.normal(size=20)[DIALOGUES], 1)
SCORES = np.round(QUALITIES * 0.5 + GENERATOR.normal(size=len(DIALOGUES)), 1)
LENGTHS = np.round(SCORES + GENERATOR.normal(size=len(DIALOGUES)), 1)
DRAWS = draw_dialogues(20, 30, seed=1)


def copy_resample(drawn):
    """The places of a resample's observations, those of a dialogue drawn twice standing there twice."""
    return np.concatenate(
        [np.flatnonzero(dialogue == DIALOGUES) for dialogue in range(20) for _ in range(int(drawn[dialogue]))]
    )


def resample_pair(pair, dialogue_of, draws):
    return resample_kendall(pair, dialogue_of, draws)[:, None, None].repeat(2, axis=2)


@pytest.mark.parametrize(
    ("resample", "expected"),
    [(resample_pearson, stats.pearsonr), (resample_spearman, stats.spearmanr), (resample_pair, stats.kendalltau)],
)
def test_resampled_coefficients_equal_scipys_on_the_copied_resample(resample, expected) -> None:
    found = resample(np.stack([SCORES, QUALITIES]), DIALOGUES, DRAWS)[:, 0, 1]
    chosen = [copy_resample(drawn) for drawn in DRAWS]
    assert found == pytest.approx([expected(SCORES[each], QUALITIES[each]).statistic for each in chosen])


def test_resampled_kendall_holds_no_table_of_all_pairs_of_dialogues() -> None:
    count = 1200
    pair = np.random.default_rng(2).normal(size=(2, count))
    draws = draw_dialogues(count, 2, seed=1)
    tracemalloc.start()
    try:
        found = resample_kendall(pair, np.arange(count), draws)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < count**2 * pair.itemsize / 2
    copied = np.repeat(pair, draws[0].astype(int), axis=1)
    assert found[0] == pytest.approx(stats.kendalltau(*copied).statistic)


def test_points_equal_scipys_and_lie_in_their_intervals() -> None:
    found = correlate_clustered(SCORES, QUALITIES, {"length": LENGTHS}, DIALOGUES, 300, 0)
    assert found.pearson.value == pytest.approx(stats.pearsonr(SCORES, QUALITIES).statistic)
    assert found.spearman.value == pytest.approx(stats.spearmanr(SCORES, QUALITIES).statistic)
    assert found.kendall.value == pytest.approx(stats.kendalltau(SCORES, QUALITIES).statistic)
    given = found.given["length"]
    assert given["spearman"].value == compute_partial_correlation(SCORES, QUALITIES, LENGTHS, ranks=True)
    for interval in (found.pearson, found.spearman, found.kendall, *given.values()):
        assert interval.low < interval.value < interval.high


@pytest.mark.parametrize("method", ["pearson", "spearman"])
def test_partial_intervals_come_from_partial_correlations_of_the_copied_resamples(method: str) -> None:
    found = correlate_clustered(SCORES, QUALITIES, {"length": LENGTHS}, DIALOGUES, 30, 1).given["length"][method]
    values = [
        compute_partial_correlation(SCORES[each], QUALITIES[each], LENGTHS[each], ranks=method == "spearman")
        for each in map(copy_resample, DRAWS)
    ]
    assert (found.low, found.high) == pytest.approx(tuple(np.percentile(values, [2.5, 97.5])))


def test_saying_everything_twice_in_a_dialogue_makes_nothing_surer() -> None:
    twice = np.repeat(np.arange(len(DIALOGUES)), 2)
    once = correlate_clustered(SCORES, QUALITIES, {}, DIALOGUES, 200, 0).pearson
    again = correlate_clustered(SCORES[twice], QUALITIES[twice], {}, DIALOGUES[twice], 200, 0).pearson
    assert (again.low, again.high) == pytest.approx((once.low, once.high))


def test_a_perfect_score_gives_one_everywhere_and_leaves_nothing_given_itself() -> None:
    found = correlate_clustered(QUALITIES, QUALITIES, {"itself": QUALITIES}, DIALOGUES, 100, 0)
    for interval in (found.pearson, found.spearman, found.kendall):
        assert (interval.value, interval.low, interval.high) == pytest.approx((1, 1, 1))
    assert math.isnan(found.given["itself"]["pearson"].value)
    assert math.isnan(found.given["itself"]["spearman"].high)


def test_resamples_in_which_the_score_is_constant_are_left_out() -> None:
    scores = np.where(DIALOGUES == 3, 0.7, 0.1)
    found = resample_pearson(np.stack([scores, QUALITIES]), DIALOGUES, DRAWS)[:, 0, 1]
    assert np.isnan(found).tolist() == (DRAWS[:, 3] == 0).tolist()
    ranks = resample_spearman(np.stack([scores, QUALITIES]), DIALOGUES, DRAWS)[:, 0, 1]
    assert (
        np.isnan(ranks).tolist() == np.isnan(resample_kendall(np.stack([scores, QUALITIES]), DIALOGUES, DRAWS)).tolist()
    )
    assert np.isnan(ranks).tolist() == np.isnan(found).tolist()


def test_two_observations_give_no_figure_and_two_dialogues_no_interval() -> None:
    assert math.isnan(correlate_clustered(SCORES[:2], QUALITIES[:2], {}, DIALOGUES[:2], 20, 0).pearson.value)
    few = DIALOGUES < 2
    found = correlate_clustered(SCORES[few], QUALITIES[few], {}, DIALOGUES[few], 20, 0).kendall
    assert found.value == compute_kendall(SCORES[few], QUALITIES[few])
    assert math.isnan(found.low)
