"""Analysis of sheets: models, errors and transforms; designs recover the order, and intervals hold the truth."""

from dataclasses import replace

import numpy as np
import pytest
import simulate_designs as simulation
from simulate_designs import CRITERION, SimulatedRaters, StudySize, make_key, measure_recovery
from turnscore_assessment.designs.analysis import (
    analyse_criterion,
    average_by_system,
    build_choices,
    build_estimates,
    fit_choices,
    split_pairs,
    split_ranking,
    transform_answers,
)
from turnscore_assessment.designs.form import AskedCriterion, DesignKey, DesignKind, OptionTable, build_option_table
from turnscore_assessment.errors import TooFewError

WINS = {(0, 1): 7, (1, 0): 3, (0, 2): 6, (2, 0): 2, (1, 2): 5, (2, 1): 4, (3, 0): 1, (0, 3): 5, (2, 3): 3, (3, 2): 3}
RANKINGS = [(0, 1, 2, 3)] * 4 + [(1, 0, 3, 2)] * 3 + [(2, 0, 1, 3)] * 2 + [(3, 1, 0, 2)] + [(0, 2, 1, 3)] * 2


@pytest.mark.parametrize(
    ("penalty", "expected"),
    [(1e-9, [0.85753, -0.04731, -0.32436, -0.48586]), (0.01, [0.85431, -0.04816, -0.32345, -0.4827])],
)
def test_bradley_terry_is_choixs(penalty: float, expected: list[float]) -> None:
    """Constants from choix 0.4.1: opt_pairwise with alpha 0 and 0.01."""
    pairs = [pair for pair, count in WINS.items() for _ in range(count)]
    rows = [row for answer, pair in enumerate(pairs) for row in split_pairs([1, 2], list(pair), answer)]
    assert fit_choices(build_choices(rows, 4), penalty)[0] == pytest.approx(expected, abs=2e-5)


@pytest.mark.parametrize(
    ("penalty", "expected"),
    [(1e-9, [1.26974, 0.59248, -0.5191, -1.34312]), (0.01, [1.26317, 0.58886, -0.51648, -1.33555])],
)
def test_plackett_luce_is_choixs(penalty: float, expected: list[float]) -> None:
    """Constants from choix 0.4.1: opt_rankings with alpha 0 and 0.01."""
    rows = [row for answer, order in enumerate(RANKINGS) for row in split_ranking([1, 2, 3, 4], list(order), answer)]
    assert fit_choices(build_choices(rows, 4), penalty)[0] == pytest.approx(expected, abs=2e-5)


def test_best_and_worst_imply_five_of_six_pairs_and_a_tie_is_half_a_win_each() -> None:
    assert len(split_pairs([2, 1, 3, 2], [0, 1, 2, 3], 0)) == 5
    tie = split_pairs([1.5, 1.5], [0, 1], 0)
    assert [(chosen, weight) for chosen, _, weight, _ in tie] == [(0, 0.5), (1, 0.5)]


def test_influences_are_what_leaving_an_answer_out_does() -> None:
    pairs = [pair for pair, count in WINS.items() for _ in range(count)]
    rows = [row for answer, pair in enumerate(pairs) for row in split_pairs([1, 2], list(pair), answer)]
    strengths, influences = fit_choices(build_choices(rows, 4))
    without, _ = fit_choices(build_choices(rows[1:], 4))
    assert strengths - without == pytest.approx(influences[0], abs=0.02)
    assert influences.sum(axis=0) == pytest.approx(2 * 0.01 * np.linalg.pinv(np.eye(4)) @ np.zeros(4), abs=0.05)


def test_one_way_errors_are_those_of_cluster_means() -> None:
    """With equal clusters the error of a mean is that of the clusters' means."""
    generator = np.random.default_rng(1)
    values = (generator.normal(0, 2, (12, 1)) + generator.normal(0, 1, (12, 5))).ravel()
    raters, systems = np.repeat(np.arange(12), 5), np.zeros(60, dtype=np.intp)
    means, influences = average_by_system(values, systems, 1)
    interval, _ = build_estimates(means, influences, raters, np.zeros(60, dtype=np.intp)).contrast(np.ones(1))
    error = values.reshape(12, 5).mean(axis=1).std(ddof=1) / np.sqrt(12)
    assert interval.high - interval.value == pytest.approx(2.200985 * error)  # t of 11 degrees of freedom


def fill(kind: DesignKind, seed: int = 1, size: StudySize | None = None) -> tuple[DesignKey, OptionTable]:
    key = make_key(kind, size or StudySize(raters=6, per_rater=8, dialogues=12), seed)
    return key, build_option_table(key, SimulatedRaters(key, seed).answer())


def test_magnitudes_are_compared_on_a_logarithmic_scale_with_their_standard() -> None:
    key, table = fill(DesignKind.BIASED_MAGNITUDE)
    values, steps = transform_answers(key, CRITERION, table, "raw")
    assert values == pytest.approx(np.log((table.answer + 1) / (table.standard + 1)))
    assert steps == ["ln((answer + 1) / (standard + 1))"]
    zero = replace(table, answer=np.zeros_like(table.answer))
    assert np.isfinite(transform_answers(key, CRITERION, zero, "raw")[0]).all()


def test_z_takes_away_level_and_spread_and_says_so() -> None:
    key, table = fill(DesignKind.CONTINUOUS)
    stretched = replace(table, answer=table.answer * (1 + table.rater) + 7 * table.rater)
    values, steps = transform_answers(key, CRITERION, stretched, "z")
    assert values == pytest.approx(transform_answers(key, CRITERION, table, "z")[0])
    assert steps == ["z per rater and criterion, n - 1"]


@pytest.mark.parametrize("kind", [kind for kind in DesignKind if not kind.is_choice])
def test_a_negative_criterion_turns_the_order_round(kind: DesignKind) -> None:
    key, table = fill(kind)
    worse = AskedCriterion(name="dull", direction="negative")
    for place, scoring in enumerate(analyse_criterion(key, CRITERION, table, "z").scorings):
        turned = analyse_criterion(key, worse, table, "z").scorings[place]
        assert [each.system for each in turned.systems] == [each.system for each in scoring.systems][::-1]
        assert any("turned" in step or "reversed" in step for step in turned.transforms)


def test_counts_of_best_worst_are_best_less_worst_by_shown() -> None:
    key, table = fill(DesignKind.BEST_WORST)
    counted = analyse_criterion(key, CRITERION, table, "z").scorings[0]
    for each in counted.systems:
        own = table.answer[table.system == table.systems.index(each.system)]
        assert each.score.value == pytest.approx(((own == 1).sum() - (own == 3).sum()) / len(own))
        assert each.shown == len(own)


def test_a_rater_who_says_one_thing_is_left_out_of_z_scores_and_named() -> None:
    key, table = fill(DesignKind.LIKERT)
    flat = replace(table, answer=np.where(table.rater == 0, 3.0, table.answer))
    found = analyse_criterion(key, CRITERION, flat, "z")
    assert found.left_out == ["1 raters who gave one answer to everything"]
    with pytest.raises(TooFewError, match="quality: every rater gave one answer to everything"):
        analyse_criterion(key, CRITERION, replace(table, answer=np.full_like(table.answer, 3.0)), "z")


SIZE = StudySize(raters=16, per_rater=12, dialogues=24)
STUDIES = 16


@pytest.mark.parametrize("kind", [DesignKind.CONTINUOUS, DesignKind.BEST_WORST])
def test_each_design_recovers_the_order_and_its_intervals_cover(kind: DesignKind) -> None:
    for found in measure_recovery(kind, STUDIES, SIZE, truth_raters=80):
        assert found.rank_correlation > 0.78, found.method
        assert found.in_order > 0.84, found.method
        assert found.coverage > 0.88, found.method
        assert found.false_alarms <= 0.2, found.method


def test_systems_without_a_difference_are_not_put_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the test above can fail: a design that saw nothing would put half of the pairs in order."""
    blind = simulation.SimulatedRaters

    class Blind(blind):  # type: ignore[valid-type, misc]
        def __init__(self, key: object, seed: int) -> None:
            super().__init__(key, seed, (0.0,) * 5)

    monkeypatch.setattr(simulation, "SimulatedRaters", Blind)
    found = measure_recovery(DesignKind.LIKERT, STUDIES, SIZE, truth_raters=50)[0]
    assert 0.2 < found.in_order < 0.8
    assert found.seen < 0.1
