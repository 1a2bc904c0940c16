"""Worker statistics, quality control, system scores and tests, on studies made up here."""

import math

import numpy as np
import pytest
from scipy import stats
from support.studies import make_study
from turnscore_assessment.analysis.study_report import build_report
from turnscore_assessment.figures import find_interval, find_resampled_p
from turnscore_assessment.ratings.rating_file import (
    RatedDialogue,
    RatingFile,
    StudyDescription,
    build_table,
    measure_workers,
    standardize,
)
from turnscore_assessment.ratings.scoring import (
    ControlVerdict,
    choose_rows,
    compare_ranks,
    control_quality,
    resample_systems,
    sum_values,
)

TRUTH = {"A": 75.0, "B": 60.0, "C": 60.0, "D": 30.0}


def build(*rows: tuple[str, str, float, float]) -> RatingFile:
    """Rows of (worker, system, fun, dull); the system `bad` is degraded."""
    description = StudyDescription.model_validate(
        {"study": "s", "criteria": [{"name": "fun"}, {"name": "dull", "direction": "negative"}]}
    )
    return RatingFile(
        description,
        [
            RatedDialogue(
                worker=worker, hit="h", system=system, degraded=system == "bad", ratings={"fun": fun, "dull": dull}
            )
            for worker, system, fun, dull in rows
        ],
    )


def test_a_workers_statistics_are_over_all_criteria_and_the_degraded_system() -> None:
    table = build_table(build(("w", "A", 80, 20), ("w", "bad", 10, 50), ("v", "A", 40, 40)))
    workers = dict(zip(table.workers, zip(*measure_workers(table), strict=True), strict=True))
    assert workers["w"] == pytest.approx((np.mean([80, 80, 10, 50]), np.std([80, 80, 10, 50], ddof=1)))
    z = standardize(table)
    assert z[0] == pytest.approx((80 - workers["w"][0]) / (workers["w"][1] + 1e-6))


def test_workers_pass_who_rate_the_degraded_system_lower() -> None:
    rows = [(worker, f"S{number}", 60.0 + number, 10.0) for worker in ("earnest", "tired") for number in range(6)]
    rows += [("earnest", "bad", 5.0 + number, 90.0) for number in range(3)]
    rows += [("tired", "bad", 62.0 + number, 90.0) for number in range(3)]
    rows += [("constant", "S1", 50.0, 50.0), ("constant", "bad", 50.0, 50.0), ("new", "S1", 50.0, 40.0)]
    outcomes = {each.worker: each for each in control_quality(build_table(build(*rows)))}
    assert {name: each.verdict for name, each in outcomes.items()} == {
        "earnest": ControlVerdict.PASSED,
        "tired": ControlVerdict.NOT_LOWER,
        "constant": ControlVerdict.CONSTANT,
        "new": ControlVerdict.NOT_YET,
    }
    degraded, ordinary = [5.0, 6.0, 7.0], [60.0, 61, 62, 63, 64, 65]
    assert outcomes["earnest"].p == stats.mannwhitneyu(degraded, ordinary, alternative="less").pvalue
    assert math.isnan(outcomes["new"].p)
    assert (outcomes["earnest"].degraded_ratings, outcomes["earnest"].ordinary_ratings) == (3, 6)


def test_the_study_chooses_the_criteria_and_the_p_of_its_quality_control() -> None:
    rows = [("w", f"S{number}", 50.0, 60.0 + number) for number in range(6)]
    rows += [("w", "bad", 50.0, 90.0 + number) for number in range(3)]
    study = build(*rows)
    assert control_quality(build_table(study))[0].verdict is ControlVerdict.NOT_LOWER
    described = study.description.model_dump()
    described["criteria"][1]["in_quality_control"] = True
    described["criteria"][0]["in_quality_control"] = False
    chosen = RatingFile(StudyDescription.model_validate(described), study.dialogues)
    [outcome] = control_quality(build_table(chosen))
    assert outcome.passes
    described["quality_control_p"] = outcome.p
    strict = RatingFile(StudyDescription.model_validate(described), study.dialogues)
    assert not control_quality(build_table(strict))[0].passes


def test_a_simulated_study_gives_the_true_order_and_leaves_out_who_guesses() -> None:
    study = make_study(TRUTH, workers=30, guessers=10, dialogues_each=2)
    report = build_report(study, 300, 0)
    passing = {worker.worker for worker in control_quality(build_table(study)) if worker.passes}
    assert len(passing) == report.passing
    assert len([name for name in passing if int(name.split("-")[1]) >= 30]) <= 2
    assert len(passing) >= 28
    order = [system.system for system in report.systems]
    assert (order[0], order[3]) == ("A", "D")
    clear = {(pair.first, pair.second) for pair in report.pairs if pair.p_holm < 0.05}
    assert clear >= {("A", "B"), ("A", "C"), ("A", "D"), ("B", "D"), ("C", "D")}
    [even] = [pair for pair in report.pairs if {pair.first, pair.second} == {"B", "C"}]
    assert even.p_holm >= even.p_two_sided > 0.05
    assert even.difference.low < 0 < even.difference.high
    assert report.agreement["passed"].median > 0.5 > abs(report.agreement["failed"].median)


def test_an_interval_of_resamples_and_its_p_never_say_the_opposite() -> None:
    generator = np.random.default_rng(0)
    verdicts = []
    for place in np.linspace(-3, 3, 301):
        drawn = generator.normal(place, 1, 200)
        interval, p = find_interval(place, drawn, 9), find_resampled_p(drawn, 9)
        verdicts.append(p < 0.05)
        assert verdicts[-1] == (not interval.low <= 0 <= interval.high)
    assert 50 < sum(verdicts) < 250
    assert math.isnan(find_resampled_p([], 9))
    for pair in build_report(make_study(TRUTH, workers=12), 200, 0).pairs:
        assert (pair.p_workers < 0.05) == (not pair.difference.low <= 0 <= pair.difference.high)


def test_resampling_draws_whole_workers_and_repeats_itself() -> None:
    table = build_table(make_study({"A": 70, "B": 50}, workers=20, noise=4))
    chosen = choose_rows(table, np.ones(20, dtype=np.bool_))
    sums = sum_values(table, table.ratings, chosen)
    draws = resample_systems(sums, 120, seed=3)
    assert np.array_equal(draws, resample_systems(sums, 120, seed=3))
    workers = np.array(
        [table.ratings[chosen & (table.worker_of == worker) & (table.system_of == 0)].mean() for worker in range(20)]
    )
    assert draws[:, 0, -1].std() == pytest.approx(workers.std() / np.sqrt(20), rel=0.25)
    assert len(resample_systems(sum_values(table, table.ratings, chosen & (table.worker_of < 2)), 50, seed=0)) == 0


def test_values_that_differ_by_rounding_are_ties() -> None:
    """The mean of the same ratings in another order: a tie, which a bare Mann-Whitney test does not see."""
    left = np.array([0.1 + 0.2, 0.7, 0.9, 1.4, 2.0, 2.2, 3.1, 3.3, 4.0])
    right = np.array([0.3, 0.7 + 1e-16, 0.8, 1.0, 1.4 - 2e-16, 1.6, 2.0, 2.2, 2.7])
    tied = (
        np.array([0.3, 0.7, 0.9, 1.4, 2.0, 2.2, 3.1, 3.3, 4.0]),
        np.array([0.3, 0.7, 0.8, 1.0, 1.4, 1.6, 2.0, 2.2, 2.7]),
    )
    for scale in (1.0, 1e-8, 1e8):
        found = compare_ranks(left * scale, right * scale, "two-sided")
        assert found == stats.mannwhitneyu(*tied, alternative="two-sided", method="auto").pvalue
    assert stats.mannwhitneyu(left, right).pvalue != found
